"""Chunks of the index of words, and the words that go with them."""

from __future__ import annotations

from apsw import Connection

from holdfast.store.sqlite.tables import Column, run, scalar


def forget_chunk(db: Connection, tenant: str, session_id: str, from_pos: int) -> None:
    """The chunk of a session that begins here, if there is one."""
    drop_chunk(db, scalar(db, "chunk_at", tenant=tenant, session_id=session_id, start=from_pos))


def drop_chunk(db: Connection, chunk: Column) -> None:
    if chunk is not None:
        run(db, "delete_words", id=chunk)
        run(db, "delete_chunk", id=chunk)
