"""Two nodes on one real store, whose clocks are hours off in opposite directions: nothing changes for clients.

The interleavings are tried on simulated nodes (`test_resends.py`, `admission/test_queued_turns.py`, `test_clocks.py`). Here the store is a
PostgreSQL with connections of each node's own, and its clock, or a SQLite with its writer's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import Unpack

import pytest

from holdfast.core.ports import Play
from holdfast.errors import TurnFailed
from holdfast.ids import SessionKey
from holdfast.sessions.ambient import Ambient, steady_ms
from holdfast.sessions.session_requests import Ending
from holdfast.sessions.sessions import Sessions
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from tests.postgres import shared_database
from tests.simulation.stage import Asking, Gate, Hand, Stage, said

OFF_MS = 3 * 3_600_000


@cache
def database() -> str:
    return shared_database()


class Pair(Stage):
    """Two nodes, and players that do as they are told."""

    def __init__(self, name: str) -> None:
        self.key = SessionKey(name)
        self.parts = {}
        self.done = []
        self.played = []

    async def open(self, stores: tuple[Store, Store], entered: AsyncExitStack) -> None:
        self.store = stores[0]
        play: Play = self.play(None, None)  # type: ignore[arg-type]
        self.fast, self.slow = [
            await entered.enter_async_context(
                Sessions(store, play, ambient=Ambient(own_ms=_off(off_ms)))
            )
            for store, off_ms in zip(stores, (OFF_MS, -OFF_MS), strict=True)
        ]

    def say(self, node: Sessions, text: str, **asking: Unpack[Asking]) -> asyncio.Task[Ending]:
        wanted: Asking = {**asking, "name": self.key}
        ask = self.ask(text, **wanted)

        async def serve() -> Ending:
            async with await node.submit(ask) as watch:
                return await watch.ended()

        return asyncio.create_task(serve())

    async def held(self, node: Sessions, text: str) -> tuple[Gate, asyncio.Task[Ending]]:
        """A message that is being answered until it is let go."""
        gate = self.parts[text] = Gate()
        sent = self.say(node, text)
        await self.until(lambda: text in self.played)
        return gate, sent

    async def queued(self, node: Sessions) -> None:
        """Let a request come so far that its turn waits in the store."""
        await self.until(lambda: bool(node._owner.waited_for))

    async def asked(self) -> list[str]:
        """What was said to the players, in order."""
        return [each for each in await self.said(self.key) if not each.startswith("re: ")]


def _off(off_ms: int) -> Callable[[], int]:
    return lambda: steady_ms() + off_ms


@pytest.fixture(params=["sqlite", "postgres"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    found = Pair(request.node.name)
    async with AsyncExitStack() as entered:
        stores: tuple[Store, Store]
        if request.param == "sqlite":
            store = await SqliteStore.open(tmp_path / "store.db")
            entered.push_async_callback(store.close)
            stores = (store, store)
        else:
            address = parse_address(await asyncio.to_thread(database))
            one, two = [await PostgresStore.open(address) for _ in range(2)]
            entered.push_async_callback(one.close)
            entered.push_async_callback(two.close)
            stores = (one, two)
        await found.open(stores, entered)
        yield found


@pytest.mark.parametrize("asking", [{"on_busy": "steer"}, {"queues": True}], ids=["steer", "queue"])
async def test_a_message_before_the_answer_is_stored_once(pair: Pair, asking: Asking) -> None:
    gate, first = await pair.held(pair.fast, "one")
    resent: Asking = {**asking, "past": said("one")}
    second = pair.say(pair.slow, "two", **resent)
    if "queues" in asking:
        await pair.queued(pair.slow)
    else:
        await pair.until(lambda: any(each._steers for each in pair.fast._owner.playing))
    gate.open.set()
    assert (await first).ok
    await pair.slow._recovery.sweep()
    assert (await second).ok
    assert await pair.asked() == ["one", "two"]


async def test_a_queued_turn_goes_before_a_request_that_comes_later_to_another_node(
    pair: Pair,
) -> None:
    """And has the time that it was given, whoever looks at it."""
    gate, first = await pair.held(pair.fast, "one")
    queued = pair.say(pair.slow, "two", queues=True, deadline_s=60.0)
    await pair.queued(pair.slow)
    await pair.fast._recovery.sweep()  # it has looked, as every node does every two seconds
    later = pair.say(pair.fast, "three")
    await pair.until(lambda: pair.fast._lanes.waiting > 0)
    gate.open.set()
    assert (await first).ok and (await queued).ok and (await later).ok
    assert await pair.asked() == ["one", "two", "three"]


async def test_a_queued_turn_ends_when_its_time_is_over_by_the_clock_of_the_store(
    pair: Pair,
) -> None:
    gate, first = await pair.held(pair.fast, "one")
    queued = pair.say(pair.slow, "two", queues=True, deadline_s=0.01)
    await pair.queued(pair.slow)
    while not queued.done():
        await pair.fast._recovery.sweep()
        await asyncio.sleep(0)
    ending = await queued
    assert (ending.kept, ending.by) == (False, "deadline")
    gate.open.set()
    assert (await first).ok


async def test_what_broke_off_is_continued_by_the_same_request_to_another_node(pair: Pair) -> None:
    """Within ten minutes by the clock of the store: its end was stamped by that one, and so is the retry's coming."""

    async def act_then_fail(hand: Hand) -> None:
        (act,) = await hand.call("act")
        await hand.start(act)
        await hand.finish(act)
        raise TurnFailed("model_error", "overloaded", reason="upstream_error")

    pair.parts["Pay"] = act_then_fail
    failed = await pair.say(pair.fast, "Pay")
    del pair.parts["Pay"]
    again = await pair.say(pair.slow, "Pay")
    assert (failed.kept, failed.by, again.ok) == (True, "model_error", True)
    assert await pair.said(pair.key) == ["Pay", "re: Pay"]
    assert pair.done == ["act"]
