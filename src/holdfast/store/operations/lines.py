"""Lines of conversations: forks, and families of lines for clients that own their history.

A fork begins as another session stood at a version. A *family* is what one name stands for if its client owns the history
(`core/history/branches.py`): each edited or regenerated message, and each side call, is a line of its own.

1. All lines of a family have the id of its first line in `family`; a session without it is alone under its name.
2. T1 makes a new line in the transaction that begins its turn.
3. The name means the line last continued; before any was, the first streamed one; before that, the first. T2 moves it.
4. Only the line that the name means is listed. The others are anonymous, and do not expire: they live as long as it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from holdfast.core.codec import Value
from holdfast.core.history.conversation import Commit, Lineage
from holdfast.core.items import SessionSettings
from holdfast.errors import SessionMissing
from holdfast.ids import SessionId, Tenant, Version
from holdfast.store import decisions, row_changes
from holdfast.store.operations.finders import turn_at
from holdfast.store.outcomes import Begin, FamilyTurn, Fence, Moved, NewLine
from holdfast.store.rows import (
    AnnotationRow,
    AttributeRow,
    KeyRow,
    PastRow,
    SessionRow,
    TurnRow,
)
from holdfast.store.snapshots import notes_of
from holdfast.store.sql.tables import ANNOTATIONS, ATTRIBUTES, KEYS, PASTS, SESSIONS
from holdfast.store.steps import (
    AsRead,
    Change,
    Delete,
    Facts,
    Finder,
    Operation,
    Question,
    ask,
    change,
    find,
    insert,
    look,
    one,
)

KEYS_OF = Finder(
    KEYS,
    tenant=":tenant",
    session_id=":session_id",
    order=("key",),
    index="session_key_by_session",
)

# ── forks ────────────────────────────────────────────────────────────────────────────────────

ANNOTATIONS_OF = Finder(
    ANNOTATIONS, tenant=":tenant", session_id=":session_id", order=("rev",), over="rev"
)


class SessionVersion(Value):
    """A version of a session: the lineage to read for it, and the turn that made it."""

    lineage: Lineage
    turn: TurnRow | None


def find_place(session: SessionRow, version: Version) -> Operation[SessionVersion | None]:
    """The version of a session, or None if the session has no such version."""
    tenant = session.tenant
    point = decisions.fork_point(session, version)
    if point is None:
        return None
    owner = decisions.owner_of(session, version)
    turn = (yield from turn_at(tenant, owner, version)) if version else None
    rev = point.rev
    if rev is None:
        following = yield from turn_at(tenant, point.holder, version.next)
        assert following is not None, "inside a stretch there is a next turn"
        rev = following.rev
    lineage = decisions.lineage_at(session, point, length=turn.end if turn else 0, rev=rev)
    return SessionVersion(lineage=lineage, turn=turn)


def annotations_of(
    tenant: Tenant, past: Sequence[decisions.Stretch]
) -> Operation[tuple[AnnotationRow, ...]]:
    """The annotations of these stretches, in the order of their revisions."""
    found: list[AnnotationRow] = []
    for each in past:
        if each.from_rev < each.upto_rev:
            found += yield from find(
                ANNOTATIONS_OF,
                tenant=tenant,
                session_id=each.session_id,
                above=each.from_rev,
                upto=each.upto_rev,
            )
    return tuple(found)


def unchanged(parent: SessionRow) -> AsRead:
    """The condition that nothing was committed to the fork's parent, and it was not annotated or deleted, meanwhile."""
    return AsRead(SESSIONS, parent, ("head", "meta_rev", "state"))


def forked(
    parent: SessionRow, version: Version, *, fresh: SessionId, anonymous: bool, now_ms: int
) -> Operation[SessionRow]:
    place = yield from find_place(parent, version)
    if place is None:
        raise SessionMissing("version", f"{parent.id} at {version}")
    past = decisions.stretches(place.lineage)
    return row_changes.forked_session(
        parent,
        fresh,
        lineage=place.lineage,
        turn=place.turn,
        notes=notes_of((yield from annotations_of(parent.tenant, past))),
        now_ms=now_ms,
        anonymous=anonymous,
    )


def made(row: SessionRow) -> Iterator[Change]:
    """The changes that store a new session with its lineage and its attributes."""
    yield insert(SESSIONS, row)
    ancestors = dict.fromkeys(segment.session_id for segment in row.lineage)
    if ancestors:
        yield insert(
            PASTS,
            *(PastRow(tenant=row.tenant, ancestor=each, session_id=row.id) for each in ancestors),
        )
    yield from attributes(row, SessionSettings(), row.settings)


def attributes(
    row: SessionRow, before: SessionSettings, after: SessionSettings
) -> Iterator[Change]:
    """The changes to the attribute table that lists filter by."""
    were, are = dict(before.attributes), dict(after.attributes)
    for name in were.keys() - are.keys():
        yield Delete(ATTRIBUTES, (row.tenant, row.id, name))
    for name, value in are.items():
        fresh = AttributeRow(tenant=row.tenant, session_id=row.id, name=name, value=value)
        if name not in were:
            yield insert(ATTRIBUTES, fresh)
        elif were[name] != value:
            yield change(ATTRIBUTES, fresh, value=value)


# ── families ─────────────────────────────────────────────────────────────────────────────────


