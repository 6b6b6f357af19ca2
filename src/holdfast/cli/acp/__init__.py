"""`holdfast acp`: agents in an editor, by the Agent Client Protocol over standard input and output."""
