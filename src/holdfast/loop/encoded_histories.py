"""A cache of histories as models see them, encoded in the dialect of each model.

Committed turns never change, so each is encoded when it is first needed, and every later turn uses the same bytes.
A turn costs only its new messages, however long the conversation is. An annotation that changes what the model
sees (an item hidden, a summary) makes the cache encode the history again; a title does not.

1. The bytes of a history are the same whether it was cached, partly cached, or not at all.
2. A piece is a turn, up to where it is settled (`settled_to`). So no step is cut in two: a step whose calls wait is
   encoded together with their results, as part of the turn that brings them.
3. A cached history is identified by the hash chain of its turns, so it is never mistaken for another.
4. Where a dialect binds thoughts to the prompt before them, the pieces that fit are cached too, for the last few
   openings of a prompt: a turn costs its new messages, and an opening that is new costs the history once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from holdfast.core.codec import Value
from holdfast.core.exchanges import WHOLE, ShownPast
from holdfast.core.history import chain
from holdfast.core.history.conversation import (
    Snapshot,
    further,
    hidden_from_model,
    seen_after,
    seen_by_model,
    settled_to,
    summary_seen,
)
from holdfast.core.items import Item, Items, Summary, UserMessage, end_of, item_id
from holdfast.ids import ItemId, NoteId, SessionId
from holdfast.models.model import BindingDialect, Dialect
from holdfast.wire.prefix_digest import PrefixDigest, Prefixes, copied, texts_of

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

    pieces: tuple[EncodedPiece, ...] = ()
    open_step: Items = ()
    """The step whose calls were waiting: it is encoded with the turn that answers them."""


FITS_MAX = 4
"""For how many openings the pieces that fit are cached: the agents of a team take turns in one session."""


class _Fit(Value):
    """The pieces of a history that fit after one opening of a prompt."""

    opening: tuple[tuple[str, str], ...]
    covered: int
    """How many pieces of the history they are made of."""
    pieces: tuple[EncodedPiece, ...]
    after: dict[str, PrefixDigest]
    """The digests at their end."""


class _View(Value):
    """What decides, besides the items, what a model sees: hidden items, the summary, and the first version."""

    hidden: frozenset[ItemId]
    summary: NoteId | None
    after: int
    """The version after which the view begins; 0: from the beginning."""
    ends: tuple[tuple[int, int], ...] = ()
    """Questions of which the model sees only the end; see `ShownPast`."""

    def upto(self, length: int) -> _View:
        """The view of the items before a position."""
        if not self.ends:  # nearly always
            return self
        before = tuple(each for each in self.ends if each[0] < length)
        return msgspec.structs.replace(self, ends=before)


class _Kept(Value):
    """An encoded history up to a position, in pieces; `link` is the chain link of its last turn."""

    view: _View
    version: int
    link: bytes
    length: int
    pieces: tuple[EncodedPiece, ...] = ()
    pieces_bytes: int = 0
    fits: tuple[_Fit, ...] = ()
    """The last used one first."""

    @property
    def size_bytes(self) -> int:
        size = ENTRY_BYTES + self.pieces_bytes
        if not self.fits:  # nearly always
            return size
        counted = set(map(id, self.pieces))
        fitted = {id(each): each for fit in self.fits for each in fit.pieces}
        return size + _size_of(each for name, each in fitted.items() if name not in counted)


_Name: TypeAlias = tuple[SessionId, str]
"""The session and the name of the dialect."""


class EncodedHistories:
    """The most recently used encoded histories, bounded by bytes."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: OrderedDict[_Name, _Kept] = OrderedDict()

    def past(
        self,
        snapshot: Snapshot,
        dialect: Dialect,
        *,
        items_max: int | None = None,
        shown: ShownPast = WHOLE,
        before: Prefixes | None = None,
    ) -> EncodedPast:
        """The session's history as its agent's model sees it. Costs the turns since the last call.

        `items_max`: about how many items of it; see `seen_after`.
        `shown`: what the client has of it. If it begins later than the history, nothing is cached: such a window moves
        with every request, and is short.
        `before`: for a dialect that binds thoughts, the digests of the prompt's opening; they go on to the end of
        what is returned.
        """
        if not snapshot.items:
            return EncodedPast()
        if shown.since and not _is_summed_up(snapshot, shown.since):
            return _window(snapshot, dialect, shown, before)
        name = (snapshot.session_id, dialect.name)
        known = self._kept.pop(name, None)
        self._bytes -= known.size_bytes if known else 0
        after = 0 if items_max is None else seen_after(snapshot, items_max=items_max)
        view = _view_of(snapshot, after, shown.ends)
        if known is None or known.view != view.upto(known.length) or not _goes_on(known, snapshot):
            known = _blank(view, snapshot)
        *settled, open_step = _parts_since(known, snapshot, view.ends)
        now = _extended(known, settled, snapshot, dialect, view)
        pieces = now.pieces
        if before:
            now, pieces = _fitted(now, dialect, before)
        self._keep(name, now)
        return EncodedPast(pieces=pieces, open_step=tuple(open_step))

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


def _is_summed_up(snapshot: Snapshot, position: int) -> bool:
    """Whether a summary stands for the items up to a position, and for more."""
    summary = summary_seen(snapshot)
    return summary is not None and summary.covers_to > position


def _window(
    snapshot: Snapshot, dialect: Dialect, shown: ShownPast, before: Prefixes | None
) -> EncodedPast:
    """The history from a position on."""
    last = snapshot.marks.last
    settled = settled_to(snapshot, last) if last else 0
    step = {item_id(each) for each in snapshot.items.since(settled)} if snapshot.waiting else set()
    seen = list(_shortened(seen_by_model(snapshot, since=shown.since), snapshot, shown.ends))
    data = dialect.encode([each for each in seen if each.id not in step])
    piece = piece_of(data, dialect)
    if before and data:
        piece = fitted_piece(piece, dialect, before)
    return EncodedPast(
        pieces=(piece,) if piece.data else (),
        open_step=tuple(each for each in seen if each.id in step),
    )


