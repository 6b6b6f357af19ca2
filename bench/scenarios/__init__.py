"""What is asked of every system, and what is wrong with a conversation."""
