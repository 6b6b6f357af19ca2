"""HTTP and WebSockets: listening sockets, connections, exchanges, routing."""
