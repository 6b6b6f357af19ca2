"""The store: where conversations live, and where every promise is kept or broken.

Each method runs an operation, which is one text for all homes; a home is a driver that takes its steps. One contract
suite runs against all of them. The rules that a home must keep:

1. Every method is one transaction: it happens whole, or not at all. What a method wrote is durable when it
   returns; a method that raises has changed nothing, unless the error is StoreUnavailable or StorePoisoned:
   then the outcome is unknown, and asking again tells.
2. Repeating a method with the same arguments is safe, and answers as the first time where it says so.
3. A write under an old fence raises Superseded. A node may be wrong about still holding a fence;
   the store never is.
4. Every row has a tenant. Another tenant's rows are absent, in every method, exactly like rows that do
   not exist.
5. Times are the store's. A caller's clock decides nothing here.
6. Nothing rewrites a history. Items are inserted by `commit` and `restore`, and go with their session.

Outcomes that a caller must decide on are values; errors are for what a caller cannot sensibly handle here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from holdfast import limits
from holdfast.core.codec import DAMAGE
from holdfast.core.conversation import Commit, Patch, Snapshot
from holdfast.core.items import EndedBy
from holdfast.errors import InvalidValue
from holdfast.ids import (
    GrantId,
    IdempotencyKey,
    ItemId,
    KeyId,
    NodeId,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
)
from holdfast.store import base, pages
from holdfast.store.assemble import extended
from holdfast.store.base import ANY_GRANT, GrantFilter
from holdfast.store.effort import Effort
from holdfast.store.findings import Progress, Report
from holdfast.store.operations import (
    access,
    arrivals,
    finders,
    inspection,
    lists,
    nodes,
    queue,
    reads,
    retention,
    search,
    sessions,
    signals,
    sweeps,
    turns,
)
from holdfast.store.rows import (
    ApiKeyRow,
    GrantRow,
    IdempotencyRow,
    JournalRow,
    KeyRow,
    MemoryRow,
    NodeRow,
    SealKeyRow,
    SessionRow,
    SignalKind,
    SignalRow,
    TurnRow,
)
from holdfast.store.steps import Start

T = TypeVar("T")


class Store:
    """Where conversations live. See the rules at the top of this module."""

    async def _write(self, start: Start[T]) -> T:
        """Run an operation; durable when this returns."""
        raise NotImplementedError

    async def _read(self, start: Start[T], *, one_moment: bool = False) -> T:
        """Run an operation that writes nothing. `one_moment`: all its steps see what the first one saw."""
        raise NotImplementedError

    def _is_held(self, slot: int) -> bool:
        """Whether the process of a slot lives; see `sqlite/locks.py`."""
        return True

    # nodes

    async def renew(self, node: NodeId, *, ttl_ms: int) -> NodeRow:
        """Say that this process is alive for another `ttl_ms`; the first call enrols it.

        If the row had expired meanwhile, `since_ms` starts anew: there was a gap.
        """
        return await self._write(partial(nodes.renew, node, ttl_ms=ttl_ms))

    async def resign(self, node: NodeId) -> None:
        """Say that this process is gone. Its open turns can be taken over at once."""
        await self._write(partial(nodes.resign, node))

    async def nodes(self) -> tuple[NodeRow, ...]:
        """Every process that has said that it is alive, and has not resigned, by id. For operators."""
        return await self._read(nodes.nodes)

    # turns

    async def find_attempt(
        self, tenant: Tenant, attempt: base.Attempt, target: base.Target | None = None
    ) -> base.Known | None:
        """Whether this request is known already, without beginning anything. A plain read.

        By its idempotency key, or, with a `target`, as a recognised retry of that session's turn. A key whose name
        means another session than its turn's by now is not `Unfinished`.
        `begin` asks again; this is for checks that a retry must not meet, such as `If-Match`.
        """
        return await self._read(partial(turns.find_attempt, tenant, attempt, target))

    async def begin(self, ask: base.Begin) -> base.BeginOutcome:
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
        return await self._write(partial(turns.begin, ask))

    async def append(
        self, fence: base.Fence, *, n: int, records: bytes, consumed: Sequence[int] = ()
    ) -> None:
        """Add records to the turn's journal, from number `n` on, and consume these steer signals.

        Raises Superseded under an old fence. The same append again changes nothing.
        """
        await self._write(partial(turns.append, fence, n=n, records=records, consumed=consumed))

    async def commit(
        self,
        fence: base.Fence,
        commit: Commit,
        *,
        n: int,
        records: bytes,
        settlement: base.Settlement = "done",
    ) -> base.CommitOutcome:
        """T2. Put the turn into the history: items, state, memories, link, idempotency; close the turn.

        Every key that leads to the turn is settled: its own, and those of requests that were steered into it.

        Raises Superseded under an old fence, or if the session has moved past the turn's base.
        Answers `Unconsumed`, and changes nothing, if a steer is waiting and the turn could still hear
        it: one that broke off, or that waits for its client, cannot. Committing the same turn again
        under the same token returns the same version, also after it was closed.

        `n` comes after everything in the journal (else StoreError): a node that commits has to know all
        that happened. `records` are the journal's last ones; they, and the journal, are kept only for a replayable
        turn, and for one that did not complete: no client comes back for the events of another, and its items say it all.
        """
        return await self._write(
            partial(turns.commit, fence, commit, n=n, records=records, settlement=settlement)
        )

    async def end(
        self,
        fence: base.Fence,
        *,
        ended_by: EndedBy,
        detail: str,
        n: int,
        records: bytes,
        settlement: base.Settlement,
    ) -> TurnRow:
        """Discard the turn: everything but its own row and journal is as if it had not been.

        Raises Superseded under an old fence. Ending it again returns the same row.
        """
        return await self._write(
            partial(
                turns.end,
                fence,
                ended_by=ended_by,
                detail=detail,
                n=n,
                records=records,
                settlement=settlement,
            )
        )

    async def release(self, fence: base.Fence) -> None:
        """Hand an open turn over: any node may take it at once, and it does not count as a crash."""
        await self._write(partial(nodes.release, fence))

    async def takeover(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        node: NodeId,
        nonce: str,
        turn_id: TurnId | None = None,
        ignored_cancel: bool = False,
    ) -> base.TakeoverOutcome:
        """Make the session's open turn ours, if its holder is dead, has handed it over, or is this node.

        With `turn_id`, only that turn: another one that was begun meanwhile is left alone.
        The token is bumped and the attempt counted before this returns. With `ignored_cancel` a live
        holder is overruled too, if a cancel has been waiting for `cancel_grace_s`.
        """
        return await self._write(
            partial(
                nodes.takeover,
                tenant,
                session_id,
                node=node,
                nonce=nonce,
                turn_id=turn_id,
                ignored_cancel=ignored_cancel,
            )
        )

    async def acknowledge(self, tenant: Tenant, turn_id: TurnId) -> None:
        """Note that the answer has been handed to the client whole. Absent turns are ignored."""
        await self._write(partial(turns.acknowledge, tenant, turn_id))

    async def turn(self, tenant: Tenant, turn_id: TurnId) -> TurnRow | None:
        return await self._read(partial(finders.turn_of, tenant, turn_id))

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
        return await self._read(
            partial(lists.turns, tenant, session_id, before=before, limit=limit)
        )

    async def turn_unfinished(self, tenant: Tenant, request_hash: bytes) -> TurnRow | None:
        """The last turn that was kept and did not complete whose request is known by this hash. What can be made of
        it, `find_attempt` tells."""
        return await self._read(partial(turns.turn_unfinished, tenant, request_hash))

    async def idempotency(self, tenant: Tenant, key: IdempotencyKey) -> IdempotencyRow | None:
        return await self._read(partial(finders.claim_under, tenant, key))

    async def orphans(self, *, node: NodeId, limit: int) -> tuple[base.Orphan, ...]:
        """Open turns without a live holder, the oldest first. A plain read; `takeover` decides.

        Those that `node` itself holds are among them: it knows which of them it plays.
        """
        return await self._read(partial(sweeps.orphans, node, limit=limit, is_held=self._is_held))

    # turns that wait for their session

    async def queued(self, *, limit: int) -> tuple[base.Waiting, ...]:
        """Queued turns, in the order in which they came. A plain read; `open_queued` decides."""
        return await self._read(partial(sweeps.queued, limit=limit))

    async def enqueue(self, ask: base.Begin, *, behind: bool = False) -> base.EnqueueOutcome:
        """Let a request wait for a session that is busy, or that others wait for: claim the idempotency key, write
        the turn as queued, and record 0. The session is not held, and its head may move on.

        Asks what `begin` asks about the request, and not what it asks about the head and the node. `Free` if the
        session is neither busy nor waited for, or is still to be made; with `behind`, only in the last case.
        An `enqueue` whose own turn is queued already (the same turn id) answers `Queued` again.
        """
        return await self._write(partial(queue.enqueue, ask, behind=behind))

    async def open_queued(self, ask: base.Opening) -> base.OpenOutcome:
        """Open a queued turn on top of its session's head, and hold it: from then on it is like any other.

        Of a session's queued turns only the first can be opened. The same `Opening` again answers `Started` again.
        """
        return await self._write(partial(queue.open_queued, ask))

    async def withdraw(
        self,
        tenant: Tenant,
        turn_id: TurnId,
        *,
        ended_by: EndedBy,
        detail: str,
        records: bytes,
        settlement: base.Settlement,
    ) -> TurnRow:
        """Discard a turn that is queued; `records` are those after its request. The turn as it is then.

        One that is not queued (any more) is left as it is. Raises SessionMissing if there is no such turn.
        """
        return await self._write(
            partial(
                queue.withdraw,
                tenant,
                turn_id,
                ended_by=ended_by,
                detail=detail,
                records=records,
                settlement=settlement,
            )
        )

    # signals

    async def signal(
        self,
        tenant: Tenant,
        turn_id: TurnId,
        *,
        kind: SignalKind,
        payload: bytes = b"",
        attempt: base.Attempt | None = None,
        after: int | None = None,
    ) -> base.SignalOutcome:
        """Tell the turn's owner something. Raises SessionMissing if there is no such turn. With `after`, only if the
        signal of that number is still the last (0: there was none).

        With the `attempt` of a request that has an idempotency key, the key is looked at first, as `begin` does, and
        claimed for this turn together with the signal: the same request again is `Joined`, and is not said twice.
        Without a key, saying it again says it twice.
        """
        said = await self._say(
            tenant, turn_id, kind=kind, payload=payload, attempt=attempt, after=after
        )
        return said.outcome

    async def _say(
        self,
        tenant: Tenant,
        turn_id: TurnId,
        *,
        kind: SignalKind,
        payload: bytes,
        attempt: base.Attempt | None,
        after: int | None,
    ) -> signals.Said:
        """`signal`, and which node is to hear it."""
        return await self._write(
            partial(
                signals.signal,
                tenant,
                turn_id,
                kind=kind,
                payload=payload,
                attempt=attempt,
                after=after,
            )
        )

    async def signals(self, node: NodeId) -> tuple[SignalRow, ...]:
        """Every signal that waits for a turn of this node, oldest first. One plain read."""
        return await self._read(partial(sweeps.signals, node))

    async def find_signal(self, tenant: Tenant, turn_id: TurnId, n: int) -> SignalRow | None:
        """One signal, to see whether its turn has heard it."""
        return await self._read(partial(signals.find_signal, tenant, turn_id, n))

    # sessions

    async def resolve(self, tenant: Tenant, key: SessionKey) -> KeyRow | None:
        return await self._read(partial(finders.key_named, tenant, key))

    async def session(self, tenant: Tenant, session_id: SessionId) -> SessionRow | None:
        """The row, also of a deleted session as long as its tombstone is kept."""
        return await self._read(partial(finders.session_of, tenant, session_id))

    async def info(self, tenant: Tenant, session_id: SessionId) -> base.SessionInfo | None:
        return await self._read(partial(reads.info, tenant, session_id), one_moment=True)

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
        found = await self._read(
            partial(reads.snapshot, tenant, session_id, version=version, known=known)
        )
        return None if found is None else extended(found)

    async def journal(
        self, tenant: Tenant, turn_id: TurnId, *, since: int = 0
    ) -> tuple[JournalRow, ...]:
        """Rows that may hold records from number `since` on, in order."""
        return await self._read(partial(reads.journal, tenant, turn_id, since=since))

    async def dump(self, tenant: Tenant, session_id: SessionId) -> base.SessionDump | None:
        """All rows of a session but its open and queued turns, as they lie; of a deleted one, what is left."""
        return await self._read(partial(reads.dump, tenant, session_id), one_moment=True)

    async def session_ids(
        self, tenant: Tenant, *, after: SessionId | None, limit: int
    ) -> tuple[SessionId, ...]:
        """Every session, by id, deleted ones included. For operators."""
        return await self._read(partial(reads.session_ids, tenant, after=after, limit=limit))

    async def forks(
        self, tenant: Tenant, session_id: SessionId, *, limit: int
    ) -> tuple[SessionId, ...]:
        """The sessions that read some of this one's past, forks of forks included, by id."""
        return await self._read(partial(reads.forks, tenant, session_id, limit=limit))

    async def tenants(self) -> tuple[Tenant, ...]:
        """The tenants that have a session, a memory or a remembered approval. For operators: verify, copy, stats."""
        return await self._read(lists.tenants)

    async def stats(self) -> base.StoreStats:
        return await self._read(lists.stats)

    async def restore(self, tenant: Tenant, dump: base.SessionDump) -> base.RestoreOutcome:
        """Take in a dumped session, whole or not at all. The same dump again is fine."""
        return await self._write(partial(arrivals.restore, tenant, dump))

    async def annotate(
        self,
        tenant: Tenant,
        session_id: SessionId,
        patches: Sequence[tuple[ItemId | None, Patch]],
        *,
        summary_rev: int | None = None,
    ) -> base.AnnotateOutcome:
        """Append annotations. With `summary_rev`, only on top of that summary (0: none yet).

        Raises SessionMissing or SessionGone.
        """
        return await self._write(
            partial(sessions.annotate, tenant, session_id, patches, summary_rev=summary_rev)
        )

    async def bind(
        self, tenant: Tenant, key: SessionKey, *, fresh: SessionId, version: Version | None = None
    ) -> SessionRow:
        """Make the key mean a new session: an empty one (reset), or a fork at `version` (rewind).

        The old session stays as it is, reachable by its id. Binding again with the same `fresh`
        returns the same row. Raises SessionMissing for an unknown key or version; a reset of a key
        whose session was deleted or never existed starts a new one.
        """
        return await self._write(partial(sessions.bind, tenant, key, fresh=fresh, version=version))

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

        Forking again with the same `fresh` returns the same row. The fork of an anonymous line is
        one, too; with `anonymous` every fork is. Raises SessionMissing, SessionGone.
        """
        return await self._write(
            partial(
                sessions.fork,
                tenant,
                session_id,
                version=version,
                fresh=fresh,
                anonymous=anonymous,
            )
        )

    async def remove(self, tenant: Tenant, session_id: SessionId) -> SessionRow:
        """Delete a session: it is gone at once, its key is free, its open and queued turns ended; bytes go later.

        Deleting again returns the same row. Raises SessionMissing.
        """
        return await self._write(partial(sessions.remove, tenant, session_id))

    async def put_blob(self, tenant: Tenant, session_id: SessionId, data: bytes) -> str:
        """Keep bytes under their digest, before an item names them. Returns `sha256:…`.

        The session need not exist yet: its first turn may bring them. Raises SessionGone.
        """
        return await self._write(partial(sessions.put_blob, tenant, session_id, data))

    async def blob(self, tenant: Tenant, session_id: SessionId, digest: str) -> bytes | None:
        """Bytes by digest, a fork's past included."""
        return await self._read(partial(reads.blob, tenant, session_id, digest))

    # lists

    async def sessions(
        self,
        tenant: Tenant,
        *,
        where: base.SessionFilter = base.EVERYTHING,
        cursor: str | None = None,
        limit: int = limits.page_size_default,
    ) -> base.Page:
        """List sessions with a committed turn by last activity. Raises InvalidCursor."""
        before = pages.start(cursor)
        return await self._read(
            partial(lists.page, tenant, where=where, before=before, limit=limit), one_moment=True
        )

    async def search(
        self,
        tenant: Tenant,
        query: base.Query,
        *,
        where: base.SessionFilter = base.EVERYTHING,
        cursor: str | None = None,
        limit: int = limits.page_size_default,
    ) -> base.Results:
        """List the sessions with a text that has all phrases of the query. Raises InvalidCursor.

        1. A session's texts are its name, as lists show it, and each message of the user and of its agent
           that people see (`matches.text_seen`): a fork's past as the fork sees it, no hidden message, no
           reasoning, nothing of tools, sub-agents or discarded turns. All phrases have to be in one of them.
        2. Everything that was committed, annotated or deleted before the call counts. An index only narrows
           down where to look; `matches.Sought` decides. What the index does not know yet is looked through.
        3. The order is that of `sessions`, and so is the cursor. There is no rank: it would be made of how
           often others use a word, and one tenant could measure another by it. What a call costs depends
           on its own tenant's texts alone, as far as a home can see to it.
        4. Of a session the name is shown if that was found, else its latest message that was.
        5. A page costs what `effort.py` lets it, and the next one goes on where it ended. A call that is
           cancelled ends, in whatever thread it works.
        """
        before, within = pages.resumed(cursor)
        effort = Effort()
        page = partial(search.search, tenant, query, where=where, before=before, within=within)
        try:
            return await self._read(partial(page, limit=limit, effort=effort), one_moment=True)
        finally:
            effort.given_up = True

    async def index(self, *, bytes_max: int = limits.index_step_bytes_max) -> base.Indexed:
        """Bring the index that `search` uses forward: about this much text, of some sessions that are behind.

        One small step; call it again while there is `more`. Commits do not do it, so they cost nothing more.
        A session is behind if its row has gone past what the row says to be indexed: whatever the order in
        which turns are committed, and on how many machines, none is left out. Any number of callers may do
        this at once.
        """
        plan = await self._read(partial(search.plan, bytes_max=bytes_max))
        if plan.steps:
            await self._write(partial(search.take, plan))
        return base.Indexed(sessions=len(plan.steps), more=plan.more)

    # memories

    async def memories(self, tenant: Tenant, agent: str) -> tuple[MemoryRow, ...]:
        """What an agent remembers, oldest first."""
        return await self._read(partial(reads.memories, tenant, agent))

    async def all_memories(
        self, tenant: Tenant, *, after: MemoryRow | None, limit: int
    ) -> tuple[MemoryRow, ...]:
        """What the agents of a tenant remember, by agent and id. For operators."""
        return await self._read(partial(lists.all_memories, tenant, after=after, limit=limit))

    async def restore_memories(self, tenant: Tenant, rows: Sequence[MemoryRow]) -> int:
        """Take in memories. One that is there already stays as it is; how many were not."""
        return await self._write(partial(arrivals.restore_memories, tenant, rows))

    # keys and approvals

    async def put_api_key(self, row: ApiKeyRow) -> bool:
        """Keep a key. One with this id that is there already stays as it is; whether it was not."""
        return await self._write(partial(access.put_api_key, row))

    async def api_key(self, key_id: KeyId) -> ApiKeyRow | None:
        """A key by its id, also one that is revoked or has expired. A plain read."""
        return await self._read(partial(access.api_key, key_id))

    async def api_keys(
        self, tenant: Tenant | None = None, *, after: KeyId | None = None, limit: int
    ) -> tuple[ApiKeyRow, ...]:
        """Some keys, of one tenant or of all, the oldest first. Revoked ones stay: they answer for the past."""
        return await self._read(partial(access.api_keys, tenant, after=after, limit=limit))

    async def revoke_api_key(self, key_id: KeyId) -> ApiKeyRow | None:
        """Take a key back, from now on and for ever. Again: the same row. None if there is none."""
        return await self._write(partial(access.revoke_api_key, key_id))

    async def put_seal_key(self, row: SealKeyRow) -> None:
        """Keep a key. One with this id that is there already stays as it is."""
        await self._write(partial(access.put_seal_key, row))

    async def seal_keys(self) -> tuple[SealKeyRow, ...]:
        """All of them, the oldest first. A plain read."""
        return await self._read(access.seal_keys)

    async def remove_seal_key(self, key_id: KeyId) -> None:
        """Forget a key; again: nothing happens. What it has sealed cannot be opened any more."""
        await self._write(partial(access.remove_seal_key, key_id))

    async def put_grant(self, row: GrantRow) -> bool:
        """Remember an approval. One with this id that is there already stays as it is; whether it was not."""
        return await self._write(partial(access.put_grant, row))

    async def grants(
        self,
        tenant: Tenant,
        where: GrantFilter = ANY_GRANT,
        *,
        after: GrantId | None = None,
        limit: int,
    ) -> tuple[GrantRow, ...]:
        """Some approvals, the oldest first. A plain read. Those that were revoked stay, and answer for the past."""
        return await self._read(partial(access.grants, tenant, where, after=after, limit=limit))

    async def revoke_grant(self, tenant: Tenant, grant_id: GrantId) -> GrantRow | None:
        """Take an approval back, from now on and for ever. Again: the same row. None if there is none."""
        return await self._write(partial(access.revoke_grant, tenant, grant_id))

    # upkeep

    async def inspect(self) -> AsyncIterator[Report]:
        """What `verify` checks beside the sessions themselves; see `operations/inspection.py`."""
        checks = inspection.CHECKS
        for done, check in enumerate(checks, start=1):
            after: inspection.PageStart | None = inspection.FIRST_PAGE
            while after is not None:
                page = await self._read(partial(check, after), one_moment=True)
                for finding in page.findings:
                    yield finding
                after = page.last
            yield Progress(what="checks", done=done, of=len(checks))

    async def prune(
        self, *, limit: int = limits.prune_batch_max, trust_clock: bool = False
    ) -> base.Pruned:
        """Remove some of what may go: discarded turns after a week, journals and idempotency rows a day
        after their end, bytes of deleted sessions that no live fork reads, dead nodes, anonymous lines.

        One small step; call it again while there is `more`. It looks at the clock, and a clock that has leapt makes
        nothing old until the store has been in use for a day (`horizon.py`); with `trust_clock` it does at once.
        """
        horizon = await self._write(partial(retention.look_at_clock, trust_clock=trust_clock))
        gone = 0
        for step in retention.STEPS:
            if gone < limit:
                gone += await self._write(partial(step, horizon, limit=limit - gone))
        for which, step_of_one in retention.SESSION_STEPS:
            if gone < limit:
                for place in await self._read(partial(which, horizon, limit=limit - gone)):
                    if gone < limit:
                        step = partial(step_of_one, place, horizon, limit=limit - gone)
                        with suppress(*DAMAGE, InvalidValue):  # `verify` names it; others go
                            gone += await self._write(step)
        return base.Pruned(rows=gone, more=gone >= limit, behind_ms=horizon.behind_ms)

    @property
    def queue_length(self) -> int:
        """How many calls wait for their turn at this moment."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
