"""What befalls a database, with live turns on two servers: they say so, lose nothing, and go on by themselves."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from tests.e2e.world import World
from tests.e2e.world import world as new_world
from tests.postgres import SAFE, Server
from tests.replicas.wire import Wire
from tests.server.stubs import Answer

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ONE, OTHER = 0, 1
ANSWER = "This is the whole answer to {} "
TIMEOUT_S = 6
"""How long a call to the database may take. It is waited for in full wherever a client is told that it is away; in all
other places it has to be enough, also for a machine that is busy with other things."""
CONNECTIONS = 40
"""How many the database has, all of which its owner may take."""
SOON_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A database server that this module may mistreat."""
    with Server.started({**SAFE, "max_connections": str(CONNECTIONS)}) as found:
        yield found


class LiveTurns:
    """A turn on each server, each in a conversation of its own that is called like what was said."""

    def __init__(self, world: World, here: str, there: str) -> None:
        self.here, self.there = here, there
        self.here_gate, self.there_gate = world.hold(here), world.hold(there)
        self.key = {"Idempotency-Key": there}
        self.here_turn = asyncio.create_task(world.chat(here, to=here, at=ONE))
        self.there_turn = asyncio.create_task(
            world.chat(there, to=there, at=OTHER, headers=self.key)
        )

    def release(self) -> None:
        for gate in (self.here_gate, self.there_gate):
            gate.release()


class Stage:
    """Two servers with live turns, and the way between them and their database."""

    def __init__(self, server: Server, world: World, wire: Wire, url: str) -> None:
        self.server = server
        self.world = world
        self.wire = wire
        self.url = url
        """The database, directly."""
        self._tests = count()

    async def live_turns(self) -> LiveTurns:
        """A turn on each server, in the middle of its answer; one of them with a key."""
        n = next(self._tests)
        live = LiveTurns(self.world, f"here-{n}", f"there-{n}")
        for gate in (live.here_gate, live.there_gate):
            await gate.reached.wait()
        return live

    async def all_is_well(self, live: LiveTurns) -> None:
        """The turns that were alive end as if nothing had been, and both servers take new ones."""
        live.release()
        texts = [(await each).text for each in (live.here_turn, live.there_turn)]
        assert texts == [ANSWER.format(live.here), ANSWER.format(live.there)]
        asked = [each[-1] for each in self.world.sent]
        for said in (live.here, live.there):
            assert asked.count(said) == 1, "somebody was taken for dead"
        for at, to in ((OTHER, live.here), (ONE, live.there)):
            assert (await self.world.chat("after", to=to, at=at)).status == 200
        assert len(await self.world.items("before")) == 2
        await self.world.verify()

    async def ready(self, at: int) -> int:
        return (await self.world.request("GET", "/readyz", at=at)).status

    async def until_ready(self, at: int, status: int) -> None:
        async with asyncio.timeout(SOON_S):
            while True:
                if await self.ready(at) == status:
                    return
                await asyncio.sleep(0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(server: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One for all: whatever befell them, the same servers go on."""
    here: Path = tmp_path_factory.mktemp("world")
    name = await asyncio.to_thread(server.fresh_database)
    async with AsyncExitStack() as entered:
        wire = await entered.enter_async_context(Wire.before("127.0.0.1", server.port))
        url = server.url(name)
        there = url.replace(f":{server.port}", f":{wire.port}")
        database = f"{there}?sslmode=disable&timeout={TIMEOUT_S}"
        world = await entered.enter_async_context(new_world(here, database=database))
        await world.start()
        assert (await world.chat("before", to="before")).status == 200
        yield Stage(server, world, wire, url)


def says_so(answer: Answer) -> bool:
    """Whether a client is told that the store is away, and when to come back."""
    told = (answer.status, answer.error["code"], answer.headers["x-should-retry"])
    return told == (503, "storage_unavailable", "true") and "retry-after" in answer.headers


def restarted(server: Server) -> None:
    server.stop("fast")
    server.start()


def crashed(server: Server) -> None:
    server.crash()
    server.start()


@pytest.mark.parametrize("how", [restarted, crashed], ids=lambda each: each.__name__)
async def test_a_database_that_is_restarted_costs_no_turn(
    stage: Stage, how: Callable[[Server], None]
) -> None:
    live = await stage.live_turns()
    await asyncio.to_thread(how, stage.server)
    await stage.all_is_well(live)


async def test_a_database_without_a_free_connection_is_said_so(stage: Stage) -> None:
    live = await stage.live_turns()
    taken: list[asyncpg.Connection[asyncpg.Record]] = []
    try:
        # Those that are not ours may be about to begin or about to end, where nobody sees them: so we take them all.
        while len(taken) < CONNECTIONS:
            try:
                taken.append(await asyncpg.connect(stage.url))
            except asyncpg.TooManyConnectionsError:
                ours = [each.get_server_pid() for each in taken]
                await taken[0].execute(_END_OTHERS, ours)
        for at in (ONE, OTHER):
            assert says_so(await stage.world.chat("not now", to="other", at=at))
    finally:
        for each in taken:
            await each.close()
    await stage.all_is_well(live)


_END_OTHERS = (
    "select pg_terminate_backend(pid) from pg_stat_activity "
    "where backend_type = 'client backend' and pid <> all ($1::int[])"
)


async def test_a_slow_database_makes_turns_slow_and_nothing_else(stage: Stage) -> None:
    live = await stage.live_turns()
    stage.wire.slow_down(0.2)
    slow = await stage.world.chat("slowly", to="other")
    assert slow.text == ANSWER.format("slowly")
    stage.wire.restore()
    await stage.all_is_well(live)


@pytest.mark.parametrize("ends", ["while it is away", "when it is back"])
async def test_a_database_that_is_away_for_longer_than_a_lease_kills_no_healthy_turn(
    stage: Stage, ends: str
) -> None:
    """Everybody looks dead to everybody when it is back, and nobody acts on that."""
    live = await stage.live_turns()
    await asyncio.to_thread(stage.server.stop)
    try:
        assert says_so(await stage.world.chat("not now", to="other", at=ONE))
        for at in (ONE, OTHER):
            await stage.until_ready(at, 503)  # its lease has ended
        if ends == "while it is away":
            live.release()
        assert says_so(await stage.world.chat("not now", to="other", at=OTHER))
    finally:
        await asyncio.to_thread(stage.server.start)
    for at in (ONE, OTHER):
        await stage.until_ready(at, 200)
    await stage.all_is_well(live)


async def test_a_server_that_was_stopped_for_longer_than_its_lease_writes_nothing_late(
    stage: Stage,
) -> None:
    """It wakes up in the middle of a turn that another one has finished, and finds that out."""
    live = await stage.live_turns()
    stage.world.signal(signal.SIGSTOP, OTHER)
    del stage.world.gates[live.there]
    answer = await stage.world.chat(live.there, to=live.there, at=ONE, headers=live.key)
    assert answer.text == ANSWER.format(live.there)
    stage.world.signal(signal.SIGCONT, OTHER)
    live.release()
    late = await live.there_turn
    assert (late.text, late.headers["x-turn-id"]) == (answer.text, answer.headers["x-turn-id"])
    assert (await live.here_turn).status == 200
    said = [each["type"] for each in await stage.world.items(live.there)]
    assert said.count("user") == 1 and said[-1] == "assistant"
    (turn,) = await stage.world.turns(live.there)
    assert (turn["state"], turn["attempt"]) == ("committed", 2)
    await stage.world.verify()
