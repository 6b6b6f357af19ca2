"""Two servers on one store: what can be seen and done where a turn is played can be seen and done at the other.

They are replicas on a database, or workers on a file.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec
import pytest

from holdfast.ids import LOCAL, TurnId
from holdfast.store.rows import TurnRow
from holdfast.store.store_url import open_existing
from tests.e2e.conftest import REPLICAS, SEVERAL
from tests.e2e.world import World, until

pytestmark = pytest.mark.slow

ONE, OTHER = 0, 1
ANSWER = "This is the whole answer to {} "
HALF = "This is the whole"
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


# ── seen from the other ──────────────────────────────────────────────────────────────────────


@REPLICAS
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


@REPLICAS
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


@REPLICAS
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


@SEVERAL
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


@REPLICAS
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


@REPLICAS
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


@REPLICAS
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
