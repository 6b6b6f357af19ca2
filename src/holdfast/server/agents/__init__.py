"""The agents of a server, and the models that answer for them."""
