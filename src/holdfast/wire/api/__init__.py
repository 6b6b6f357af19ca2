"""Our own API, `/api`: the types of its requests and answers."""
