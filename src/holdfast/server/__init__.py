"""The HTTP server: requests in, JSON answers and event streams out."""
