"""Two servers on one database: what is asked of one of them holds for a turn that the other one plays."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from tests.e2e.conftest import REPLICAS
from tests.e2e.world import World

pytestmark = [REPLICAS, pytest.mark.slow]

ONE, OTHER = 0, 1
ANSWER = "This is the whole answer to {} "
KEY = {"Idempotency-Key": "7d8f"}


def text_of(answer: Any) -> str:
    return str(answer.json["choices"][0]["message"]["content"])


async def test_a_follow_up_waits_for_a_turn_of_the_other_server(world: World) -> None:
    gate = world.hold("slow")
    first = asyncio.create_task(world.chat("slow", to="trip", at=ONE))
    await gate.reached.wait()
    rejected = await world.chat("no time", to="trip", at=OTHER, headers={"X-On-Busy": "reject"})
    assert (rejected.status, rejected.error["code"]) == (409, "conversation_locked")
    second = asyncio.create_task(world.chat("quick", to="trip", at=OTHER))
    gate.release()
    assert (await first).status == (await second).status == 200
    assert world.sent == [["slow"], ["slow", "quick"]]


async def test_a_turn_is_cancelled_by_the_other_server(world: World) -> None:
    gate = world.hold("long")
    waiting = asyncio.create_task(world.chat("long", to="trip", at=ONE))
    await gate.reached.wait()
    (turn,) = await world.turns("trip")
    cancelled = await world.request("POST", f"/api/turns/{turn['id']}/cancel", at=OTHER)
    assert (cancelled.status, cancelled.json["ended_by"]) == (200, "cancelled")
    assert (await waiting).status == 409


async def test_an_interrupt_at_the_other_server_goes_next(world: World) -> None:
    gate = world.hold("long")
    waiting = asyncio.create_task(world.chat("long", to="trip", at=ONE))
    await gate.reached.wait()
    answer = await world.chat("now", to="trip", at=OTHER, headers={"X-On-Busy": "interrupt"})
    assert (answer.status, text_of(answer)) == (200, ANSWER.format("now"))
    assert (await waiting).status == 409


async def test_a_watcher_at_the_other_server_sees_a_turn_to_its_end(world: World) -> None:
    gate = world.hold("long")
    waiting = asyncio.create_task(world.chat("long", to="trip", at=ONE))
    await gate.reached.wait()
    (turn,) = await world.turns("trip")
    watching = asyncio.create_task(
        world.request("GET", f"/api/turns/{turn['id']}/events", at=OTHER)
    )
    gate.release()
    seen = (await watching).events
    assert seen[-1]["turn"]["state"] == "committed"
    assert (await waiting).status == 200


async def test_a_keyed_retry_at_the_other_server_joins_and_is_answered_again(world: World) -> None:
    gate = world.hold("once")
    first = asyncio.create_task(world.chat("once", to="trip", at=ONE, headers=KEY))
    await gate.reached.wait()
    joined = asyncio.create_task(world.chat("once", to="trip", at=OTHER, headers=KEY))
    other = await world.chat("twice", to="trip", at=OTHER, headers=KEY)
    gate.release()
    bodies = {(await first).body, (await joined).body}
    bodies |= {
        (await world.chat("once", to="trip", at=at, headers=KEY)).body for at in (ONE, OTHER)
    }
    assert len(bodies) == 1
    assert (other.status, other.error["code"]) == (422, "idempotency_key_reused")
    assert world.sent == [["once"]]


async def test_an_sdk_retry_at_the_other_server_joins_the_turn(world: World) -> None:
    gate = world.hold("slow")
    first = asyncio.create_task(
        world.chat("slow", to="trip", at=ONE, headers={"X-Turn-Policy": "disconnect=finish"})
    )
    await gate.reached.wait()
    retry = {"X-Turn-Policy": "disconnect=finish", "x-stainless-retry-count": "1"}
    joined = asyncio.create_task(world.chat("slow", to="trip", at=OTHER, headers=retry))
    gate.release()
    assert (await first).body == (await joined).body
    assert world.sent == [["slow"]]


async def test_a_server_that_is_killed_is_cleaned_up_after_by_the_other(world: World) -> None:
    """The session is usable again as soon as the dead server's lease has ended."""
    gate = world.hold("long")
    async with world.streaming("first", to="trip") as response:
        await response.read()
    waiting = asyncio.create_task(world.chat("long", to="trip", at=ONE))
    await gate.reached.wait()
    await world.kill_one(ONE)
    await asyncio.wait({waiting})
    assert waiting.exception() is not None, "the client heard nothing"
    after = await world.chat("after", to="trip", at=OTHER)
    assert (after.status, world.sent[-1]) == (200, ["first", "after"])
    await world.verify()


async def test_a_keyed_turn_of_a_killed_server_is_finished_by_the_other(world: World) -> None:
    gate = world.hold("important")
    waiting = asyncio.create_task(world.chat("important", to="trip", at=ONE, headers=KEY))
    await gate.reached.wait()
    world.gates.clear()
    retry = asyncio.create_task(world.chat("important", to="trip", at=OTHER, headers=KEY))
    await world.kill_one(ONE)
    await asyncio.wait({waiting})
    assert text_of(await retry) == ANSWER.format("important")
    await world.verify()


async def test_a_server_that_stops_hands_its_keyed_turn_to_the_other(world: World) -> None:
    """A drain does not wait for a lease: whoever is left takes the turn up at once."""
    gate = world.hold("important")
    waiting = asyncio.create_task(world.chat("important", to="trip", at=ONE, headers=KEY))
    await gate.reached.wait()
    world.gates.clear()
    for which in (signal.SIGTERM, signal.SIGINT):  # two are a hurry
        world.signal(which, ONE)
    await asyncio.wait({waiting})
    retry = await world.chat("important", to="trip", at=OTHER, headers=KEY)
    assert text_of(retry) == ANSWER.format("important")
    assert world.sent == [["important"], ["important"]]
