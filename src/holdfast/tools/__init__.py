"""What agents can do: tools, and how they are run."""
