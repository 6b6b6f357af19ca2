"""One simulation from one seed: what there is, what happens to it, and what is left in the end.

The seed decides everything, first of all what this simulation is about: each kind of fault and habit is likely
in some runs and absent in others, so that they are tried in many combinations instead of all at once.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.errors import StoreError
from holdfast.ids import SessionKey
from holdfast.observe.supervisor import DEFAULT
from holdfast.sessions.session_requests import OnBusy
from holdfast.store.memory_store import MemoryStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.store import Store
from holdfast.store.verification.verification import Finding, verify
from tests.simulation.clients import DEADLINES_S, TENANT, Client, Habits, Request
from tests.simulation.faults import VERY_SLOW_S, Freeze, Weather, is_odd
from tests.simulation.hasty import HastyClient
from tests.simulation.history import Recording
from tests.simulation.loop import Places, SimulatedLoop, run
from tests.simulation.persistent import PersistentClient
from tests.simulation.plays import Temper, new_play
from tests.simulation.seed_search import find_all
from tests.simulation.unlocked_store import PACE_S, SharedTables, UnlockedStore
from tests.simulation.world import EPOCH_MS, Node, World

Home: TypeAlias = Literal["memory", "sqlite", "unlocked"]
"""`unlocked` is PostgreSQL's driver: see `unlocked_store.py`."""

FROZEN_S_MAX = 60
PATIENCE_S = 2 * limits.lease_ttl_s + limits.sweep_s + 2 * DEADLINES_S[-1] + 5.0
"""How long a probe may take after the last fault: a TTL until the holder counts as dead, another one until somebody
may judge, a sweep, and the deadlines of a turn that hangs and of the probe's own."""

HEALTHY_S = VERY_SLOW_S + 2 * limits.lease_renew_s
"""After the last fault, until every heart has had a round that went well: the last call of the bad weather fails, the
heart rests, and one round is whole."""

SWEPT_S = VERY_SLOW_S + DEFAULT.most_s + 2 * limits.sweep_s + 1.0
"""After the last fault, until every node has swept: the last call of the bad weather fails, the sweeper rests for as long
as it does after many failures, and one sweep is whole."""

Trace: TypeAlias = Callable[[str], None]

replaced = msgspec.structs.replace


class Plan(Value):
    """What one simulation is about."""

    nodes: int
    keys: int
    clients: int
    requests: int
    weather: Weather
    temper: Temper
    habits: Habits
    faults: tuple[str, ...]
    fault_every_s: float
    cache_bytes: int
    waiting_max: int
    background_max: int
    ttl_s: float
    hasty: int = 0
    """How many clients resend everything with every message, and do not wait for answers."""
    persistent: int = 0
    """How many clients send each message until it is answered."""


def draw_plan(rng: Random) -> Plan:
    """Anything at all, or in half of the runs something that takes many of a kind to happen at once."""
    plan = _draw_plan(rng)
    theme = rng.choice(_THEMES)
    return theme(plan, rng) if theme else plan


def _crowded(plan: Plan, rng: Random) -> Plan:
    """Everybody wants the same session, of the same process, and waits in line."""
    habits = replaced(
        plan.habits,
        keyed=0,
        counted=0,
        leaves=0,
        on_busy=("wait",),
        operates=0.15,
        operations=("watch",),
        pause_s=0.5,
    )
    return replaced(
        plan,
        nodes=1,
        keys=1,
        clients=6,
        requests=5,
        waiting_max=8,
        background_max=64,
        weather=Weather(slow=plan.weather.slow),
        habits=habits,
        faults=(),
    )


def _forbidden(plan: Plan, rng: Random) -> Plan:
    """They wait in line for what somebody keeps taking away."""
    plan = _crowded(plan, rng)
    return replaced(
        plan,
        requests=12,
        weather=replaced(plan.weather, focus=rng.choice(("", "end"))),
        temper=replaced(plan.temper, fails=0.2),
        habits=replaced(plan.habits, operations=("delete",)),
    )


