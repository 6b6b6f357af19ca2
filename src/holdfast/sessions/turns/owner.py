"""`Owner`: the turns that this node plays, each in a task of its own, and the signals for them."""

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
from holdfast.observe.events import warn
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
"""The size of an ended turn in memory besides its events."""

DOUBT_S = 60.0
"""How long a node remembers a turn that it may hold without knowing it: longer than any statement is on its way."""

DOUBTS_MAX = 1000
"""How many such turns a node remembers. When there were more, it looks at all open turns instead."""


class Owner:
    """Plays the turns of this node to their end, and remembers them for a while.

    It claims every turn that it plays or is about to play, so that recovery does not take them for orphans. One turn
    may be claimed twice here: by its player that has just lost it, and by the recovery that has just taken it over.
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
        """Ended turns: until when each is remembered, its size, and the turn."""
        self._ended_bytes = 0
        """About how much memory the ended turns take."""
        self.playing_for: Counter[Tenant] = Counter()
        """How many turns of each tenant are played here; tenants with none are left out."""
        self._background: dict[TurnId, Tenant] = {}
        """The background turns that are played here, at most about `background_max`."""
        self._background_max = background_max
        self.others_wait = False
        """Background turns wait in the store for room, as far as this node knows: a new one has to wait behind them."""
        self.waited_for: set[tuple[Tenant, SessionId]] = set()
        """Sessions that queued turns wait for, as far as this node knows."""
        self.room = asyncio.Event()
        """Set when this node has room for a waiting turn, or a session is free that a queued turn waits for."""
        self.breaks: Counter[TurnId] = Counter()
        """How often each turn that this node still holds has ended here with an unexpected error."""
        self.unstored: dict[TurnId, LiveTurn] = {}
        """Turns that have ended here but are open in the store, because the store did not accept their end."""
        self._forgetting: asyncio.TimerHandle | None = None
        self._claims: dict[TurnId, int] = {}
        self._doubts: dict[TurnId, tuple[Tenant, float]] = {}
        """The turns that are not played here although this node may hold them, each with until when at least."""
        self._unnamed_until_s: float | None = None
        """Until when there may be such turns that are not remembered, because they were too many."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: dict[LiveTurn, tuple[asyncio.Task[None], Lane | None]] = {}
        """The task that plays each turn, since an event loop does not keep tasks alive; and the lane that the turn
        holds."""
        self._draining = False
        self._grace_is_over = False
        self._hinted: asyncio.Event | None = None
        """Set when there may be signals for this node; None until it listens, or if the store gives no hints."""

    # ── claims ──

    @property
    def claimed(self) -> Set[TurnId]:
        return self._claims.keys()

    def beginning(self, tenant: Tenant, turn_id: TurnId) -> TurnReservation:
        """Claim a turn that is about to begin here: a drain waits for it. Raises StoreUnavailable if this node has
        begun to shut down since the request arrived."""
        self.demand_open()
        return TurnReservation(self, tenant, turn_id)

    def claiming(self, tenant: Tenant, turn_id: TurnId) -> TurnReservation:
        """Claim a turn that this node is about to take over, for the length of this context."""
        return TurnReservation(self, tenant, turn_id)

    def claim(self, turn_id: TurnId) -> None:
        self._claims[turn_id] = self._claims.get(turn_id, 0) + 1
        self._idle.clear()

    def let_go(self, turn_id: TurnId) -> None:
        left = self._claims.pop(turn_id) - 1
        if left:
            self._claims[turn_id] = left
        if not self._claims:
            self._idle.set()

    # ── what this node may hold ──

    def doubt(self, tenant: Tenant, turn_id: TurnId) -> None:
        """Note that the store may list a turn as this node's that is not played here: only this node would find it."""
        until_s = asyncio.get_running_loop().time() + DOUBT_S
        if self._unnamed_until_s is None and len(self._doubts) < DOUBTS_MAX:
            self._doubts[turn_id] = tenant, until_s
        else:  # a store is away, and requests keep coming
            self._doubts.clear()
            self._unnamed_until_s = until_s

    def forget_doubts(self, held: Set[TurnId]) -> None:
        """Forget the turns that the store does not list as this node's, as it could by now."""
        now_s = asyncio.get_running_loop().time()
        if self._unnamed_until_s is not None and self._unnamed_until_s <= now_s:
            self._unnamed_until_s = None
        for turn_id, (_, until_s) in tuple(self._doubts.items()):
            if until_s <= now_s and turn_id not in held:
                del self._doubts[turn_id]

    @property
    def perhaps_held(self) -> tuple[tuple[Tenant, TurnId], ...] | None:
        """The turns that the store may list as this node's. None if they were too many to be remembered."""
        if self._unnamed_until_s is not None:
            return None
        names = {live.fence.turn_id: live.fence.tenant for live in self.playing}
        names |= {turn_id: tenant for turn_id, (tenant, _) in self._doubts.items()}
        return tuple((tenant, turn_id) for turn_id, tenant in names.items())

    # ── turns ──

    def has_room_for(self, tenant: Tenant) -> bool:
        """Whether one more background turn of this tenant can be played here.

        Every tenant may have a few, however many turns of other tenants are played.
        """
        if self._draining:
            return False
        if len(self._background) < self._background_max:
            return True
        least = min(limits.background_turns_tenant_least, self._background_max)
        return list(self._background.values()).count(tenant) < least

    @property
    def can_relieve_others(self) -> bool:
        """Whether background turns wait in the store, as far as this node knows, and it has room for one of any tenant."""
        has_room = not self._draining and len(self._background) < self._background_max
        return self.others_wait and has_room

    def is_wanted(self, tenant: Tenant, session_id: SessionId) -> bool:
        """Whether a request of this node holds the lane of a session, waiting to begin or playing."""
        return self._lanes.is_held((tenant, session_id))

    def look_for_waiting(self, tenant: Tenant) -> None:
        """Wake the sweep if background turns wait in the store and there is room for one of this tenant."""
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
        """Own this turn from now on, and play it in a task. `shown` are records that its watchers see although they are
        written already; `lane` is left when the turn has ended; a `background` turn counts against `background_max`."""
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
        if before is not None:  # its player was told to stop, and has not stopped
            self.abandon(before)
        self.live[fence.turn_id] = live
        self.playing_for[fence.tenant] += 1
        if background:
            self._background[fence.turn_id] = fence.tenant
        if self._grace_is_over:
            live.interrupt("shutdown")
        playing = self._see_through(live, play, lane)
        task = live.loop.create_task(playing, name=fence.turn_id)
        if not task.done():  # with eager tasks, a short turn has ended by now
            self._tasks[live] = (task, lane)
        return live

    async def _see_through(self, live: LiveTurn, play: Play, lane: Lane | None) -> None:
        try:
            await live.run(play)
        finally:
            self._tasks.pop(live, None)  # a task that is running needs no reference
            if not live.abandoned:
                self._clean_up(live, lane)

    def _clean_up(self, live: LiveTurn, lane: Lane | None) -> None:
        fence = live.fence
        self.let_go(fence.turn_id)
        if live.broke:
            self.breaks[fence.turn_id] += 1
        if live.unstored is not None:
            self.unstored[fence.turn_id] = live
        if live.broke or live.unstored is not None:
            self.doubt(fence.tenant, fence.turn_id)
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
        """Stop waiting for a player that does not stop although this node has lost its turn: watchers follow the turn
        in the store, and the next request gets its lane."""
        if live.abandon():
            _, lane = self._tasks[live]
            self._clean_up(live, lane)

    def _played_for(self, tenant: Tenant) -> None:
        self.playing_for[tenant] -= 1
        if not self.playing_for[tenant]:
            del self.playing_for[tenant]

    def _remember(self, live: LiveTurn) -> None:
        """Keep an ended turn for `feed_keep_s`, or until newer ones need the memory. The oldest is forgotten first, so
        one timer is enough for all of them."""
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
        """A turn that this node plays, or has played and knows more about than the store."""
        return self.live.get(turn_id) or self.unstored.get(turn_id)

    @property
    def playing(self) -> tuple[LiveTurn, ...]:
        """The turns that are being played here."""
        return tuple(each for each in self.live.values() if not each.done.done())

    @property
    def watchers(self) -> int:
        return sum(each.feed.watchers for each in self.live.values())

    # ── signals ──

    def deliver(self, row: SignalRow) -> None:
        """Pass a signal on to its turn, if that is played here. Doing so twice is harmless."""
        live = self.live.get(row.turn_id)
        if live is None or live.done.done():
            return
        match row.kind:
            case "steer":
                live.steer([row])
            case "cancel":
                live.interrupt("cancelled", row.payload.decode())
            case "interrupt":
                live.interrupt("cancelled", "a newer request took its place")

    async def hear_signals(self) -> None:
        """Wait, then read the signals of all turns of this node in one query. Hints only make it quicker.

        A round for the supervisor; while the store is unavailable, signals wait there."""
        if self._hinted is None and isinstance(self._store, HintSupport):
            hinted = asyncio.Event()
            self._store.listen(self.lease.node, hinted.set)
            self._hinted = hinted
        await wait_for_hint(self._hinted, at_most_s=limits.signal_poll_s)
        if self._claims:
            for row in await self._store.signals(self.lease.node):
                self.deliver(row)

    # ── shutting down ──

    def demand_open(self) -> None:
        """Raise StoreUnavailable if this node is shutting down."""
        if self._draining:
            raise StoreUnavailable(
                "this node is shutting down, so it starts nothing; retry elsewhere"
            )

    async def drain(self, *, grace_s: float) -> None:
        """Begin no more turns, and let running ones finish for `grace_s`; then end them by policy, or hand them over.
        Turns that are just beginning count as running. A player that does not stop then either is abandoned, and a turn
        whose end the store does not take in `drain_store_s` is left behind: other nodes take over their turns."""
        self._draining = True
        await self._wait_idle(grace_s)
        self._grace_is_over = True
        for live in tuple(self.live.values()):
            live.interrupt("shutdown")
        await self._wait_idle(limits.cancel_grace_s)
        for live in self.playing:
            self.abandon(live)
        if not self._idle.is_set():
            await self._wait_idle(limits.drain_store_s)
        if not self._idle.is_set():
            warn("turns.left", turns=len(self._claims))

    async def _wait_idle(self, at_most_s: float) -> None:
        try:
            async with asyncio.timeout(at_most_s):
                await self._idle.wait()
        except TimeoutError:
            pass


async def wait_for_hint(hinted: asyncio.Event | None, *, at_most_s: float) -> None:
    """Wait until there is a hint, but at most `at_most_s`."""
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
    """About how much memory an ended turn holds: its events with their text, and its history, which the cache may have
    evicted."""
    before, after = live.snapshot, live.after
    said = live.feed.text_chars if after is None else after.size_bytes - before.size_bytes
    return ENDED_BYTES + live.feed.size_bytes + said + weight_of(after or before)


class TurnReservation:
    """A claim on a turn, for the length of a `with` block."""

    __slots__ = ("_owner", "_tenant", "_turn_id")

    def __init__(self, owner: Owner, tenant: Tenant, turn_id: TurnId) -> None:
        self._owner = owner
        self._tenant = tenant
        self._turn_id = turn_id

    def __enter__(self) -> None:
        self._owner.claim(self._turn_id)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # whether the store has made the turn this node's is not known
            self._owner.doubt(self._tenant, self._turn_id)
        self._owner.let_go(self._turn_id)
