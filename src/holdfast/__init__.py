"""Holdfast: AI agents over the OpenAI API, with conversations that hold. Every turn is a transaction."""
