"""The quota usage of tenants and keys, counted by one process, or by all workers of a machine together.

Workers share a table in memory. A payer's entry has what is left of its requests per minute, and a column for each
worker with what that worker holds: so the supervisor can strike out what a dead worker held. A record lock orders the
workers, because the kernel releases it when its holder dies.

1. A bound holds over all workers, as it would in one process.
2. No worker waits long for the table: after `LOCK_S` it goes on without the lock. A bound that is missed by one is
   better than a server that waits for a process that was stopped.
3. More payers than the table has room for are not an error: idle payers are forgotten first. A payer that finds no free
   entry is not counted.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import blake2b
from struct import Struct
from typing import Literal, Protocol, TypeAlias

from holdfast.core.codec import Value
from holdfast.server.http.routing import Load

BUCKETS_MAX = 10_000
"""How many tenants and keys have a bucket. A payer that was idle for a minute needs none: it would be full."""

REST_S = 60.0
"""After this time without a request every bucket is full again."""

Payer: TypeAlias = tuple[Literal["tenant", "key"], str]
"""The tenant or key whose quota is used."""

Column: TypeAlias = Load | Literal["playing"]
"""A count of a payer; `playing` is the turns that are played, whether or not a client waits for them."""


class Bucket(Value):
    """A token bucket: how many tokens were left at a moment."""

    tokens: float
    at_s: float


class QuotaUsage(Protocol):
    def opened(self) -> AbstractContextManager[None]:
        """A context in which no other worker reads or changes the usage."""
        ...

    def bucket(self, payer: Payer) -> Bucket | None: ...

    def put(self, payer: Payer, bucket: Bucket) -> None: ...

    def count(self, payer: Payer, column: Column) -> int:
        """How many the payer has now, in all processes."""
        ...

    def add(self, payer: Payer, column: Column, number: int) -> int:
        """Add to what the payer has in this process, or subtract; returns how many it has here now."""
        ...


class ProcessQuotaUsage:
    """The usage in a single process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[Payer, Bucket] = {}
        self._held: Counter[tuple[Payer, Column]] = Counter()

    def opened(self) -> AbstractContextManager[None]:
        return nullcontext()

    def bucket(self, payer: Payer) -> Bucket | None:
        return self._buckets.get(payer)

    def put(self, payer: Payer, bucket: Bucket) -> None:
        if len(self._buckets) > BUCKETS_MAX:
            now_s = self._clock()
            self._buckets = {
                each: known for each, known in self._buckets.items() if now_s - known.at_s < REST_S
            }
        self._buckets[payer] = bucket

    def count(self, payer: Payer, column: Column) -> int:
        return self._held[payer, column]

    def add(self, payer: Payer, column: Column, number: int) -> int:
        held = self._held[payer, column] = self._held[payer, column] + number
        if not held:
            del self._held[payer, column]
        return held


# ── shared ───────────────────────────────────────────────────────────────────────────────────

COLUMNS: tuple[Column, ...] = ("turns", "streams", "watchers", "playing")

WINDOW = 32
"""How many entries may hold a payer. They are searched in order."""

LOCK_S = 0.05

_DIGEST_BYTES = 16
_BUCKET = Struct("<dd")
_COUNT = Struct("<i")


class QuotaLedger:
    """The table that workers share. It is made before forking; each worker has columns of its own in it."""

    def __init__(self, places: int, *, entries: int = 2 * BUCKETS_MAX) -> None:
        self.places = places
        self.entries = entries
        self.entry_bytes = _DIGEST_BYTES + _BUCKET.size + places * len(COLUMNS) * _COUNT.size
        self.memory = mmap.mmap(-1, entries * self.entry_bytes)
        self._lock = _nameless_file()

    @contextmanager
    def locked(self) -> Iterator[None]:
        until_s = time.monotonic() + LOCK_S
        while not (locked := self._lock_nowait()) and time.monotonic() < until_s:
            time.sleep(0)
        try:
            yield
        finally:
            if locked:
                fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def _lock_nowait(self) -> bool:
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as POSIX allows
            return False
        return True

    def strike_out(self, place: int) -> None:
        """In the supervisor: clear what the dead worker of this place held."""
        nothing = bytes(len(COLUMNS) * _COUNT.size)
        with self.locked():
            for entry in range(self.entries):
                at = self.column_at(entry, place, COLUMNS[0])
                if self.memory[at : at + len(nothing)] != nothing:
                    self.memory[at : at + len(nothing)] = nothing

    def column_at(self, entry: int, place: int, column: Column) -> int:
        number = place * len(COLUMNS) + COLUMNS.index(column)
        return entry * self.entry_bytes + _DIGEST_BYTES + _BUCKET.size + number * _COUNT.size


