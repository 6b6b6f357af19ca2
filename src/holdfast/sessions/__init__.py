"""Who may touch a session, and when. The heart of Holdfast, usable without our agents or server."""
