"""The agent file: its YAML, its shapes, its versions, and the team that is made from it."""
