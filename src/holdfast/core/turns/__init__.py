"""One turn: its events, its journal, the fold over them, and how it ends or is taken up again."""
