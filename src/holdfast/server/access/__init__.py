"""Which requests are let in: keys, scopes, quotas, seals."""
