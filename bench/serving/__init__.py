"""What takes part in measuring servers: a model that costs nothing, a client that decodes nothing, a bare proxy."""
