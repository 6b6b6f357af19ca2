"""A small world: some nodes over one store, and what befalls them.

A `Node` is one boot of one process. It may be stopped and go on (a zombie, if others gave it up meanwhile), die,
be cut off from the store, or drain and leave; another boot takes its slot after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from holdfast import limits
from holdfast.core.ports import Play
from holdfast.errors import StoreError
from holdfast.ids import Minter, NodeId, SessionId, TurnId
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.sessions import Sessions
from holdfast.store.outcomes import Pruned, Queued, Signalled, Started, Taken
from holdfast.store.store import Store
from tests.simulation.faults import FaultyStore, Freeze, Odd, Sky, Weather
from tests.simulation.history import Act, Effect, Played, Queueing, Send, Takeover, Watched
from tests.simulation.loop import Places

T = TypeVar("T")

EPOCH_MS = 1_750_000_000_000


class ConnectionLost(Exception):
    """The node is not there, or went away in the middle."""


class World:
    """Everything that there is in one simulation."""

    def __init__(
        self,
        loop: Places,
        store: Store,
        rng: Random,
        *,
        nodes: int,
        weather: Weather,
        play: Callable[[World, Node], Play],
        instant: bool,
        cache_bytes: int = 1 << 20,
        lane_waiting_max: int = 8,
        background_max: int = 64,
        lease_ttl_s: float = limits.lease_ttl_s,
        trace: Callable[[str], None] | None = None,
        connect: Callable[[], Coroutine[Any, Any, Store]] | None = None,
    ) -> None:
        """`connect` opens a store for each node, which outlives the node, so that what it was asked arrives; without it
        they share one."""
        self.loop = loop
        self.connect = connect
        self.store = store
        self.rng = rng
        self.sky = Sky(rng, weather)
        self.mint = Minter(now_ms=self.now_ms, random_bits=rng.getrandbits)
        self._play = play
        self._instant = instant
        self._cache_bytes = cache_bytes
        self._lane_waiting_max = lane_waiting_max
        self._background_max = background_max
        self._lease_ttl_s = lease_ttl_s
        self._trace = trace
        self.nodes: list[Node] = []
        self.graves: list[Node] = []
        self._boots = 0
        self._ops = 0
        self._places = 0
        self.slots = nodes
        self.sends: list[Send] = []
        self.acts: list[Act] = []
        self.watched: list[Watched] = []
        self.effects: list[Effect] = []
        self.played: list[Played] = []
        self.seen_turns: list[tuple[TurnId, SessionId]] = []
        """Turns that clients have heard of, for those who want to watch or cancel one."""
        self.stopped: set[TurnId] = set()
        """The turns that the store was told to be stopped."""
        self.takeovers: list[Takeover] = []
        self.queueings: list[Queueing] = []
        self.calm = False
        """Players fail no more either."""
        self.crashes = 0
        self.shutdowns = 0
        self.complaints: list[str] = []

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.loop.time() * 1000)

    def say(self, text: str) -> None:
        if self._trace is not None:
            self._trace(f"{self.loop.time():9.3f}  {text}")

    def next_op(self) -> int:
        self._ops += 1
        return self._ops

    def next_place(self) -> int:
        self._places += 1
        return self._places

    # ── nodes ──

    async def boot(self, *, ahead_s: float | None = None) -> Node:
        """Start a node, however long that takes. Its clock is ahead by so much, or by anything."""
        while True:
            self._boots += 1
            node = Node(self, f"n{self._boots}", self._play, ahead_s=ahead_s)
            try:
                await self.loop.start(node.place, node.open(), name=f"boot-{node.name}")
            except (StoreError, Odd) as error:
                self.say(f"{node.name} cannot start: {error!r}")
                self.bury(node)
                await asyncio.sleep(1.0)
                continue
            except asyncio.CancelledError:  # another one is started in its place
                self.bury(node)
                raise
            self.nodes.append(node)
            self.say(f"{node.name} is up, {node.sessions.lease.node}")
            return node

    def new_sessions(self, store: Store, play: Play, drift_ms: int) -> Sessions:
        ambient = Ambient(own_ms=lambda: self.now_ms() + drift_ms, random_bits=self.rng.getrandbits)
        return Sessions(
            store,
            play,
            ambient=ambient,
            cache_bytes=self._cache_bytes,
            lane_waiting_max=self._lane_waiting_max,
            background_max=self._background_max,
            lease_ttl_s=self._lease_ttl_s,
            lease_renew_s=self._lease_ttl_s / 3,
        )

    def instant_store(self) -> bool:
        return self._instant

    def any_node(self) -> Node | None:
        return self.rng.choice(self.nodes) if self.nodes else None

    def bury(self, node: Node) -> None:
        """This boot is over: nothing of it runs, and nothing of it can write."""
        node.store.dead = True
        self.loop.kill(node.place)
        if node in self.nodes:
            self.nodes.remove(node)
        self.graves.append(node)
        node.hang_up()

    # ── what befalls them ──

    async def crash(self, node: Node, *, down_s: float) -> None:
        self.say(f"{node.name} crashes, for {down_s:.1f} s")
        self.crashes += 1
        self.bury(node)
        await asyncio.sleep(down_s)
        await self.boot()

    async def pause(self, node: Node, *, for_s: float) -> None:
        self.say(f"{node.name} is stopped for {for_s:.1f} s")
        self.crashes += 1
        node.place.state = "paused"
        await asyncio.sleep(for_s)
        if node.place.state == "paused":
            node.place.state = "up"
            self.say(f"{node.name} goes on")

    async def partition(self, node: Node, *, for_s: float) -> None:
        self.say(f"{node.name} is cut off for {for_s:.1f} s")
        self.crashes += 1
        node.store.partitioned = True
        await asyncio.sleep(for_s)
        node.store.partitioned = False

    async def deprive(self, node: Node, name: str, *, for_s: float) -> None:
        self.say(f"{node.name} may not {name} for {for_s:.1f} s")
        self.crashes += 1
        node.store.deprived.add(name)
        await asyncio.sleep(for_s)
        node.store.deprived.discard(name)

    async def freeze(self, node: Node, freeze: Freeze) -> None:
        """Stop the node when it sends its next call of this kind. One that sends none is left alone."""
        self.say(f"{node.name} will freeze over {freeze.name}")
        node.store.freeze = freeze
        await asyncio.sleep(20.0)
        if node.store.freeze is freeze:
            node.store.freeze = None

    async def outage(self, *, for_s: float) -> None:
        self.say(f"the store is away for {for_s:.1f} s")
        self.crashes += 1
        self.sky.outage = True
        await asyncio.sleep(for_s)
        self.sky.outage = False
        self.say("the store is back")

    async def drain(self, node: Node, *, grace_s: float, down_s: float) -> None:
        self.say(f"{node.name} drains for {grace_s:.1f} s")
        self.shutdowns += 1
        node.draining = True
        try:
            await node.run(lambda: node.sessions.close(grace_s=grace_s))
        except (ConnectionLost, StoreError, Odd) as error:
            self.say(f"{node.name} did not drain: {error!r}")
        if node not in self.nodes:
            return  # it has crashed meanwhile, and whoever did that boots another one
        self.say(f"{node.name} has left")
        await self._linger(node)
        self.bury(node)
        await asyncio.sleep(down_s)
        await self.boot()

    async def _linger(self, node: Node) -> None:
        """A process does not end with its node: for a while its clients can still reach it."""
        renewed = node.store.calls.get("renew", 0)
        await asyncio.sleep(self.rng.choice((0.0, 1.0, 5.0)))
        if node.store.calls.get("renew", 0) > renewed:
            self.complaints.append(f"{node.name} has left, and came back to life")

    def overhear(self, name: str, given: dict[int | str, Any], result: Any) -> None:
        """The store has done something for a node."""
        if name == "signal" and given["kind"] != "steer" and isinstance(result, Signalled):
            self.stopped.add(given[1])
        elif name == "enqueue" and isinstance(result, Queued):
            self._note_queueing(
                result.turn_id, result.session_id, opened=False, ahead=given[0].ahead
            )
        elif name == "open_queued" and isinstance(result, Started):
            self._note_queueing(result.fence.turn_id, result.fence.session_id, opened=True)
        elif name == "end_stray" and result is not None:
            self.complaints.append(f"{result.turn_id} was open, and its session did not name it")
        elif name == "takeover" and isinstance(result, Taken):
            turn_id = result.fence.turn_id
            self.takeovers.append(
                Takeover(
                    turn_id=turn_id,
                    node=given["node"],
                    token=result.fence.token,
                    at_s=self.loop.time(),
                    stopped=turn_id in self.stopped,
                )
            )

    def _note_queueing(
        self, turn_id: TurnId, session_id: SessionId, *, opened: bool, ahead: bool = False
    ) -> None:
        if any((each.turn_id, each.opened) == (turn_id, opened) for each in self.queueings):
            return  # it was asked for again
        self.queueings.append(
            Queueing(
                turn_id=turn_id,
                session_id=session_id,
                opened=opened,
                ahead=ahead,
                at_s=self.loop.time(),
            )
        )

    async def find_zombies(self) -> list[tuple[Node, TurnId]]:
        """The turns that players play although they are not their node's. What is being settled finds out itself."""
        found = []
        for node in tuple(self.nodes):
            for live in node.sessions._owner.playing:
                fence = live.fence
                session = await self.store.session(fence.tenant, fence.session_id)
                token = session.lease_token if session and session.open_turn else None
                if live._playing is not None and token != fence.token:
                    found.append((node, fence.turn_id))
        return found