def _heckled(plan: Plan, rng: Random) -> Plan:
    """They talk to turns that have said their last word, and the store takes its time over the end."""
    return replaced(
        _conversed(plan, rng),
        weather=replaced(plan.weather, focus="commit"),
        temper=replaced(plan.temper, calls=0.1, hangs=0, sulks=0.7, pace_s=0.3, tools_s=1.0),
        habits=replaced(
            plan.habits,
            on_busy=("steer", "wait"),
            keyed=0.1,
            leaves=0,
            operates=0.6,
            operations=("heckle", "heckle", "heckle", "cancel"),
            deadlines_s=DEADLINES_S[:2],
            pause_s=1.0,
        ),
    )


def _talked_over(plan: Plan, rng: Random) -> Plan:
    """They talk to turns and stop them, while the store takes its time over every step."""
    return replaced(
        _conversed(plan, rng),
        weather=Weather(slow=plan.weather.slow, focus="append"),
        temper=replaced(plan.temper, calls=0.8, fails=0, steers=0.9, pace_s=0.1, tools_s=1.0),
        habits=replaced(
            plan.habits,
            on_busy=("steer",),
            keyed=0,
            policies=0,
            leaves=0,
            operates=0.4,
            operations=("cancel", "hush", "hush"),
            deadlines_s=DEADLINES_S[-1:],
            pause_s=1.0,
        ),
    )


def _retold(plan: Plan, rng: Random) -> Plan:
    """They talk to turns under a key, lose patience, and say it again; and some turns end before they listen."""
    return replaced(
        _conversed(plan, rng),
        weather=replaced(plan.weather, focus=rng.choice(("signal", "append", "commit"))),
        temper=replaced(plan.temper, calls=0.8, steers=0.5, pace_s=0.3, tools_s=1.0),
        habits=replaced(
            plan.habits,
            on_busy=("steer", "steer", "wait"),
            keyed=0.7,
            retries=0.9,
            doubts=0.5,
            leaves=0.4,
            operates=0.3,
            operations=("cancel", "heckle", "cancel", "delete"),
            pause_s=1.0,
        ),
        faults=("crash", "pause"),
        fault_every_s=6.0,
    )


def _unheard(plan: Plan, rng: Random) -> Plan:
    """They talk to turns under a key, which end before they listen: what was said begins another turn, once."""
    return replaced(
        _conversed(plan, rng),
        requests=5,
        weather=replaced(plan.weather, focus="append"),
        temper=replaced(
            plan.temper,
            calls=0.8,
            fails=0,
            hangs=0,
            steers=0.1,
            sulks=0.5,
            pace_s=0.3,
            tools_s=3.0,
        ),
        habits=replaced(
            plan.habits,
            on_busy=("steer",),
            keyed=0.9,
            retries=1.0,
            doubts=0.4,
            leaves=0.6,
            operates=0,
            pause_s=1.0,
        ),
    )


def _annotated(plan: Plan, rng: Random) -> Plan:
    """They say something about the history through one node, and go on talking through another."""
    return replaced(
        plan,
        nodes=2,
        keys=1,
        requests=12,
        habits=replaced(
            plan.habits, on_busy=("wait",), operates=0.5, operations=("annotate",), pause_s=1.0
        ),
        faults=(),
        cache_bytes=1 << 20,
    )


def _conversed(plan: Plan, rng: Random) -> Plan:
    """Many people, and one session that all of them talk to."""
    nodes = rng.choice((1, 2))
    return replaced(plan, nodes=nodes, keys=1, clients=6, requests=12, faults=())


