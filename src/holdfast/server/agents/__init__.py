"""The agents of a server, and the models that they use."""
