"""`Sessions`: the sessions of one node over one store, as a library.

    async with Sessions(store, play) as sessions:
        watch = await sessions.submit(Ask(tenant=…, name=SessionKey("trip-to-oslo"), messages=…))
        async with watch:
            async for record in watch.events(): …
        ending = await watch.ended()

`play` plays a turn: our loop, or a caller's own agent code (`manual_turns.py` has a shorter way for that).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.history.conversation import Snapshot
from holdfast.core.ports import Play
from holdfast.errors import (
    SessionMissing,
    StoreDamaged,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.ids import Minter, SessionId, Tenant, TurnId, Version
from holdfast.observe.supervisor import SupervisedTask, TaskSupervisor
from holdfast.sessions.admission.admissions import Admissions
from holdfast.sessions.admission.continuations import asked_for
from holdfast.sessions.admission.lanes import Lanes
from holdfast.sessions.admission.queued_turns import Queue
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.cache import SnapshotCache
from holdfast.sessions.operations import Operations
from holdfast.sessions.session_requests import NO_ATTEMPT, Admission, Ask, Choose, as_asked, base_of
from holdfast.sessions.stateless_turns import LooseConversation, StatelessTurns
from holdfast.sessions.turns.lease import Lease
from holdfast.sessions.turns.owner import Owner
from holdfast.sessions.turns.received_answers import ReceivedAnswers
from holdfast.sessions.turns.recovery import Recovery
from holdfast.sessions.turns.watch import Watch
from holdfast.sessions.upkeep import Upkeep
from holdfast.store.outcomes import Attempt
from holdfast.store.store import Store


class Load(Value):
    """How busy a node is at one moment."""

    turns: int
    lanes: int
    waiting: int
    queued: int
    """Turns of the whole store that waited for a session when this node last looked."""
    watchers: int
    store_queue: int
    live: bool
    failing: tuple[str, ...] = ()
    """Supervised tasks whose last round ended in an error."""
    read_only: bool = False
    """The store is damaged, and refuses writes until it has been verified."""
    damaged: int = 0
    """Conversations and other rows of the store that could not be read since it was opened."""


class Sessions:
    """The sessions of one node over one store. Use it as a context, in one event loop."""

    def __init__(
        self,
        store: Store,
        play: Play,
        *,
        choose: Choose = as_asked,
        ambient: Ambient | None = None,
        heart_in_thread: bool = False,
        supervisor: TaskSupervisor | None = None,
        cache_bytes: int = limits.snapshot_cache_bytes,
        lane_waiting_max: int = limits.lane_waiting_max,
        background_max: int = limits.background_turns_max,
        lease_ttl_s: float = limits.lease_ttl_s,
        lease_renew_s: float = limits.lease_renew_s,
    ) -> None:
        """`play` plays recovered turns, and submitted turns without a player of their own.

        The node's lease is renewed by a task of this loop. With `heart_in_thread` a thread renews it: for a server
        whose loop may be blocked for longer than a TTL, over a store that can be used from another loop. At most
        `background_max` background turns are played here at a time; more of them wait in the store, for any node that
        has room.
        """
        self.store = store
        self._play = play
        self._ambient = ambient or Ambient()
        self.mint: Minter = self._ambient.mint
        """Makes ids, for callers that need one outside a turn."""
        self.supervisor = supervisor or TaskSupervisor()
        """Runs the tasks that live as long as this node."""
        self._heart_in_thread = heart_in_thread
        self._heart: tuple[SupervisedTask, ...] = ()
        """The task that renews the lease: it is stopped last."""
        self._background: tuple[SupervisedTask, ...] = ()
        """Tasks that take over turns, or can wait: they are stopped when this node begins to shut down."""
        self._lasting: tuple[SupervisedTask, ...] = ()
        """Tasks that running turns depend on: they are stopped after the last turn has ended."""
        self._closed = False
        self._acknowledging = ReceivedAnswers(store)
        loop_time = _loop_time
        self.lease = Lease(
            store,
            self._ambient.node_id(),
            monotonic=loop_time,
            ambient=self._ambient,
            ttl_s=lease_ttl_s,
            renew_s=lease_renew_s,
        )
        cache = SnapshotCache(bytes_max=cache_bytes)
        lanes = Lanes(waiting_max=lane_waiting_max)
        self.tally = self.supervisor.tally
        """The counters of this node."""
        self._lanes = lanes
        self._owner = Owner(
            store, self.lease, cache, lanes, self._ambient, self.tally, background_max
        )
        self._queue = queue = Queue(store, self._owner, play, self._ambient, self.tally)
        self._recovery = Recovery(store, self._owner, queue, play, self._ambient, self.tally)
        self._admissions = Admissions(
            store,
            cache,
            lanes,
            self._owner,
            self._recovery,
            self._ambient,
            choose,
            self.tally,
            self._acknowledging,
        )
        self.operations = Operations(
            store, cache, self._owner, self._recovery, queue, self._ambient
        )
        self._cache = cache
        self._stateless = StatelessTurns(store, self.lease, self._ambient, choose, self.tally)

    async def submit(self, ask: Ask, *, play: Play | None = None) -> Watch:
        """Admit a request: begin its turn, or find the turn that it has begun before, and watch it.

        Raises, and no turn has begun: SessionBusy, SessionConflict, SessionMissing, SessionGone, QueueFull,
        TurnRejected, KeyReused, CannotContinue, and StoreUnavailable. After an InDoubt the turn may have begun.
        """
        return await self._admissions.submit(ask, play or self._play)

    async def submit_again(self, ask: Ask, *, play: Play | None = None) -> Watch | None:
        """The turn that the same request has begun before in an anonymous session: joined, replayed, or continued if it
        is unfinished. None if there is none."""
        return await self._admissions.submit_again(ask, play or self._play)

    async def continue_turn(
        self,
        tenant: Tenant,
        turn_id: TurnId,
        *,
        attempt: Attempt = NO_ATTEMPT,
        deadline_s: float = limits.turn_deadline_s,
        play: Play | None = None,
    ) -> Watch:
        """Continue an unfinished turn at a person's request, by a new turn in the background.

        Raises SessionMissing, CannotContinue, and what `submit` raises.
        """
        ask = await asked_for(self.store, tenant, turn_id, attempt)
        ask = msgspec.structs.replace(ask, deadline_s=deadline_s)
        return await self.submit(ask, play=play)

    def submit_stateless(
        self, ask: Ask, *, play: Play | None = None, loose: LooseConversation | None = None
    ) -> Watch:
        """Play a request that names no conversation, or goes on with a `loose` one. Nothing is stored.

        Raises TurnRejected, and StoreUnavailable if this node is shutting down."""
        self._owner.demand_open()
        return self._stateless.submit(ask, play or self._play, loose)

    async def watch(self, tenant: Tenant, turn_id: TurnId) -> Watch:
        """Watch a turn by its id, wherever it is played, also after its end. Raises SessionMissing."""
        row = await self.store.turn(tenant, turn_id)
        if row is None:
            raise SessionMissing("turn", turn_id)
        admission = Admission(
            turn_id=turn_id,
            session_id=row.session_id,
            base=base_of(row),
            how="joined",
            continues=row.continues,
        )
        return Watch(self.store, self.lease, tenant, admission, self._owner.find(turn_id))

    async def snapshot(
        self, tenant: Tenant, session_id: SessionId, version: Version | None = None
    ) -> Snapshot | None:
        """A session at its head, or at an earlier version. None if it does not exist."""
        known = self._cache.get(tenant, session_id)
        snapshot = await self.store.snapshot(tenant, session_id, version=version, known=known)
        if snapshot is not None and version is None:
            self._cache.put(tenant, snapshot)
        return snapshot

    def note_handed_over(self, tenant: Tenant, admission: Admission) -> None:
        """Note that a client has received its whole answer. The store gets the note before requests submitted later."""
        if not admission.is_own:
            self._admissions.steered.note_received(admission.turn_id, admission.request_hash)
            return
        self._acknowledging.note(tenant, admission.turn_id)

    def note_asked_again(self, tenant: Tenant, turn_id: TurnId) -> None:
        """Note that a client has received the question of this turn, which was asked again."""
        self._acknowledging.note(tenant, turn_id)

    def turns_of(self, tenant: Tenant) -> int:
        """How many stored turns of a tenant are played here now, watched or not."""
        return self._owner.playing_for[tenant]

    def load(self) -> Load:
        """How busy this node is at this moment."""
        return Load(
            turns=len(self._owner.claimed),
            lanes=len(self._lanes),
            waiting=self._lanes.waiting,
            queued=self._queue.seen,
            watchers=self._owner.watchers,
            store_queue=self.store.queue_length,
            read_only=self.store.read_only is not None,
            damaged=len(self.store.damages),
            live=self.lease.is_live,
            failing=self.supervisor.failing,
        )

    async def __aenter__(self) -> Self:
        with suppress(StoreReadOnly, StoreDamaged):  # reading needs no lease
            await self.lease.renew()
        try:
            self._heart = (await self._start_heart(),)
            with suppress(
                StoreDamaged
            ):  # the supervised sweeper tries again, and `/readyz` says so
                await self._recovery.sweep()
        except BaseException:
            # `__aexit__` does not run after a failed `__aenter__`, and the sweep may have taken over turns.
            with suppress(StoreError):
                await self.close(grace_s=0.0)
            raise
        upkeep, keep = Upkeep(self.store), self.supervisor.keep
        self._lasting = (keep("signals", self._owner.hear_signals),)
        self._background = (
            keep("sweeper", self._recovery.sweep_and_wait),
            keep("indexer", upkeep.index),
            keep("pruner", upkeep.prune),
        )
        return self

    async def _start_heart(self) -> SupervisedTask:
        lease = self.lease
        if self._heart_in_thread:
            return await self.supervisor.keep_in_thread("heart", lease.beat, lease.backoff)
        return self.supervisor.keep("heart", lease.beat, lease.backoff)

    async def __aexit__(self, kind: object, error: object, tb: object) -> None:
        await self.close(grace_s=limits.drain_grace_s if error is None else 0.0)

    async def close(self, *, grace_s: float) -> None:
        """Shut down: let turns finish for `grace_s`, end or hand over the rest, and give up the lease. Once that is done,
        calling it again changes nothing.

        The store belongs to the caller and stays open.
        """
        if self._closed:
            return
        stop = self.supervisor.stop
        await stop(*self._background)
        losses = self.supervisor.keep("losses", self._recovery.find_losses)
        # Stored and stateless turns drain at the same time, within one grace time.
        try:
            await asyncio.gather(
                self._owner.drain(grace_s=grace_s), self._stateless.drain(grace_s=grace_s)
            )
        finally:
            await stop(*self._lasting, losses)
        # A store that has not taken the end of every turn is not waited for any longer.
        until_s = _loop_time() + limits.resign_s if self._owner.claimed else None
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await self._acknowledging.settle()
        await stop(*self._heart)
        with suppress(StoreUnavailable, TimeoutError):  # the lease expires by itself
            async with asyncio.timeout_at(until_s):
                await self.lease.resign()
        self._closed = True


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
