"""Asking a model over HTTP: connections, headers, counts."""
