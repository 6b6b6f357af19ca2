"""The speed groups of the report card: each measures one thing, of every system that can be asked, side by side."""
