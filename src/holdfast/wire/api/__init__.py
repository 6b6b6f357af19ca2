"""Our own API, `/api`: its bodies and answers as values."""
