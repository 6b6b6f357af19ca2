"""The operations on sessions as a whole, as functions of a connection. See `turns.py` for the rules."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from apsw import Connection

from holdfast.core.codec import Unreadable, encode
from holdfast.core.conversation import Patch
from holdfast.core.items import SessionSettings, item_decoder, path_text
from holdfast.errors import SessionGone, SessionMissing
from holdfast.ids import ItemId, SessionId, SessionKey, Tenant, Version
from holdfast.store import decisions, moving, shaping
from holdfast.store.assemble import notes_of
from holdfast.store.base import (
    Annotated,
    AnnotateOutcome,
    Refused,
    Restored,
    RestoreOutcome,
    SessionDump,
    SummaryMoved,
)
from holdfast.store.rows import AnnotationRow, ItemRow, MemoryRow, SessionRow
from holdfast.store.sqlite import reading, search, tables, turns
from holdfast.store.sqlite.tables import queries, run, to_column


def annotate(
    db: Connection,
    tenant: Tenant,
    session_id: SessionId,
    patches: Sequence[tuple[ItemId | None, Patch]],
    *,
    summary_rev: int | None,
    now_ms: int,
) -> AnnotateOutcome:
    session = shaping.demand_live(turns.find_session(db, tenant, session_id), session_id)
    outcome = shaping.annotate_session(session, patches, summary_rev=summary_rev, now_ms=now_ms)
    if isinstance(outcome, SummaryMoved):
        return outcome
    row, made = outcome
    for each in made:
        stored = AnnotationRow(
            tenant=tenant,
            session_id=session_id,
            rev=each.rev,
            item=each.item,
            patch=encode(each.patch),
            at_ms=each.at_ms,
        )
        tables.annotation_rows.put(db, "insert_annotation", stored)
    run(
        db,
        "annotate_session",
        tenant=tenant,
        id=session_id,
        meta_rev=row.meta_rev,
        summary_rev=row.summary_rev,
        title=row.title,
        settings=to_column(row.settings),
    )
    if row.settings != session.settings:
        _write_attributes(db, row)
    return Annotated(annotations=made)


def fork(
    db: Connection,
    tenant: Tenant,
    session_id: SessionId,
    *,
    version: Version,
    fresh: SessionId,
    now_ms: int,
    anonymous: bool = False,
) -> SessionRow:
    there = turns.find_session(db, tenant, fresh)
    if there is not None:
        return there
    parent = shaping.demand_live(turns.find_session(db, tenant, session_id), session_id)
    place = reading.find_place(db, parent, version)
    if place is None:
        raise SessionMissing("version", f"{session_id} at {version}")
    row = shaping.forked_session(
        parent,
        fresh,
        lineage=place.lineage,
        turn=place.turn,
        notes=notes_of(reading.annotations_of(db, tenant, decisions.stretches(place.lineage))),
        now_ms=now_ms,
        anonymous=anonymous,
    )
    _insert(db, row)
    return row


def bind(
    db: Connection,
    tenant: Tenant,
    key: SessionKey,
    *,
    fresh: SessionId,
    version: Version | None,
    now_ms: int,
) -> SessionRow:
    known = tables.key_rows.one(db, "key", tenant=tenant, key=key)
    there = turns.find_session(db, tenant, fresh)
    if there is not None:  # also if the key has moved on since: an old retry undoes nothing
        return there
    if version is None:
        row = shaping.empty_session(tenant, fresh, now_ms=now_ms)
        _insert(db, row)
    elif known is None:
        raise SessionMissing("session key", key)
    else:
        row = fork(db, tenant, known.session_id, version=version, fresh=fresh, now_ms=now_ms)
    run(
        db,
        "rebind_key",
        tenant=tenant,
        key=key,
        session_id=fresh,
        generation=known.generation + 1 if known else 1,
    )
    return row


def remove(db: Connection, tenant: Tenant, session_id: SessionId, *, now_ms: int) -> SessionRow:
    session = turns.find_session(db, tenant, session_id)
    if session is None:
        raise SessionMissing("session", session_id)
    if session.state == "deleted":
        return session
    open_turn = turns.find_turn(db, tenant, session.open_turn)
    for turn in (*([open_turn] if open_turn else ()), *turns.queued_of(db, session)):
        turns.discard(db, turn, ended_by="deleted", detail="", settlement="done", now_ms=now_ms)
    run(db, "delete_session", tenant=tenant, id=session_id, settings=encode(SessionSettings()))
    run(db, "free_keys", tenant=tenant, session_id=session_id)
    run(db, "clear_attributes", tenant=tenant, session_id=session_id)
    search.forget_name(db, tenant, session_id)
    return shaping.deleted_session(session)


def restore(db: Connection, tenant: Tenant, dump: SessionDump) -> RestoreOutcome:
    session = dump.session
    flaw = moving.flaw_in(dump, tenant=tenant, past=_ancestors(db, tenant, session))
    if flaw is not None:
        return Refused(why=flaw)
    if turns.find_session(db, tenant, session.id) is not None:
        here = reading.dump(db, tenant, session.id)
        if here is not None and moving.is_same(here, dump):
            return Restored(fresh=False)
        return moving.taken("session", session.id)
    for key in dump.keys:
        if tables.key_rows.one(db, "key", tenant=tenant, key=key.key) is not None:
            return moving.taken("key", key.key)
    for turn in dump.turns:
        if turns.find_turn(db, tenant, turn.turn_id) is not None:
            return moving.taken("turn", turn.turn_id)
    for claim in dump.claims:
        if tables.idempotency_rows.one(db, "idempotency", tenant=tenant, key=claim.key) is not None:
            return moving.taken("idempotency key", claim.key)
    _write_dump(db, dump)
    return Restored(fresh=True)


def _ancestors(db: Connection, tenant: Tenant, session: SessionRow) -> tuple[moving.Ancestor, ...]:
    return tuple(
        moving.Ancestor(
            segment=segment,
            session=turns.find_session(db, tenant, segment.session_id),
            turn=tables.turn_rows.one(
                db,
                "turn_at",
                tenant=tenant,
                session_id=decisions.owner_of(session, segment.upto_version),
                seq=segment.upto_version,
            ),
        )
        for segment in session.lineage
    )


def _write_dump(db: Connection, dump: SessionDump) -> None:
    tenant, session_id = dump.session.tenant, dump.session.id
    _insert(db, dump.session)
    tables.key_rows.put(db, "insert_key", *dump.keys)
    tables.turn_rows.put(db, "insert_turn", *dump.turns)
    tables.state_rows.put(db, "insert_state", *dump.state)
    tables.annotation_rows.put(db, "insert_annotation", *dump.annotations)
    db.executemany(
        queries["insert_item"],
        ((tenant, session_id, row.pos, row.turn_id, _path_of(row), row.body) for row in dump.items),
    )
    for digest, data in dump.blobs:
        run(db, "insert_blob", tenant=tenant, session_id=session_id, digest=digest, bytes=data)
    db.executemany(
        queries["restore_journal"],
        map(msgspec.structs.astuple, dump.journals),
    )
    tables.idempotency_rows.put(db, "restore_claim", *dump.claims)


def restore_memories(db: Connection, tenant: Tenant, rows: Sequence[MemoryRow]) -> int:
    fresh = 0
    for row in rows:
        assert row.tenant == tenant, "a caller names its own tenant"
        tables.memory_rows.put(db, "restore_memory", row)
        fresh += db.changes()
    return fresh


def put_blob(db: Connection, tenant: Tenant, session_id: SessionId, data: bytes) -> str:
    session = turns.find_session(db, tenant, session_id)
    if session is not None and session.state == "deleted":
        raise SessionGone(session_id, why="deleted")
    digest = moving.digest_of(data)
    run(db, "insert_blob", tenant=tenant, session_id=session_id, digest=digest, bytes=data)
    return digest


def _path_of(row: ItemRow) -> str:
    item = item_decoder.lenient(row.body)
    return "" if isinstance(item, Unreadable) else path_text(item.path)


def _insert(db: Connection, row: SessionRow) -> None:
    """A session that comes into being with a past or settings."""
    tables.session_rows.put(db, "insert_session", row)
    db.executemany(
        queries["insert_past"],
        ((row.tenant, segment.session_id, row.id) for segment in row.lineage),
    )
    _write_attributes(db, row)


def _write_attributes(db: Connection, row: SessionRow) -> None:
    run(db, "clear_attributes", tenant=row.tenant, session_id=row.id)
    db.executemany(
        queries["insert_attribute"],
        ((row.tenant, row.id, name, value) for name, value in row.settings.attributes),
    )
