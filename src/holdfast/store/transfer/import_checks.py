"""Checks of a dumped session before it is stored. Pure, and the same for every home.

A store trusts what it wrote itself. A dump comes from outside: from an older backup, another server, an
editor. It is stored whole or not at all, so it is first checked for everything that would make it half a
session. Damage inside an item is allowed: the hash chain shows it in both stores, and the other items are
worth moving.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

import msgspec

from holdfast.core.codec import Unreadable, Value, encode
from holdfast.core.history import chain
from holdfast.core.history.conversation import Segment
from holdfast.core.identity import portable_key
from holdfast.core.items import Audio, Blob, File, Image, StoredItem, item_decoder, path_text
from holdfast.ids import Tenant, TurnId, Version
from holdfast.store.outcomes import RestoreRefused, SessionDump
from holdfast.store.row_changes import at_rest, has_ended
from holdfast.store.rows import (
    AnnotationRow,
    IdempotencyRow,
    ItemRow,
    JournalRow,
    KeyRow,
    SessionRow,
    StateRow,
    TurnRow,
)


class Ancestor(Value):
    """The rows that this store has for one segment of a dump's lineage."""

    segment: Segment
    session: SessionRow | None
    turn: TurnRow | None
    """The turn that made the segment's last version: see `decisions.owner_of`."""
    is_going: bool = False
    """Retention has begun to remove its items."""


def digest_of(data: bytes) -> str:
    """The name of a blob."""
    return f"sha256:{sha256(data).hexdigest()}"


def taken(kind: str, name: str) -> RestoreRefused:
    """The refusal if this store has a different thing of this kind under the same name."""
    what = "a different session" if kind == "session" else f"the {kind}"
    held = "is there already" if kind == "session" else "belongs to another session here"
    return RestoreRefused(why=f"{what} '{name}' {held}", conflict=True)


def blobs_named(item: StoredItem) -> Iterator[str]:
    """The digests of the blobs that an item is made of."""
    for part in getattr(item, "content", ()):
        if isinstance(part, Image | Audio | File) and isinstance(part.source, Blob):
            yield part.source.digest


def path_of(body: bytes) -> str:
    """The path of the sub-agent that an item belongs to; empty for the conversation itself, and if it is unreadable."""
    item = item_decoder.lenient(body)
    return "" if isinstance(item, Unreadable) else path_text(item.path)


def portable(dump: SessionDump) -> SessionDump:
    """A dump as it may leave this machine: its agents' sources without local directories and tokens, its turns without
    lease tokens."""
    session = dump.session
    return msgspec.structs.replace(
        without_leases(dump),
        session=msgspec.structs.replace(session, source_key=portable_key(session.source_key)),
        journals=tuple(
            msgspec.structs.replace(row, records=_SOURCE.sub(_portable, row.records))
            for row in dump.journals
        ),
    )


def without_leases(dump: SessionDump) -> SessionDump:
    """A dump whose turns have no lease token, which marks them as imported: an approval that they wait for cannot be
    given in another store."""
    turns = tuple(msgspec.structs.replace(each, lease_token=0) for each in dump.turns)
    return msgspec.structs.replace(dump, turns=turns)


_SOURCE = re.compile(rb'"source_key":("(?:[^"\\]|\\.)*")')
"""The source in a journal's request. Inside a text, these quotes would be escaped, so no text matches."""


def _portable(found: re.Match[bytes]) -> bytes:
    return b'"source_key":' + encode(portable_key(msgspec.json.decode(found[1], type=str)))


def is_same(here: SessionDump, dump: SessionDump) -> bool:
    """Whether two dumps are of one session at one moment. Ignored is what changes with time alone: retention removes
    discarded turns with their blobs, journals and idempotency keys, and a turn is acknowledged later."""
    return _lasting(here) == _lasting(dump)


def _lasting(dump: SessionDump) -> SessionDump:
    dump = portable(dump)
    if dump.session.state == "deleted":  # retention removes all of it
        return SessionDump(
            session=dump.session, keys=(), turns=(), items=(), state=(), annotations=()
        )
    return msgspec.structs.replace(
        dump,
        turns=tuple(
            msgspec.structs.replace(turn, acked=False, replayable=False)
            for turn in dump.turns
            if turn.state == "committed"
        ),
        journals=(),
        claims=(),
        blobs=_named_blobs(dump, dump.items),
    )


def _named_blobs(dump: SessionDump, items: Iterable[ItemRow]) -> tuple[tuple[str, bytes], ...]:
    if not dump.blobs:
        return ()
    named = {digest for row in items for digest in blobs_named(item_decoder.lenient(row.body))}
    return tuple((digest, data) for digest, data in dump.blobs if digest in named)


def remains(
    dump: SessionDump, *, version: Version, length: int, rev: int, claims: bool
) -> SessionDump:
    """The part of a deleted session that may be exported: as much as a live session still reads as its past.

    With `claims`, the idempotency keys and their turns, too, so that a retry learns that the session is gone, and does
    not begin anew.
    """
    kept = dump.claims if claims else ()
    led_to = {claim.turn_id for claim in kept}
    items = tuple(row for row in dump.items if row.pos < length)
    return SessionDump(
        session=dump.session,
        keys=(),
        turns=tuple(
            turn
            for turn in dump.turns
            if turn.turn_id in led_to or (turn.seq is not None and turn.seq <= version)
        ),
        items=items,
        state=tuple(row for row in dump.state if row.seq <= version),
        annotations=tuple(row for row in dump.annotations if row.rev <= rev),
        blobs=_named_blobs(dump, items),
        claims=kept,
    )


