"""Models over HTTP: connections, headers, token counts."""