def _haunted(plan: Plan, rng: Random) -> Plan:
    """Nodes stop over what they are writing, and come back when others have gone on without them."""
    return replaced(
        plan,
        nodes=3,
        keys=2,
        requests=12,
        weather=Weather(slow=plan.weather.slow),
        temper=replaced(plan.temper, calls=0.1, fails=0, hangs=0.1, pace_s=0.1),
        habits=replaced(
            plan.habits,
            keyed=0.8,
            leaves=0,
            operates=0.1,
            deadlines_s=DEADLINES_S[-1:],
            pause_s=1.0,
        ),
        faults=("freeze", "freeze", "pause"),
        fault_every_s=2.0,
        ttl_s=limits.lease_ttl_s / 5,
    )


def _leaving(plan: Plan, rng: Random) -> Plan:
    """Nodes leave one after the other, and those who talk to them have not heard of it yet."""
    return replaced(
        plan,
        nodes=2,
        keys=rng.choice((2, 3)),
        clients=6,
        requests=12,
        weather=Weather(slow=plan.weather.slow),
        temper=replaced(plan.temper, hangs=0, pace_s=0.1),
        habits=replaced(plan.habits, on_busy=("wait",), pause_s=0.5),
        faults=("drain",),
        fault_every_s=2.0,
    )


def _queued(plan: Plan, rng: Random) -> Plan:
    """Many want one session, and most of them do not wait for it."""
    focus = rng.choice(("", "enqueue", "open_queued", "withdraw", "commit"))
    return replaced(
        plan,
        keys=min(plan.keys, 2),
        weather=replaced(plan.weather, focus=focus),
        background_max=rng.choice((1, 2, 64)),
        habits=replaced(
            plan.habits,
            queues=True,
            background=rng.choice((0.5, 0.9)),
            if_match=0.05,
            operations=(*plan.habits.operations, "cancel"),
            pause_s=min(plan.habits.pause_s, 1.0),
        ),
    )


def _odd(plan: Plan, rng: Random) -> Plan:
    """Calls fail in ways that nobody has foreseen: some of all of them, and many of one kind."""
    odd = rng.choice((0.01, 0.05, 0.2))
    return replaced(plan, weather=replaced(plan.weather, odd=odd, odd_at=rng.choice(("", *CALLS))))


def _deprived(plan: Plan, rng: Random) -> Plan:
    """Nodes lose single privileges, one after the other."""
    return replaced(
        plan,
        faults=("deprive", "deprive", *plan.faults),
        fault_every_s=rng.choice((1.0, 3.0)),
        requests=max(plan.requests, 5),
    )


def _broken_off(plan: Plan, rng: Random) -> Plan:
    """Turns fail after they have acted, and everybody asks again: with a key, without one, or for the turn itself."""
    return replaced(
        _conversed(plan, rng),
        nodes=rng.choice((1, 2, 3)),
        clients=rng.choice((1, 3)),
        temper=replaced(
            plan.temper,
            calls=0.8,
            fails=0.3,
            passes=True,
            hangs=0.02,
            looks=0,
            pace_s=0.1,
            tools_s=0.3,
        ),
        habits=replaced(
            plan.habits,
            on_busy=("wait", "steer"),
            keyed=rng.choice((0, 0.5, 0.9)),
            retries=1.0,
            attempts=7,
            asks_again=1.0,
            doubts=0.3,
            leaves=0.2,
            operates=0.3,
            operations=("continue", "continue", "cancel", "watch"),
            pause_s=1.0,
        ),
        faults=("crash", "pause", "drain"),
        fault_every_s=15.0,
    )


_THEMES = (
    *[None] * 6,
    *(_annotated, _retold, _crowded, _forbidden, _forbidden, _heckled, _heckled, _talked_over),
    *(_haunted, _haunted),
)


def _hasty(plan: Plan, rng: Random) -> Plan:
    """Chat pages, among everybody else."""
    return replaced(
        plan,
        hasty=rng.choice((1, 2)),
        requests=rng.choice((5, 8)),
        waiting_max=8,
        temper=replaced(plan.temper, pace_s=rng.choice((0.1, 1.0))),
    )


