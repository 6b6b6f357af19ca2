"""What a store answers when it is looked at: lists, finds, dumps and counts. Values; `base.py` says what they mean.

They are part of the store's vocabulary and are imported from there.
"""

from __future__ import annotations

from typing import TypeAlias

from holdfast.core.codec import Value
from holdfast.ids import ItemId, SessionKey
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

# ── listing ──────────────────────────────────────────────────────────────────────────────────


class SessionFilter(Value):
    """Which sessions to list. Everything given must hold."""

    agent: str | None = None
    key_prefix: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    active_from_ms: int | None = None
    active_before_ms: int | None = None
    busy: bool | None = None
    anonymous: bool = False
    """The lines that nobody named, in place of the others."""


EVERYTHING = SessionFilter()


class SessionInfo(Value):
    """A session as lists show it: no message is read for it."""

    session: SessionRow
    keys: tuple[SessionKey, ...]


class Page(Value):
    """Some sessions, the last active first, and where to go on. `cursor` is None at the end."""

    sessions: tuple[SessionInfo, ...]
    cursor: str | None


# ── searching ────────────────────────────────────────────────────────────────────────────────


class Phrase(Value):
    """Words that follow each other; a single word is the shortest phrase.

    They are folded as `words.words_in` folds a text: without case and accents.
    """

    words: tuple[str, ...]
    prefix: bool = False
    """The last of them need only be the beginning of a word."""


class Query(Value):
    """What to look for: every one of these phrases, in one text. Without any, nothing is found.

    Made by `searching.parse_query` from what people type. It has no operators, so no text is an error.
    """

    phrases: tuple[Phrase, ...] = ()


class Piece(Value):
    """A piece of an excerpt; `hit` if it is what was looked for."""

    text: str
    hit: bool = False


class Match(Value):
    """A session that was found, and where."""

    info: SessionInfo
    excerpt: tuple[Piece, ...]
    """Some words around the first hit. Plain text: whoever shows it marks it."""
    item: ItemId | None = None
    """The message that was found; None if it is the session's name."""
    position: int | None = None


class Results(Value):
    """Some sessions that were found, the last active first, and where to go on. `cursor` is None at the end.

    A page can be short, or empty, and still have a cursor: it holds what a bounded look has found.
    """

    matches: tuple[Match, ...]
    cursor: str | None


class Indexed(Value):
    """One step of indexing: how many sessions it brought forward, and whether there is more to do."""

    sessions: int
    more: bool


# ── moving sessions ──────────────────────────────────────────────────────────────────────────


class SessionDump(Value):
    """A whole session as it lies in a store: what an export writes and `restore` reads.

    A fork's own rows only; its lineage names the sessions that have to be there before it.
    """

    session: SessionRow
    keys: tuple[KeyRow, ...]
    turns: tuple[TurnRow, ...]
    items: tuple[ItemRow, ...]
    state: tuple[StateRow, ...]
    annotations: tuple[AnnotationRow, ...]
    blobs: tuple[tuple[str, bytes], ...] = ()
    journals: tuple[JournalRow, ...] = ()
    """What is kept of its turns' journals: the events of replayable and of discarded ones."""
    claims: tuple[IdempotencyRow, ...] = ()
    """The idempotency keys that lead to its turns, so that a retry is known wherever the session goes."""


class Restored(Value):
    """The session is there; `fresh` is False if it was there already, equal in all that lasts."""

    fresh: bool


class Refused(Value):
    """The dump cannot be taken in, and nothing was; `why` says what is in the way."""

    why: str
    conflict: bool = False
    """Nothing is wrong with the dump: something that is here already has its id, key or turn."""


RestoreOutcome: TypeAlias = Restored | Refused


class Pruned(Value):
    """One retention step: how many rows went, or were looked at, and whether there is more to do."""

    rows: int
    more: bool
    behind_ms: int = 0
    """How much of the clock is not believed yet, and does not count for anything's age: see `horizon.py`."""


class StoreStats(Value):
    """What is there, in numbers that need no scan of messages."""

    sessions: int
    turns_open: int
    turns_queued: int
    turns_committed: int
    turns_discarded: int
    items: int
    bytes: int
