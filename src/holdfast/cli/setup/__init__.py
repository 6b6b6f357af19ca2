"""Setting up: a first agent, and the settings of clients."""