def _persistent(plan: Plan, rng: Random) -> Plan:
    """Programs that come back until they are answered, among everybody else."""
    return replaced(plan, persistent=rng.choice((1, 2)))


_STEADY = (
    *((5, 2, _queued), (10, 4, _leaving), (10, 8, _broken_off), (20, 3, _unheard)),
    *((20, 6, _unheard), (20, 9, _odd), (20, 17, _odd), (20, 5, _deprived), (20, 19, _deprived)),
    *((10, 0, _hasty), (10, 1, _hasty), (20, 13, _broken_off), (20, 13, _hasty)),
    *((40, 13, _persistent), (40, 28, _persistent), (40, 38, _persistent)),
)
"""Every so many seeds, from which on, what. Not drawn: what other seeds do stays as it is."""


def _draw_plan(rng: Random) -> Plan:
    def some(*values: float) -> float:
        return rng.choice(values)

    busy: list[OnBusy] = [each for each in _BUSY if rng.random() < 0.4]
    operations = [each for each in _OPERATIONS if rng.random() < 0.4]
    faults = [each for each in _FAULTS if rng.random() < 0.4]
    return Plan(
        nodes=rng.choice((1, 2, 2, 3, 3, 4)),
        keys=rng.choice((1, 1, 2, 3)),
        clients=rng.choice((2, 3, 4, 6)),
        requests=rng.choice((2, 3, 5, 12)),
        weather=Weather(
            refused=some(0, 0, 0.02, 0.1),
            lost=some(0, 0, 0.02, 0.1),
            late=some(0, 0, 0, 0.03),
            slow=some(0.05, 0.3, 0.7),
            very_slow=some(0, 0, 0.01, 0.05),
            focus=rng.choice(_FOCUS),
        ),
        temper=Temper(
            calls=some(0.1, 0.5, 0.8),
            fails=some(0, 0.03, 0.2),
            hangs=some(0, 0.02, 0.1),
            steers=some(0.2, 0.9),
            sulks=some(0, 0.1, 0.5),
            looks=some(0, 0, 0.9),
            pace_s=some(0.01, 0.1, 1.0),
            tools_s=some(0.05, 1.0, 6.0),
        ),
        habits=Habits(
            keyed=some(0, 0.3, 0.8),
            mixes_up=some(0, 0, 0.1),
            background=some(0, 0.1, 0.4),
            counted=some(0, 0.5, 1.0),
            retries=some(0.3, 0.9),
            doubts=some(0, 0.3),
            leaves=some(0, 0.1, 0.5),
            resends=some(0, 0.3, 0.9),
            if_match=some(0, 0.05, 0.3),
            on_busy=tuple(busy) or ("wait",),
            policies=some(0, 0.3),
            operates=some(0.1, 0.4),
            operations=tuple(operations) or ("watch",),
            limits=some(0, 0.1),
            pause_s=some(0.2, 1.0, 4.0),
        ),
        faults=tuple(faults),
        fault_every_s=some(2.0, 6.0, 15.0),
        cache_bytes=rng.choice((0, 1 << 20, 1 << 20)),
        waiting_max=rng.choice((1, 8, 8)),
        ttl_s=rng.choice((limits.lease_ttl_s / 5, limits.lease_ttl_s)),
        background_max=rng.choice((1, 2, 64)),
    )


_BUSY: tuple[OnBusy, ...] = ("wait", "reject", "interrupt", "steer")
_OPERATIONS = ("cancel", "heckle", "watch", "reset", "rewind", "fork", "delete", "annotate")
_FAULTS = ("crash", "pause", "freeze", "outage", "partition", "drain")
_FOCUS = ("", "", "", "begin", "append", "commit", "end", "signal", "signals")
CALLS = (
    *("renew", "begin", "append", "commit", "end", "takeover", "release", "signal", "signals"),
    *("orphans", "queued", "enqueue", "open_queued", "withdraw", "snapshot", "session", "turn"),
    *("journal", "index", "resolve", "find_attempt", "find_signal", "acknowledge"),
    *("annotate", "bind", "fork", "remove", "resign"),
)
"""Every kind of call that a node makes: each may be denied, or fail in a way that nobody has foreseen."""
_FREEZES = ("begin", "append", "commit", "commit", "end")


