"""The Agent2Agent protocol, versions 1.0 and 0.3."""
