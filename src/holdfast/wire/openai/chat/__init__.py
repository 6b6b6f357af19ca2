"""Chat Completions, in both directions: from our clients, and to providers."""
