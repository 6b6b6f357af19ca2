"""The operations on sessions as a whole, as work on the database. See `turns.py` for the rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast import limits
from holdfast.core.codec import Unreadable, encode
from holdfast.core.conversation import Patch
from holdfast.core.items import item_decoder, path_text
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
from holdfast.store.postgres import reading, tables, turns
from holdfast.store.postgres.begin import NO_SETTINGS
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.tables import Bound, utf8
from holdfast.store.postgres.turns import SessionFacts, session_facts
from holdfast.store.rows import ItemRow, MemoryRow, SessionRow


async def annotate(
    db: Db,
    tenant: Tenant,
    session_id: SessionId,
    patches: Sequence[tuple[ItemId | None, Patch]],
    *,
    summary_rev: int | None,
) -> AnnotateOutcome:
    found = await session_facts(db, tenant, session_id)
    session = shaping.demand_live(found.session if found else None, session_id)
    assert found is not None
    outcome = shaping.annotate_session(
        session, patches, summary_rev=summary_rev, now_ms=found.now_ms
    )
    if isinstance(outcome, SummaryMoved):
        return outcome
    row, made = outcome
    await db.write_as_read(
        "annotate_session",
        tenant=tenant,
        session_id=session_id,
        stamp=found.stamp,
        meta_rev=row.meta_rev,
        summary_rev=row.summary_rev,
        title=utf8(row.title),
        settings=encode(row.settings),
        revs=[each.rev for each in made],
        items=[each.item for each in made],
        patches=[encode(each.patch) for each in made],
        at_ms=found.now_ms,
        **_attributes(row),
    )
    return Annotated(annotations=made)


async def fork(
    db: Db,
    tenant: Tenant,
    session_id: SessionId,
    *,
    version: Version,
    fresh: SessionId,
    anonymous: bool = False,
) -> SessionRow:
    there = await turns.find_session(db, tenant, fresh)
    if there is not None:
        return there
    parent = await session_facts(db, tenant, session_id)
    row = await _forked(
        db, tenant, session_id, parent, version=version, fresh=fresh, anonymous=anonymous
    )
    await _make(db, row, source=parent, key=None, generation=0)
    return row


async def bind(
    db: Db, tenant: Tenant, key: SessionKey, *, fresh: SessionId, version: Version | None
) -> SessionRow:
    facts = await db.facts("key_facts", tenant=tenant, key=key, fresh=fresh)
    now_ms, known = facts.number(), facts.one(tables.keys)
    session, stamp = facts.one(tables.sessions), facts.number()
    there = facts.one(tables.sessions)
    if there is not None:  # also if the key has moved on since: an old retry undoes nothing
        return there
    source = SessionFacts(now_ms=now_ms, session=session, stamp=stamp) if session else None
    if version is None:
        row = shaping.empty_session(tenant, fresh, now_ms=now_ms)
    elif known is None:
        raise SessionMissing("session key", key)
    else:
        row = await _forked(db, tenant, known.session_id, source, version=version, fresh=fresh)
    generation = known.generation + 1 if known else 1
    await _make(db, row, source=source, key=key, generation=generation)
    return row


async def _forked(
    db: Db,
    tenant: Tenant,
    session_id: SessionId,
    found: SessionFacts | None,
    *,
    version: Version,
    fresh: SessionId,
    anonymous: bool = False,
) -> SessionRow:
    """What a fork will be. All that is read for it never changes, or changes its parent's stamp."""
    parent = shaping.demand_live(found.session if found else None, session_id)
    assert found is not None
    place = await reading.find_place(db, parent, version)
    if place is None:
        raise SessionMissing("version", f"{session_id} at {version}")
    past = decisions.stretches(place.lineage)
    return shaping.forked_session(
        parent,
        fresh,
        lineage=place.lineage,
        turn=place.turn,
        notes=notes_of(await reading.annotations_of(db, tenant, past)),
        now_ms=found.now_ms,
        anonymous=anonymous,
    )


async def _make(
    db: Db,
    row: SessionRow,
    *,
    source: SessionFacts | None,
    key: SessionKey | None,
    generation: int,
) -> None:
    """A session comes into being, if what it comes from is as it was read; a key may move to it."""
    await db.write_as_read(
        "make_session",
        source=source.session.id if source else None,
        stamp=source.stamp if source else None,
        key=key,
        generation=generation,
        ancestors=[segment.session_id for segment in row.lineage],
        **_attributes(row),
        **tables.sessions.bound(row),
    )


def _attributes(row: SessionRow) -> dict[str, Bound]:
    return {
        "names": [utf8(name) for name, _ in row.settings.attributes],
        "values": [utf8(value) for _, value in row.settings.attributes],
    }


