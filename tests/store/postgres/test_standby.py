"""A commit that waits for a synchronous standby which does not answer, and clients that go away meanwhile.

The server has the commit on its own disk and shows it to nobody until the standby has it, too, or until the wait is
broken off; it does not notice that its client has died. Whoever asks meanwhile waits, or is told that the store is
unavailable, and changes nothing; whoever asks later finds the turn committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.ids import Version
from holdfast.store.outcomes import Committed, NothingOpen, Taken
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.verification.verification import Finding, verify
from holdfast.testing import ManualClock
from tests.postgres import (
    QUICK,
    Server,
    connected,
    execute,
    wait_until_commits_wait,
    waiting_for,
)
from tests.postgres_wire import Wire
from tests.store.builders import ACME, TTL_MS, Player, Playing
from tests.store.postgres.conftest import impatient, random_mint

pytestmark = pytest.mark.slow

TIMEOUT = "60"
"""Longer than anything here takes: a wait that ends by itself is not what is looked at, except where it is."""

UNBLOCK = "alter system reset synchronous_standby_names"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server.started(QUICK) as started:
        yield started


class Stage:
    """A database whose standby comes and goes, and players on it."""

    def __init__(self, server: Server, url: str, entered: AsyncExitStack) -> None:
        self.server = server
        self.url = url
        self.clock = ManualClock()
        self._entered = entered

    async def player(self, *, port: int | None = None) -> Player:
        url = self.url if port is None else self.url.replace(f":{self.server.port}", f":{port}")
        address = parse_address(f"{url}?timeout={TIMEOUT}&listen=off&sslmode=disable")
        store = await PostgresStore.open(address, clock=self.clock.now_ms)
        self._entered.push_async_callback(store.close)
        player = Player(store, random_mint())
        await player.renew()
        return player

    async def outlive(self, player: Player, *, by: float = 0.9) -> None:
        """Time passes, and of all nodes this one stays alive: it may bury those whose lease has ended."""
        for _ in range(2):
            await player.renew()
            self.clock.advance(TTL_MS / 1000 * by)

    async def block(self) -> None:
        """From now on, every commit waits for somebody who is not there."""
        await execute(self.url, *waiting_for("nobody"))
        await wait_until_commits_wait(self.url)

    async def unblock(self) -> None:
        await execute(self.url, UNBLOCK, "select pg_reload_conf()")

    async def wait_until_waiting(self, backends: int = 1) -> None:
        """Until so many commits wait for the standby."""
        async with connected(self.url) as ask:
            while True:
                found = await ask.fetchval(
                    "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"
                )
                if found >= backends:
                    return
                await asyncio.sleep(0.01)


@pytest.fixture
def fresh(server: Server) -> str:
    if not server.running:
        server.start()
    return server.url(server.fresh_database())


@pytest.fixture
async def stage(server: Server, fresh: str) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as entered:
        made = Stage(server, fresh, entered)
        yield made
        await made.unblock()


async def committing_and_dead(
    stage: Stage, *, before_it_blocks: Callable[[], Awaitable[None]] | None = None
) -> Playing:
    """A turn whose commit waits for the standby, and whose client has died."""
    async with Wire.before("127.0.0.1", stage.server.port) as wire:
        dead = await stage.player(port=wire.port)
        turn = await dead.open("trip", "Hello")
        await turn.answer()
        if before_it_blocks is not None:
            await before_it_blocks()
        await stage.block()
        committing = asyncio.create_task(turn.try_commit())
        await stage.wait_until_waiting()
        wire.die()
        committing.cancel()
        await asyncio.wait({committing})
    return turn


async def is_whole(player: Player, turn: Playing) -> None:
    """The turn is the only one there, once, and everything else fits."""
    snapshot = await player.snapshot("trip")
    assert (snapshot.version, len(snapshot.items)) == (1, 2)
    row = await player.store.turn(ACME, turn.turn_id)
    assert row is not None and row.state == "committed"
    assert [each async for each in verify(player.store) if isinstance(each, Finding)] == []


async def test_a_commit_that_waits_is_found_whole_by_whoever_asks_again(stage: Stage) -> None:
    ben = await stage.player()
    turn = await committing_and_dead(stage)

    row = await ben.store.turn(ACME, turn.turn_id)
    assert row is not None and row.state == "open", "nobody sees it yet"
    assert (await ben.snapshot("trip")).version == 0
    turn.store = ben.store
    retry = asyncio.create_task(turn.try_commit())
    await asyncio.wait({retry}, timeout=0.2)
    assert not retry.done()

    await stage.unblock()
    answer = await retry
    assert isinstance(answer, Committed) and answer.version == Version(1)
    await is_whole(ben, turn)


async def test_a_takeover_does_not_end_a_turn_whose_commit_waits(stage: Stage) -> None:
    """Its holder is dead, its lease has ended, and it is committed all the same."""
    ben = await stage.player()
    turn = await committing_and_dead(stage, before_it_blocks=partial(stage.outlive, ben, by=0.6))
    taking = asyncio.create_task(take(ben, turn))
    await asyncio.wait({taking}, timeout=0.2)
    assert not taking.done()
    await stage.unblock()
    assert isinstance(await taking, NothingOpen)
    await is_whole(ben, turn)


async def test_the_server_may_crash_while_a_commit_waits(stage: Stage, server: Server) -> None:
    turn = await committing_and_dead(stage)
    await execute(stage.url, UNBLOCK)  # in a file: not for this server, but for the next start
    await stage.wait_until_waiting()
    await asyncio.to_thread(server.crash)
    await asyncio.to_thread(server.start)
    ben = await stage.player()
    turn.store = ben.store
    answer = await turn.try_commit()
    assert isinstance(answer, Committed) and answer.version == Version(1)
    await is_whole(ben, turn)


async def test_who_waits_too_long_is_told_so_and_finds_the_truth_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await stage.player()
    turn = await ada.open("trip", "Hello")
    await turn.answer()
    await stage.block()
    with impatient(ada.store, monkeypatch), pytest.raises(StoreUnavailable):
        await turn.try_commit()
    await stage.unblock()
    answer = await turn.try_commit()
    assert isinstance(answer, Committed) and answer.version == Version(1)
    await is_whole(ada, turn)


async def test_a_takeover_that_waits_too_long_is_taken_up_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, ben = await stage.player(), await stage.player()
    turn = await dead.open("trip", "Hello")
    await turn.answer()
    await stage.outlive(ben, by=0.6)
    await stage.block()
    with impatient(ben.store, monkeypatch), pytest.raises(StoreUnavailable):
        await take(ben, turn)
    await stage.unblock()
    taken = await take(ben, turn)
    assert isinstance(taken, Taken)
    turn.fence, turn.store = taken.fence, ben.store
    assert isinstance(await turn.try_commit(), Committed)
    await is_whole(ben, turn)


async def take(player: Player, turn: Playing) -> object:
    return await player.store.takeover(
        ACME, turn.session_id, node=player.node, nonce="theirs", turn_id=turn.turn_id
    )