def flaw_in(dump: SessionDump, *, tenant: Tenant, past: Sequence[Ancestor]) -> str | None:
    """Why this tenant cannot store this dump on top of this past; None if it can."""
    flaw = _foreign_rows(dump, tenant) or _unrest(dump)
    if flaw is None and dump.session.state == "live":  # of a deleted one there may be little left
        flaw = _another_past(dump, past) or _gaps(dump)
    return flaw


def _foreign_rows(dump: SessionDump, tenant: Tenant) -> str | None:
    session = dump.session
    rows: tuple[KeyRow | TurnRow | StateRow | AnnotationRow, ...] = (
        *dump.keys,
        *dump.turns,
        *dump.state,
        *dump.annotations,
    )
    if session.tenant != tenant or any(row.tenant != tenant for row in rows):
        return f"the dump of {session.id} belongs to another tenant"
    of_turns: tuple[JournalRow | IdempotencyRow, ...] = (*dump.journals, *dump.claims)
    if any(each.tenant != tenant for each in of_turns):
        return f"the dump of {session.id} has a journal or an idempotency key of another tenant"
    if any(row.session_id != session.id for row in rows):
        return f"the dump of {session.id} has rows of another session"
    own = {turn.turn_id for turn in dump.turns}
    if not {each.turn_id for each in of_turns} <= own:
        return (
            f"the dump of {session.id} has journals or idempotency keys of another session's turns"
        )
    return None


def _unrest(dump: SessionDump) -> str | None:
    session = dump.session
    if session != at_rest(session) or not all(map(has_ended, dump.turns)):
        return f"{session.id} was dumped in the middle of a turn"
    if any(claim.state == "running" for claim in dump.claims):
        return f"the dump of {session.id} has an idempotency key that waits for its turn"
    if any(digest != digest_of(data) for digest, data in dump.blobs):
        return f"the dump of {session.id} has a blob that is not what its digest says"
    return None


def _another_past(dump: SessionDump, past: Sequence[Ancestor]) -> str | None:
    """A fork reads its past from other sessions: they must be in this store, and be the same."""
    fork, previous = dump.session.id, chain.GENESIS
    for each in past:
        wanted, turn = each.segment, each.turn
        if each.session is None:
            return f"{fork} goes on from {wanted.session_id}; restore that first"
        end = turn.end if turn else 0
        missing = each.is_going or (turn is None and wanted.upto_version > 0)
        if missing or end != wanted.upto_pos or each.session.meta_rev < wanted.upto_rev:
            return f"{wanted.session_id}, which {fork} goes on from, is not the same here"
        previous = turn.link if turn else chain.GENESIS
    if not _goes_on_from(dump, previous):
        return f"{fork} goes on from something else than what is here"
    return None


def _goes_on_from(dump: SessionDump, previous: bytes) -> bool:
    """Whether the first turn of a fork is linked to the end of its past. For others it does not matter."""
    if not dump.session.lineage:
        return True
    first = next(iter(_committed(dump)), None)
    if first is None:
        return dump.session.link == previous
    bodies = tuple(row.body for row in dump.items if row.pos < first.end)
    if any(isinstance(item_decoder.lenient(body), Unreadable) for body in bodies):
        return True  # no link can be made over damage, and damage alone is no reason to refuse
    assert first.seq is not None and first.ended_by is not None
    header = chain.LinkHeader(
        turn_id=first.turn_id, version=first.seq, ended_by=first.ended_by, agent=first.agent
    )
    changes = map(encode, first.changes)
    return first.link == chain.link(previous, header, items=bodies, changes=changes)


def _gaps(dump: SessionDump) -> str | None:
    """The first gap in the versions, positions or revisions, up to the counts in the session's row; None if none."""
    session, lineage = dump.session, dump.session.lineage
    version, pos, rev = (
        (lineage[-1].upto_version, lineage[-1].upto_pos, lineage[-1].upto_rev)
        if lineage
        else (0, 0, 0)
    )
    turns = _committed(dump)
    whole = (
        [turn.seq for turn in turns] == list(range(version + 1, session.head + 1))
        and _is_dense(turns, dump.items, start=pos, end=session.length)
        and (not turns or turns[-1].link == session.link)
        and [row.rev for row in dump.annotations] == list(range(rev + 1, session.meta_rev + 1))
        and all(version < row.seq <= session.head for row in dump.state)
    )
    return (
        None
        if whole
        else f"the dump of {session.id} is not whole: turns, items or notes of it are missing"
    )


def _is_dense(turns: Iterable[TurnRow], items: Sequence[ItemRow], *, start: int, end: int) -> bool:
    """Whether each turn begins where the one before ended, and every position has the item of its turn."""
    owners: list[TurnId] = []
    for turn in turns:
        if turn.start != start + len(owners):
            return False
        owners += [turn.turn_id] * (turn.end - turn.start)
    expected = list(zip(range(start, end), owners, strict=False))
    return len(owners) == end - start and [(row.pos, row.turn_id) for row in items] == expected


def _committed(dump: SessionDump) -> list[TurnRow]:
    """The committed turns in the order of the history. Their ids may have another order: other clocks made them."""
    kept = (turn for turn in dump.turns if turn.seq is not None)
    return sorted(kept, key=lambda turn: turn.seq or 0)
