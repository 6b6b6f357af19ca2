"""The toolsets of an agent file: their shapes, and the tools that are made of them."""
