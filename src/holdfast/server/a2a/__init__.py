"""The endpoints under `/a2a`: agents for other agents, by the Agent2Agent protocol."""
