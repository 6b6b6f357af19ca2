"""What a store is asked, and what it answers. Values; `store.py` says what they mean.

Outcomes that a caller must decide on are values; errors are for what a caller cannot sensibly handle.

A queued turn is there with its request and its idempotency key, and holds nothing: its session goes on as if it were
not. What it begins from is decided when it is opened. So its request is written twice: as it was asked for, and, in
the transaction that opens it, as it is on top of the head of that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from holdfast.core.codec import Value
from holdfast.core.history.conversation import Annotation
from holdfast.core.turns.events import TurnRequest
from holdfast.ids import (
    IdempotencyKey,
    ItemId,
    NodeId,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
)
from holdfast.store.rows import (
    AnnotationRow,
    IdempotencyRow,
    ItemRow,
    JournalRow,
    KeyRow,
    SessionRow,
    SignalRow,
    StateRow,
    TurnRow,
)

# ── T1: begin ─────────────────────────────────────────────────────────────────────────────────────


class ByKey(Value):
    """The session that this key names; if there is none and `create`, a new one with id `fresh`.

    Whoever expects a certain session needs no `fresh` one: if the key means none any more, that one is gone.
    """

    key: SessionKey
    fresh: SessionId | None = None
    create: bool = True


class ById(Value):
    """The session with this id, which must exist."""

    session_id: SessionId


class Anonymous(Value):
    """A new session that nobody named."""

    fresh: SessionId


Target: TypeAlias = ByKey | ById | Anonymous


class Attempt(Value):
    """How a request can be recognised when it comes again."""

    request_hash: bytes
    """Over caller, method, route, conversation name, answer-shaping headers and body."""
    key: IdempotencyKey | None = None
    client_attempt: int = 0
    """The SDK's retry count; from 1 on the request may be one that we have seen."""


class Begin(Value):
    """A request that wants to become a turn."""

    tenant: Tenant
    node: NodeId
    nonce: str
    target: Target
    expected: SessionId | None
    """The session that the request was reconciled against; None if there was none yet."""
    request: TurnRequest
    """Becomes record 0. Its `base` is the version that it was reconciled against."""
    attempt: Attempt
    expire_after_ms: int | None = None
    """Sessions that were idle for longer answer `Gone`."""
    ahead: bool = False
    """Where it is queued: before those who wait already."""


class Fence(Value):
    """The right to write one turn, as long as nobody has taken it over."""

    tenant: Tenant
    session_id: SessionId
    turn_id: TurnId
    token: int
    nonce: str


class Started(Value):
    """The turn is open and ours; its request is durable."""

    fence: Fence
    created: bool
    """The session is new with this turn."""
    retry_of: TurnId | None = None
    """An earlier attempt under the same idempotency key failed; its finished steps may be used."""


class Joined(Value):
    """This request is running already, as this turn. Watch it."""

    turn_id: TurnId
    session_id: SessionId
    steer: int | None = None
    """It was said to this turn, of another request, under this number. Until the turn has heard it, nobody knows
    whether it will: one that ends first lets the key go, and the request begins a turn of its own."""


class Replay(Value):
    """This request has been answered, by this turn. Render its answer again."""

    turn_id: TurnId
    session_id: SessionId


class Unfinished(Value):
    """This request's turn was kept unfinished at this version, the head of this session, and may go on: begin its
    continuation. `retries_left` is at least 1."""

    session_id: SessionId
    version: Version
    retries_left: int


class Finished(Value):
    """There is nothing to continue: the turn that was to be continued is whole, or cannot be by a retry any more."""


class Mismatch(Value):
    """The idempotency key belongs to a different request."""

    turn_id: TurnId


class Busy(Value):
    """Another turn is open. If its holder is dead, take the session over first."""

    session_id: SessionId
    turn_id: TurnId
    holder_alive: bool


class Moved(Value):
    """The key means another session now, or it has another head or newer annotations: reconcile again."""

    session_id: SessionId
    head: Version


class Gone(Value):
    """It was here, and is deleted or expired."""

    session_id: SessionId
    why: Literal["deleted", "expired"]


class Missing(Value):
    """No such session for this tenant, and none was to be created."""


class NotLive(Value):
    """This node's own row has expired: renew it before beginning anything."""


# ── waiting for a session ─────────────────────────────────────────────────────────────────────────


class Queued(Value):
    """The turn waits; its request is durable."""

    turn_id: TurnId
    session_id: SessionId


class Free(Value):
    """Nothing is in its way, and nothing was written: begin it."""


class WaitingTurn(Value):
    """A queued turn, for the sweeper."""

    tenant: Tenant
    session_id: SessionId
    turn_id: TurnId
    ready: bool
    """It is the first of its session's, and the session is free."""


class QueuedOpening(Value):
    """A node that wants to play a queued turn."""

    tenant: Tenant
    session_id: SessionId
    node: NodeId
    nonce: str
    request: TurnRequest
    """The turn's, as it is on top of the version that its `base` says. Becomes record 0 in place of the old one."""


class NotNext(Value):
    """The turn does not wait any more, or another one of its session comes before it."""


Known: TypeAlias = Joined | Replay | Unfinished | Mismatch | Gone
"""What a request can turn out to be that was here before."""

BeginOutcome: TypeAlias = (
    Started
    | Joined
    | Replay
    | Unfinished
    | Finished
    | Mismatch
    | Busy
    | Moved
    | Gone
    | Missing
    | NotLive
)
"""All but `Started` leave nothing behind."""

