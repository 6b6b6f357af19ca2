"""The hooks of a turn: when each runs, and how a model is asked by one."""
