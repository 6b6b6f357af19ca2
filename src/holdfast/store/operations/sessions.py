"""Sessions as a whole: annotations, keys, forks, removal, blobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from holdfast.core.codec import Value, encode
from holdfast.core.history.conversation import Lineage, Patch, Rebinding
from holdfast.core.items import SessionSettings
from holdfast.errors import SessionGone, SessionMissing
from holdfast.ids import ItemId, SessionId, SessionKey, Tenant, Version
from holdfast.store import decisions, row_changes
from holdfast.store.operations.finders import queued_of, session_of, turn_at, turn_of
from holdfast.store.operations.turns import discarded
from holdfast.store.outcomes import Annotated, AnnotateOutcome, Busy, SummaryMoved
from holdfast.store.rows import (
    AnnotationRow,
    AttributeRow,
    BlobName,
    BlobRow,
    KeyRow,
    PastRow,
    SessionRow,
    TurnRow,
)
from holdfast.store.snapshots import notes_of
from holdfast.store.sql.tables import (
    ANNOTATIONS,
    ATTRIBUTES,
    BLOB_NAMES,
    BLOBS,
    CHUNKS,
    KEYS,
    PASTS,
    SESSIONS,
)
from holdfast.store.steps import (
    AsRead,
    Change,
    Delete,
    Facts,
    Finder,
    Operation,
    become,
    change,
    find,
    insert,
    look,
    look_up,
    one,
    write,
)
from holdfast.store.transfer import import_checks
from holdfast.store.verification import proofs

# ── annotations ──────────────────────────────────────────────────────────────────────────────

ANNOTATIONS_OF = Finder(
    ANNOTATIONS, tenant=":tenant", session_id=":session_id", order=("rev",), over="rev"
)


def annotate(
    tenant: Tenant,
    session_id: SessionId,
    patches: Sequence[tuple[ItemId | None, Patch]],
    *,
    summary_rev: int | None = None,
) -> Operation[AnnotateOutcome]:
    """Append annotations. With `summary_rev`, only if that summary is still the latest (0: none yet).

    Annotations of the session as a whole also change its row. Raises SessionMissing or SessionGone.
    """
    found = yield from look_up(SESSIONS, tenant, session_id)
    session = row_changes.demand_live(found.row, session_id)
    outcome = row_changes.annotate_session(
        session, patches, summary_rev=summary_rev, now_ms=found.now_ms
    )
    if isinstance(outcome, SummaryMoved):
        return outcome
    row, made = outcome
    stored = (
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
    yield from write(
        insert(ANNOTATIONS, *stored),
        become(SESSIONS, row, "meta_rev", "summary_rev", "title", "settings"),
        *_attributes(row, before=session.settings),
        on=(session,),
    )
    return Annotated(annotations=made)


def rebind(
    tenant: Tenant,
    session_id: SessionId,
    *,
    source_key: str,
    source_name: str | None = None,
    entry_agent: str | None = None,
) -> Operation[SessionRow | Busy]:
    """Bind a session to the agents of another source; without `entry_agent` it keeps the name of its own.

    The session gets a new revision, so that a turn that was prepared for its former agents does not begin. A turn is
    played by the agents that it began with: while one is open, the outcome is `Busy`. Rebinding again changes nothing.
    Raises SessionMissing or SessionGone.
    """
    found = yield from look_up(SESSIONS, tenant, session_id)
    session = row_changes.demand_live(found.row, session_id)
    if session.open_turn is not None:
        return Busy(session_id=session_id, turn_id=session.open_turn, holder_alive=True)
    columns = {
        "source_key": source_key,
        "source_name": source_name or None,
        "entry_agent": entry_agent or session.entry_agent,
    }
    bound = msgspec.structs.replace(session, **columns)
    if not session.head or bound == session:  # the first turn binds a session that has none
        return session
    moment = Rebinding(version=session.head, rev=session.meta_rev + 1)
    row = msgspec.structs.replace(bound, meta_rev=moment.rev)
    note = AnnotationRow(
        tenant=tenant,
        session_id=session_id,
        rev=moment.rev,
        item=None,
        patch=encode(moment.flag()),
        at_ms=found.now_ms,
    )
    yield from write(
        insert(ANNOTATIONS, note),
        change(
            SESSIONS,
            session,
            meta_rev=row.meta_rev,
            **columns,
            agent_proof=proofs.AGENT.of(row),
        ),
        on=(session,),
    )
    return row


def _attributes(row: SessionRow, *, before: SessionSettings) -> Iterator[Change]:
    """The changes to the attribute table that lists filter by."""
    were, are = dict(before.attributes), dict(row.settings.attributes)
    for name in were.keys() - are.keys():
        yield Delete(ATTRIBUTES, (row.tenant, row.id, name))
    for name, value in are.items():
        fresh = AttributeRow(tenant=row.tenant, session_id=row.id, name=name, value=value)
        if name not in were:
            yield insert(ATTRIBUTES, fresh)
        elif were[name] != value:
            yield change(ATTRIBUTES, fresh, value=value)


# ── forks and keys ───────────────────────────────────────────────────────────────────────────


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


def fork(
    tenant: Tenant,
    session_id: SessionId,
    *,
    version: Version,
    fresh: SessionId,
    anonymous: bool = False,
) -> Operation[SessionRow]:
    """Make a session that begins as this one stood at `version`, state and annotations included.

    Forking again with the same `fresh` returns the same row. The fork of an anonymous line is
    anonymous, too; with `anonymous` every fork is. Raises SessionMissing, SessionGone.
    """
    there = yield from session_of(tenant, fresh)
    if there is not None:
        return there
    found = yield from look_up(SESSIONS, tenant, session_id)
    parent = row_changes.demand_live(found.row, session_id)
    row = yield from _forked(parent, version, fresh=fresh, anonymous=anonymous, now_ms=found.now_ms)
    yield from write(*made(row), as_read=(_unchanged(parent),))
    return row


def _unchanged(parent: SessionRow) -> AsRead:
    """The condition that nothing was committed to the fork's parent, and it was not annotated or deleted, meanwhile."""
    return AsRead(SESSIONS, parent, ("head", "meta_rev", "state"))