def simulate(seed: int, home: Home, *, trace: Trace | None = None) -> Recording:
    """Everything that happens under this seed."""
    rng = Random(f"holdfast/{seed}")
    loop = SimulatedLoop(rng)
    directory = Path(tempfile.mkdtemp(prefix="holdfast-sim-", dir=scratch()))

    async def main() -> Recording:
        plan = plan_of(seed, rng)
        connect = opener(loop, home, directory, Random(f"holdfast/unlocked/{seed}"))
        return await act_out(
            loop,
            await connect(),
            rng,
            plan,
            instant=home == "memory",
            trace=trace,
            connect=connect if home == "unlocked" else None,
        )

    try:
        with overheard() as errors:
            recording = run(loop, main())
        return replaced(recording, leftovers=(*recording.leftovers, *errors))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def plan_of(seed: int, rng: Random) -> Plan:
    """What a seed is about. `rng` is the run's own, and is drawn from."""
    plan = draw_plan(rng)
    for every, first, theme in _STEADY:
        if seed % every == first:
            plan = theme(plan, Random(f"holdfast/{theme.__name__[1:]}/{seed}"))
    return plan


@contextmanager
def overheard() -> Iterator[list[str]]:
    """The unexpected errors that are logged in here, but for those that we have made ourselves."""
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            if error is not None and not is_odd(error) and not isinstance(error, StoreError):
                found.append(f"{record.getMessage()}: {error!r}")

    log, handler = logging.getLogger("holdfast"), Handler(logging.ERROR)
    log.addHandler(handler)
    before, log.propagate = log.propagate, False
    try:
        yield found
    finally:
        log.removeHandler(handler)
        log.propagate = before


