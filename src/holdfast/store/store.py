"""The store: it keeps conversations, and every promise about them is kept or broken here.

Each method runs an operation, which is written once for all homes (SQLite, PostgreSQL, memory); a home is a driver that
executes its steps. One contract suite runs against all homes. The rules that a home must keep:

1. Every method is one transaction: it happens whole, or not at all. What a method wrote is durable when it
   returns; a method that raises has changed nothing, unless the error is StoreUnavailable or StorePoisoned:
   then the outcome is unknown, and the caller learns it by calling the method again.
2. Repeating a method with the same arguments is safe. Where its docstring says so, it gives the first answer again.
3. A write under an old fence raises Superseded. A node may be wrong about still holding a fence;
   the store never is.
4. Every row has a tenant. Another tenant's rows are absent, in every method, exactly like rows that do
   not exist.
5. Times come from the store's clock. A caller's clock decides nothing here.
6. No method rewrites a history. `commit` and `restore` insert items, and items are removed only with their session.

An outcome that a caller must decide on is a value; an error is something that a caller cannot sensibly handle.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial, wraps
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast import limits
from holdfast.core.history.checks import Violation
from holdfast.core.history.conversation import Snapshot
from holdfast.errors import InvalidValue, SessionDamaged, StoreDamaged, StoreReadOnly
from holdfast.ids import NodeId, SessionId, Tenant, TurnId, Version
from holdfast.store import outcomes, pages
from holdfast.store.operations import (
    access,
    arrivals,
    finders,
    inspection,
    lines,
    lists,
    overwrites,
    queue,
    reads,
    retention,
    search,
)
from holdfast.store.operations import nodes as node_operations
from holdfast.store.operations import sessions as session_operations
from holdfast.store.operations import signals as signal_operations
from holdfast.store.operations import turns as turn_operations
from holdfast.store.rows import SignalKind
from holdfast.store.search.effort import Effort
from holdfast.store.snapshots import extended
from holdfast.store.steps import Operation, Start
from holdfast.store.verification.damage import DamageLog
from holdfast.store.verification.findings import Finding, Progress, Report

P = ParamSpec("P")
T = TypeVar("T")
L = TypeVar("L", outcomes.ListPage, outcomes.Results)
Method = Callable[Concatenate["Store", P], Coroutine[Any, Any, T]]


def by_write(operation: Callable[P, Operation[T]], *, once: bool = False) -> Method[P, T]:
    """The method that runs this operation and returns its result; see `Store._write`."""

    async def method(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        start = partial(operation, *args, **kwargs)
        try:
            return await self._write(start, once=once)
        except StoreDamaged as damage:
            if not await self._meet(damage, writing=True):
                if (reason := self.read_only) is not None:  # what each later write is told
                    raise StoreReadOnly(reason) from damage
                raise
        return await self._write(start, once=once)

    return _told(method, operation)


def by_read(operation: Callable[P, Operation[T]], *, one_moment: bool = False) -> Method[P, T]:
    """The same for an operation that writes nothing; see `Store._read`."""

    async def method(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        start = partial(operation, *args, **kwargs)
        try:
            return await self._read(start, one_moment=one_moment)
        except StoreDamaged as damage:
            if not await self._meet(damage):
                raise
        return await self._read(start, one_moment=one_moment)

    return _told(method, operation)


def _told(method: Method[P, T], operation: Callable[P, Operation[T]]) -> Method[P, T]:
    """The method, with the name, the signature and the docstring of its operation."""
    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    told = wraps(operation)(method)
    arguments = signature(operation).parameters.values()
    told.__signature__ = Signature([own, *arguments])  # type: ignore[attr-defined]
    return told


def _noting(read: Method[P, L]) -> Method[P, L]:
    """The same method; it reports the sessions that a page has left out because they are damaged."""

    @wraps(read)
    async def method(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> L:
        page = await read(self, *args, **kwargs)
        if page.damaged and await self._repair_indexes():
            page = await read(self, *args, **kwargs)
        for each in page.damaged:
            self.damages.note(SessionDamaged(each, "a list has left it out"))
        return page

    return method


class Store:
    """Keeps conversations, by the rules at the top of this module. A method has the docstring of its operation."""

    def _write(self, start: Start[T], *, once: bool = False) -> Coroutine[None, None, T]:
        """Run an operation; its writes are durable when this returns. `once`: the operation must not be repeated, so if
        its answer is lost it is not run again, and the caller gets the error."""
        raise NotImplementedError

    def _read(self, start: Start[T], *, one_moment: bool = False) -> Coroutine[None, None, T]:
        """Run an operation that writes nothing. `one_moment`: all its steps read one snapshot of the store."""
        raise NotImplementedError

    @cached_property
    def damages(self) -> DamageLog:
        """The damage that this process has met since it opened the store."""
        return DamageLog()

    async def _meet(self, damage: StoreDamaged, *, writing: bool = False) -> bool:
        """Report damage that a read has met (or, with `writing`, a write) to the operator, once. Returns whether the damage
        was repaired, so that the operation can be run again."""
        self.damages.note(damage)
        return False

    async def _repair_indexes(self) -> bool:
        """Whether a damaged index was repaired, so that what has met it can be tried again."""
        return False

    @property
    def read_only(self) -> str | None:
        """Why the store accepts no writes: pages that all writes need are damaged. None if it accepts them."""
        return None

    @property
    def unreadable(self) -> bool:
        """Whether a page is damaged that everything is read by, so that nothing can be served."""
        return False

    async def declare_sound(self) -> None:
        """`verify` has found nothing wrong: a store that was read-only accepts writes again."""

    def _is_held(self, slot: int) -> bool:
        """Whether the process that owns this slot is alive; see `sqlite/locks.py`."""
        return True

    def _hint(self, said: signal_operations.SignalResult) -> None:
        """Wake the node that the signal is for, if this home can."""

    # nodes
    renew = by_write(node_operations.renew)
    _resigned = by_write(node_operations.resign)
    nodes = by_read(node_operations.nodes)

    async def resign(self, node: NodeId) -> None:
        """Declare that this process ends. Other nodes can take its open turns over at once."""
        await self._resigned(node)

    # turns
    find_attempt = by_read(turn_operations.find_attempt)
    begin = by_write(turn_operations.begin)
    append = by_write(turn_operations.append)
    commit = by_write(turn_operations.commit)
    end = by_write(turn_operations.end)
    release = by_write(node_operations.release)
    takeover = by_write(node_operations.takeover)
    end_stray = by_write(turn_operations.end_stray)
    acknowledge = by_write(turn_operations.acknowledge)
    turn = by_read(finders.turn_of)
    turns = by_read(lists.turns)
    playing = by_read(lists.playing)
    recent_turns = by_read(lists.recent_turns)
    asking = by_read(lists.asking)
    unfinished = by_read(lists.unfinished)
    failures = by_read(lists.failures)
    troubled = by_read(lists.troubled)
    turn_unfinished = by_read(turn_operations.turn_unfinished)
    idempotency = by_read(finders.claim_under)
    _orphans = by_read(node_operations.orphans)

    async def orphans(
        self, *, node: NodeId, limit: int, among: Sequence[tuple[Tenant, TurnId]] | None = None
    ) -> tuple[outcomes.Orphan, ...]:
        """Open turns without a live holder, the oldest first; with `among`, of these turns only. A plain read; `takeover`
        decides.

        The turns that `node` itself holds are included: the node knows which of them it plays.
        """
        return await self._orphans(node, limit=limit, is_held=self._is_held, among=among)

    # turns that wait for their session
    queued = by_read(node_operations.queued)
    enqueue = by_write(queue.enqueue)
    open_queued = by_write(queue.open_queued)
    withdraw = by_write(queue.withdraw)

    # signals
    signals = by_read(node_operations.signals)
    find_signal = by_read(signal_operations.find_signal)
    _signal = by_write(signal_operations.signal)
    _signal_once = by_write(signal_operations.signal, once=True)

    async def signal(
        self,
        tenant: Tenant,
        turn_id: TurnId,
        *,
        kind: SignalKind,
        payload: bytes = b"",
        attempt: outcomes.Attempt | None = None,
        after: int | None = None,
    ) -> outcomes.SignalOutcome:
        """Send a signal to the turn's owner. Raises SessionMissing if there is no such turn. With `after`, only if the
        signal of that number is still the last (0: there was none).

        With the `attempt` of a request that has an idempotency key, the key is checked first, as `begin` does, and
        claimed for this turn together with the signal: the same request again is `Joined`, and its message is sent
        once. Without a key, a repeated call sends the message twice.
        """
        # The turn would read a message twice that was steered in twice, unless the key tells; two stop signals stop
        # it once.
        is_keyed = attempt is not None and attempt.key is not None
        say = self._signal_once if kind == "steer" and not is_keyed else self._signal
        said = await say(tenant, turn_id, kind=kind, payload=payload, attempt=attempt, after=after)
        self._hint(said)
        return said.outcome

    # sessions
    resolve = by_read(finders.key_named)
    session = by_read(finders.session_of)
    info = by_read(reads.info, one_moment=True)
    journal = by_read(reads.journal)
    dump = by_read(reads.dump, one_moment=True)
    chain_end = by_read(reads.chain_end, one_moment=True)
    index_flaw = by_read(search.index_flaw, one_moment=True)
    session_ids = by_read(reads.session_ids)
    forks = by_read(reads.forks)
    family_turns = by_read(lines.family_turns)
    family_lines = by_read(lines.family_lines)
    tenants = by_read(lists.tenants)
    stats = by_read(lists.stats)
    restore = by_write(arrivals.restore)
    annotate = by_write(session_operations.annotate, once=True)
    bind = by_write(session_operations.bind)
    name = by_write(session_operations.name)
    rebind = by_write(session_operations.rebind)
    fork = by_write(session_operations.fork)
    remove = by_write(session_operations.remove)
    put_blob = by_write(session_operations.put_blob)
    blob = by_read(reads.blob)
    sessions = _noting(by_read(lists.sessions, one_moment=True))
    _snapshot = by_read(reads.snapshot)
    _search = _noting(by_read(search.search, one_moment=True))
    _index_plan = by_read(search.plan)
    _index_step = by_write(search.take)

    async def snapshot(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        version: Version | None = None,
        known: Snapshot | None = None,
    ) -> Snapshot | None:
        """The session at a version (by default its head), or None if there is no such session or version.

        `known` is an earlier snapshot of the session: only later rows are read.
        """
        found = await self._snapshot(tenant, session_id, version=version, known=known)
        return None if found is None else extended(found)

    async def search(
        self,
        tenant: Tenant,
        query: outcomes.Query,
        *,
        where: outcomes.SessionFilter = outcomes.EVERYTHING,
        cursor: str | None = None,
        limit: int = limits.page_size_default,
    ) -> outcomes.Results:
        """List the sessions with a text that has all phrases of the query. Raises InvalidCursor.

        1. A session's texts are its name, as lists show it, and each message of the user and of its agent
           that people see (`matches.text_seen`): a fork's past as the fork sees it, no hidden message, no
           reasoning, nothing of tools, sub-agents or discarded turns. All phrases have to be in one of them.
        2. Everything that was committed, annotated or deleted before the call counts. An index only narrows
           down where to look; `matches.ParsedQuery` decides. Items that are not indexed yet are read.
        3. The order is that of `sessions`, and so is the cursor. There is no rank: it would be made of how
           often others use a word, and one tenant could measure another by it. What a call costs depends
           on its own tenant's texts alone, as far as a home can ensure it.
        4. A match shows the session's name if the name matches, else its latest message that does.
        5. `search/effort.py` bounds the cost of a page, and the next page goes on where it ended. A cancelled
           call ends its work, also in another thread.
        """
        before, within = pages.resumed(cursor)
        effort = Effort()
        page = partial(self._search, tenant, query, where=where, before=before, within=within)
        try:
            return await page(limit=limit, effort=effort)
        finally:
            effort.given_up = True

    async def index(self, *, bytes_max: int = limits.index_step_bytes_max) -> outcomes.Indexed:
        """Index about this much text, of some sessions that the search index does not know whole yet.

        One small step; the caller repeats it while there is `more`. Commits do not index, so they cost nothing more.
        A session is behind if its row has gone past the position that the row gives as indexed: so none is left
        out, in any order of commits and on any number of machines. Any number of callers may index at once.
        """
        plan = await self._index_plan(bytes_max=bytes_max)
        try:
            if plan.steps:
                await self._index_step(plan)
        except StoreDamaged:  # it was reported, and a search reads what is not indexed
            return outcomes.Indexed(sessions=0, more=False)
        return outcomes.Indexed(sessions=len(plan.steps), more=plan.more)

    # memories
    memories = by_read(reads.memories)
    all_memories = by_read(lists.all_memories)
    restore_memories = by_write(arrivals.restore_memories)

    # keys and approvals
    put_api_key = by_write(access.put_api_key)
    api_key = by_read(access.api_key)
    api_keys = by_read(access.api_keys)
    revoke_api_key = by_write(access.revoke_api_key)
    put_seal_key = by_write(access.put_seal_key)
    seal_keys = by_read(access.seal_keys)
    remove_seal_key = by_write(access.remove_seal_key)
    put_grant = by_write(access.put_grant)
    grants = by_read(access.grants)
    revoke_grant = by_write(access.revoke_grant)

    # upkeep
    _look_at_clock = by_write(retention.look_at_clock)

    async def inspect(self) -> AsyncIterator[Report]:
        """The findings of `verify` outside the sessions themselves; see `operations/inspection.py`."""
        checks = inspection.CHECKS
        for done, check in enumerate(checks, start=1):
            after: inspection.PageStart | None = ()
            while after is not None:
                try:
                    page = await self._read(partial(check, after), one_moment=True)
                except StoreDamaged as damage:
                    what = f"{damage.what}: {damage.why}"
                    yield Finding(violation=Violation(code="unreadable", where="", what=what))
                    break
                for finding in page.findings:
                    yield finding
                after = page.last
            yield Progress(what="checks", done=done, of=len(checks))

    async def prune(
        self, *, limit: int = limits.prune_batch_max, trust_clock: bool = False
    ) -> outcomes.Pruned:
        """Remove some expired rows: discarded turns after a week, journals and idempotency rows a day
        after their end, bytes of deleted sessions that no live fork reads, dead nodes, anonymous lines.

        One small step; the caller repeats it while there is `more`. A leap of the clock makes nothing old until
        the store has been in use for a day (`expiry.py`); with `trust_clock` it counts at once.
        """
        horizon = await self._look_at_clock(trust_clock=trust_clock)
        gone = 0
        for step in retention.STEPS:
            if gone < limit:
                gone += await self._pruned(partial(step, horizon), limit=limit - gone)
        for which, step_of_one in retention.SESSION_STEPS:
            if gone < limit:
                places: tuple[retention.SessionPlace, ...] = ()
                async with self._past_damage():
                    places = await self._read(partial(which, horizon, limit=limit - gone))
                for place in places:
                    if gone < limit:
                        step = partial(step_of_one, place, horizon)
                        with suppress(InvalidValue):  # an id that is none: `verify` names it
                            gone += await self._pruned(step, limit=limit - gone)
        return outcomes.Pruned(rows=gone, more=gone >= limit, behind_ms=horizon.behind_ms)

    async def _pruned(self, step: Callable[..., Operation[int]], *, limit: int) -> int:
        """Take a step of retention; how many rows are gone. If it meets damage, it is taken in ever smaller halves, and
        what cannot be removed is overwritten (`operations/overwrites.py`)."""
        try:
            return await self._write(partial(step, limit=limit))
        except StoreDamaged as damage:
            await self._meet(damage, writing=True)
        again = partial(step, limit=limit + retention.MOMENTS_MAX)
        gone, halves = 0, list[tuple[overwrites.Group, ...]]()
        async with self._past_damage():
            halves.append(await self._read(partial(overwrites.planned, again)))
        while halves and gone < limit:
            some = halves.pop()[: limit - gone]
            try:
                gone += await self._write(partial(overwrites.narrowed, again, some))
            except StoreDamaged as damage:
                await self._meet(damage, writing=True)
                if len(some) > 1:
                    middle = len(some) // 2
                    halves += (some[middle:], some[:middle])
                else:
                    await self._overwrite(again, *some)
        return gone

    async def _overwrite(self, step: Start[int], group: overwrites.Group) -> None:
        """Take the words out of rows that a step cannot remove, table by table: one may be damaged itself."""
        for table in overwrites.tables_with_words(group):
            async with self._past_damage():
                await self._write(partial(overwrites.overwrite, step, group, table))

    @asynccontextmanager
    async def _past_damage(self) -> AsyncIterator[None]:
        """Report damage inside the block and go on: one damaged session does not delay the others."""
        try:
            yield
        except StoreDamaged as damage:
            await self._meet(damage, writing=True)

    @property
    def queue_length(self) -> int:
        """How many calls wait to be run at this moment."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