EnqueueOutcome: TypeAlias = (
    Queued | Free | Joined | Replay | Unfinished | Mismatch | Moved | Gone | Missing
)
"""All but `Queued` leave nothing behind."""

OpenOutcome: TypeAlias = Started | Busy | Moved | NotNext | NotLive
"""All but `Started` leave the turn where it was."""

# ── T2: commit and end ───────────────────────────────────────────────────────────────────────

Settlement: TypeAlias = Literal["done", "failed"]
"""What a turn's idempotency rows become: `done` answers retries with this turn, `failed` lets them begin anew. That of
a steer which the turn has not heard becomes `failed` in any case: nobody has answered it."""


class Committed(Value):
    """The turn is in the history, at this version. Repeating the commit says the same."""

    version: Version
    at_ms: int


class Unconsumed(Value):
    """Nothing was committed: people have said something to this turn that it has not heard yet."""

    signals: tuple[SignalRow, ...]


CommitOutcome: TypeAlias = Committed | Unconsumed

# ── takeover, signals, operations ────────────────────────────────────────────────────────────


class Taken(Value):
    """The open turn is ours now; the old holder's writes will be refused."""

    fence: Fence
    turn: TurnRow
    """As it is after the takeover; `attempt` already counts the one that begins now."""


class HolderAlive(Value):
    """Somebody plays this turn, and is to be left alone."""

    turn_id: TurnId
    node: NodeId


class NotEligible(Value):
    """This node has not renewed its own row for a whole TTL without a gap, so it judges nobody."""


class NothingOpen(Value):
    """There is no open turn (any more)."""


TakeoverOutcome: TypeAlias = Taken | HolderAlive | NotEligible | NothingOpen


class Signalled(Value):
    """The signal is on its way, under this number."""

    n: int


class TooLate(Value):
    """The turn has ended; here is what it became."""

    turn: TurnRow


class ToldMore(Value):
    """The turn was told something else meanwhile, under this number; look at it and decide again."""

    n: int


SignalOutcome: TypeAlias = (
    Signalled | TooLate | ToldMore | Joined | Replay | Unfinished | Mismatch | Gone
)
"""The last five are what the request's idempotency key says. All but `Signalled` leave nothing behind."""


class Orphan(Value):
    """An open turn whose holder is dead, or is the node that asks; for the sweeper."""

    tenant: Tenant
    session_id: SessionId
    turn_id: TurnId
    holder: NodeId | None
    """None if it was handed over."""


class Annotated(Value):
    """The annotations are there, with their revisions."""

    annotations: tuple[Annotation, ...]


class SummaryMoved(Value):
    """Somebody else's summary came first, at this revision; look at it and decide again."""

    summary_rev: int


AnnotateOutcome: TypeAlias = Annotated | SummaryMoved


@runtime_checkable
class HintSupport(Protocol):
    """A home that can tell when there may be signals for a node, sooner than one would look by oneself."""

    def listen(self, node: NodeId, wake: Callable[[], None]) -> None:
        """Call `wake`, on the running loop, when it may be worth to look. Some hints are lost, some lead nowhere."""
        ...


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


class ListPage(Value):
    """Some sessions, the last active first, and where to go on. `cursor` is None at the end."""

    sessions: tuple[SessionInfo, ...]
    cursor: str | None
    damaged: tuple[str, ...] = ()
    """The ids of sessions that would be among them, perhaps, and cannot be read."""


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

    Made by `matches.parse_query` from what people type. It has no operators, so no text is an error.
    """

    phrases: tuple[Phrase, ...] = ()


class ExcerptPiece(Value):
    """A piece of an excerpt; `hit` if it is what was looked for."""

    text: str
    hit: bool = False


class SearchMatch(Value):
    """A session that was found, and where."""

    info: SessionInfo
    excerpt: tuple[ExcerptPiece, ...]
    """Some words around the first hit. Plain text: whoever shows it marks it."""
    item: ItemId | None = None
    """The message that was found; None if it is the session's name."""
    position: int | None = None


class Results(Value):
    """Some sessions that were found, the last active first, and where to go on. `cursor` is None at the end.

    A page can be short, or empty, and still have a cursor: it holds what a bounded look has found.
    """

    matches: tuple[SearchMatch, ...]
    cursor: str | None
    damaged: tuple[str, ...] = ()
    """The ids of sessions that were to be looked through and cannot be read."""


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


class RestoreRefused(Value):
    """The dump cannot be taken in, and nothing was; `why` says what is in the way."""

    why: str
    conflict: bool = False
    """Nothing is wrong with the dump: something that is here already has its id, key or turn."""


RestoreOutcome: TypeAlias = Restored | RestoreRefused


class Pruned(Value):
    """One retention step: how many rows went, or were looked at, and whether there is more to do."""

    rows: int
    more: bool
    behind_ms: int = 0
    """How much of the clock is not believed yet, and does not count for anything's age: see `expiry.py`."""


class StoreStats(Value):
    """What is there, in numbers that need no scan of messages."""

    sessions: int
    turns_open: int
    turns_queued: int
    turns_committed: int
    turns_discarded: int
    items: int
    bytes: int


# ── remembered approvals ──────────────────────────────────────────────────────────────────────────


class GrantFilter(Value):
    """Which approvals: of one source, of one agent, only those that were not revoked."""

    source_key: str | None = None
    agent: str | None = None
    live: bool = False


ANY_GRANT = GrantFilter()
