"""OpenAI's API: chat completions, responses, conversations."""
