"""Talking to an agent from a terminal: `holdfast chat`, and what `holdfast run` shares with it."""
