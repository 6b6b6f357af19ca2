"""How conversations look to OpenAI clients, and to the APIs of providers. Pure."""
