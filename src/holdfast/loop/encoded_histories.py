"""Pasts of sessions as models see them, encoded once and kept.

Committed turns never change, so each is encoded when it is first needed, and its bytes are used again by every
later turn. What a turn costs is what is new, however long the conversation. What people say about the past and
a model can see (an item hidden, a summary) makes the pieces anew; a title does not.

1. Kept or not, and whatever was dropped meanwhile: a past is the same bytes.
2. A piece is a turn, up to where it is settled (`settled_to`). So no step is ever cut in two: one whose calls
   wait is encoded together with their results, as part of the turn that brings them.
3. A past is known by the hash chain of its turns, so another history can never be taken for it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from holdfast.core.codec import Value
from holdfast.core.history import chain
from holdfast.core.history.conversation import (
    Snapshot,
    further,
    hidden_from_model,
    seen_after,
    seen_by_model,
    settled_to,
)
from holdfast.core.items import Item, Items, Summary, item_id
from holdfast.ids import ItemId, NoteId, SessionId
from holdfast.models.model import Dialect

PIECES_MAX = 64
"""More than this are joined: many small pieces cost more than one copy of them now and then."""

ENTRY_BYTES = 1024
"""What remembering a past costs besides its pieces, so that many small ones are bounded too."""


PIECE_BYTES = 256
"""What a piece costs besides its bytes."""


class EncodedPiece(Value):
    """Some messages in a model's dialect, and the digests of the blobs that they name."""

    data: bytes
    blobs: frozenset[str] = frozenset()


class EncodedPast(Value):
    """What a model has seen before this turn."""

    pieces: tuple[EncodedPiece, ...]
    open_step: Items
    """What is not settled: the step whose calls were waiting. It is encoded with the turn that answers them."""


class _View(Value):
    """What people have said about a past, as far as a model can see it; and where it begins to see."""

    hidden: frozenset[ItemId]
    summary: NoteId | None
    after: int
    """The version after which it begins to see; 0: from the beginning."""


class _Kept(Value):
    """A past up to a position, in pieces; `link` names the turns that it came from."""

    view: _View
    version: int
    link: bytes
    length: int
    pieces: tuple[EncodedPiece, ...]

    @property
    def size_bytes(self) -> int:
        return ENTRY_BYTES + sum(PIECE_BYTES + len(each.data) for each in self.pieces)


_Name: TypeAlias = tuple[SessionId, str]
"""Whose past it is, in which dialect."""


class EncodedHistories:
    """Encoded pasts, the most recently used ones, bounded by bytes."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: OrderedDict[_Name, _Kept] = OrderedDict()

    def past(
        self, snapshot: Snapshot, dialect: Dialect, *, items_max: int | None = None
    ) -> EncodedPast:
        """The session's past as its agent's model sees it. Costs what came since the last time.

        `items_max`: about how much of it; see `seen_after`.
        """
        name = (snapshot.session_id, dialect.name)
        known = self._kept.pop(name, None)
        self._bytes -= known.size_bytes if known else 0
        after = 0 if items_max is None else seen_after(snapshot, items_max=items_max)
        view = _view_of(snapshot, after)
        if known is None or known.view != view or not _goes_on(known, snapshot):
            known = _blank(view, snapshot)
        *settled, open_step = _parts_since(known, snapshot)
        now = _extended(known, settled, snapshot, dialect)
        self._keep(name, now)
        return EncodedPast(pieces=now.pieces, open_step=tuple(open_step))

    def _keep(self, name: _Name, now: _Kept) -> None:
        size = now.size_bytes
        if not now.pieces or size > self._bytes_max:
            return  # nothing to gain, or nothing to spare
        self._kept[name] = now
        self._bytes += size
        while self._bytes > self._bytes_max:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.size_bytes

    def __repr__(self) -> str:
        return f"<Histories {len(self._kept)} sessions, {self._bytes} bytes>"


def _blank(view: _View, snapshot: Snapshot) -> _Kept:
    """Nothing kept yet, up to where the model begins to see."""
    if not view.after:
        return _Kept(view=view, version=0, link=chain.GENESIS, length=0, pieces=())
    mark = snapshot.marks[view.after - 1]
    length = settled_to(snapshot, mark)
    return _Kept(view=view, version=view.after, link=mark.link, length=length, pieces=())


def _view_of(snapshot: Snapshot, after: int) -> _View:
    hidden = hidden_from_model(snapshot)
    summary = further(snapshot.turn_summary, snapshot.notes.summary)
    return _View(hidden=hidden, summary=summary.id if summary else None, after=after)


def _goes_on(known: _Kept, snapshot: Snapshot) -> bool:
    """Whether this snapshot holds what was kept, and perhaps more."""
    marks = snapshot.marks
    return 0 < known.version <= len(marks) and marks[known.version - 1].link == known.link


def _parts_since(known: _Kept, snapshot: Snapshot) -> list[list[Item]]:
    """What a model sees beyond what was kept: turn by turn as they are settled, and last what is not."""
    ends = [settled_to(snapshot, mark) for mark in snapshot.marks.since(known.version)]
    place: dict[ItemId | None, int] = {}
    n = 0
    for position, item in enumerate(snapshot.items.since(known.length), known.length):
        while n < len(ends) and position >= ends[n]:
            n += 1
        place[item_id(item)] = n
    parts: list[list[Item]] = [[] for _ in (*ends, None)]
    for seen in seen_by_model(snapshot, since=known.length):
        # A summary stands before everything, wherever it was made.
        parts[0 if isinstance(seen, Summary) else place[seen.id]].append(seen)
    return parts


def _extended(
    known: _Kept, settled: list[list[Item]], snapshot: Snapshot, dialect: Dialect
) -> _Kept:
    encoded = (dialect.encode(part) for part in settled if part)
    pieces = (*known.pieces, *(piece_of(data, dialect) for data in encoded if data))
    if len(pieces) > PIECES_MAX:
        pieces = (joined(pieces),)
    marks = snapshot.marks
    return _Kept(
        view=known.view,
        version=len(marks),
        link=marks[-1].link if marks else chain.GENESIS,
        length=settled_to(snapshot, marks[-1]) if marks else 0,
        pieces=pieces,
    )


def piece_of(data: bytes, dialect: Dialect) -> EncodedPiece:
    return EncodedPiece(data=data, blobs=dialect.blobs_in(data))


def joined(pieces: tuple[EncodedPiece, ...]) -> EncodedPiece:
    blobs = frozenset[str]().union(*(each.blobs for each in pieces))
    return EncodedPiece(data=b",".join(each.data for each in pieces), blobs=blobs)
