"""What comes from elsewhere: sessions and memories."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.codec import Value
from holdfast.ids import Tenant
from holdfast.store.found import SessionDump
from holdfast.store.operations.sessions import made
from holdfast.store.rows import BlobRow, MemoryRow
from holdfast.store.steps import Look, One, Operation, insert, look, write
from holdfast.store.tables import (
    ANNOTATIONS,
    BLOBS,
    CLAIMS,
    ITEMS,
    JOURNAL,
    KEYS,
    MEMORIES,
    STATE,
    TURNS,
)


def arrived(dump: SessionDump) -> Operation[None]:
    """A session as it was dumped. Blobs may have come before it."""
    session = dump.session
    blobs = (
        BlobRow(tenant=session.tenant, session_id=session.id, digest=digest, bytes=data)
        for digest, data in dump.blobs
    )
    changes = (
        insert(TURNS, *dump.turns),
        insert(KEYS, *dump.keys),
        insert(ITEMS, *dump.items),
        insert(STATE, *dump.state),
        insert(ANNOTATIONS, *dump.annotations),
        insert(JOURNAL, *dump.journals),
        insert(CLAIMS, *dump.claims),
        insert(BLOBS, *blobs, if_absent=True),
    )
    yield from write(*made(session), *(each for each in changes if each.rows))


class Memory(Value):
    """A memory."""

    now_ms: int
    memory: MemoryRow | None


MEMORY = Look(
    Memory, memory=One(MEMORIES, tenant=":tenant", agent=":agent", memory_id=":memory_id")
)


def restore_memories(tenant: Tenant, rows: Sequence[MemoryRow]) -> Operation[int]:
    """Memories; one that is there stays as it is. How many were not."""
    fresh: dict[tuple[str, str], MemoryRow] = {}
    for row in rows:
        assert row.tenant == tenant, "a caller names its own tenant"
        found = yield from look(MEMORY, tenant=tenant, agent=row.agent, memory_id=row.memory_id)
        if found.memory is None:
            fresh.setdefault((row.agent, row.memory_id), row)
    if fresh:
        yield from write(insert(MEMORIES, *fresh.values()))
    return len(fresh)
