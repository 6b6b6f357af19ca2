"""The pages of a SQLite file, read without SQLite: which are damaged, what they hold, and how some are made anew."""
