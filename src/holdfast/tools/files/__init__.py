"""File access for tools: below given directories only, and never to files that the server depends on."""
