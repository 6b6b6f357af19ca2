"""Holdfast and its peers: how each is installed, started, asked and killed."""
