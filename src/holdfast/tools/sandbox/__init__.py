"""Where commands run: with the files that they were given, and nothing else of this machine."""
