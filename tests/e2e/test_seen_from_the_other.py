"""A turn that one server plays, seen and steered from another: what can be done where it is played can be done there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.e2e.conftest import REPLICAS
from tests.e2e.world import World, until

pytestmark = [REPLICAS, pytest.mark.slow]

ONE, OTHER = 0, 1
ANSWER = "This is the whole answer to {} "
HALF = "This is the whole"
KEY = {"Idempotency-Key": "7d8f"}


class Stream:
    """Server-sent events, read one by one."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.events: list[Any] = []
        self.done = False

    async def until(self, seen: Callable[[Stream], bool]) -> None:
        """Read on until this is true of what was read, or the stream has ended."""
        async with asyncio.timeout(120):
            while not seen(self) and (line := await self._response.content.readline()):
                data = line.decode().removeprefix("data: ").strip()
                if data == "[DONE]":
                    self.done = True
                elif line.startswith(b"data: "):
                    self.events.append(msgspec.json.decode(data))

    async def rest(self) -> None:
        await self.until(lambda _: False)

    @property
    def text(self) -> str:
        choices = [choice for each in self.events for choice in each.get("choices", ())]
        return "".join(each["delta"].get("content") or "" for each in choices)

    @property
    def grown(self) -> str:
        """The text of the events that `/api` shows."""
        found = [each["event"] for each in self.events if "event" in each]
        return "".join(each.get("text", "") for each in found if each["type"] == "grew")

    @property
    def kinds(self) -> list[str]:
        return [each["event"]["type"] for each in self.events if "event" in each]


async def test_a_replayable_turn_is_shown_event_by_event(world: World) -> None:
    gate = world.hold("long")
    async with world.streaming("long", to="trip", at=ONE, headers=KEY) as here:
        await gate.reached.wait()
        (turn,) = await world.turns("trip")
        url = f"{world.urls[OTHER]}/api/turns/{turn['id']}/events"
        async with (
            world.http.get(url) as watching,
            world.streaming("long", to="trip", at=OTHER, headers=KEY) as joining,
        ):
            watched, joined, shown = Stream(watching), Stream(joining), Stream(here)
            await watched.until(lambda seen: seen.grown.startswith(HALF))
            await joined.until(lambda seen: seen.text.startswith(HALF))
            gate.release()
            for each in (watched, joined, shown):
                await each.rest()
    assert watched.grown == joined.text == shown.text == ANSWER.format("long")
    assert joined.done and shown.done
    assert watched.events[-1]["turn"]["state"] == "committed"
    numbers = [each["n"] for each in watched.events[:-1]]
    assert numbers == list(range(len(numbers)))
    assert world.sent == [["long"]]


async def test_a_plain_turn_is_shown_step_by_step(world: World) -> None:
    """Its tokens are in the memory of the server that plays it; what it has decided and begun is in the store."""
    running = asyncio.create_task(world.chat("act", to="trip", at=ONE))
    await until(lambda: world.runs == 1)
    (turn,) = await world.turns("trip")
    async with world.http.get(f"{world.urls[OTHER]}/api/turns/{turn['id']}/events") as watching:
        watched = Stream(watching)
        await watched.until(lambda seen: "tool_started" in seen.kinds)
        assert not running.done()
        world.let_tools_go()
        await watched.rest()
    assert (await running).status == 200
    assert "grew" not in watched.kinds
    assert watched.events[-1]["turn"]["state"] == "committed"


