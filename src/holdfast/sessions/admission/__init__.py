"""From a request to a turn: recognised, queued, steered, begun."""
