"""Chat Completions, in both directions: as clients ask us, and as we ask providers."""
