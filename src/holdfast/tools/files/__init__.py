"""Files for tools: below given directories, and never those that the server lives by."""
