"""The memory home: SQLite's tables in memory, for tests and for the simulation."""

from __future__ import annotations

from holdfast.store.memory.store import MemoryStore as MemoryStore
