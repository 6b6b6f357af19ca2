"""Anthropic's Messages as clients ask us: requests in, answers and errors out."""
