"""A caller that dies at every single write of a turn, before it or after it, and another that comes then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from holdfast.ids import Minter
from holdfast.store.memory_store import MemoryStore
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from holdfast.testing import Crash, CrashingStore, ManualClock
from holdfast.testing.crash_store import Moment
from tests.crash.audit import audit
from tests.crash.turn_server import ACME, Plan, Server, World, plans_in
from tests.postgres import shared_database, wipe
from tests.scratch import scratch_folder

KEY = "trip"
FIRST = Plan(name="first")
MOMENTS: tuple[Moment, ...] = ("before", "after")


class Machine(Protocol):
    """Where a store outlives the process that uses it."""

    async def boot(self) -> Store:
        """A fresh process opens the store; whoever had it open before is dead."""
        ...

    async def pass_lease(self, server: Server) -> None:
        """Wait until the dead count as dead, if this store needs time to tell."""
        ...


class InMemory:
    """The dead are told by the clock alone."""

    def __init__(self, folder: Path) -> None:
        self._clock = ManualClock()
        self._store = MemoryStore(now_ms=self._clock.now_ms)

    async def boot(self) -> Store:
        return self._store

    async def pass_lease(self, server: Server) -> None:
        for _ in range(2):
            self._clock.advance(10)
            await server.enrol()


class OnDisk:
    """The dead are told by their lock: no time passes at all."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "holdfast.db"
        self._clock = ManualClock()
        self._store: SqliteStore | None = None

    async def boot(self) -> Store:
        if self._store is not None:
            await self._store.close()
        self._store = await SqliteStore.open(self._path, now_ms=self._clock.now_ms)
        return self._store

    async def pass_lease(self, server: Server) -> None:
        pass

    async def shut(self) -> None:
        if self._store is not None:
            await self._store.close()


class InDatabase:
    """As in memory, but that it is PostgreSQL that outlives its callers."""

    def __init__(self, folder: Path) -> None:
        self._clock = ManualClock()
        self._url = ""
        self._store: PostgresStore | None = None

    async def boot(self) -> Store:
        if not self._url:
            self._url = await asyncio.to_thread(_database)
            await wipe(self._url)
        await self.shut()
        address = parse_address(f"{self._url}?listen=off&pool_size=2")
        self._store = await PostgresStore.open(address, clock=self._clock.now_ms)
        return self._store

    async def pass_lease(self, server: Server) -> None:
        for _ in range(2):
            self._clock.advance(10)
            await server.enrol()

    async def shut(self) -> None:
        if self._store is not None:
            await self._store.close()


@cache
def _database() -> str:
    """One for all: a machine is done with when the next one is made."""
    return shared_database()


Boot = Callable[[], Machine]


@pytest.fixture
async def new_machine(request: pytest.FixtureRequest) -> AsyncIterator[Boot]:
    """Makes machines, each with an empty store. No power is cut here, so the disk need not be real."""
    machines: list[Machine] = []
    with scratch_folder() as scratch:

        def make() -> Machine:
            folder = scratch / f"{len(machines)}"
            folder.mkdir()
            machines.append(request.param(folder))
            return machines[-1]

        yield make
        for each in machines:
            if isinstance(each, OnDisk | InDatabase):
                await each.shut()


def new_mint() -> Minter:
    steps = count()
    return Minter(now_ms=ManualClock().now_ms, random_bits=lambda bits: next(steps) % (1 << bits))


PLANS = (
    Plan(name="talks"),
    Plan(name="acts", tools=2),
    Plan(name="resumes", tools=2, resumes=True),
    Plan(name="stops", tools=1, end="stop"),
    Plan(name="fails", tools=1, end="fail"),
)


async def crashed(
    machine: Machine, mint: Minter, world: World, plan: Plan, *, nth: int, moment: Moment
) -> Crash | None:
    """A server boots, takes up what it finds, plays the plan, and dies at its nth write."""
    store = CrashingStore(await machine.boot(), at_write=nth, moment=moment)
    server = Server(store, mint, world=world)
    try:
        await server.enrol()
        await machine.pass_lease(server)
        await server.recover_all()
        await server.ask(KEY, plan, idempotent=True)
    except Crash as crash:
        return crash
    return None


