"""The document at `/openapi.json`."""
