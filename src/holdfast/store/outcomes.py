"""The arguments and results of the store's methods, as values; `store.py` describes the methods.

An outcome that a caller must decide on is a value; an error is something that a caller cannot sensibly handle.

A queued turn has a row, its request and its idempotency key, and does not hold its session: other turns go on there.
The version that it begins from is decided when it is opened. So its request is written twice: as the client sent it,
and, in the transaction that opens it, as reconciled with the head of that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from holdfast.core.codec import Value
from holdfast.core.history.conversation import Annotation
from holdfast.core.items import EndedBy
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
    TurnState,
    Words,
)

# ── T1: begin ─────────────────────────────────────────────────────────────────────────────────────


class ByKey(Value):
    """The session that this key names; if there is none and `create`, a new one with id `fresh`.

    A request that expects a certain session brings no `fresh` id: if the key names none any more, that session is gone.
    """

    key: SessionKey
    fresh: SessionId | None = None
    create: bool = True


class ById(Value):
    """The session with this id, which must exist."""

    session_id: SessionId


class Anonymous(Value):
    """A new session without a session key."""

    fresh: SessionId


class NewLine(Value):
    """A new line of the family that this key names. It begins as its parent stood at the request's base, or without a
    past; then it has no parent."""

    key: SessionKey
    family: SessionId
    fresh: SessionId
    parent: SessionId | None = None
    is_other_agent: bool = False
    """The line belongs to the agent that the request names, and not to its parent's."""


Target: TypeAlias = ByKey | ById | Anonymous | NewLine


class Attempt(Value):
    """How a request can be recognised when it comes again."""

    request_hash: bytes
    """Hash over caller, method, route, conversation name, answer-shaping headers and body."""
    key: IdempotencyKey | None = None
    client_attempt: int = 0
    """The SDK's retry count; from 1 on the store may have seen the request before."""


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
    """A session that was idle for longer counts as expired: the outcome is `Gone`."""
    ahead: bool = False
    """If the turn is queued: put it before the session's other queued turns."""


class Fence(Value):
    """The right to write one turn, until another node takes the turn over."""

    tenant: Tenant
    session_id: SessionId
    turn_id: TurnId
    token: int
    nonce: str


class Started(Value):
    """The turn is open and held by the caller's node; its request is durable."""

    fence: Fence
    created: bool
    """This turn made the session."""
    retry_of: TurnId | None = None
    """An earlier attempt under the same idempotency key failed; its finished steps may be used."""


class Joined(Value):
    """This request is running already, as this turn; the caller watches that turn."""

    turn_id: TurnId
    session_id: SessionId
    steer: int | None = None
    """The number of the signal that steered this request into a turn of another request; None if the turn is its own.
    The turn may end before it reads the signal: then the key is released, and the request begins a turn of its own."""


class Replay(Value):
    """This turn has answered this request; the caller renders its answer again."""

    turn_id: TurnId
    session_id: SessionId


class Unfinished(Value):
    """This request's turn was kept unfinished at this version, the head of this session, and may be continued: the
    caller begins a continuation. `retries_left` is at least 1."""

    session_id: SessionId
    version: Version
    retries_left: int


class Finished(Value):
    """There is nothing to continue: the named turn is complete, or retries may not continue it any more."""


class Mismatch(Value):
    """The idempotency key belongs to a different request."""

    turn_id: TurnId


class Busy(Value):
    """Another turn is open. If its holder is dead, the caller takes the session over first."""

    session_id: SessionId
    turn_id: TurnId
    holder_alive: bool


class Moved(Value):
    """The key names another session now, or the session has another head or newer annotations: the caller reconciles
    the request again."""

    session_id: SessionId
    head: Version


class Gone(Value):
    """The session existed, and is deleted or expired."""

    session_id: SessionId
    why: Literal["deleted", "expired"]


class Missing(Value):
    """The tenant has no such session, and the request does not create one."""


class NotLive(Value):
    """The caller's node row has expired: the node renews it before it begins a turn."""


# ── families ──────────────────────────────────────────────────────────────────────────────────────


class FamilyTurn(Value):
    """A turn of a family that a request may go on from, or may have begun before."""

    turn_id: TurnId
    session_id: SessionId
    state: TurnState
    seq: Version | None
    agent: Words
    request_hash: bytes
    answer: bytes | None
    prefix: bytes | None
    answer_id: bytes | None
    ended_by: EndedBy | None
    head: Version
    """The head of its line."""
    source_key: Words
    entry_agent: Words