async def begun(machine: Machine, mint: Minter) -> None:
    server = Server(await machine.boot(), mint)
    await server.enrol()
    await server.ask(KEY, FIRST)


async def check_what_is_left(machine: Machine, mint: Minter, world: World, plan: Plan) -> None:
    """Another node comes: it finds the turn whole or absent, and a retry makes it whole, once."""
    store = await machine.boot()
    server = Server(store, mint, world=world)
    await server.enrol()
    await machine.pass_lease(server)
    assert await audit(store) == []
    assert await plans_in(store, KEY) in ([FIRST.name], [FIRST.name, plan.name])

    await server.recover_all()
    assert await audit(store) == []
    row = await store.session(ACME, (await store.session_ids(ACME, after=None, limit=1))[0])
    assert row is not None
    assert row.open_turn is None

    answer = await server.ask(KEY, plan, idempotent=True)
    again = await server.ask(KEY, plan, idempotent=True)
    assert await audit(store) == []
    if plan.lands:
        assert again == answer
        assert await plans_in(store, KEY) == [FIRST.name, plan.name]
    assert set(world.done.values()) <= {1}, "a tool has run twice for one call"

    # The session goes on from there.
    assert (await server.ask(KEY, Plan(name="next"))).version is not None


def once_dead() -> Iterator[object]:
    """Every plan in memory, and one that acts in each home that lasts: all of them play the same operations."""
    for machine, name in ((InMemory, "memory"), (OnDisk, "sqlite"), (InDatabase, "postgres")):
        for plan in PLANS:
            once = machine is InMemory or plan.name == "acts"
            marks = [] if once else [pytest.mark.thorough]
            yield pytest.param(machine, plan, id=f"{name}-{plan.name}", marks=marks)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(("new_machine", "plan"), [*once_dead()], indirect=["new_machine"])
async def test_a_turn_is_whole_or_absent_wherever_its_caller_dies(
    new_machine: Boot, plan: Plan, moment: Moment
) -> None:
    for nth in count(1):
        machine, mint, world = new_machine(), new_mint(), World()
        await begun(machine, mint)
        crash = await crashed(machine, mint, world, plan, nth=nth, moment=moment)
        await check_what_is_left(machine, mint, world, plan)
        if crash is None:
            break
    assert nth > 3, "enrol, begin and end at least"


def twice_dead() -> Iterator[object]:
    """Every plan in memory: what the second of the dead leaves is told apart by no home."""
    for machine, name in ((InMemory, "memory"), (OnDisk, "sqlite")):
        for plan in PLANS:
            marks = [] if machine is InMemory else [pytest.mark.thorough]
            yield pytest.param(machine, plan, id=f"{name}-{plan.name}", marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("new_machine", "plan"), [*twice_dead()], indirect=["new_machine"])
async def test_whoever_cleans_up_may_die_as_well(new_machine: Boot, plan: Plan) -> None:
    for first in count(2):
        crash: Crash | None = None
        for second in count(1):
            machine, mint, world = new_machine(), new_mint(), World()
            await begun(machine, mint)
            moment = MOMENTS[(first + second) % 2]
            crash = await crashed(machine, mint, world, plan, nth=first, moment=moment)
            moment = MOMENTS[second % 2]
            again = await crashed(machine, mint, world, plan, nth=second, moment=moment)
            await check_what_is_left(machine, mint, world, plan)
            if again is None:
                break
        if crash is None:
            break


async def test_the_dead_do_nothing_more() -> None:
    store = CrashingStore(MemoryStore(), at_write=1)
    with pytest.raises(Crash, match="after write 1, renew"):
        await Server(store, new_mint()).enrol()
    with pytest.raises(Crash):
        await store.tenants()
    assert store.crashed
    assert store.writes == 1


async def test_a_crash_before_a_write_leaves_it_undone() -> None:
    inner = MemoryStore()
    server = Server(CrashingStore(inner, at_write=2, moment="before"), new_mint())
    await server.enrol()
    with pytest.raises(Crash, match="before write 2, begin"):
        await server.ask(KEY, FIRST)
    assert await inner.tenants() == ()
