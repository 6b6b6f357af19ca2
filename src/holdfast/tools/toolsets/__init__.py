"""The toolsets that an agent file may name."""
