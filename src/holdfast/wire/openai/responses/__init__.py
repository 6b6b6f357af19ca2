"""Responses, in both directions: as clients ask us, and as we ask providers."""
