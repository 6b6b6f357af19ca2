"""A cache of histories as models see them, encoded in the dialect of each model.

Committed turns never change, so each is encoded when it is first needed, and every later turn uses the same bytes.
A turn costs only its new messages, however long the conversation is. An annotation that changes what the model
sees (an item hidden, a summary) makes the cache encode the history again; a title does not.

1. The bytes of a history are the same whether it was cached, partly cached, or not at all.
2. A piece is a turn, up to where it is settled (`settled_to`). So no step is cut in two: a step whose calls wait is
   encoded together with their results, as part of the turn that brings them.
3. A cached history is identified by the hash chain of its turns, so it is never mistaken for another.
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
"""More pieces than this are joined into one: many small pieces cost more than a copy now and then."""

ENTRY_BYTES = 1024
"""The size of a cache entry besides its pieces, so that many small entries are bounded too."""


PIECE_BYTES = 256
"""The size of a piece besides its bytes."""


class EncodedPiece(Value):
    """Some messages in a model's dialect, and the digests of the blobs that they name."""

    data: bytes
    blobs: frozenset[str] = frozenset()


class EncodedPast(Value):
    """The history before a turn as a model sees it."""

    pieces: tuple[EncodedPiece, ...]
    open_step: Items
    """The step whose calls were waiting: it is encoded with the turn that answers them."""


class _View(Value):
    """What decides, besides the items, what a model sees: hidden items, the summary, and the first version."""

    hidden: frozenset[ItemId]
    summary: NoteId | None
    after: int
    """The version after which the view begins; 0: from the beginning."""


class _Kept(Value):
    """An encoded history up to a position, in pieces; `link` is the chain link of its last turn."""

    view: _View
    version: int
    link: bytes
    length: int
    pieces: tuple[EncodedPiece, ...]

    @property
    def size_bytes(self) -> int:
        return ENTRY_BYTES + sum(PIECE_BYTES + len(each.data) for each in self.pieces)


_Name: TypeAlias = tuple[SessionId, str]
"""The session and the name of the dialect."""


class EncodedHistories:
    """The most recently used encoded histories, bounded by bytes."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: OrderedDict[_Name, _Kept] = OrderedDict()

    def past(
        self, snapshot: Snapshot, dialect: Dialect, *, items_max: int | None = None
    ) -> EncodedPast:
        """The session's history as its agent's model sees it. Costs the turns since the last call.

        `items_max`: about how many items of it; see `seen_after`.
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
            return  # nothing to cache, or larger than the cache
        self._kept[name] = now
        self._bytes += size
        while self._bytes > self._bytes_max:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.size_bytes

    def __repr__(self) -> str:
        return f"<EncodedHistories {len(self._kept)} sessions, {self._bytes} bytes>"


def _blank(view: _View, snapshot: Snapshot) -> _Kept:
    """An empty entry that ends where the model's view begins."""
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
    """Whether the cached history is a beginning of this snapshot's."""
    marks = snapshot.marks
    return 0 < known.version <= len(marks) and marks[known.version - 1].link == known.link


def _parts_since(known: _Kept, snapshot: Snapshot) -> list[list[Item]]:
    """What a model sees after the cached history: one part for each turn, and last the unsettled step."""
    ends = [settled_to(snapshot, mark) for mark in snapshot.marks.since(known.version)]
    place: dict[ItemId | None, int] = {}
    n = 0
    for position, item in enumerate(snapshot.items.since(known.length), known.length):
        while n < len(ends) and position >= ends[n]:
            n += 1
        place[item_id(item)] = n
    parts: list[list[Item]] = [[] for _ in (*ends, None)]
    for seen in seen_by_model(snapshot, since=known.length):
        # A summary comes first, wherever it was made.
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