async def remove(
    db: Db,
    tenant: Tenant,
    session_id: SessionId,
    *,
    if_still: Callable[[SessionRow], bool] = lambda session: True,
) -> SessionRow:
    """Delete a session, provided that it is still what the caller takes it for."""
    found = await session_facts(db, tenant, session_id)
    if found is None:
        raise SessionMissing("session", session_id)
    session = found.session
    if session.state == "deleted" or not if_still(session):
        return session
    await db.write_as_read(
        "delete_session",
        tenant=tenant,
        id=session_id,
        stamp=found.stamp,
        turn_id=session.open_turn,
        settings=NO_SETTINGS,
        ended_ms=found.now_ms,
        expires_ms=found.now_ms + int(limits.idempotency_keep_s * 1000),
    )
    return shaping.deleted_session(session)


# ── moving ───────────────────────────────────────────────────────────────────────────────────


async def restore(db: Db, tenant: Tenant, dump: SessionDump) -> RestoreOutcome:
    async with db.transaction():
        flaw = moving.flaw_in(dump, tenant=tenant, past=await _ancestors(db, tenant, dump.session))
        if flaw is not None:
            return Refused(why=flaw)
        in_the_way = await _in_the_way(db, tenant, dump)
        if in_the_way is not None:
            return in_the_way
        await _write_dump(db, dump)
    return Restored(fresh=True)


async def _in_the_way(db: Db, tenant: Tenant, dump: SessionDump) -> RestoreOutcome | None:
    session = dump.session
    there = await reading.dump_within(db, tenant, session.id)
    if there is not None:
        same = moving.is_same(there, dump)
        return Restored(fresh=False) if same else moving.taken("session", session.id)
    for key in dump.keys:
        if await db.row("key", tenant=tenant, key=key.key) is not None:
            return moving.taken("key", key.key)
    for turn in dump.turns:
        if await turns.find_turn(db, tenant, turn.turn_id) is not None:
            return moving.taken("turn", turn.turn_id)
    for claim in dump.claims:
        if await db.row("idempotency", tenant=tenant, key=claim.key) is not None:
            return moving.taken("idempotency key", claim.key)
    return None


async def _ancestors(db: Db, tenant: Tenant, session: SessionRow) -> tuple[moving.Ancestor, ...]:
    ids = [segment.session_id for segment in session.lineage]
    held = await db.all(tables.sessions, "hold_ancestors", tenant=tenant, ids=ids) if ids else ()
    known = {each.id: each for each in held}
    return tuple(
        [
            moving.Ancestor(
                segment=segment,
                session=known.get(segment.session_id),
                turn=await turns.turn_at(
                    db,
                    tenant,
                    decisions.owner_of(session, segment.upto_version),
                    segment.upto_version,
                ),
            )
            for segment in session.lineage
        ]
    )


async def _write_dump(db: Db, dump: SessionDump) -> None:
    tenant, session_id = dump.session.tenant, dump.session.id
    await _make(db, dump.session, source=None, key=None, generation=0)
    for key in dump.keys:
        await db.write("insert_key", **tables.keys.bound(key))
    if dump.turns:
        bound = [tables.turns.bound(turn) for turn in dump.turns]
        columns = {name: [row[name] for row in bound] for name in tables.turns.fields}
        await db.write("insert_turns", **columns)
    for value in dump.state:
        await db.write("insert_state", **tables.state.bound(value))
    for annotation in dump.annotations:
        await db.write("insert_annotation", **tables.notes.bound(annotation))
    await db.write(
        "insert_items",
        tenant=tenant,
        session_id=session_id,
        pos=[row.pos for row in dump.items],
        turn_id=[row.turn_id for row in dump.items],
        path=[_path_of(row) for row in dump.items],
        body=[row.body for row in dump.items],
    )
    await db.write(
        "insert_journals",
        tenant=tenant,
        turn_id=[row.turn_id for row in dump.journals],
        n=[row.n for row in dump.journals],
        token=[row.token for row in dump.journals],
        records=[row.records for row in dump.journals],
    )
    for claim in dump.claims:
        await db.write("insert_claim", **tables.claims.bound(claim))
    for digest, data in dump.blobs:
        await db.write("put_blob", tenant=tenant, session_id=session_id, digest=digest, bytes=data)


def _path_of(row: ItemRow) -> str:
    item = item_decoder.lenient(row.body)
    return "" if isinstance(item, Unreadable) else path_text(item.path)


async def restore_memories(db: Db, tenant: Tenant, rows: Sequence[MemoryRow]) -> int:
    assert all(row.tenant == tenant for row in rows), "a caller names its own tenant"
    fresh = 0
    async with db.transaction():
        for row in rows:
            fresh += len(await db.write("insert_memory", **tables.memories.bound(row)))
    return fresh


async def put_blob(db: Db, tenant: Tenant, session_id: SessionId, data: bytes) -> str:
    digest = moving.digest_of(data)
    found = await db.write(
        "put_blob", tenant=tenant, session_id=session_id, digest=digest, bytes=data
    )
    if found[0][0]:
        raise SessionGone(session_id, why="deleted")
    return digest