def _forked(
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
    yield from _attributes(row, before=SessionSettings())


class Binding(Facts):
    """A key's row, the session that it names, and the session with the `fresh` id, if it exists already."""

    key: KeyRow | None = one(KEYS, tenant=":tenant", key=":key")
    session: SessionRow | None = one(SESSIONS, tenant="key.tenant", id="key.session_id")
    there: SessionRow | None = one(SESSIONS, tenant=":tenant", id=":fresh")


def bind(
    tenant: Tenant, key: SessionKey, *, fresh: SessionId, version: Version | None = None
) -> Operation[SessionRow]:
    """Bind the key to a new session: an empty one (reset), or a fork at `version` (rewind).

    The old session stays as it is, reachable by its id. Binding again with the same `fresh`
    returns the same row. Raises SessionMissing for an unknown key or version; a reset of a key
    whose session was deleted or never existed starts a new one.
    """
    found = yield from look(Binding, tenant=tenant, key=key, fresh=fresh)
    if found.there is not None:  # also if the key has moved on since: an old retry undoes nothing
        return found.there
    known, session = found.key, found.session
    if version is None:
        row = row_changes.empty_session(tenant, fresh, now_ms=found.now_ms)
    elif known is None:
        raise SessionMissing("session key", key)
    else:
        parent = row_changes.demand_live(session, known.session_id)
        row = yield from _forked(parent, version, fresh=fresh, anonymous=False, now_ms=found.now_ms)
    renamed: Change
    if known is None:
        renamed = insert(KEYS, KeyRow(tenant=tenant, key=key, session_id=fresh))
    else:
        moved = msgspec.structs.replace(known, session_id=fresh, generation=known.generation + 1)
        renamed = change(
            KEYS,
            known,
            session_id=moved.session_id,
            generation=moved.generation,
            proof=proofs.KEY.of(moved),
        )
    # The old session is written, too, so that a node that begins a turn on it notices the new binding.
    yield from write(
        *made(row),
        renamed,
        on=(session,) if session else (),
        as_read=(AsRead(KEYS, known, ("generation",)),) if known else (),
    )
    return row


# ── removal ──────────────────────────────────────────────────────────────────────────────────

KEYS_OF = Finder(
    KEYS,
    tenant=":tenant",
    session_id=":session_id",
    order=("key",),
    index="session_key_by_session",
)


def remove(tenant: Tenant, session_id: SessionId) -> Operation[SessionRow]:
    """Delete a session: it is gone at once, its key is free, its open and queued turns are ended; retention removes its
    bytes later.

    Deleting again returns the same row. Raises SessionMissing.
    """
    return remove_if(tenant, session_id, lambda session: True)


def remove_if(
    tenant: Tenant, session_id: SessionId, is_still: Callable[[SessionRow], bool]
) -> Operation[SessionRow]:
    """`remove`, if the session still meets the caller's condition."""
    found = yield from look_up(SESSIONS, tenant, session_id)
    session = found.row
    if session is None:
        raise SessionMissing("session", session_id)
    if session.state == "deleted" or not is_still(session):
        return session
    ending = list((yield from queued_of(session)))
    if session.open_turn is not None:
        open_turn = yield from turn_of(tenant, session.open_turn)
        ending += () if open_turn is None else (open_turn,)
    changes: list[Change] = []
    for turn in ending:
        _, more = yield from discarded(
            turn, ended_by="deleted", detail="", settlement="done", now_ms=found.now_ms
        )
        changes += more
    keys = yield from find(KEYS_OF, tenant=tenant, session_id=session_id)
    changes += (Delete(KEYS, (tenant, each.key)) for each in keys)
    row = row_changes.deleted_session(session)
    yield from write(
        become(SESSIONS, row, *row_changes.DELETED),
        Delete(ATTRIBUTES, (tenant, session_id)),
        Delete(CHUNKS, (tenant, session_id, -1)),
        *changes,
        on=(session,),
    )
    return row


# ── blobs ────────────────────────────────────────────────────────────────────────────────────


class BlobLook(Facts):
    """A session, and its blob with this digest."""

    session: SessionRow | None = one(SESSIONS, tenant=":tenant", id=":session_id")
    blob: BlobName | None = one(
        BLOB_NAMES, tenant=":tenant", session_id=":session_id", digest=":digest"
    )


def put_blob(tenant: Tenant, session_id: SessionId, data: bytes) -> Operation[str]:
    """Store bytes under their digest, before an item names them. Returns `sha256:…`.

    The session need not exist yet: its first turn may bring the bytes. Raises SessionGone.
    If the bytes were stored before, retention counts their age anew.
    """
    digest = import_checks.digest_of(data)
    found = yield from look(BlobLook, tenant=tenant, session_id=session_id, digest=digest)
    session, known = found.session, found.blob
    if session is not None and session.state == "deleted":
        raise SessionGone(session_id, why="deleted")
    as_read = () if session is None else (AsRead(SESSIONS, session, ("state",)),)
    if known is None:
        row = BlobRow(tenant=tenant, session_id=session_id, digest=digest, bytes=data)
        yield from write(insert(BLOBS, row), as_read=as_read)
    else:
        is_still = AsRead(BLOB_NAMES, known, ("noticed_ms",))
        yield from write(change(BLOB_NAMES, known, noticed_ms=None), as_read=(*as_read, is_still))
    return digest
