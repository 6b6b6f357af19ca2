"""The endpoints under `/v1`: chat completions, responses, conversations, models."""
