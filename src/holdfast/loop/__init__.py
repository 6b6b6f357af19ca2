"""The player of turns: it asks the model, runs its tools, and asks the model again."""
