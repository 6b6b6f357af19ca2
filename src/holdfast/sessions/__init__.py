"""Sessions and their turns: which request may write a session, and when. Usable without our agents or server."""
