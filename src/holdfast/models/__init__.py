"""Models: one protocol, and the providers that implement it."""
