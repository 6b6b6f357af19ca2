"""Who they are: agent files, sources, stable identity, teams."""
