"""Sessions out of a store and into one: exports, imports, copies."""
