"""A conversation between turns: its versions, its chain, and what of a request is new to it."""
