"""Shared by every endpoint that runs a turn: attempts, answers, failures."""
