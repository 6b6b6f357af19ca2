"""The PostgreSQL home of the store: one database, any number of processes on any number of machines."""

from holdfast.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