def scratch() -> str | None:
    """Memory, where there is a file system in it: what is tried here is order, not disks."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def opener(
    loop: SimulatedLoop,
    home: Home,
    directory: Path,
    rng: Random,
    *,
    pace_s: tuple[float, ...] = PACE_S,
) -> Callable[[], Coroutine[Any, Any, Store]]:
    """Opens the store of a run; `unlocked`, once for each node."""

    def now_ms() -> int:
        return EPOCH_MS + int(loop.time() * 1000)

    tables = SharedTables(now_ms, rng, pace_s)

    async def connect() -> Store:
        if home == "memory":
            return MemoryStore(now_ms=now_ms)
        if home == "unlocked":
            return UnlockedStore(tables)
        engine = partial(SqliteEngine.open, inline=True, clock=loop.time)
        return await SqliteStore.open(directory / "store.db", now_ms=now_ms, engine=engine)

    return connect


async def act_out(
    loop: Places,
    store: Store,
    rng: Random,
    plan: Plan,
    *,
    instant: bool,
    trace: Trace | None,
    connect: Callable[[], Coroutine[Any, Any, Store]] | None = None,
) -> Recording:
    """Everything that a plan is about, from the first boot to what is left in the end. Closes the store."""
    world = World(
        loop,
        store,
        rng,
        nodes=plan.nodes,
        weather=plan.weather,
        play=partial(new_play, temper=plan.temper),
        instant=instant,
        cache_bytes=plan.cache_bytes,
        lane_waiting_max=plan.waiting_max,
        background_max=plan.background_max,
        lease_ttl_s=plan.ttl_s,
        trace=trace,
        connect=connect,
    )
    world.say(str(plan))
    keys = tuple(SessionKey(f"key-{n}") for n in range(plan.keys))
    boots = [loop.create_task(world.boot()) for _ in range(plan.nodes)]
    await asyncio.gather(*boots)
    clients = [
        loop.create_task(
            Client(world, f"c{n}", Random(rng.random()), plan.habits, keys).live(
                requests=plan.requests
            ),
            name=f"c{n}",
        )
        for n in range(plan.clients)
    ]
    pages = [
        HastyClient(
            world,
            f"h{n}",
            Random(rng.random()),
            pause_s=plan.habits.pause_s,
            goes_on=plan.habits.asks_again > 0,
        )
        for n in range(plan.hasty)
    ]
    clients += [
        loop.create_task(page.live(requests=plan.requests), name=f"h{n}")
        for n, page in enumerate(pages)
    ]
    programs = [
        PersistentClient(world, f"p{n}", Random(rng.random()), plan.habits)
        for n in range(plan.persistent)
    ]
    clients += [
        loop.create_task(program.live(requests=plan.requests), name=f"p{n}")
        for n, program in enumerate(programs)
    ]
    fate = loop.create_task(_befall(world, plan), name="fate")
    # Long enough for most clients to be done; the rest goes on while the sky clears.
    await asyncio.wait(clients, timeout=plan.requests * plan.habits.pause_s + 20.0)
    await _heal(world, fate)
    healed_s = loop.time()
    world.say("all faults are over")
    await _let_go_of_the_lost(world)
    _, busy = await asyncio.wait(clients, timeout=20 * PATIENCE_S)
    leftovers = [f"{task.get_name()} is not done" for task in busy]
    await _probe(world, keys)
    for page in pages:
        await page.say_last()
    world.calm = True
    for program in programs:
        await program.finish()
    for task in clients:
        if task.done():
            task.result()
    # A renewal that was sent before the last fault was over may still have failed after it: the next one has to go well.
    await asyncio.sleep(max(0.0, healed_s + HEALTHY_S - loop.time()))
    leftovers += await _left_over(world)
    leftovers += [*world.complaints, *loop.unheeded()]
    recording = Recording(
        sends=tuple(world.sends),
        acts=tuple(world.acts),
        watched=tuple(world.watched),
        effects=tuple(world.effects),
        played=tuple(world.played),
        takeovers=tuple(world.takeovers),
        queueings=tuple(world.queueings),
        sessions=await find_all(store, TENANT),
        healed_s=healed_s,
        patience_s=PATIENCE_S,
        shutdowns=world.shutdowns,
        crashes=world.crashes + _may_miss_renewals(plan),
        findings=tuple([str(each) async for each in verify(store) if isinstance(each, Finding)]),
        leftovers=tuple(leftovers),
    )
    for node in (*world.nodes, *world.graves):
        node.store.dead = True
    await store.close()
    return recording


def _may_miss_renewals(plan: Plan) -> bool:
    """Whether the weather alone can make a node look dead."""
    weather = plan.weather
    return weather.refused + weather.lost + weather.very_slow + weather.odd > 0


# ── faults ───────────────────────────────────────────────────────────────────────────────────


async def _befall(world: World, plan: Plan) -> None:
    """One fault after the other, some at once."""
    rng = world.rng
    async with asyncio.TaskGroup() as group:
        while plan.faults:
            await asyncio.sleep(plan.fault_every_s * 2 * rng.random())
            kind = rng.choice(plan.faults)
            node = world.any_node()
            long_s = rng.choice((1.0, plan.ttl_s / 2, plan.ttl_s + 1.0, plan.ttl_s + 8.0))
            if kind == "outage":
                if not world.sky.outage:
                    group.create_task(world.outage(for_s=long_s * rng.random()))
            elif node is None or node.draining or node.place.state != "up":
                continue
            elif kind == "crash":
                group.create_task(world.crash(node, down_s=8 * rng.random()))
            elif kind == "pause":
                group.create_task(world.pause(node, for_s=long_s))
            elif kind == "freeze":
                freeze = Freeze(
                    name=rng.choice(_FREEZES), for_s=plan.ttl_s + 4.0 + 8.0 * rng.random()
                )
                group.create_task(world.freeze(node, freeze))
            elif kind == "partition":
                group.create_task(world.partition(node, for_s=long_s))
            elif kind == "deprive":
                name = rng.choice(CALLS)
                group.create_task(world.deprive(node, name, for_s=long_s))
            elif kind == "drain":
                grace_s = rng.choice((0.0, 0.5, 5.0))
                group.create_task(world.drain(node, grace_s=grace_s, down_s=3 * rng.random()))


async def _heal(world: World, fate: asyncio.Task[None]) -> None:
    """No more faults. What is under way is undone; where a node is missing, one is started."""
    fate.cancel()
    await asyncio.wait([fate])
    world.sky.clear()
    for node in world.nodes:
        node.store.partitioned = False
        node.store.freeze = None
        node.store.deprived.clear()
        if node.place.state == "paused":
            node.place.state = "up"
    for node in [each for each in world.nodes if each.draining]:
        # Whoever waited for it to drain was called off; it is given up where it stands.
        world.bury(node)
    while len(world.nodes) < world.slots:
        await world.boot()


async def _let_go_of_the_lost(world: World) -> None:
    """A sweep tells a node which turns it has lost. Their players have to stop, however little they say.

    Clients go on meanwhile, so a turn may be lost at any moment: what counts is what two looks see with a sweep
    in between.
    """
    before = await world.find_zombies()
    await asyncio.sleep(SWEPT_S)
    lost = [each for each in await world.find_zombies() if each in before]
    world.complaints += [f"{node.name} still plays {turn_id}" for node, turn_id in lost]


async def _left_over(world: World) -> list[str]:
    """What nodes still hold when everything is over. A call that one of them froze over may be on its way for as
    long as it was frozen, and its turn with it, which only a sweep finds if nobody waits for it any more."""
    await _settled(world)
    if any(node.store.froze for node in world.nodes):
        await asyncio.sleep(SWEPT_S)
        await _settled(world)
    return [each for node in world.nodes for each in (*node.leftovers(), *_ill(world, node))]


def _ill(world: World, node: Node) -> list[str]:
    """What lives as long as a node, and has ended, or still fails although no fault is left."""
    alive = {task.get_name() for task in world.loop.tasks(node.place) if not task.done()}
    ended = [name for name in _LASTING if f"holdfast-{name}" not in alive]
    failing = node.sessions.supervisor.failing
    return [
        *(f"{node.name} has lost its {name}" for name in ended),
        *(f"{node.name} has a {name} that fails" for name in failing if name in _FREQUENT),
    ]


_LASTING = ("heart", "signals", "sweeper", "indexer", "pruner")
_FREQUENT = ("heart", "sweeper", "indexer")
"""Those that have had a round since the last fault, whatever else a node does."""


async def _settled(world: World) -> None:
    for _ in range(FROZEN_S_MAX):
        if not any(node.store.frozen or node.leftovers() for node in world.nodes):
            return
        await asyncio.sleep(1.0)


async def _probe(world: World, keys: tuple[SessionKey, ...]) -> None:
    """Say something to every session on every node: all of them have to be of use again."""
    habits = Habits(keyed=0.5, leaves=0, policies=0, if_match=0, resends=0)
    for key in keys:
        for node in tuple(world.nodes):
            request = Request(world, "probe", world.rng, habits, key, probe=True)
            for attempt in range(20):
                sent = await request.send(attempt, node)
                # Clients that have just hung up may still be in the lane, or have held up the probe
                # for a session that was deleted meanwhile.
                if sent.error not in ("conversation_locked", "conversation_gone"):
                    break
                await asyncio.sleep(1.0)
    # What those sessions have left behind that their keys do not mean any more is swept as well.
    for _ in range(int(PATIENCE_S)):
        await asyncio.sleep(1.0)
        left = await world.store.stats()
        if not left.turns_open and not left.turns_queued:
            break
    await asyncio.sleep(limits.sweep_s + 1.0)
