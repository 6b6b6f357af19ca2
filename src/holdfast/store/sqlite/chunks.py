"""Chunks of the index of words, as retention removes them."""

from __future__ import annotations

from apsw import Connection

from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.steps import Delete, write
from holdfast.store.tables import CHUNKS


def clear(db: Connection, tenant: str, session_id: str, *, limit: int) -> int:
    """Remove some of a deleted session's chunks; how many went."""
    found = db.execute(
        "select from_pos from search_chunk where tenant = ? and session_id = ? and from_pos >= -1 limit ?",
        (tenant, session_id, limit),
    ).fetchall()
    gone = (Delete(CHUNKS, (tenant, session_id, start)) for (start,) in found)
    DRIVER.run(db, write(*gone))
    return len(found)
