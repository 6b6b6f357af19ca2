"""Observability: log events, metrics, traces, and the supervisor of background tasks."""
