"""Web access for tools: guarded addresses, bounded answers, pages as text."""
