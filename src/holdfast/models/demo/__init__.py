"""The embedded model: no network, and the same answer every time."""