def _shortened(
    items: Iterable[Item], snapshot: Snapshot, ends: Iterable[tuple[int, int]]
) -> Iterator[Item]:
    """The items, with only the end of some questions."""
    left = {item_id(snapshot.items[position]): chars for position, chars in ends}
    for each in items:
        if left and isinstance(each, UserMessage) and each.id in left:
            yield msgspec.structs.replace(each, content=end_of(each.content, left[each.id]))
        else:
            yield each


def _blank(view: _View, snapshot: Snapshot) -> _Kept:
    """An empty entry that ends where the model's view begins."""
    if not view.after:
        return _Kept(view=view, version=0, link=chain.GENESIS, length=0)
    mark = snapshot.marks[view.after - 1]
    length = settled_to(snapshot, mark)
    return _Kept(view=view, version=view.after, link=mark.link, length=length)


def _view_of(snapshot: Snapshot, after: int, ends: tuple[tuple[int, int], ...]) -> _View:
    hidden = hidden_from_model(snapshot)
    summary = further(snapshot.turn_summary, snapshot.notes.summary)
    return _View(hidden=hidden, summary=summary.id if summary else None, after=after, ends=ends)


def _goes_on(known: _Kept, snapshot: Snapshot) -> bool:
    """Whether the cached history is a beginning of this snapshot's."""
    marks = snapshot.marks
    return 0 < known.version <= len(marks) and marks[known.version - 1].link == known.link


def _parts_since(
    known: _Kept, snapshot: Snapshot, shortened: Iterable[tuple[int, int]]
) -> list[list[Item]]:
    """What a model sees after the cached history: one part for each turn, and last the unsettled step."""
    ends = [settled_to(snapshot, mark) for mark in snapshot.marks.since(known.version)]
    place: dict[ItemId | None, int] = {}
    n = 0
    for position, item in enumerate(snapshot.items.since(known.length), known.length):
        while n < len(ends) and position >= ends[n]:
            n += 1
        place[item_id(item)] = n
    parts: list[list[Item]] = [[] for _ in (*ends, None)]
    new = tuple(each for each in shortened if each[0] >= known.length)
    for seen in _shortened(seen_by_model(snapshot, since=known.length), snapshot, new):
        # A summary comes first, wherever it was made.
        parts[0 if isinstance(seen, Summary) else place[seen.id]].append(seen)
    return parts


def _extended(
    known: _Kept, settled: list[list[Item]], snapshot: Snapshot, dialect: Dialect, view: _View
) -> _Kept:
    encoded = (dialect.encode(part) for part in settled if part)
    old, new = known.pieces, tuple(piece_of(data, dialect) for data in encoded if data)
    fits, pieces_bytes = known.fits, known.pieces_bytes + _size_of(new)
    if len(old) + len(new) > PIECES_MAX:
        # A fit that covers only some of the old pieces cannot go on from inside the joined one.
        fits = tuple(
            msgspec.structs.replace(fit, covered=1) for fit in fits if fit.covered == len(old)
        )
        old = (joined(old),) if old else ()
        new = new if len(new) < PIECES_MAX else (joined(new),)
        pieces_bytes = _size_of((*old, *new))
    marks = snapshot.marks
    length = settled_to(snapshot, marks[-1]) if marks else 0
    return _Kept(
        view=view.upto(length),
        version=len(marks),
        link=marks[-1].link if marks else chain.GENESIS,
        length=length,
        pieces=(*old, *new),
        pieces_bytes=pieces_bytes,
        fits=fits,
    )


def _size_of(pieces: Iterable[EncodedPiece]) -> int:
    return sum(PIECE_BYTES + len(each.data) for each in pieces)


def _fitted(
    now: _Kept, dialect: Dialect, before: Prefixes
) -> tuple[_Kept, tuple[EncodedPiece, ...]]:
    """The pieces that fit after this opening, and the entry that remembers them. `before` goes on to their end."""
    opening = texts_of(before)
    known = next((fit for fit in now.fits if fit.opening == opening), None)
    if known is not None:
        before.update(copied(known.after))
    covered = known.covered if known else 0
    new = (fitted_piece(each, dialect, before) for each in now.pieces[covered:])
    pieces = (*(known.pieces if known else ()), *(each for each in new if each.data))
    if len(pieces) > PIECES_MAX:
        pieces = (joined(pieces),)
    fit = _Fit(opening=opening, covered=len(now.pieces), pieces=pieces, after=copied(before))
    others = tuple(each for each in now.fits if each.opening != opening)[: FITS_MAX - 1]
    return msgspec.structs.replace(now, fits=(fit, *others)), pieces


def fitted_piece(piece: EncodedPiece, dialect: Dialect, before: Prefixes) -> EncodedPiece:
    """A piece without the thoughts that do not fit after `before`, which goes on to its end."""
    assert isinstance(dialect, BindingDialect), "there are digests for dialects that bind thoughts"
    data = dialect.fit(piece.data, before)
    return piece if data is piece.data else EncodedPiece(data=data, blobs=piece.blobs)


def piece_of(data: bytes, dialect: Dialect) -> EncodedPiece:
    return EncodedPiece(data=data, blobs=dialect.blobs_in(data))


def joined(pieces: tuple[EncodedPiece, ...]) -> EncodedPiece:
    blobs = frozenset[str]().union(*(each.blobs for each in pieces))
    return EncodedPiece(data=b",".join(each.data for each in pieces), blobs=blobs)
