"""The turns that this node owns, each in a task of its own, and the signals that reach them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence, Set

from holdfast import limits
from holdfast.core.history.conversation import Snapshot
from holdfast.core.ports import Play
from holdfast.core.turns.journal import Record
from holdfast.core.turns.turn import Turn
from holdfast.errors import StoreUnavailable
from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.observe.tally import Tally
from holdfast.sessions.admission.lanes import Lane, Lanes
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.cache import SnapshotCache, weight_of
from holdfast.sessions.turns.feed import Feed, Older
from holdfast.sessions.turns.lease import Lease
from holdfast.sessions.turns.live_turn import LiveTurn
from holdfast.sessions.turns.turn_end import Judge
from holdfast.sessions.turns.turn_notes import note_end
from holdfast.sessions.turns.watch import journaled
from holdfast.store.outcomes import Fence, HintSupport
from holdfast.store.rows import SignalRow
from holdfast.store.store import Store

ENDED_BYTES = 16 * 1024
"""What a turn that is over weighs besides its events."""


class Owner:
    """Takes turns on, sees them through, and remembers them for a while.

    It claims every turn that it plays or is about to: those it may not take for orphans. One turn may be
    claimed twice, by the one who has just lost it and the one who has just taken it over.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        cache: SnapshotCache,
        lanes: Lanes,
        ambient: Ambient,
        tally: Tally,
        background_max: int = limits.background_turns_max,
    ) -> None:
        self._store = store
        self._tally = tally
        self.lease = lease
        self._cache = cache
        self._lanes = lanes
        self._ambient = ambient
        self.live: dict[TurnId, LiveTurn] = {}
        self._ended: deque[tuple[float, int, LiveTurn]] = deque()
        """Turns that are over, and until when they are remembered."""
        self._ended_bytes = 0
        """About what they weigh."""
        self.playing_for: Counter[Tenant] = Counter()
        """How many turns are played here for each tenant that has one."""
        self._background: dict[TurnId, Tenant] = {}
        """Turns that nobody waits for, which are played as far as there is room."""
        self._background_max = background_max
        self.others_wait = False
        """As far as we know, such turns wait in the store: whoever comes now comes after them."""
        self.waited_for: set[tuple[Tenant, SessionId]] = set()
        """Sessions that turns wait for in the store, as far as we know."""
        self.room = asyncio.Event()
        """Set when there is room for one of those that wait, or a session is free that one waits for."""
        self.breaks: Counter[TurnId] = Counter()
        """How often turns have broken here that are still ours."""
        self.unstored: dict[TurnId, LiveTurn] = {}
        """Turns that are over here and open in the store, which did not take their end."""
        self._forgetting: asyncio.TimerHandle | None = None
        self._claims: dict[TurnId, int] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: dict[LiveTurn, tuple[asyncio.Task[None], Lane | None]] = {}
        """The task that plays each turn, as an event loop does not keep tasks alive; and the lane that it is in."""
        self._draining = False
        self._grace_is_over = False
        self._hinted: asyncio.Event | None = None
        """Set when there may be signals for us; None until we listen, or if the store gives no hints."""

    # ── claims ──

    @property
    def claimed(self) -> Set[TurnId]:
        return self._claims.keys()

    def beginning(self, turn_id: TurnId) -> TurnReservation:
        """Claim a turn that is about to begin here: a drain waits for it. Raises StoreUnavailable if this node begins
        nothing any more, although it may have when the request came."""
        self.demand_open()
        return TurnReservation(self, turn_id)

    def claiming(self, turn_id: TurnId) -> TurnReservation:
        """This turn is about to be ours, inside this context."""
        return TurnReservation(self, turn_id)

    def claim(self, turn_id: TurnId) -> None:
        self._claims[turn_id] = self._claims.get(turn_id, 0) + 1
        self._idle.clear()

    def let_go(self, turn_id: TurnId) -> None:
        left = self._claims.pop(turn_id) - 1
        if left:
            self._claims[turn_id] = left
        if not self._claims:
            self._idle.set()

    # ── turns ──

    def has_room_for(self, tenant: Tenant) -> bool:
        """Whether one more turn of this tenant that nobody waits for can be played here.

        A few are played of each tenant, however many others have: their turns do not take its place.
        """
        if self._draining:
            return False
        if len(self._background) < self._background_max:
            return True
        least = min(limits.background_turns_tenant_least, self._background_max)
        return list(self._background.values()).count(tenant) < least

    def is_wanted(self, tenant: Tenant, session_id: SessionId) -> bool:
        """Whether a request here is at the door of a session, or plays it."""
        return self._lanes.is_held((tenant, session_id))

    def look_for_waiting(self, tenant: Tenant) -> None:
        """See to it that what waits, of this tenant at least, is begun as far as there is room."""
        if self.others_wait and self.has_room_for(tenant):
            self.room.set()

    def take_on(
        self,
        fence: Fence,
        snapshot: Snapshot,
        turn: Turn,
        play: Play,
        *,
        shown: tuple[Record, ...] = (),
        first_n: int = 0,
        lane: Lane | None = None,
        judge: Judge | None = None,
        background: bool = False,
    ) -> LiveTurn:
        """Own this turn from now on. `shown` are events that its watchers see although they are written
        already; `lane` is left when it has ended; `background` turns take up room."""
        kept = turn.request.replayable or first_n > 0
        feed = Feed(
            events_max=limits.feed_events_max,
            first_n=first_n,
            older=self._older(fence) if kept else None,
            journal_has_all=turn.request.replayable,
        )
        for record in shown:
            feed.publish(record)
        live = LiveTurn(
            self._store,
            fence,
            snapshot,
            turn,
            feed,
            self.lease,
            mint=self._ambient.mint,
            now_ms=self._ambient.now_ms,
            judge=judge,
        )
        self.claim(fence.turn_id)
        self.unstored.pop(fence.turn_id, None)
        before = self.live.get(fence.turn_id)
        if before is not None:  # it was told to stop, and has not
            self.abandon(before)
        self.live[fence.turn_id] = live
        self.playing_for[fence.tenant] += 1
        if background:
            self._background[fence.turn_id] = fence.tenant
        if self._grace_is_over:
            live.interrupt("shutdown")
        playing = self._see_through(live, play, lane)
        task = live.loop.create_task(playing, name=fence.turn_id)
        if not task.done():  # where tasks begin at once, a short turn is over by now
            self._tasks[live] = (task, lane)
        return live

    async def _see_through(self, live: LiveTurn, play: Play, lane: Lane | None) -> None:
        try:
            await live.run(play)
        finally:
            self._tasks.pop(live, None)  # what is running is kept alive by who runs it
            if not live.abandoned:
                self._part_from(live, lane)

    def _part_from(self, live: LiveTurn, lane: Lane | None) -> None:
        fence = live.fence
        self.let_go(fence.turn_id)
        if live.broke:
            self.breaks[fence.turn_id] += 1
        if live.unstored is not None:
            self.unstored[fence.turn_id] = live
        if fence.turn_id in self._background:
            del self._background[fence.turn_id]
            self.look_for_waiting(fence.tenant)
        if live.after is not None:
            self._cache.put(fence.tenant, live.after)
        if lane is not None:
            self._lanes.leave(lane)
        if (fence.tenant, fence.session_id) in self.waited_for and self.has_room_for(fence.tenant):
            self.room.set()
        self._remember(live)
        self._played_for(fence.tenant)
        note_end(self._tally, live)

    def abandon(self, live: LiveTurn) -> None:
        """Wait no longer for a player that does not stop although its turn is not ours any more: its watchers find
        the turn where it is now, and whoever comes next has its place."""
        if live.abandon():
            _, lane = self._tasks[live]
            self._part_from(live, lane)

    def _played_for(self, tenant: Tenant) -> None:
        self.playing_for[tenant] -= 1
        if not self.playing_for[tenant]:
            del self.playing_for[tenant]

    def _remember(self, live: LiveTurn) -> None:
        """Keep a turn that has ended for a while, or until others need the room. They go in the order in which they
        came, so that one timer does for all of them."""
        loop, weight = live.loop, _weight(live)
        self._ended.append((loop.time() + limits.feed_keep_s, weight, live))
        self._ended_bytes += weight
        while self._ended_bytes > limits.ended_turns_bytes:
            self._forget_first()
        if self._forgetting is None and self._ended:
            self._forgetting = loop.call_at(self._ended[0][0], self._forget)

    def _forget(self) -> None:
        loop = asyncio.get_running_loop()
        while self._ended and self._ended[0][0] <= loop.time():
            self._forget_first()
        self._forgetting = loop.call_at(self._ended[0][0], self._forget) if self._ended else None

    def _forget_first(self) -> None:
        _, weight, live = self._ended.popleft()
        self._ended_bytes -= weight
        if self.live.get(live.fence.turn_id) is live:
            del self.live[live.fence.turn_id]

    def _older(self, fence: Fence) -> Older:
        def read(since: int, upto: int) -> AsyncIterator[Sequence[Record]]:
            return journaled(self._store, fence.tenant, fence.turn_id, since, upto)

        return read

    def find(self, turn_id: TurnId) -> LiveTurn | None:
        """A turn that this node plays, or has played and knows more of than the store."""
        return self.live.get(turn_id) or self.unstored.get(turn_id)

    @property
    def playing(self) -> tuple[LiveTurn, ...]:
        """The turns that are ours, as far as we know."""
        return tuple(each for each in self.live.values() if not each.done.done())

    @property
    def watchers(self) -> int:
        return sum(each.feed.watchers for each in self.live.values())

    # ── signals ──

    def deliver(self, row: SignalRow) -> None:
        """A signal has come for one of our turns; heeding it twice is harmless."""
        live = self.live.get(row.turn_id)
        if live is None or live.done.done():
            return
        match row.kind:
            case "steer":
                live.steer([row])
            case "cancel":
                live.interrupt("cancelled")
            case "interrupt":
                live.interrupt("cancelled", "a newer request took its place")

    async def hear_signals(self) -> None:
        """Wait, then look for signals: one plain read for all our turns. Hints only make it quicker.

        A round for the supervisor; while the store is away, signals stay where they are."""
        if self._hinted is None and isinstance(self._store, HintSupport):
            hinted = asyncio.Event()
            self._store.listen(self.lease.node, hinted.set)
            self._hinted = hinted
        await wait_for_hint(self._hinted, at_most_s=limits.signal_poll_s)
        if self._claims:
            for row in await self._store.signals(self.lease.node):
                self.deliver(row)

    # ── leaving ──

    def demand_open(self) -> None:
        """Raise StoreUnavailable if this node begins nothing any more."""
        if self._draining:
            raise StoreUnavailable(
                "this node is shutting down, so it starts nothing; retry elsewhere"
            )

    async def drain(self, *, grace_s: float) -> None:
        """Begin nothing more, and let running turns finish for a while; then end them by policy, or hand
        them over. What is being begun at this moment is among them. A player that does not stop then either is left
        behind, and its turn to the other nodes."""
        self._draining = True
        await self._wait_idle(grace_s)
        self._grace_is_over = True
        for live in tuple(self.live.values()):
            live.interrupt("shutdown")
        await self._wait_idle(limits.cancel_grace_s)
        for live in self.playing:
            self.abandon(live)
        await self._idle.wait()

    async def _wait_idle(self, at_most_s: float) -> None:
        try:
            async with asyncio.timeout(at_most_s):
                await self._idle.wait()
        except TimeoutError:
            pass


async def wait_for_hint(hinted: asyncio.Event | None, *, at_most_s: float) -> None:
    """Until there is a hint, or it is time to look without one."""
    if hinted is None:
        await asyncio.sleep(at_most_s)
        return
    try:
        async with asyncio.timeout(at_most_s):
            await hinted.wait()
    except TimeoutError:
        pass
    hinted.clear()


def _weight(live: LiveTurn) -> int:
    """About what a turn that is over holds in memory: its events with what they say, and its history, which the cache
    may have let go of."""
    before, after = live.snapshot, live.after
    said = live.feed.text_chars if after is None else after.size_bytes - before.size_bytes
    return ENDED_BYTES + live.feed.size_bytes + said + weight_of(after or before)


class TurnReservation:
    """A turn that is about to be ours."""

    __slots__ = ("_owner", "_turn_id")

    def __init__(self, owner: Owner, turn_id: TurnId) -> None:
        self._owner = owner
        self._turn_id = turn_id

    def __enter__(self) -> None:
        self._owner.claim(self._turn_id)

    def __exit__(self, *_: object) -> None:
        self._owner.let_go(self._turn_id)
