"""Sessions as a whole: annotations, keys, forks, removal, blobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.core.codec import encode
from holdfast.core.history.conversation import Annotation, Patch, Rebinding
from holdfast.errors import NameTaken, SessionGone, SessionMissing
from holdfast.ids import ItemId, SessionId, SessionKey, Tenant, Version
from holdfast.store import decisions, row_changes
from holdfast.store.operations.finders import queued_of, session_of, turn_of
from holdfast.store.operations.lines import (
    EVERY_LINE,
    KEYS_OF,
    attributes,
    family_lines,
    forked,
    made,
    unchanged,
)
from holdfast.store.operations.turns import discarded
from holdfast.store.outcomes import Annotated, AnnotateOutcome, Busy, SummaryMoved
from holdfast.store.rows import (
    AnnotationRow,
    BlobName,
    BlobRow,
    KeyRow,
    SessionRow,
    Standing,
)
from holdfast.store.sql.tables import (
    ANNOTATIONS,
    ATTRIBUTES,
    BLOB_NAMES,
    BLOBS,
    CHUNKS,
    KEYS,
    SESSIONS,
)
from holdfast.store.steps import (
    AsRead,
    Change,
    Delete,
    Facts,
    Operation,
    Update,
    change,
    find,
    get,
    insert,
    look,
    look_up,
    one,
    write,
)
from holdfast.store.transfer import import_checks

# ── annotations ──────────────────────────────────────────────────────────────────────────────


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
    columns, made = outcome
    yield from write(
        insert(ANNOTATIONS, *(_stored(session, each) for each in made)),
        Update(SESSIONS, (tenant, session_id), columns),
        *attributes(session, session.settings, columns["settings"]),
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
    columns = row_changes.bound_to(source_key, source_name, entry_agent or session.entry_agent)
    bound = msgspec.structs.replace(session, **columns)
    if not session.head or bound == session:  # the first turn binds a session that has none
        return session
    moment = Rebinding(version=session.head, rev=session.meta_rev + 1)
    row = msgspec.structs.replace(bound, meta_rev=moment.rev)
    note = Annotation(rev=moment.rev, patch=moment.flag(), at_ms=found.now_ms)
    yield from write(
        insert(ANNOTATIONS, _stored(session, note)),
        change(SESSIONS, session, meta_rev=row.meta_rev, **columns),
        on=(session,),
    )
    return row


def _stored(session: SessionRow, made: Annotation) -> AnnotationRow:
    return AnnotationRow(
        tenant=session.tenant,
        session_id=session.id,
        rev=made.rev,
        item=made.item,
        patch=encode(made.patch),
        at_ms=made.at_ms,
    )


# ── forks and keys ───────────────────────────────────────────────────────────────────────────


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
    row = yield from forked(parent, version, fresh=fresh, anonymous=anonymous, now_ms=found.now_ms)
    yield from write(*made(row), as_read=(unchanged(parent),))
    return row


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
        row = yield from forked(parent, version, fresh=fresh, anonymous=False, now_ms=found.now_ms)
        row = msgspec.structs.replace(row, anonymous=False, family=parent.family)
    renamed: Change
    if known is None:
        renamed = insert(KEYS, KeyRow(tenant=tenant, key=key, session_id=fresh))
    else:
        renamed = change(KEYS, known, session_id=fresh, generation=known.generation + 1)
    folded: list[Change] = []
    if session is not None and row.family is not None:  # the old line stays in the family
        folded.append(change(SESSIONS, session, anonymous=True))
    # The old session is written, too, so that a node that begins a turn on it notices the new binding.
    yield from write(
        *made(row),
        renamed,
        *folded,
        on=(session,) if session else (),
        as_read=(AsRead(KEYS, known, ("generation",)),) if known else (),
    )
    return row


class NameLook(Facts):
    """A key's row, if there is one, and the session that is to have the key."""

    key: KeyRow | None = one(KEYS, tenant=":tenant", key=":key")
    session: SessionRow | None = one(SESSIONS, tenant=":tenant", id=":session_id")


