"""What agents write down: lists, memories, plans, tasks."""