# ── waiting for a session ─────────────────────────────────────────────────────────────────────────


class Queued(Value):
    """The turn waits for its session; its request is durable."""

    turn_id: TurnId
    session_id: SessionId


class Free(Value):
    """The session is free, and nothing was written: the caller begins the turn at once."""


class WaitingTurn(Value):
    """A queued turn, as the sweeper lists it."""

    tenant: Tenant
    session_id: SessionId
    turn_id: TurnId
    ready: bool
    """It is the first queued turn of its session, and the session is free."""


class QueuedOpening(Value):
    """A node's request to open a queued turn and play it."""

    tenant: Tenant
    session_id: SessionId
    node: NodeId
    nonce: str
    request: TurnRequest
    """The turn's request, reconciled with version `base`. It replaces record 0."""


class NotNext(Value):
    """The turn is not queued any more, or another queued turn of its session comes first."""


Known: TypeAlias = Joined | Replay | Unfinished | Mismatch | Gone
"""The outcomes for a request that the store has seen before."""

BeginOutcome: TypeAlias = Started | Known | Finished | Busy | Moved | Missing | NotLive
"""Every outcome but `Started` has changed nothing."""

EnqueueOutcome: TypeAlias = Queued | Free | Known | Moved | Missing
"""Every outcome but `Queued` has changed nothing."""

OpenOutcome: TypeAlias = Started | Busy | Moved | NotNext | NotLive
"""Every outcome but `Started` has left the turn as it was."""

# ── T2: commit and end ───────────────────────────────────────────────────────────────────────

Settlement: TypeAlias = Literal["done", "failed"]
"""The final state of a turn's idempotency rows: with `done`, a retry gets this turn's answer; with `failed`, it begins
anew. The row of a steered request that the turn never read always becomes `failed`: no turn has answered it."""


class Committed(Value):
    """The turn is in the history, at this version. Repeating the commit gives the same outcome."""

    version: Version
    at_ms: int


class Unconsumed(Value):
    """Nothing was committed: the turn has not read these steered messages yet."""

    signals: tuple[SignalRow, ...]


CommitOutcome: TypeAlias = Committed | Unconsumed

# ── takeover, signals, operations ────────────────────────────────────────────────────────────


class Taken(Value):
    """The caller's node holds the open turn now; the old holder's writes will be refused."""

    fence: Fence
    turn: TurnRow
    """The row after the takeover; `attempt` already counts the attempt that begins now."""


class HolderAlive(Value):
    """A live node plays this turn, so it is not taken over."""

    turn_id: TurnId
    node: NodeId


class NotEligible(Value):
    """The caller's node has not yet renewed its own row for a whole TTL without a gap, so it may not declare another
    node dead."""


class NothingOpen(Value):
    """There is no open turn (any more)."""


TakeoverOutcome: TypeAlias = Taken | HolderAlive | NotEligible | NothingOpen


class Signalled(Value):
    """The signal is stored under this number; the turn's owner will read it."""

    n: int


class TooLate(Value):
    """The turn has ended; this is its row."""

    turn: TurnRow


class ToldMore(Value):
    """The turn got another signal meanwhile, under this number; the caller reads it and decides again."""

    n: int


SignalOutcome: TypeAlias = Signalled | TooLate | ToldMore | Known
"""`Known` comes from the request's idempotency key. Every outcome but `Signalled` has changed nothing."""


class Orphan(Value):
    """An open turn whose holder is dead, or is the calling node; as the sweeper lists it."""

    tenant: Tenant
    session_id: SessionId
    turn_id: TurnId
    holder: NodeId | None
    """None if a draining node handed the turn over."""
    is_stray: bool = False
    """Its session does not name it, so it has no holder and cannot be taken over (`end_stray`)."""


class Annotated(Value):
    """The annotations as stored, with their revisions."""

    annotations: tuple[Annotation, ...]


class SummaryMoved(Value):
    """Another summary was stored first, at this revision; the caller reads it and decides again."""

    summary_rev: int


AnnotateOutcome: TypeAlias = Annotated | SummaryMoved


@runtime_checkable
class HintSupport(Protocol):
    """A home that can wake a node when there may be signals for it, sooner than the node would poll."""

    def listen(self, node: NodeId, wake: Callable[[], None]) -> None:
        """Call `wake`, on the running loop, when there may be signals for `node`. Hints may be lost, or be false."""
        ...


# ── listing ──────────────────────────────────────────────────────────────────────────────────


