"""The Agent Client Protocol, which editors speak with an agent: messages, types, and turns as an editor shows them."""
