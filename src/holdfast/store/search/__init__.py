"""Search: what a word is, what a query matches, what a page of it may cost."""
