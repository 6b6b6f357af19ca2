"""The verified stand-in: a store in plain dictionaries, held to the same contract as the others."""

from __future__ import annotations

from holdfast.store.memory.store import MemoryStore as MemoryStore
