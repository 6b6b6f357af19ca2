"""Access control: API keys, scopes, quotas, seals."""