class SessionFilter(Value):
    """Which sessions to list: those that meet every given condition."""

    agent: str | None = None
    key_prefix: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    active_from_ms: int | None = None
    active_before_ms: int | None = None
    busy: bool | None = None
    anonymous: bool = False
    """List the anonymous lines, instead of the named sessions."""


EVERYTHING = SessionFilter()


class SessionInfo(Value):
    """A session as lists show it, made without reading a message."""

    session: SessionRow
    keys: tuple[SessionKey, ...]


class ListPage(Value):
    """One page of a list, the last active session first. `cursor` leads to the next page; None at the end."""

    sessions: tuple[SessionInfo, ...]
    cursor: str | None
    damaged: tuple[str, ...] = ()
    """The ids of sessions that may belong on this page and cannot be read."""


# ── searching ────────────────────────────────────────────────────────────────────────────────


class Phrase(Value):
    """Words that follow each other; a single word is the shortest phrase.

    They are folded as `words.words_in` folds a text: without case and accents.
    """

    words: tuple[str, ...]
    prefix: bool = False
    """The last word of the phrase matches every word that begins with it."""


class Query(Value):
    """A search: a text matches if it has every one of these phrases. A query without phrases matches nothing.

    `matches.parse_query` makes it from the typed text. It has no operators, so no text is an error.
    """

    phrases: tuple[Phrase, ...] = ()


class ExcerptPiece(Value):
    """A piece of an excerpt; `hit` if it matches a phrase of the query."""

    text: str
    hit: bool = False


class SearchMatch(Value):
    """A session that a search has found, and where its match is."""

    info: SessionInfo
    excerpt: tuple[ExcerptPiece, ...]
    """Some words around the first hit. Plain text: the client marks the hits."""
    item: ItemId | None = None
    """The message that matches; None if the session's name does."""
    position: int | None = None
    line: SessionId | None = None
    """The line of the chat in which the match is, if it is not the session itself."""


class Results(Value):
    """One page of a search, the last active session first. `cursor` leads to the next page; None at the end.

    A page can be short, or empty, and still have a cursor: the work for one page is bounded (`search/effort.py`).
    """

    matches: tuple[SearchMatch, ...]
    cursor: str | None
    damaged: tuple[str, ...] = ()
    """The ids of sessions that the search could not read."""


class Indexed(Value):
    """One step of indexing: how many sessions it indexed further, and whether there is more to do."""

    sessions: int
    more: bool


# ── moving sessions ──────────────────────────────────────────────────────────────────────────


class SessionDump(Value):
    """All rows of a session: an export writes them, `restore` reads them.

    Of a fork, its own rows only; its lineage names the sessions that must be restored before it.
    """

    session: SessionRow
    keys: tuple[KeyRow, ...]
    turns: tuple[TurnRow, ...]
    items: tuple[ItemRow, ...]
    state: tuple[StateRow, ...]
    annotations: tuple[AnnotationRow, ...]
    blobs: tuple[tuple[str, bytes], ...] = ()
    journals: tuple[JournalRow, ...] = ()
    """The journals that are kept: those of replayable and of discarded turns."""
    claims: tuple[IdempotencyRow, ...] = ()
    """The idempotency keys that lead to its turns, so that the target store recognises a retry, too."""


class Restored(Value):
    """The session is stored; `fresh` is False if it was stored before, with the same lasting content."""

    fresh: bool


class RestoreRefused(Value):
    """The store refuses the dump and has changed nothing; `why` gives the reason."""

    why: str
    conflict: bool = False
    """The dump is sound, but a different session, key or turn in this store has the same name."""


RestoreOutcome: TypeAlias = Restored | RestoreRefused


class Pruned(Value):
    """One retention step: how many rows it removed or looked at, and whether there is more to do."""

    rows: int
    more: bool
    behind_ms: int = 0
    """How much clock time is not trusted yet, and makes no row older: see `expiry.py`."""


class StoreStats(Value):
    """Counts of a store's content that need no scan of messages."""

    sessions: int
    turns_open: int
    turns_queued: int
    turns_committed: int
    turns_discarded: int
    items: int
    bytes: int


# ── remembered approvals ──────────────────────────────────────────────────────────────────────────


class GrantFilter(Value):
    """Which approvals to list: of one source, of one agent; with `live`, only approvals that are not revoked."""

    source_key: str | None = None
    agent: str | None = None
    live: bool = False


ANY_GRANT = GrantFilter()
