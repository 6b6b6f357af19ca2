"""Tools: what a model can call, and how a call is run."""
