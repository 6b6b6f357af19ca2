"""What happens to sessions as a whole: annotations, keys, forks, removal, moving. See `turns.py` for the rules."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.codec import encode
from holdfast.core.conversation import Patch
from holdfast.errors import SessionGone, SessionMissing
from holdfast.ids import GrantId, ItemId, KeyId, SessionId, SessionKey, Tenant, Version
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
from holdfast.store.memory import reading, turns
from holdfast.store.memory.tables import Tables
from holdfast.store.rows import AnnotationRow, ApiKeyRow, GrantRow, KeyRow, MemoryRow, SessionRow


def annotate(
    tables: Tables,
    tenant: Tenant,
    session_id: SessionId,
    patches: Sequence[tuple[ItemId | None, Patch]],
    *,
    summary_rev: int | None,
    now_ms: int,
) -> AnnotateOutcome:
    session = shaping.demand_live(tables.sessions.get((tenant, session_id)), session_id)
    outcome = shaping.annotate_session(session, patches, summary_rev=summary_rev, now_ms=now_ms)
    if isinstance(outcome, SummaryMoved):
        return outcome
    row, made = outcome
    tables.annotations[tenant, session_id] += (
        AnnotationRow(
            tenant=tenant,
            session_id=session_id,
            rev=each.rev,
            item=each.item,
            patch=encode(each.patch),
            at_ms=each.at_ms,
        )
        for each in made
    )
    tables.put_session(row)
    return Annotated(annotations=made)


def fork(
    tables: Tables,
    tenant: Tenant,
    session_id: SessionId,
    *,
    version: Version,
    fresh: SessionId,
    now_ms: int,
    anonymous: bool = False,
) -> SessionRow:
    there = tables.sessions.get((tenant, fresh))
    if there is not None:
        return there
    parent = shaping.demand_live(tables.sessions.get((tenant, session_id)), session_id)
    place = reading.find_place(tables, parent, version)
    if place is None:
        raise SessionMissing("version", f"{session_id} at {version}")
    past = decisions.stretches(place.lineage)
    row = shaping.forked_session(
        parent,
        fresh,
        lineage=place.lineage,
        turn=place.turn,
        notes=notes_of(reading.annotations_in(tables, tenant, past)),
        now_ms=now_ms,
        anonymous=anonymous,
    )
    tables.put_session(row)
    return row


def bind(
    tables: Tables,
    tenant: Tenant,
    key: SessionKey,
    *,
    fresh: SessionId,
    version: Version | None,
    now_ms: int,
) -> SessionRow:
    there = tables.sessions.get((tenant, fresh))
    if there is not None:  # also if the key has moved on since: an old retry undoes nothing
        return there
    known = tables.keys.get((tenant, key))
    if version is None:
        row = shaping.empty_session(tenant, fresh, now_ms=now_ms)
        tables.put_session(row)
    elif known is None:
        raise SessionMissing("session key", key)
    else:
        row = fork(tables, tenant, known.session_id, version=version, fresh=fresh, now_ms=now_ms)
    generation = known.generation + 1 if known else 1
    tables.keys[tenant, key] = KeyRow(
        tenant=tenant, key=key, session_id=fresh, generation=generation
    )
    return row


def remove(tables: Tables, tenant: Tenant, session_id: SessionId, *, now_ms: int) -> SessionRow:
    session = tables.sessions.get((tenant, session_id))
    if session is None:
        raise SessionMissing("session", session_id)
    if session.state == "deleted":
        return session
    for turn in tables.turns_of(tenant, session_id):
        if turn.state in ("open", "queued"):
            turns.discard(
                tables, turn, ended_by="deleted", detail="", settlement="done", now_ms=now_ms
            )
    for key in tables.keys_of(session):
        del tables.keys[tenant, key.key]
    row = shaping.deleted_session(session)
    tables.put_session(row)
    return row


def restore(tables: Tables, tenant: Tenant, dump: SessionDump) -> RestoreOutcome:
    session = dump.session
    flaw = moving.flaw_in(dump, tenant=tenant, past=_ancestors(tables, tenant, session))
    if flaw is not None:
        return Refused(why=flaw)
    if (tenant, session.id) in tables.sessions:
        here = reading.dump(tables, tenant, session.id)
        if here is not None and moving.is_same(here, dump):
            return Restored(fresh=False)
        return moving.taken("session", session.id)
    for key in dump.keys:
        if (tenant, key.key) in tables.keys:
            return moving.taken("key", key.key)
    for turn in dump.turns:
        if (tenant, turn.turn_id) in tables.turns:
            return moving.taken("turn", turn.turn_id)
    for claim in dump.claims:
        if (tenant, claim.key) in tables.claims:
            return moving.taken("idempotency key", claim.key)
    _write_dump(tables, dump)
    return Restored(fresh=True)


def _ancestors(tables: Tables, tenant: Tenant, session: SessionRow) -> tuple[moving.Ancestor, ...]:
    return tuple(
        moving.Ancestor(
            segment=segment,
            session=tables.sessions.get((tenant, segment.session_id)),
            turn=tables.turn_at(
                tenant, decisions.owner_of(session, segment.upto_version), segment.upto_version
            ),
        )
        for segment in session.lineage
    )


def _write_dump(tables: Tables, dump: SessionDump) -> None:
    place = dump.session.tenant, dump.session.id
    tables.put_session(dump.session)
    for turn in dump.turns:
        tables.put_turn(turn)
    for key in dump.keys:
        tables.keys[key.tenant, key.key] = key
    tables.items[place] = list(dump.items)
    tables.state[place] = list(dump.state)
    tables.annotations[place] = list(dump.annotations)
    tables.blobs[place] = {**tables.blobs.get(place, {}), **dict(dump.blobs)}
    for row in dump.journals:
        tables.journals[row.tenant, row.turn_id].append(row)
    for claim in dump.claims:
        tables.claims[claim.tenant, claim.key] = claim


def restore_memories(tables: Tables, tenant: Tenant, rows: Sequence[MemoryRow]) -> int:
    fresh = 0
    for row in rows:
        assert row.tenant == tenant, "a caller names its own tenant"
        held = tables.memories[tenant, row.agent]
        fresh += row.memory_id not in held
        held.setdefault(row.memory_id, row)
    return fresh


def put_blob(tables: Tables, tenant: Tenant, session_id: SessionId, data: bytes) -> str:
    session = tables.sessions.get((tenant, session_id))
    if session is not None and session.state == "deleted":
        raise SessionGone(session_id, why="deleted")
    digest = moving.digest_of(data)
    tables.blobs.setdefault((tenant, session_id), {})[digest] = data
    tables.blobs_noticed.pop((tenant, session_id, digest), None)
    return digest


def revoke_api_key(tables: Tables, key_id: KeyId, *, now_ms: int) -> ApiKeyRow | None:
    row = tables.api_keys.get(key_id)
    if row is not None and row.revoked_ms is None:
        row = tables.api_keys[key_id] = msgspec.structs.replace(row, revoked_ms=now_ms)
    return row


def revoke_grant(
    tables: Tables, tenant: Tenant, grant_id: GrantId, *, now_ms: int
) -> GrantRow | None:
    row = tables.grants.get((tenant, grant_id))
    if row is not None and row.revoked_ms is None:
        row = msgspec.structs.replace(row, revoked_ms=now_ms)
        tables.grants[tenant, grant_id] = row
    return row
