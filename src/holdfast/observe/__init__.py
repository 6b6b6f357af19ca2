"""What can be seen of a running server: what happens, as log events, and how much of it, in numbers."""
