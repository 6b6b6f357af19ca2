"""Real clients, each in an environment of its own, against a real server process."""
