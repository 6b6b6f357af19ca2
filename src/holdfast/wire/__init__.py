"""How conversations look to OpenAI clients, and to providers that speak like them. Pure."""
