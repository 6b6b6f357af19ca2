"""Two servers on one store: what is asked of one of them holds for a turn that the other one plays.

They are replicas on a database, or workers on a file.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import Any

import pytest

from holdfast.ids import TurnId
from holdfast.server.auth import LOCAL
from holdfast.store.open import open_existing
from holdfast.store.rows import TurnRow
from tests.e2e.conftest import REPLICAS, SEVERAL
from tests.e2e.world import World

pytestmark = pytest.mark.slow

ONE, OTHER = 0, 1
ANSWER = "This is the whole answer to {} "
KEY = {"Idempotency-Key": "7d8f"}


def text_of(answer: Any) -> str:
    return str(answer.json["choices"][0]["message"]["content"])


async def admitted(world: World, how: str) -> None:
    """Wait until the other server has let a request in, in this way."""
    async with asyncio.timeout(120):
        while True:
            shown = (await world.request("GET", "/metrics", at=OTHER)).body.decode()
            if f'holdfast_admissions_total{{how="{how}"}} 0.0' not in shown:
                return
            await asyncio.sleep(0.01)


async def signalled(world: World, turn_id: TurnId) -> None:
    """Wait until something was said to a turn."""
    store = await open_existing(world.store)
    async with asyncio.timeout(120):
        while True:
            if await store.find_signal(LOCAL, turn_id, 1) is not None:
                break
            await asyncio.sleep(0.01)
    await store.close()


async def turn_of(world: World, turn_id: TurnId) -> TurnRow:
    store = await open_existing(world.store)
    try:
        row = await store.turn(LOCAL, turn_id)
    finally:
        await store.close()
    assert row is not None
    return row


@SEVERAL
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


@SEVERAL
async def test_a_turn_is_cancelled_by_the_other_server(world: World) -> None:
    gate = world.hold("long")
    waiting = asyncio.create_task(world.chat("long", to="trip", at=ONE))
    await gate.reached.wait()
    (turn,) = await world.turns("trip")
    cancelled = await world.request("POST", f"/api/turns/{turn['id']}/cancel", at=OTHER)
    assert (cancelled.status, cancelled.json["ended_by"]) == (200, "cancelled")
    assert (await waiting).status == 409


@SEVERAL
async def test_what_is_said_at_the_other_server_steers_a_turn(world: World) -> None:
    gate = world.hold("long")
    waiting = asyncio.create_task(world.chat("long", to="trip", at=ONE))
    await gate.reached.wait()
    steering = asyncio.create_task(
        world.chat("and quick", to="trip", at=OTHER, headers={"X-On-Busy": "steer"})
    )
    (turn,) = await world.turns("trip")
    await signalled(world, TurnId(turn["id"]))
    gate.release()
    assert (await waiting).status == (await steering).status == 200
    assert world.sent == [["long"], ["long", "and quick"]]
    assert len(await world.turns("trip")) == 1


@SEVERAL
async def test_first_requests_with_one_name_at_both_servers_make_one_session(world: World) -> None:
    answers = await asyncio.gather(
        *(world.chat(f"{n}", to="trip", at=n % 2) for n in range(6)),
    )
    assert {each.status for each in answers} == {200}
    assert len({each.headers["x-session-id"] for each in answers}) == 1
    assert len({each.headers["x-conversation-version"] for each in answers}) == 6
    await world.verify()


@SEVERAL
async def test_an_interrupt_at_the_other_server_goes_next(world: World) -> None:
    gate = world.hold("long")
    waiting = asyncio.create_task(world.chat("long", to="trip", at=ONE))
    await gate.reached.wait()
    answer = await world.chat("now", to="trip", at=OTHER, headers={"X-On-Busy": "interrupt"})
    assert (answer.status, text_of(answer)) == (200, ANSWER.format("now"))
    assert (await waiting).status == 409


@SEVERAL
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


@SEVERAL
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


@SEVERAL
async def test_an_sdk_retry_at_the_other_server_joins_the_turn(world: World) -> None:
    gate = world.hold("slow")
    first = asyncio.create_task(
        world.chat("slow", to="trip", at=ONE, headers={"X-Turn-Policy": "disconnect=finish"})
    )
    await gate.reached.wait()
    retry = {"X-Turn-Policy": "disconnect=finish", "x-stainless-retry-count": "1"}
    joined = asyncio.create_task(world.chat("slow", to="trip", at=OTHER, headers=retry))
    await admitted(world, "recognised")
    gate.release()
    assert (await first).body == (await joined).body
    assert world.sent == [["slow"]]


@SEVERAL
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


@SEVERAL
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


@REPLICAS
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


@REPLICAS
async def test_what_waits_at_a_server_that_dies_is_played_by_the_other_one(world: World) -> None:
    await world.restart(HOLDFAST_BACKGROUND_TURNS="1")
    words = ("first", "second", "third")
    gates = [world.hold("first"), world.hold("second")]
    body = {"model": "root", "background": True}
    answers = [
        await world.request("POST", "/v1/responses", at=ONE, json={**body, "input": said})
        for said in words
    ]
    assert [each.json["status"] for each in answers] == ["queued"] * 3
    # The other server has room, so what waits here is begun there.
    for gate in gates:
        await gate.reached.wait()
    await world.kill_one(ONE)
    world.gates.clear()
    for gate in gates:  # a busy machine may have made the one look dead to the other before it was
        gate.release()
    for answer in answers:
        name = answer.json["id"]
        events = await world.request("GET", f"/v1/responses/{name}?stream=true", at=OTHER)
        assert events.named_events[-1]["response"]["status"] == "completed"
    turns = [await turn_of(world, TurnId(each.headers["x-turn-id"])) for each in answers]
    asked = Counter(each[0] for each in world.sent)
    assert asked["first"] > 1, "the dead server had begun it"
    # Whatever was taken over is asked for again, and nothing else is.
    for said, turn in zip(words, turns, strict=True):
        assert 1 <= asked[said] <= turn.attempt, said
    await world.verify()