def name(tenant: Tenant, session_id: SessionId, key: SessionKey) -> Operation[SessionRow]:
    """Give a session one more key, a new one. A line that is not listed is listed from now on.

    Naming it again changes nothing. Raises SessionMissing, SessionGone, and NameTaken if the key names another session.
    """
    found = yield from look(NameLook, tenant=tenant, key=key, session_id=session_id)
    session = row_changes.demand_live(found.session, session_id)
    if found.key is not None:
        if found.key.session_id != session_id:
            raise NameTaken(key, found.key.session_id)
        return session
    row = msgspec.structs.replace(session, anonymous=False)
    standing: Standing | None = None if session.family is None else "own"
    named = KeyRow(tenant=tenant, key=key, session_id=session_id, standing=standing)
    changes: list[Change] = [insert(KEYS, named)]
    if session.anonymous:
        changes.append(change(SESSIONS, session, anonymous=False))
    yield from write(*changes, on=(session,))
    return row


# ── removal ──────────────────────────────────────────────────────────────────────────────────


def remove(tenant: Tenant, session_id: SessionId) -> Operation[SessionRow]:
    """Delete a session: it is gone at once, its key is free, its open and queued turns are ended; retention removes its
    bytes later.

    Deleting again returns the same row. Raises SessionMissing.
    """
    return remove_if(tenant, session_id, lambda session: True)


def remove_if(
    tenant: Tenant, session_id: SessionId, is_still: Callable[[SessionRow], bool]
) -> Operation[SessionRow]:
    """`remove`, if the session still meets the caller's condition. With the line that stands for a family, all lines of
    the family go."""
    found = yield from look_up(SESSIONS, tenant, session_id)
    session = found.row
    if session is None:
        raise SessionMissing("session", session_id)
    if session.state == "deleted" or not is_still(session):
        return session
    going = [session]
    if session.family is not None and not session.anonymous:
        family = yield from family_lines(tenant, session.family, limit=EVERY_LINE)
        others = [each for each in family if each.id != session.id]
        if (yield from _stands_for_family(session, others)):
            for each in others:  # a plain read does not know whether the row has changed since
                line = yield from get(SESSIONS, tenant, each.id)
                going += [line] if line is not None and line.state != "deleted" else []
    changes: list[Change] = []
    for each in going:
        changes += yield from _removed(each, now_ms=found.now_ms)
    yield from write(*changes, on=tuple(going))
    return msgspec.structs.replace(session, **row_changes.deleted(session))


def _stands_for_family(session: SessionRow, others: Sequence[SessionRow]) -> Operation[bool]:
    """Whether the family's name means this line. If that cannot be told, it does not: too little goes, and not too much.

    A search judges by the lines that have a version (`lists.stands_for_family`); a rewound chat may have none.
    """
    listed = [session.id, *(each.id for each in others if not each.anonymous)]
    keys: list[KeyRow] = []
    for each in listed:
        keys += yield from find(KEYS_OF, tenant=session.tenant, session_id=each)
    return decisions.line_of_family(listed, keys) == session.id


def _removed(session: SessionRow, *, now_ms: int) -> Operation[list[Change]]:
    """The changes that delete one session."""
    tenant, session_id = session.tenant, session.id
    ending = list((yield from queued_of(session)))
    if session.open_turn is not None:
        open_turn = yield from turn_of(tenant, session.open_turn)
        ending += () if open_turn is None else (open_turn,)
    changes: list[Change] = [
        Update(SESSIONS, (tenant, session_id), row_changes.deleted(session)),
        Delete(ATTRIBUTES, (tenant, session_id)),
        Delete(CHUNKS, (tenant, session_id, -1)),
    ]
    for turn in ending:
        _, more = yield from discarded(
            turn, ended_by="deleted", detail="", settlement="done", now_ms=now_ms
        )
        changes += more
    keys = yield from find(KEYS_OF, tenant=tenant, session_id=session_id)
    changes += (Delete(KEYS, (tenant, each.key)) for each in keys)
    return changes


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
