"""Search: what a word is, what a query matches, how much work a page may take."""