async def test_a_background_response_streams_from_any_server(world: World) -> None:
    gate = world.hold("important")
    queued = await world.request(
        "POST",
        "/v1/responses",
        at=ONE,
        data=msgspec.json.encode({"model": "root", "input": "important", "background": True}),
    )
    await gate.reached.wait()
    url = f"{world.urls[OTHER]}/v1/responses/{queued.json['id']}?stream=true"
    async with world.http.get(url) as watching:
        watched = Stream(watching)
        await watched.until(
            lambda seen: any(each["type"] == "response.output_text.delta" for each in seen.events)
        )
        gate.release()
        await watched.rest()
    assert [each["sequence_number"] for each in watched.events] == list(range(len(watched.events)))
    assert watched.events[-1]["type"] == "response.completed"
    cancelled = await world.request("POST", f"/v1/responses/{queued.json['id']}/cancel", at=OTHER)
    assert cancelled.json["status"] == "completed", "it comes too late, and says so"


async def test_words_reach_a_turn_of_the_other_server(world: World) -> None:
    running = asyncio.create_task(world.chat("act", to="trip", at=ONE))
    await until(lambda: world.runs == 1)
    steering = asyncio.create_task(
        world.chat("also this", to="trip", at=OTHER, headers={"X-On-Busy": "steer"})
    )
    (turn,) = await world.turns("trip")
    await world.signalled(turn["id"])
    world.let_tools_go()
    first, second = await running, await steering
    assert first.headers["x-turn-id"] == second.headers["x-turn-id"] == turn["id"]
    assert first.text == second.text
    assert world.sent[-1] == ["act", "also this"]
    assert len(await world.turns("trip")) == 1


async def test_a_call_that_waits_is_approved_at_the_other_server(world: World) -> None:
    asked = await world.chat("order", to="trip", at=ONE)
    (waiting,) = asked.json["holdfast"]["approvals"]
    turn_id = asked.headers["x-turn-id"]
    listed = await world.request("GET", f"/api/turns/{turn_id}/approvals", at=OTHER)
    assert [each["id"] for each in listed.json["approvals"]] == [waiting["id"]]
    decision = msgspec.json.encode({"decisions": {waiting["id"]: {"approve": True}}})
    path = f"/api/turns/{turn_id}/approvals"
    decided = await world.request("POST", path, at=OTHER, data=decision)
    assert decided.status == 202
    ended = await world.request("GET", f"/api/turns/{decided.json['id']}/events", at=ONE)
    assert ended.events[-1]["turn"]["state"] == "committed"
    assert world.runs == 1
    late = await world.request("POST", path, at=ONE, data=decision)
    assert (late.status, late.error["code"]) == (409, "approval_closed")
    assert world.runs == 1


async def test_a_conversation_that_is_deleted_at_the_other_server_ends_its_turn(
    world: World,
) -> None:
    await world.chat("first", to="trip", at=ONE)
    gate = world.hold("long")
    running = asyncio.create_task(world.chat("long", to="trip", at=ONE))
    await gate.reached.wait()
    deleted = await world.request("DELETE", "/api/sessions/trip", at=OTHER)
    assert deleted.status == 200
    assert (await running).status == 410
    assert (await world.request("GET", "/api/sessions/trip", at=ONE)).status == 404


async def test_a_keyed_stream_can_be_had_whole_after_its_server_was_killed(world: World) -> None:
    """Who has been shown text that does not count is told so; whoever asks after that sees the answer only."""
    gate = world.hold("important")
    async with world.streaming("important", to="trip", at=ONE, headers=KEY) as first:
        await gate.reached.wait()
        await Stream(first).until(lambda seen: seen.text.startswith(HALF))
        world.gates.clear()
        # Joined before, or a slow machine might come back when the turn has been taken up and has ended.
        async with world.streaming("important", to="trip", at=OTHER, headers=KEY) as second:
            joined = Stream(second)
            await joined.until(lambda seen: seen.text.startswith(HALF))
            await world.kill_one(ONE)
            await joined.rest()
    assert joined.events[-1]["error"]["code"] == "answer_restarted"
    for _ in range(2):
        async with world.streaming("important", to="trip", at=OTHER, headers=KEY) as third:
            again = Stream(third)
            await again.rest()
        assert (again.text, again.done) == (ANSWER.format("important"), True)
    assert world.sent == [["important"], ["important"]]
