"""The agent file: its YAML, its shapes, its versions, and what is made of them."""