class SharedQuotaUsage:
    """The usage as one worker sees and changes it, in the shared ledger."""

    def __init__(
        self, ledger: QuotaLedger, place: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` must be the same for all processes, as a machine's monotonic clock is."""
        self._ledger = ledger
        self._memory = ledger.memory
        self._place = place
        self._clock = clock

    def opened(self) -> AbstractContextManager[None]:
        return self._ledger.locked()

    def bucket(self, payer: Payer) -> Bucket | None:
        entry = self._find(_digest(payer))
        if entry is None:
            return None
        tokens, at_s = _BUCKET.unpack_from(self._memory, self._bucket_at(entry))
        return Bucket(tokens=tokens, at_s=at_s) if at_s else None

    def put(self, payer: Payer, bucket: Bucket) -> None:
        entry = self._find_or_make(payer)
        if entry is not None:
            _BUCKET.pack_into(self._memory, self._bucket_at(entry), bucket.tokens, bucket.at_s)

    def count(self, payer: Payer, column: Column) -> int:
        entry = self._find(_digest(payer))
        if entry is None:
            return 0
        return sum(self._held(entry, place, column) for place in range(self._ledger.places))

    def add(self, payer: Payer, column: Column, number: int) -> int:
        entry = self._find_or_make(payer)
        if entry is None:
            return 0
        held = max(0, self._held(entry, self._place, column) + number)
        _COUNT.pack_into(self._memory, self._ledger.column_at(entry, self._place, column), held)
        return held

    # ── entries ──

    def _find(self, digest: bytes) -> int | None:
        size = self._ledger.entry_bytes
        for entry in self._window(digest):
            if self._memory[entry * size : entry * size + _DIGEST_BYTES] == digest:
                return entry
        return None

    def _find_or_make(self, payer: Payer) -> int | None:
        digest = _digest(payer)
        found = self._find(digest)
        if found is not None:
            return found
        for entry in self._window(digest):
            if self._is_free(entry):
                at, size = entry * self._ledger.entry_bytes, self._ledger.entry_bytes
                self._memory[at : at + size] = digest.ljust(size, b"\0")
                return entry
        return None

    def _is_free(self, entry: int) -> bool:
        """Whether the entry is unused, or its payer was idle for a minute and holds nothing."""
        at, size = entry * self._ledger.entry_bytes, self._ledger.entry_bytes
        _, at_s = _BUCKET.unpack_from(self._memory, self._bucket_at(entry))
        columns = self._memory[at + _DIGEST_BYTES + _BUCKET.size : at + size]
        return (not at_s or self._clock() - at_s >= REST_S) and not any(columns)

    def _window(self, digest: bytes) -> Iterator[int]:
        first = int.from_bytes(digest[:8], "little")
        return ((first + step) % self._ledger.entries for step in range(WINDOW))

    def _held(self, entry: int, place: int, column: Column) -> int:
        (held,) = _COUNT.unpack_from(self._memory, self._ledger.column_at(entry, place, column))
        return int(held)

    def _bucket_at(self, entry: int) -> int:
        return entry * self._ledger.entry_bytes + _DIGEST_BYTES


def _digest(payer: Payer) -> bytes:
    return blake2b("\0".join(payer).encode(), digest_size=_DIGEST_BYTES).digest()


def _nameless_file() -> int:
    """A file without a name, used for its lock alone. It works even where no folder is writable."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("holdfast-ledger")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
