"""Sessions and memories that arrive from another store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.ids import Tenant
from holdfast.store import decisions
from holdfast.store.operations import reads
from holdfast.store.operations.finders import claim_under, key_named, session_of, turn_at, turn_of
from holdfast.store.operations.lines import made
from holdfast.store.outcomes import Restored, RestoreOutcome, RestoreRefused, SessionDump
from holdfast.store.rows import BlobRow, MemoryRow, SessionRow
from holdfast.store.sql import tables
from holdfast.store.steps import AsRead, Change, Facts, Operation, get, has, insert, look, write
from holdfast.store.transfer import import_checks


def restore(tenant: Tenant, dump: SessionDump) -> Operation[RestoreOutcome]:
    """Store a dumped session, whole or not at all. Restoring the same dump again changes nothing."""
    past = yield from _ancestors(tenant, dump.session)
    flaw = import_checks.flaw_in(dump, tenant=tenant, past=past)
    if flaw is not None:
        return RestoreRefused(why=flaw)
    in_the_way = yield from _in_the_way(tenant, dump)
    if in_the_way is not None:
        return in_the_way
    # A deleted ancestor is written, too, so that retention notices that a session reads it again.
    deleted = {each.id: each for each in _sessions(past) if each.state == "deleted"}
    yield from write(*_arrived(dump), on=tuple(deleted.values()), as_read=tuple(_guards(past)))
    return Restored(fresh=True)


def _sessions(past: tuple[import_checks.Ancestor, ...]) -> Iterator[SessionRow]:
    return (each.session for each in past if each.session is not None)


def _guards(past: tuple[import_checks.Ancestor, ...]) -> Iterator[AsRead]:
    """The conditions that the ancestors of a restored session keep their rows until it is stored."""
    for session in _sessions(past):
        if session.state == "live":
            yield AsRead(tables.SESSIONS, session, ("state",))
    for each in past:
        if each.turn is not None:
            yield AsRead(tables.TURNS, each.turn, ("end",))


class ItemFacts(Facts):
    """Whether an item exists."""

    is_there: bool = has(tables.ITEMS, tenant=":tenant", session_id=":session_id", pos=":pos")


def _ancestors(
    tenant: Tenant, session: SessionRow
) -> Operation[tuple[import_checks.Ancestor, ...]]:
    found: list[import_checks.Ancestor] = []
    pos = 0
    for segment in session.lineage:
        owner = decisions.owner_of(session, segment.upto_version)
        ancestor = yield from session_of(tenant, segment.session_id)
        turn = yield from turn_at(tenant, owner, segment.upto_version)
        first = yield from look(ItemFacts, tenant=tenant, session_id=segment.session_id, pos=pos)
        # Retention removes the first items of a deleted session first.
        is_deleted = ancestor is not None and ancestor.state == "deleted"
        is_going = is_deleted and pos < segment.upto_pos and not first.is_there
        found.append(
            import_checks.Ancestor(segment=segment, session=ancestor, turn=turn, is_going=is_going)
        )
        pos = segment.upto_pos
    return tuple(found)


def _in_the_way(tenant: Tenant, dump: SessionDump) -> Operation[RestoreOutcome | None]:
    there = yield from reads.dump(tenant, dump.session.id)
    if there is not None:
        same = import_checks.is_same(there, dump)
        return Restored(fresh=False) if same else import_checks.taken("session", dump.session.id)
    for key in dump.keys:
        if (yield from key_named(tenant, key.key)) is not None:
            return import_checks.taken("key", key.key)
    for turn in dump.turns:
        if (yield from turn_of(tenant, turn.turn_id)) is not None:
            return import_checks.taken("turn", turn.turn_id)
    for claim in dump.claims:
        if (yield from claim_under(tenant, claim.key)) is not None:
            return import_checks.taken("idempotency key", claim.key)
    return None


def _arrived(dump: SessionDump) -> Iterator[Change]:
    """The changes that store all rows of a dump. Its blobs may have been stored before."""
    session = dump.session
    blobs = (
        BlobRow(tenant=session.tenant, session_id=session.id, digest=digest, bytes=data)
        for digest, data in dump.blobs
    )
    changes = (
        insert(tables.TURNS, *dump.turns),
        insert(tables.KEYS, *dump.keys),
        insert(tables.ITEMS, *dump.items),
        insert(tables.STATE, *dump.state),
        insert(tables.ANNOTATIONS, *dump.annotations),
        insert(tables.JOURNAL, *dump.journals),
        insert(tables.CLAIMS, *dump.claims),
        insert(tables.BLOBS, *blobs, if_absent=True),
    )
    yield from made(session)
    yield from (each for each in changes if each.rows)


def restore_memories(tenant: Tenant, rows: Sequence[MemoryRow]) -> Operation[int]:
    """Store memories, and return how many were new. A memory that exists already stays as it is."""
    fresh: dict[tuple[str, str], MemoryRow] = {}
    for row in rows:
        assert row.tenant == tenant, "a caller names its own tenant"
        if (yield from get(tables.MEMORIES, *tables.MEMORIES.key_of(row))) is None:
            fresh.setdefault((row.agent, row.memory_id), row)
    if fresh:
        yield from write(insert(tables.MEMORIES, *fresh.values()))
    return len(fresh)