async def _prune_nothing(*, limit: int = 0) -> Pruned:
    """Retention would take away what the checker wants to see; it has tests of its own."""
    return Pruned(rows=0, more=False)


class Node:
    """One boot of one process."""

    def __init__(
        self,
        world: World,
        name: str,
        play: Callable[[World, Node], Play],
        *,
        ahead_s: float | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.place = world.loop.new_place(name)
        self.store = FaultyStore(world.store, world.sky, world.loop, instant=world.instant_store())
        self.store.heard = world.overhear
        self.store.on_freeze = self._freeze
        self.store.override("prune", _prune_nothing)
        self._tell_nodes_at_once(world.store)
        self.draining = False
        self._calls: dict[asyncio.Future[Any], None] = {}
        # Hours: how far a node's clock is off changes nothing.
        drift_ms = 3_600 * world.rng.randrange(-3_000, 3_000)
        if ahead_s is not None:
            drift_ms = round(ahead_s * 1000)
        self._play = play(world, self)
        self._drift_ms = drift_ms
        self.sessions: Sessions

    @property
    def id(self) -> NodeId:
        return self.sessions.lease.node

    def _freeze(self, freeze: Freeze) -> None:
        world = self.world
        world.loop.start(world.loop.outside, world.pause(self, for_s=freeze.for_s), name="freeze")

    def _tell_nodes_at_once(self, store: Store) -> None:
        """No turn depends on their count, and reading it changes nobody's story. A node asks its own store: a connection
        that it opens dies with it."""
        self.store.override("nodes", store.nodes)

    async def open(self) -> None:
        world = self.world
        if world.connect is not None:
            own = await world.loop.start(world.loop.outside, world.connect())
            self.store.lead_to(own)
            self._tell_nodes_at_once(own)
        store = self.store.as_store()
        self.sessions = self.world.new_sessions(store, self._play, self._drift_ms)
        await self.sessions.__aenter__()

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Have the node do something for somebody elsewhere. Raises ConnectionLost if it dies over it.

        Cancelling this is hanging up: the node is told, a little later.
        """
        loop = self.world.loop
        if self.place.state == "dead":
            raise ConnectionLost(self.name)
        answer: asyncio.Future[T] = loop.create_future()
        self._calls[answer] = None
        task = loop.start(self.place, _answered(work, answer), name=f"serve-{self.name}")
        try:
            return await answer
        except asyncio.CancelledError:
            loop.call_in(self.place, 0.005 * self.world.rng.random(), task.cancel)
            raise
        finally:
            self._calls.pop(answer, None)

    def hang_up(self) -> None:
        """Everybody who waits for this node finds out that it is gone."""
        for answer in self._calls:
            if not answer.done():
                answer.set_exception(ConnectionLost(self.name))
                answer.exception()

    def leftovers(self) -> list[str]:
        """What this node still holds. Everything is over, so it should be nothing."""
        found = []
        owner = self.sessions._owner
        if owner.claimed:
            found.append(f"{self.name} claims {sorted(owner.claimed)}")
        lanes = self.sessions._admissions._lanes
        if len(lanes):
            found.append(f"{self.name} has {len(lanes)} lanes that somebody is in")
        return found

    def __repr__(self) -> str:
        return f"<Node {self.name} {self.place.state}>"


async def _answered(work: Callable[[], Coroutine[Any, Any, T]], answer: asyncio.Future[T]) -> None:
    try:
        result = await work()
    except asyncio.CancelledError:
        answer.cancel()
        raise
    except Exception as error:
        if not answer.done():
            answer.set_exception(error)
            answer.exception()
    else:
        if not answer.done():
            answer.set_result(result)
