"""What comes from elsewhere: sessions and memories."""

from __future__ import annotations

from holdfast.store.found import SessionDump
from holdfast.store.operations.sessions import made
from holdfast.store.rows import BlobRow, MemoryRow
from holdfast.store.steps import Operation, insert, write
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


def remembered(row: MemoryRow) -> Operation[None]:
    """A memory; one that is there stays as it is."""
    yield from write(insert(MEMORIES, row, if_absent=True))
