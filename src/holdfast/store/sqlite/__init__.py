"""The SQLite home of the store: one file, one writer thread, every commit synced."""

from holdfast.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