FAMILY_TURNS = Question("family_turns", FamilyTurn)
FAMILY_LINES = Question("family_lines", SessionRow)
EVERY_LINE = 1_000_000


def family_turns(
    tenant: Tenant, family: SessionId, *, digests: Sequence[bytes], request_hash: bytes, limit: int
) -> Operation[tuple[FamilyTurn, ...]]:
    """The turns of a family that have one of these digests, or that a request with this hash has begun, the newest
    first. One plain read, however many turns there are."""
    return ask(
        FAMILY_TURNS,
        tenant=tenant,
        family=family,
        digests=[each.decode() for each in digests],
        request_hash=request_hash,
        limit=limit,
    )


def family_lines(
    tenant: Tenant, family: SessionId, *, limit: int
) -> Operation[tuple[SessionRow, ...]]:
    """The lines of a family that are not deleted, the last active first. A plain read."""
    return ask(FAMILY_LINES, tenant=tenant, family=family, limit=limit)


class LineLook(Facts):
    """The name of a family, the line that it means, and the line that a new one is forked from."""

    key: KeyRow | None = one(KEYS, tenant=":tenant", key=":key")
    current: SessionRow | None = one(SESSIONS, tenant="key.tenant", id="key.session_id")
    parent: SessionRow | None = one(SESSIONS, tenant=":tenant", id=":parent")


class MadeLine(Value):
    """A new line: the changes that store it, and the rows that must be as they were read."""

    row: SessionRow
    changes: tuple[Change, ...]
    on: tuple[SessionRow, ...]
    as_read: tuple[AsRead, ...]


def new_line(asked: Begin, target: NewLine, fence: Fence) -> Operation[MadeLine | Moved]:
    """The line that T1 makes for a request, held by the request's turn. Moved if the name stands for another family by
    now, or the parent is gone or has other annotations: the request then looks again."""
    found = yield from look(
        LineLook, tenant=asked.tenant, key=target.key, parent=target.parent or target.fresh
    )
    current, parent, now_ms = found.current, found.parent, found.now_ms
    if found.key is None or current is None or not _is_of(current, target.family):
        return Moved(session_id=target.family, head=Version(0))
    on: tuple[SessionRow, ...] = ()
    as_read: tuple[AsRead, ...] = (AsRead(KEYS, found.key, ("session_id",)),)
    changes: list[Change] = []
    if target.parent is None:
        row = row_changes.empty_session(asked.tenant, target.fresh, now_ms=now_ms, anonymous=True)
    else:
        if parent is None or not _is_of(parent, target.family):
            return Moved(session_id=target.family, head=Version(0))
        base = asked.request.base
        row = yield from forked(parent, base, fresh=target.fresh, anonymous=True, now_ms=now_ms)
        if row.meta_rev != asked.request.base_rev:
            return Moved(session_id=parent.id, head=parent.head)
        as_read += (unchanged(parent),)
    if target.is_other_agent:
        told = asked.request
        bound = row_changes.bound_to(told.source_key, told.source_name, told.agent)
        row = msgspec.structs.replace(row, **bound)
    if current.family is None:  # it was alone under the name, and is the first line from now on
        changes.append(change(SESSIONS, current, family=current.id))
        on = (current,)
    held = row_changes.held_by(fence, asked.node)
    row = msgspec.structs.replace(row, family=target.family, **held)
    changes += made(row)
    return MadeLine(row=row, changes=tuple(changes), on=on, as_read=as_read)


def _is_of(session: SessionRow, family: SessionId) -> bool:
    return session.state == "live" and session.family_id == family


class NameMove(Value):
    """What T2 changes because of a family's name: columns of the turn's own session, and other rows."""

    columns: Mapping[str, object] = MappingProxyType({})
    changes: tuple[Change, ...] = ()
    on: tuple[SessionRow, ...] = ()
    as_read: tuple[AsRead, ...] = ()


STAYS = NameMove()


def name_after(session: SessionRow, made_by: Commit) -> Operation[NameMove]:
    """Whether a line takes its family's name with this commit. A name that was reset meanwhile stays where it is."""
    followed = made_by.followed
    if followed is None or not followed.name:
        return STAYS
    found = yield from look(LineLook, tenant=session.tenant, key=followed.name, parent=session.id)
    key, current = found.key, found.current
    if key is None or current is None or not _is_of(current, session.family_id):
        return STAYS
    standing = decisions.standing_of(session.head, streamed=followed.streamed)
    kept = key.standing if key.standing == "own" else standing
    named = change(KEYS, key, session_id=session.id, standing=kept)
    as_held = (AsRead(KEYS, key, ("session_id", "generation", "standing")),)
    if current.id == session.id:
        if not decisions.is_firmer(standing, key.standing):
            return STAYS
        return NameMove(changes=(named,), as_read=as_held)
    empty = not current.head and current.open_turn is None
    if not decisions.takes_name(standing, key.standing, held_by_empty=empty):
        return STAYS
    changes: list[Change] = [named]
    keys = yield from find(KEYS_OF, tenant=session.tenant, session_id=current.id)
    if len(keys) == 1:  # else it has a name of its own, too, and stays listed
        changes.append(change(SESSIONS, current, anonymous=True))
    return NameMove(
        columns=change(SESSIONS, session, anonymous=False).columns,
        changes=tuple(changes),
        on=(current,),
        as_read=as_held,
    )
