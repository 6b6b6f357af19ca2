"""The store: where conversations live, and where every promise is kept or broken.

One protocol, several homes: memory (the verified stand-in), SQLite, PostgreSQL. One contract suite runs
against all of them. The rules that a home must keep:

1. Every method is one transaction: it happens whole, or not at all. What a method wrote is durable when it
   returns; a method that raises has changed nothing, unless the error is StoreUnavailable or StorePoisoned:
   then the outcome is unknown, and asking again tells.
2. Repeating a method with the same arguments is safe, and answers as the first time where it says so.
3. A write under an old fence raises Superseded. Whoever holds a fence may be wrong about still holding it;
   the store never is.
4. Every row has a tenant. Another tenant's rows are absent, in every method, exactly like rows that do
   not exist.
5. Times are the store's. A caller's clock decides nothing here.
6. Nothing rewrites a history. Items are inserted by `commit` and `restore`, and go with their session.

Outcomes that a caller must decide on are values; errors are for what a caller cannot sensibly handle here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.conversation import Annotation, Commit, Patch, Snapshot
from holdfast.core.items import EndedBy
from holdfast.ids import (
    GrantId,
    IdempotencyKey,
    ItemId,
    NodeId,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
)
from holdfast.store.access import KeyStore, SealKeyStore
from holdfast.store.beginnings import Anonymous as Anonymous
from holdfast.store.beginnings import Attempt as Attempt
from holdfast.store.beginnings import Begin as Begin
from holdfast.store.beginnings import Busy as Busy
from holdfast.store.beginnings import ById as ById
from holdfast.store.beginnings import ByKey as ByKey
from holdfast.store.beginnings import Fence as Fence
from holdfast.store.beginnings import Finished as Finished
from holdfast.store.beginnings import Gone as Gone
from holdfast.store.beginnings import Joined as Joined
from holdfast.store.beginnings import Mismatch as Mismatch
from holdfast.store.beginnings import Missing as Missing
from holdfast.store.beginnings import Moved as Moved
from holdfast.store.beginnings import NotLive as NotLive
from holdfast.store.beginnings import Replay as Replay
from holdfast.store.beginnings import Started as Started
from holdfast.store.beginnings import Target as Target
from holdfast.store.beginnings import Unfinished as Unfinished
from holdfast.store.found import (
    EVERYTHING as EVERYTHING,
)
from holdfast.store.found import (
    Indexed as Indexed,
)
from holdfast.store.found import (
    Match as Match,
)
from holdfast.store.found import (
    Page as Page,
)
from holdfast.store.found import (
    Phrase as Phrase,
)
from holdfast.store.found import (
    Piece as Piece,
)
from holdfast.store.found import (
    Pruned as Pruned,
)
from holdfast.store.found import (
    Query as Query,
)
from holdfast.store.found import (
    Refused as Refused,
)
from holdfast.store.found import (
    Restored as Restored,
)
from holdfast.store.found import (
    RestoreOutcome as RestoreOutcome,
)
from holdfast.store.found import (
    Results as Results,
)
from holdfast.store.found import (
    SessionDump as SessionDump,
)
from holdfast.store.found import (
    SessionFilter as SessionFilter,
)
from holdfast.store.found import (
    SessionInfo as SessionInfo,
)
from holdfast.store.found import (
    StoreStats as StoreStats,
)
from holdfast.store.granting import ANY_GRANT as ANY_GRANT
from holdfast.store.granting import GrantFilter as GrantFilter
from holdfast.store.granting import GrantStore
from holdfast.store.queueing import Free as Free
from holdfast.store.queueing import NotNext as NotNext
from holdfast.store.queueing import Opening as Opening
from holdfast.store.queueing import Queued as Queued
from holdfast.store.queueing import Waiting as Waiting
from holdfast.store.rows import (
    GrantRow,
    IdempotencyRow,
    JournalRow,
    KeyRow,
    MemoryRow,
    NodeRow,
    SessionRow,
    SignalKind,
    SignalRow,
    TurnRow,
)

# ── T1: begin ────────────────────────────────────────────────────────────────────────────────

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

# ── the protocol ─────────────────────────────────────────────────────────────────────────────


class TurnStore(Protocol):
    """What the owner of an open turn needs of a store."""

    async def append(
        self, fence: Fence, *, n: int, records: bytes, consumed: Sequence[int] = ()
    ) -> None: ...

    async def commit(
        self,
        fence: Fence,
        commit: Commit,
        *,
        n: int,
        records: bytes,
        settlement: Settlement = "done",
    ) -> CommitOutcome: ...

    async def end(
        self,
        fence: Fence,
        *,
        ended_by: EndedBy,
        detail: str,
        n: int,
        records: bytes,
        settlement: Settlement,
    ) -> TurnRow | None: ...

    async def release(self, fence: Fence) -> None: ...

    async def put_blob(self, tenant: Tenant, session_id: SessionId, data: bytes) -> str: ...

    async def blob(self, tenant: Tenant, session_id: SessionId, digest: str) -> bytes | None: ...

    async def memories(self, tenant: Tenant, agent: str) -> tuple[MemoryRow, ...]: ...

    async def grants(
        self,
        tenant: Tenant,
        where: GrantFilter = ANY_GRANT,
        *,
        after: GrantId | None = None,
        limit: int,
    ) -> tuple[GrantRow, ...]: ...


@runtime_checkable
class Hinting(Protocol):
    """A home that can tell when there may be signals for a node, sooner than one would look by oneself."""

    def listen(self, node: NodeId, wake: Callable[[], None]) -> None:
        """Call `wake`, on the running loop, when it may be worth to look. Some hints are lost, some lead nowhere."""
        ...


class Store(TurnStore, KeyStore, SealKeyStore, GrantStore, Protocol):
    """Where conversations live. See the rules at the top of this module."""

    # nodes
    async def renew(self, node: NodeId, *, ttl_ms: int) -> NodeRow:
        """Say that this process is alive for another `ttl_ms`; the first call enrols it.

        If the row had expired meanwhile, `since_ms` starts anew: there was a gap.
        """
        ...

    async def resign(self, node: NodeId) -> None:
        """Say that this process is gone. Its open turns can be taken over at once."""
        ...

    # turns
    async def find_attempt(
        self, tenant: Tenant, attempt: Attempt, target: Target | None = None
    ) -> Known | None:
        """Whether this request is known already, without beginning anything. A plain read.

        By its idempotency key, or, with a `target`, as a recognised retry of that session's turn. A key whose name
        means another session than its turn's by now is not `Unfinished`.
        `begin` asks again; this is for checks that a retry must not meet, such as `If-Match`.
        """
        ...

    async def begin(self, ask: Begin) -> BeginOutcome:
        """T1. Claim the idempotency key, find or make the session, open the turn, write record 0.

        Checks, in this order: the idempotency row; a recognised retry (`client_attempt` ≥ 1, the same
        request hash, begun by an earlier attempt, and either open or queued, or the last one that was kept, ended
        within `recognised_retry_s` and not acknowledged; or, without a key, the same request hash as the unfinished
        head, ended within `unfinished_retry_s` and not acknowledged); the session; an open turn; the head; this node.
        A `Begin` whose own turn is open already (the same turn id) answers `Started` again.

        A request that `continues` a turn needs that turn at the head, unfinished (else `Finished`), and takes over the
        keys that lead to it. While another continuation of it is open, it is `Joined` to that one. One that a retry
        began (`links` ≥ 1) uses up one of the session's `retries_left`, whatever becomes of it. If it is discarded,
        the keys that it took over lead back to the turn that it was to continue.
        """
        ...

    async def append(
        self, fence: Fence, *, n: int, records: bytes, consumed: Sequence[int] = ()
    ) -> None:
        """Add records to the turn's journal, from number `n` on, and consume these steer signals.

        Raises Superseded under an old fence. The same append again changes nothing.
        """
        ...

    async def commit(
        self,
        fence: Fence,
        commit: Commit,
        *,
        n: int,
        records: bytes,
        settlement: Settlement = "done",
    ) -> CommitOutcome:
        """T2. Put the turn into the history: items, state, memories, link, idempotency; close the turn.

        Every key that leads to the turn is settled: its own, and those of requests that were steered into it.

        Raises Superseded under an old fence, or if the session has moved past the turn's base.
        Answers `Unconsumed`, and changes nothing, if a steer is waiting and the turn could still hear
        it: one that broke off, or that waits for its client, cannot. Committing the same turn again
        under the same token returns the same version, also after it was closed.

        `n` comes after everything in the journal (else StoreError): whoever commits has to know all
        that happened. `records` are the journal's last ones; they, and the journal, are kept only for a replayable
        turn, and for one that did not complete: nobody comes back for the events of another, and its items say it all.
        """
        ...

    async def end(
        self,
        fence: Fence,
        *,
        ended_by: EndedBy,
        detail: str,
        n: int,
        records: bytes,
        settlement: Settlement,
    ) -> TurnRow:
        """Discard the turn: everything but its own row and journal is as if it had not been.

        Raises Superseded under an old fence. Ending it again returns the same row.
        """
        ...

    async def release(self, fence: Fence) -> None:
        """Hand an open turn over: any node may take it at once, and it does not count as a crash."""
        ...

    async def takeover(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        node: NodeId,
        nonce: str,
        turn_id: TurnId | None = None,
        ignored_cancel: bool = False,
    ) -> TakeoverOutcome:
        """Make the session's open turn ours, if its holder is dead, has handed it over, or is this node.

        With `turn_id`, only that turn: another one that was begun meanwhile is left alone.
        The token is bumped and the attempt counted before this returns. With `ignored_cancel` a live
        holder is overruled too, if a cancel has been waiting for `cancel_grace_s`.
        """
        ...

    async def orphans(self, *, node: NodeId, limit: int) -> tuple[Orphan, ...]:
        """Open turns without a live holder, the oldest first. A plain read; `takeover` decides.

        Those that `node` itself holds are among them: it knows which of them it plays.
        """
        ...

    # turns that wait for their session
    async def enqueue(self, ask: Begin, *, behind: bool = False) -> EnqueueOutcome:
        """Let a request wait for a session that is busy, or that others wait for: claim the idempotency key, write
        the turn as queued, and record 0. The session is not held, and its head may move on.

        Asks what `begin` asks about the request, and not what it asks about the head and the node. `Free` if the
        session is neither busy nor waited for, or is still to be made; with `behind`, only in the last case.
        An `enqueue` whose own turn is queued already (the same turn id) answers `Queued` again.
        """
        ...

    async def queued(self, *, limit: int) -> tuple[Waiting, ...]:
        """Queued turns, in the order in which they came. A plain read; `open_queued` decides."""
        ...

    async def open_queued(self, ask: Opening) -> OpenOutcome:
        """Open a queued turn on top of its session's head, and hold it: from then on it is like any other.

        Of a session's queued turns only the first can be opened. The same `Opening` again answers `Started` again.
        """
        ...

    async def withdraw(
        self,
        tenant: Tenant,
        turn_id: TurnId,
        *,
        ended_by: EndedBy,
        detail: str,
        records: bytes,
        settlement: Settlement,
    ) -> TurnRow:
        """Discard a turn that is queued; `records` are those after its request. The turn as it is then.

        One that is not queued (any more) is left as it is. Raises SessionMissing if there is no such turn.
        """
        ...

    async def acknowledge(self, tenant: Tenant, turn_id: TurnId) -> None:
        """Note that the answer has been handed to the client whole. Absent turns are ignored."""
        ...

    # signals
    async def signal(
        self,
        tenant: Tenant,
        turn_id: TurnId,
        *,
        kind: SignalKind,
        payload: bytes = b"",
        attempt: Attempt | None = None,
        after: int | None = None,
    ) -> SignalOutcome:
        """Tell the turn's owner something. Raises SessionMissing if there is no such turn. With `after`, only if the
        signal of that number is still the last (0: there was none).

        With the `attempt` of a request that has an idempotency key, the key is looked at first, as `begin` does, and
        claimed for this turn together with the signal: the same request again is `Joined`, and is not said twice.
        Without a key, saying it again says it twice.
        """
        ...

    async def signals(self, node: NodeId) -> tuple[SignalRow, ...]:
        """Every signal that waits for a turn of this node, oldest first. One plain read."""
        ...

    async def find_signal(self, tenant: Tenant, turn_id: TurnId, n: int) -> SignalRow | None:
        """One signal, to see whether its turn has heard it."""
        ...

    # operations on sessions
    async def annotate(
        self,
        tenant: Tenant,
        session_id: SessionId,
        patches: Sequence[tuple[ItemId | None, Patch]],
        *,
        summary_rev: int | None = None,
    ) -> AnnotateOutcome:
        """Append annotations. With `summary_rev`, only on top of that summary (0: none yet).

        Raises SessionMissing or SessionGone.
        """
        ...

    async def bind(
        self, tenant: Tenant, key: SessionKey, *, fresh: SessionId, version: Version | None = None
    ) -> SessionRow:
        """Make the key mean a new session: an empty one (reset), or a fork at `version` (rewind).

        The old session stays as it is, reachable by its id. Binding again with the same `fresh`
        returns the same row. Raises SessionMissing for an unknown key or version; a reset of a key
        whose session was deleted or never existed starts a new one.
        """
        ...

    async def fork(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        version: Version,
        fresh: SessionId,
        anonymous: bool = False,
    ) -> SessionRow:
        """Make a session that begins as this one stood at `version`, state and annotations included.

        Forking again with the same `fresh` returns the same row. The fork of a line that nobody named is
        one, too; with `anonymous` every fork is. Raises SessionMissing, SessionGone.
        """
        ...

    async def remove(self, tenant: Tenant, session_id: SessionId) -> SessionRow:
        """Delete a session: it is gone at once, its key is free, its open and queued turns ended; bytes go later.

        Deleting again returns the same row. Raises SessionMissing.
        """
        ...

    async def restore(self, tenant: Tenant, dump: SessionDump) -> RestoreOutcome:
        """Take in a dumped session, whole or not at all. The same dump again is fine."""
        ...

    async def put_blob(self, tenant: Tenant, session_id: SessionId, data: bytes) -> str:
        """Keep bytes under their digest, before an item names them. Returns `sha256:…`.

        The session need not exist yet: its first turn may bring them. Raises SessionGone.
        """
        ...

    # reading: plain reads, each a consistent view of one moment
    async def resolve(self, tenant: Tenant, key: SessionKey) -> KeyRow | None: ...

    async def session(self, tenant: Tenant, session_id: SessionId) -> SessionRow | None:
        """The row, also of a deleted session as long as its tombstone is kept."""
        ...

    async def info(self, tenant: Tenant, session_id: SessionId) -> SessionInfo | None: ...

    async def snapshot(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        version: Version | None = None,
        known: Snapshot | None = None,
    ) -> Snapshot | None:
        """The session at a version (by default its head), or None if there is no such session or version.

        `known` is an earlier snapshot of it: only what came after is read.
        """
        ...

    async def turn(self, tenant: Tenant, turn_id: TurnId) -> TurnRow | None: ...

    async def turn_unfinished(self, tenant: Tenant, request_hash: bytes) -> TurnRow | None:
        """The last turn that was kept and did not complete whose request is known by this hash. What can be made of
        it, `find_attempt` tells."""
        ...

    async def turns(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        before: TurnId | None = None,
        limit: int = 100,
    ) -> tuple[TurnRow, ...]:
        """The session's own turns, newest first, in every state: by the version that they made, or that they began from;
        those that wait come last. With `before`, those that come before that turn of the session's own; none if it is
        not one."""
        ...

    async def journal(
        self, tenant: Tenant, turn_id: TurnId, *, since: int = 0
    ) -> tuple[JournalRow, ...]:
        """Rows that may hold records from number `since` on, in order."""
        ...

    async def idempotency(self, tenant: Tenant, key: IdempotencyKey) -> IdempotencyRow | None: ...

    async def memories(self, tenant: Tenant, agent: str) -> tuple[MemoryRow, ...]:
        """What an agent remembers, oldest first."""
        ...

    async def blob(self, tenant: Tenant, session_id: SessionId, digest: str) -> bytes | None:
        """Bytes by digest, a fork's past included."""
        ...

    async def sessions(
        self,
        tenant: Tenant,
        *,
        where: SessionFilter = EVERYTHING,
        cursor: str | None = None,
        limit: int = limits.page_size_default,
    ) -> Page:
        """List sessions with a committed turn by last activity. Raises InvalidCursor."""
        ...

    async def search(
        self,
        tenant: Tenant,
        query: Query,
        *,
        where: SessionFilter = EVERYTHING,
        cursor: str | None = None,
        limit: int = limits.page_size_default,
    ) -> Results:
        """List the sessions with a text that has all phrases of the query. Raises InvalidCursor.

        1. A session's texts are its name, as lists show it, and each message of the user and of its agent
           that people see (`searching.text_seen`): a fork's past as the fork sees it, no hidden message, no
           reasoning, nothing of tools, sub-agents or discarded turns. All phrases have to be in one of them.
        2. Everything that was committed, annotated or deleted before the call counts. An index only narrows
           down where to look; `searching.Sought` decides. What the index does not know yet is looked through.
        3. The order is that of `sessions`, and so is the cursor. There is no rank: it would be made of how
           often others use a word, and one tenant could measure another by it. What a call costs depends
           on its own tenant's texts alone, as far as a home can see to it.
        4. Of a session the name is shown if that was found, else its latest message that was.
        5. A page costs what `effort.py` lets it, and the next one goes on where it ended. A call that is
           cancelled ends, in whatever thread it works.
        """
        ...

    async def dump(self, tenant: Tenant, session_id: SessionId) -> SessionDump | None:
        """All rows of a session but its open and queued turns, as they lie; of a deleted one, what is left."""
        ...

    async def tenants(self) -> tuple[Tenant, ...]:
        """Everyone who has a session, a memory or a remembered approval. For operators: verify, copy, stats."""
        ...

    async def session_ids(
        self, tenant: Tenant, *, after: SessionId | None, limit: int
    ) -> tuple[SessionId, ...]:
        """Every session, by id, deleted ones included. For operators."""
        ...

    async def forks(
        self, tenant: Tenant, session_id: SessionId, *, limit: int
    ) -> tuple[SessionId, ...]:
        """The sessions that read some of this one's past, forks of forks included, by id."""
        ...

    async def nodes(self) -> tuple[NodeRow, ...]:
        """Every process that has said that it is alive, and has not resigned, by id. For operators."""
        ...

    async def all_memories(
        self, tenant: Tenant, *, after: MemoryRow | None, limit: int
    ) -> tuple[MemoryRow, ...]:
        """What the agents of a tenant remember, by agent and id. For operators."""
        ...

    async def restore_memories(self, tenant: Tenant, rows: Sequence[MemoryRow]) -> int:
        """Take in memories. One that is there already stays as it is; how many were not."""
        ...

    async def stats(self) -> StoreStats: ...

    # upkeep
    async def index(self, *, bytes_max: int = limits.index_step_bytes_max) -> Indexed:
        """Bring the index that `search` uses forward: about this much text, of some sessions that are behind.

        One small step; call it again while there is `more`. Commits do not do it, so they cost nothing more.
        A session is behind if its row has gone past what the row says to be indexed: whatever the order in
        which turns are committed, and on how many machines, none is left out. Any number of callers may do
        this at once; a home without an index has nothing to do.
        """
        ...

    async def prune(
        self, *, limit: int = limits.prune_batch_max, trust_clock: bool = False
    ) -> Pruned:
        """Remove some of what may go: discarded turns after a week, journals and idempotency rows a day
        after their end, bytes of deleted sessions that no live fork reads, dead nodes, anonymous lines.

        One small step; call it again while there is `more`. It looks at the clock, and a clock that has leapt makes
        nothing old until the store has been in use for a day (`horizon.py`); with `trust_clock` it does at once.
        """
        ...

    @property
    def queue_length(self) -> int:
        """How many calls wait for their turn at this moment."""
        ...

    async def close(self) -> None: ...
