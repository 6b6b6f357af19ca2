"""A turn that was kept although it broke off is finished by asking again, in whatever way that is done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
import pytest

from holdfast import limits
from holdfast.core.items import plain_text
from holdfast.models.model import ModelFailed
from holdfast.store.memory_store import MemoryStore
from holdfast.store.store import Store
from holdfast.testing import Gate, ManualClock, ScriptedModel, fails, says
from holdfast.testing.scripted_model import Script
from holdfast.tools.tool import ToolOutput, ToolRun
from tests.server.api.test_approvals import careful
from tests.server.stubs import Answer, HeldTool, Serving, agent, serving, until

KEY = {"Idempotency-Key": "k-1"}
ACT = says("Let me do it.", calls=[("act", "{}")])
NO = fails("it broke", status=500, reason="server_error")


class World:
    """A server whose agent can act, and what was asked of it."""

    def __init__(self, *script: Script | str, store: Store | None = None) -> None:
        self.clock = ManualClock()
        self.store = store or MemoryStore(now_ms=self.clock.now_ms)
        self.tool = HeldTool(held=False)
        self.model = ScriptedModel(*script)

    def serving(self, **how: Any) -> Any:
        return serving(agent(self.model, self.tool), store=self.store, **how)

    async def said(self, server: Serving, name: str = "trip") -> list[str]:
        """What a person reads: the user's words and the agent's, in order."""
        items = await server.items(name)
        spoken = (each for each in items if each["type"] in ("user", "assistant"))
        return [each["content"][0]["text"] for each in spoken]

    def prompt(self, n: int) -> list[tuple[str, object]]:
        return [(each.role, each.content) for each in self.model.messages(n)]


async def test_a_keyed_retry_goes_on_after_the_provider_has_failed() -> None:
    """It used to be told the stored 502 for ever."""
    world = World(ACT, NO, "Done.")
    async with world.serving() as server:
        first = await server.chat("Do it", to="trip", headers=KEY)
        again = await server.chat("Do it", to="trip", headers=KEY)
        third = await server.chat("Do it", to="trip", headers=KEY)
        items = await world.said(server)
        turns = await server.turns("trip")
    assert (first.status, again.status) == (502, 200)
    assert first.headers["x-should-retry"] == "true"
    assert again.text == "Let me do it.\n\nDone."
    assert again.headers["x-turn-continues"] == first.headers["x-turn-id"]
    assert again.headers["x-turn-id"] != first.headers["x-turn-id"]
    assert third.body == again.body
    assert items == ["Do it", "Let me do it.", "Done."]
    assert world.tool.runs == 1
    assert [(each["state"], each["ended_by"], each["continues"]) for each in turns] == [
        ("committed", "completed", first.headers["x-turn-id"]),
        ("committed", "model_error", None),
    ]


SLOWER = fails("slower", status=429, reason="rate_limit_exceeded", retry_after_s=1.0)


@pytest.mark.parametrize("headers", [{"Idempotency-Key": "slower"}, {}], ids=["keyed", "plain"])
async def test_a_client_is_told_when_to_come_back_only_as_long_as_it_may(
    store: Store, headers: dict[str, str]
) -> None:
    """It used to be told to come back in a second, and not to come back."""
    world, name = World(ACT, *[SLOWER] * 4, store=store), f"slower-{len(headers)}"
    async with world.serving() as server:
        told = [await server.chat("Do it", to=name, headers=headers) for _ in range(5)]
        items = await world.said(server, name)
    assert {each.status for each in told} == {429}
    asked = [(each.headers["x-should-retry"], each.headers.get("retry-after")) for each in told]
    assert asked == [("true", "1")] * 3 + [("false", None)] * 2
    assert items == ["Do it", "Let me do it."] and world.tool.runs == 1


async def test_the_same_request_without_a_key_goes_on_too() -> None:
    """It used to store the message twice, and to run the tool again."""
    world = World(ACT, NO, "Done.", "Again?")
    async with world.serving() as server:
        first = await server.chat("Do it", to="trip")
        again = await server.chat("Do it", to="trip")
        items = await world.said(server)
        new = await server.chat("Do it", to="trip")
    assert (first.status, again.status, again.text) == (502, 200, "Let me do it.\n\nDone.")
    assert first.headers["x-should-retry"] == "true"
    assert items == ["Do it", "Let me do it.", "Done."] and world.tool.runs == 1
    assert new.text == "Again?", "an answer that arrived is not retried"


async def test_an_sdks_retry_goes_on_too() -> None:
    world = World(ACT, NO, NO, "Done.")
    async with world.serving() as server:
        answers = [
            await server.chat("Do it", to="trip", headers={"x-stainless-retry-count": str(n)})
            for n in range(3)
        ]
        items = await world.said(server)
    assert [each.status for each in answers] == [502, 502, 200]
    assert [each.headers.get("x-should-retry") for each in answers] == ["true", "true", None]
    assert items == ["Do it", "Let me do it.", "Done."] and world.tool.runs == 1


async def test_an_sdks_retry_behind_another_message_is_told_what_is_stored() -> None:
    """It used to store the message twice, and to run the tool again."""
    world = World(ACT, NO, "Well.", "Again?")
    async with world.serving() as server:
        first = await server.chat("Do it", to="trip", headers={"x-stainless-retry-count": "0"})
        await server.chat("Well?", to="trip")
        again = await server.chat("Do it", to="trip", headers={"x-stainless-retry-count": "1"})
        items = await world.said(server)
    assert (first.status, first.headers["x-should-retry"]) == (502, "true")
    assert (again.status, again.headers["x-should-retry"]) == (502, "false")
    assert again.headers["x-turn-id"] == first.headers["x-turn-id"]
    assert items == ["Do it", "Let me do it.", "Well?", "Well."] and world.tool.runs == 1


async def test_an_sdks_retry_that_waits_for_another_message_is_told_what_is_stored() -> None:
    gate = Gate()
    world = World(ACT, NO, says("We", "ll.").waiting(gate, at=1), "Again?")
    async with world.serving() as server:
        first = await server.chat("Do it", to="trip", headers={"x-stainless-retry-count": "0"})
        other = asyncio.create_task(server.chat("Well?", to="trip"))
        await gate.reached.wait()
        retry = server.chat("Do it", to="trip", headers={"x-stainless-retry-count": "1"})
        again = asyncio.create_task(retry)
        await until(lambda: server.sessions.load().waiting == 1)
        gate.release()
        told, _ = await again, await other
        items = await world.said(server)
    assert (told.status, told.headers["x-should-retry"]) == (502, "false")
    assert told.headers["x-turn-id"] == first.headers["x-turn-id"]
    assert items == ["Do it", "Let me do it.", "Well?", "Well."] and world.tool.runs == 1


@pytest.mark.parametrize(
    ("steers", "again"),
    [
        (["Quickly"], ["Do it", "Quickly"]),
        (["Quickly"], ["Quickly"]),
        (["Quickly"], ["Do it"]),
        (["Quickly", "Please"], ["Do it", "Quickly", "Please"]),
        (["Quickly", "Please"], ["Do it", "Quickly"]),
    ],
    ids=["everything", "what is new", "the turn's own request", "the last one", "an earlier one"],
)
async def test_what_was_steered_in_goes_on_with_the_turn_that_has_heard_it(
    steers: list[str], again: list[str]
) -> None:
    """A page that sends everything again used to have it all stored twice, and the tool run again."""
    world = World(ACT, NO, "Done.", "Again?")
    async with steered_and_failed(world, *steers) as (server, failed):
        answer = await server.chat(*again, to="trip", headers={"X-On-Busy": "steer"})
        items = await world.said(server)
        new = await server.chat(*again, to="trip")
    assert answer.headers["x-turn-continues"] == failed.headers["x-turn-id"]
    assert items == ["Do it", "Let me do it.", *steers, "Done."] and world.tool.runs == 1
    assert new.text == "Again?", "an answer that arrived is not retried"


async def test_what_was_steered_in_joins_the_turn_that_goes_on() -> None:
    gate = Gate()
    world = World(ACT, NO, says("Do", "ne.").waiting(gate, at=1))
    async with steered_and_failed(world, "Quickly") as (server, failed):
        again = asyncio.create_task(server.chat("Do it", "Quickly", to="trip"))
        await gate.reached.wait()
        third = server.chat("Do it", "Quickly", to="trip", headers={"X-On-Busy": "steer"})
        joined = asyncio.create_task(third)
        await until(lambda: server.sessions._owner.playing[0]._clients >= 2)
        gate.release()
        answers = await asyncio.gather(again, joined)
        items = await world.said(server)
    assert {each.headers["x-turn-continues"] for each in answers} == {failed.headers["x-turn-id"]}
    assert items == ["Do it", "Let me do it.", "Quickly", "Done."] and world.tool.runs == 1


@pytest.mark.parametrize("again", [["Do it", "Slowly"], ["Slowly", "Quickly"], ["Do it, please"]])
async def test_what_was_not_steered_in_is_new(again: list[str]) -> None:
    world = World(ACT, NO, "Well.")
    async with steered_and_failed(world, "Quickly") as (server, _):
        answer = await server.chat(*again, to="trip")
    assert answer.text == "Well." and "x-turn-continues" not in answer.headers


@pytest.mark.parametrize("headers", [{"If-Match": '"1"'}, {"Idempotency-Key": "k-2"}])
async def test_what_was_steered_in_is_new_under_a_key_or_at_a_version(
    headers: dict[str, str],
) -> None:
    world = World(ACT, NO, "Well.")
    async with steered_and_failed(world, "Quickly") as (server, _):
        answer = await server.chat("Quickly", to="trip", headers=headers)
    assert answer.text == "Well." and "x-turn-continues" not in answer.headers


async def test_what_was_steered_in_is_new_again_after_ten_minutes() -> None:
    world = World(ACT, NO, "Well.")
    async with steered_and_failed(world, "Quickly") as (server, _):
        world.clock.advance(limits.unfinished_retry_s + 1)
        await server.sessions.lease.renew()
        answer = await server.chat("Quickly", to="trip")
    assert answer.text == "Well." and "x-turn-continues" not in answer.headers


def has_signals(world: World, n: int) -> bool:
    assert isinstance(world.store, MemoryStore)
    return bool(world.store.db.execute("select count(*) from signal").get == n)


@contextlib.asynccontextmanager
async def steered_and_failed(world: World, *steers: str) -> AsyncIterator[tuple[Serving, Answer]]:
    """A turn that has heard these messages while its tool ran, and failed then: `Do it`, and a page that sends all."""
    world.tool = HeldTool()
    async with world.serving() as server:
        asked = [asyncio.create_task(server.chat("Do it", to="trip"))]
        await world.tool.begun.wait()
        for n in range(1, len(steers) + 1):
            steer = server.chat("Do it", *steers[:n], to="trip", headers={"X-On-Busy": "steer"})
            asked.append(asyncio.create_task(steer))
            await until(partial(has_signals, world, n))
        world.tool.let_go.set()
        failed = await asyncio.gather(*asked)
        assert {each.status for each in failed} == {502}
        yield server, failed[0]


async def test_what_is_played_is_the_failed_step_again_and_nothing_of_what_broke_off() -> None:
    broken = says("Half a ", "word").failing(ModelFailed("no", status=500), at=1)
    world = World(ACT, broken, "Done.", "Sure.")
    async with world.serving() as server:
        await server.chat("Do it", to="trip", stream=True)
        again = await server.chat("Do it", to="trip", stream=True)
        await server.chat("And now?", to="trip")
        shown = await world.said(server)
    assert again.streamed == "Let me do it.\n\nDone."
    assert world.prompt(2) == world.prompt(1), "the step is asked as it was"
    assert [words for _, words in world.prompt(3)] == [
        "Do it",
        "Let me do it.",
        "done",
        "Done.",
        "And now?",
    ]
    assert shown[2] == "Half a ", "people still see what broke off"


async def test_a_message_that_is_new_is_told_what_was_left_open() -> None:
    world = World(ACT, NO, "Well.")
    async with world.serving() as server:
        await server.chat("Do it", to="trip")
        await server.chat("Well?", to="trip")
    assert "interrupted" in str(world.prompt(2)[-2][1])
    assert world.prompt(2)[-1] == ("user", "Well?")


async def test_whoever_retries_with_everything_is_not_told_that_nothing_is_new() -> None:
    """The client resends the conversation, and its last message is in it already."""
    world = World("Hello.", ACT, NO, "Done.")
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    async with world.serving() as server:
        await server.chat("Hi", to="trip")
        failed = await server.chat(*history, "Do it", to="trip")
        again = await server.chat(*history, "Do it", to="trip")
        items = await world.said(server)
    assert (failed.status, again.status) == (502, 200)
    assert items == ["Hi", "Hello.", "Do it", "Let me do it.", "Done."]


async def test_a_retry_stands_before_the_version_that_it_wanted() -> None:
    world = World(ACT, NO, "Done.")
    headers = {"If-Match": '"0"', "X-On-Busy": "reject"}
    async with world.serving() as server:
        await server.chat("Do it", to="trip", headers=headers)
        again = await server.chat("Do it", to="trip", headers=headers)
    assert again.status == 200


async def test_it_goes_on_on_a_server_that_remembers_nothing() -> None:
    world = World(ACT, NO, "Done.")
    async with world.serving() as server:
        first = await server.chat("Do it", to="trip")
    async with world.serving() as server:
        again = await server.chat("Do it", to="trip")
        items = await world.said(server)
    assert (first.status, again.status) == (502, 200)
    assert items == ["Do it", "Let me do it.", "Done."]


async def test_retries_that_come_together_are_one() -> None:
    gate = Gate()
    world = World(ACT, NO, says("Done.").waiting(gate, at=0))
    async with world.serving() as server:
        await server.chat("Do it", to="trip")
        headers = {"X-On-Busy": "reject"}
        one = asyncio.create_task(server.chat("Do it", to="trip", headers=headers))
        await gate.reached.wait()
        two = asyncio.create_task(server.chat("Do it", to="trip", headers=headers))
        await until(lambda: server.sessions._owner.playing[0]._clients >= 2)
        gate.release()
        answers = await asyncio.gather(one, two)
    assert [each.text for each in answers] == ["Let me do it.\n\nDone."] * 2
    assert len(world.model.prompts) == 3


# ── what does not go on by itself ────────────────────────────────────────────────────────────


async def test_after_three_continuations_a_key_tells_what_is_stored() -> None:
    world = World(ACT, *[NO] * 4)
    async with world.serving() as server:
        answers = [await server.chat("Do it", to="trip", headers=KEY) for _ in range(6)]
        keyless = await server.chat("Do it", to="trip")
        items = await world.said(server)
    assert {each.status for each in answers} == {502}
    retries = [each.headers["x-should-retry"] for each in answers]
    assert retries == ["true", "true", "true", "false", "false", "false"]
    assert len(world.model.prompts) == 5 and world.tool.runs == 1
    assert items == ["Do it", "Let me do it."]
    assert keyless.body == answers[-1].body, "nor is it said again without the key"


async def test_continuations_that_act_count_as_well() -> None:
    world = World(ACT, NO, ACT, NO, ACT, NO, ACT, NO)
    async with world.serving() as server:
        answers = [await server.chat("Do it", to="trip", headers=KEY) for _ in range(5)]
    assert [each.headers["x-should-retry"] for each in answers] == ["true"] * 3 + ["false"] * 2
    assert world.tool.runs == 4


@pytest.mark.parametrize(
    "failure",
    [
        fails(status=401, reason="invalid_api_key", transient=False),
        fails(status=400, reason="content_policy_violation", transient=False),
        fails(status=429, reason="insufficient_quota", transient=False),
    ],
)
async def test_what_does_not_pass_is_told_again_and_a_person_can_go_on(failure: Script) -> None:
    world = World(ACT, failure, "Done.")
    async with world.serving() as server:
        answers = [await server.chat("Do it", to="trip") for _ in range(3)]
        keyed = await server.chat("Do it", to="trip", headers={"x-stainless-retry-count": "1"})
        begun = await go_on(server, answers[0].headers["x-turn-id"])
        ended = await server.ended_turn(begun.json["id"])
        items = await world.said(server)
    assert len({each.body for each in (*answers, keyed)}) == 1
    assert {each.headers["x-should-retry"] for each in answers} == {"false"}
    assert ended["ended_by"] == "completed"
    assert items == ["Do it", "Let me do it.", "Done."] and world.tool.runs == 1


async def test_a_request_under_a_fresh_key_is_new() -> None:
    world = World(ACT, NO, "Done.")
    async with world.serving() as server:
        await server.chat("Do it", to="trip", headers=KEY)
        new = await server.chat("Do it", to="trip", headers={"Idempotency-Key": "k-2"})
        items = await world.said(server)
    assert new.text == "Done." and items == ["Do it", "Let me do it.", "Do it", "Done."]


async def test_the_same_words_after_ten_minutes_are_new() -> None:
    """A job that says the same every day is no retry."""
    world = World(ACT, NO, "Done.")
    async with world.serving() as server:
        await server.chat("Do it", to="trip")
        world.clock.advance(limits.unfinished_retry_s + 1)
        await server.sessions.lease.renew()
        new = await server.chat("Do it", to="trip")
        items = await world.said(server)
    assert new.text == "Done." and items == ["Do it", "Let me do it.", "Do it", "Done."]


async def test_after_the_head_has_moved_a_key_tells_what_is_stored() -> None:
    world = World(ACT, NO, "Well.")
    async with world.serving() as server:
        first = await server.chat("Do it", to="trip", headers=KEY)
        await server.chat("Well?", to="trip")
        again = await server.chat("Do it", to="trip", headers=KEY)
        late = await go_on(server, first.headers["x-turn-id"])
    assert again.json == first.json | {"error": again.error}
    assert (again.status, again.headers["x-should-retry"]) == (502, "false")
    assert (late.status, late.error["code"]) == (409, "turn_not_head")


@pytest.mark.parametrize("how", ["reset", "rewind"])
async def test_a_name_that_means_another_session_by_now_continues_nothing(how: str) -> None:
    world = World("Hello.", ACT, NO)
    async with world.serving() as server:
        await server.chat("Hi", to="trip")
        await server.chat("Do it", to="trip", headers=KEY)
        body = msgspec.json.encode({"version": 1} if how == "rewind" else {})
        await server.request("POST", f"/api/sessions/trip/{how}", data=body)
        again = await server.chat("Do it", to="trip", headers=KEY)
    assert (again.status, again.headers["x-should-retry"]) == (502, "false")


async def test_a_fork_holds_it_as_plain_history() -> None:
    world = World(ACT, NO, "Well.")
    async with world.serving() as server:
        first = await server.chat("Do it", to="trip")
        fork = (await server.request("POST", "/api/sessions/trip/fork")).json["id"]
        new = await server.chat("Do it", to=fork)
        items = await world.said(server, fork)
    assert (first.status, new.text) == (502, "Well.")
    assert items == ["Do it", "Let me do it.", "Do it", "Well."]


@pytest.mark.parametrize("policy", ["keep", "discard"])
async def test_after_a_stop_the_same_words_are_new(policy: str) -> None:
    gate = Gate()
    world = World(ACT, says("Never.").waiting(gate, at=0), "Done.")
    headers = {"X-Turn-Policy": f"cancel={policy}"}
    async with world.serving() as server:
        first = asyncio.create_task(server.chat("Do it", to="trip", headers=headers))
        await gate.reached.wait()
        (live,) = server.sessions._owner.playing
        await server.request("POST", f"/api/turns/{live.fence.turn_id}/cancel")
        stopped = await first
        new = await server.chat("Do it", to="trip", headers=headers)
        items = await world.said(server)
    assert stopped.error["code"] == "turn_cancelled" and new.text == "Done."
    assert items.count("Do it") == (2 if policy == "keep" else 1)


# ── by hand ──────────────────────────────────────────────────────────────────────────────────


async def go_on(server: Serving, turn_id: str, **headers: str) -> Answer:
    return await server.request("POST", f"/api/turns/{turn_id}/continue", headers=headers)


async def test_a_person_continues_a_turn_by_its_id() -> None:
    world = World(ACT, NO, "Done.")
    async with world.serving() as server:
        first = await server.chat({"role": "system", "content": "Be brief."}, "Do it", to="trip")
        turn_id = first.headers["x-turn-id"]
        begun = await go_on(server, turn_id)
        ended = await server.ended_turn(begun.json["id"])
        late = await go_on(server, turn_id)
        whole = await go_on(server, begun.json["id"])
        items = await world.said(server)
    assert (begun.status, begun.json["continues"]) == (202, turn_id)
    assert (ended["state"], ended["ended_by"]) == ("committed", "completed")
    assert items == ["Do it", "Let me do it.", "Done."] and world.tool.runs == 1
    assert "Be brief." in world.model.prompts[2].system, "as the request was"
    assert (late.status, late.error["code"]) == (409, "turn_not_head")
    assert (whole.status, whole.error["code"]) == (409, "turn_complete")


async def test_what_a_person_continues_is_joined_and_answers_retries() -> None:
    gate = Gate()
    world = World(ACT, NO, says("Done.").waiting(gate, at=0))
    async with world.serving() as server:
        first = await server.chat("Do it", to="trip", headers=KEY)
        turn_id = first.headers["x-turn-id"]
        begun = await go_on(server, turn_id)
        joined = await go_on(server, turn_id)
        await gate.reached.wait()
        retry = asyncio.create_task(server.chat("Do it", to="trip", headers=KEY))
        await until(lambda: server.sessions._owner.playing[0]._clients >= 1)
        gate.release()
        answer = await retry
    assert begun.json["id"] == joined.json["id"] == answer.headers["x-turn-id"]
    assert answer.text == "Let me do it.\n\nDone."


async def test_a_person_may_go_on_after_a_stop_and_after_a_limit() -> None:
    gate = Gate()
    world = World(ACT, says("Never.").waiting(gate, at=0), "Done.", says("Long", finish="length"))
    world.model.will("er.")
    async with world.serving() as server:
        first = asyncio.create_task(server.chat("Do it", to="trip"))
        await gate.reached.wait()
        (live,) = server.sessions._owner.playing
        await server.request("POST", f"/api/turns/{live.fence.turn_id}/cancel")
        await first
        stopped = await go_on(server, live.fence.turn_id)
        await server.ended_turn(stopped.json["id"])
        cut = await server.chat("Tell me", to="trip")
        longer = await go_on(server, cut.headers["x-turn-id"])
        await server.ended_turn(longer.json["id"])
        items = await world.said(server)
    assert items == ["Do it", "Let me do it.", "Done.", "Tell me", "Long", "er."]


@pytest.mark.parametrize(
    "failure", [NO, fails(status=401, reason="invalid_api_key", transient=False)]
)
async def test_where_no_retry_goes_on_the_failure_says_how_to(failure: Script) -> None:
    """It used to name no way on, and the turn that it named led to the advice to send the request again."""
    tries = 4 if failure is NO else 1
    world = World(ACT, *([failure] * tries), "Done.")
    async with world.serving() as server:
        told = [await server.chat("Do it", to="trip", headers=KEY) for _ in range(5)]
        kept = told[0].headers["x-turn-id"]
        discarded = [each["id"] for each in await server.turns("trip") if each["version"] is None]
        begun = await go_on(server, (*discarded, kept)[0])
        ended = await server.ended_turn(begun.json["id"])
    assert len(discarded) == tries - 1
    assert f"POST /api/turns/{kept}/continue" in told[-1].error["message"]
    assert f"`holdfast turns continue {kept}`" in told[-1].error["message"]
    assert (begun.status, begun.json["continues"], ended["ended_by"]) == (202, kept, "completed")
    assert world.tool.runs == 1


async def test_a_continuation_that_was_the_last_says_how_to_go_on() -> None:
    """It was discarded itself; what can be continued is the turn before it."""
    world = World(ACT, *([NO] * 4))
    async with world.serving() as server:
        told = [await server.chat("Do it", to="trip", headers=KEY) for _ in range(4)]
    kept = told[0].headers["x-turn-id"]
    assert [each.headers["x-should-retry"] for each in told] == ["true", "true", "true", "false"]
    assert told[-1].headers["x-turn-id"] != kept
    assert f"/api/turns/{kept}/continue" in told[-1].error["message"]
    assert not any("To go on" in each.error["message"] for each in told[:-1])


@pytest.mark.parametrize("how", ["chat", "response"])
async def test_what_is_not_stored_is_not_said_to_be_kept(how: str) -> None:
    world = World(ACT, NO)
    async with world.serving() as server:
        if how == "chat":
            told = await server.chat("Do it")
        else:
            told = await server.respond("Do it", store=False)
    assert told.error["message"].endswith("Nothing was stored, though a tool has acted.")
    assert told.headers["x-should-retry"] == "false"


async def test_what_was_not_kept_is_not_continued() -> None:
    world = World(NO)
    async with world.serving() as server:
        failed = await server.chat("Hi", to="trip")
        none = await go_on(server, failed.headers["x-turn-id"])
        unknown = await go_on(server, "turn_01m7fex2vh0000000000000004")
    assert (none.status, none.error["code"]) == (409, "turn_not_kept")
    assert (unknown.status, unknown.error["code"]) == (404, "turn_not_found")


# ── Responses ────────────────────────────────────────────────────────────────────────────────


def output(response: Any) -> list[str]:
    return [
        part["text"]
        for each in response["output"]
        if each["type"] == "message"
        for part in each["content"]
    ]


@pytest.mark.parametrize("key", [None, "k-1"])
@pytest.mark.parametrize("how", ["conversation", "previous", "forked"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_gone_on_with_in_its_own_line(
    key: str | None, how: str, stream: bool
) -> None:
    """By its previous response it used to fork, and to run the tools again."""
    world = (
        World("Hello.", "Other.", ACT, NO, "Done.")
        if how == "forked"
        else World("Hello.", ACT, NO, "Done.")
    )
    headers = {"Idempotency-Key": key} if key else {}
    async with world.serving() as server:
        hello = (await server.respond("Hi")).json
        body: dict[str, Any] = {"previous_response_id": hello["id"], "stream": stream}
        if how == "conversation":
            made = (await server.request("POST", "/v1/conversations", data=b"{}")).json
            body = {"conversation": made["id"], "stream": stream}
        if how == "forked":
            await server.respond("Elsewhere", previous_response_id=hello["id"])
        first = await server.respond("Do it", headers=headers, **body)
        again = await server.respond("Do it", headers=headers, **body)
        lines = await server.sessions.store.stats()
        got = again.named_events[-1]["response"] if stream else again.json
        stored = (await server.get(f"/v1/responses/{got['id']}")).json
        replay = await server.get(f"/v1/responses/{got['id']}?stream=true")
        failed = (await server.get("/v1/responses/" + resp(first.headers["x-turn-id"]))).json
        given = (await server.get(f"/v1/responses/{got['id']}/input_items")).json["data"]
    if stream:
        assert first.named_events[-1]["type"] == "response.failed"
    else:
        assert (first.status, first.headers["x-should-retry"]) == (502, "true")
    assert again.status == 200
    assert again.headers["x-session-id"] == first.headers["x-session-id"]
    assert output(got) == ["Let me do it.", "Done."] == output(stored)
    assert output(replay.named_events[-1]["response"]) == ["Let me do it.", "Done."]
    if stream and key:  # of others, what was shown while it grew is not kept
        assert again.named_events == replay.named_events
    assert failed["status"] == "failed" and got["status"] == "completed"
    assert (
        got["previous_response_id"]
        == stored["previous_response_id"]
        == body.get("previous_response_id")
    )
    assert [each["content"][0]["text"] for each in given if each["type"] == "message"][-1:] == [
        "Do it"
    ]
    assert world.tool.runs == 1
    assert lines.sessions == {"conversation": 2, "previous": 1, "forked": 2}[how]


async def test_a_response_that_is_asked_for_again_forks_nothing_on_any_store(store: Store) -> None:
    world = World("Hello.", ACT, NO, "Done.", store=store)
    async with world.serving() as server:
        hello = (await server.respond("Hi")).json
        first = await server.respond("Do it", previous_response_id=hello["id"])
        again = await server.respond("Do it", previous_response_id=hello["id"])
    assert (first.status, again.status) == (502, 200)
    assert again.headers["x-session-id"] == first.headers["x-session-id"]
    assert again.headers["x-turn-continues"] == first.headers["x-turn-id"]
    assert output(again.json) == ["Let me do it.", "Done."]
    assert world.tool.runs == 1


def resp(turn_id: str) -> str:
    return turn_id.replace("turn_", "resp_")


async def test_the_first_response_of_a_line_that_nobody_names_is_new_each_time() -> None:
    world = World(ACT, NO, "Done.")
    async with world.serving() as server:
        first = await server.respond("Do it")
        again = await server.respond("Do it")
    assert first.headers["x-should-retry"] == "false"
    assert again.headers["x-session-id"] != first.headers["x-session-id"]


async def test_a_response_in_the_background_is_gone_on_with_under_its_key() -> None:
    world = World(ACT, NO, "Done.")
    async with world.serving() as server:
        first = await server.respond("Do it", headers=KEY, background=True)
        await server.ended_turn(first.headers["x-turn-id"])
        again = await server.respond("Do it", headers=KEY, background=True)
        await server.ended_turn(again.headers["x-turn-id"])
        done = (await server.get(f"/v1/responses/{again.json['id']}")).json
        failed = (await server.get(f"/v1/responses/{first.json['id']}")).json
    assert again.json["id"] != first.json["id"]
    assert (failed["status"], done["status"]) == ("failed", "completed")
    assert output(done) == ["Let me do it.", "Done."] and world.tool.runs == 1


async def test_a_failure_that_was_told_as_an_event_is_not_an_answer_that_arrived() -> None:
    broken = says("Half a ", "word").failing(ModelFailed("no", status=500), at=1)
    world = World(ACT, broken, "Done.")
    async with world.serving() as server:
        made = (await server.request("POST", "/v1/conversations", data=b"{}")).json
        first = await server.respond("Do it", conversation=made["id"], stream=True)
        again = await server.respond("Do it", conversation=made["id"], stream=True)
    assert first.named_events[-1]["type"] == "response.failed"
    assert output(again.named_events[-1]["response"]) == ["Let me do it.", "Done."]


# ── limits, keys of calls ────────────────────────────────────────────────────────────────────


async def test_limits_are_counted_over_what_retries_have_continued() -> None:
    world = World(ACT, NO, ACT, NO, ACT)
    async with world.serving() as server:
        body = {"max_tool_calls": 2}
        made = (await server.request("POST", "/v1/conversations", data=b"{}")).json
        answers = [await server.respond("Do it", conversation=made["id"], **body) for _ in range(3)]
    assert [each.status for each in answers] == [502, 502, 200]
    assert answers[-1].json["status"] == "incomplete"
    assert world.tool.runs == 2


class Paying(HeldTool):
    """A tool that may be asked twice under one key, and does not come back the first time."""

    def __init__(self) -> None:
        super().__init__("pay")
        self.spec = msgspec.structs.replace(self.spec, idempotent=True)
        self.keys: list[str] = []

    async def run(self, run: ToolRun) -> ToolOutput:
        self.keys.append(run.call_key)
        if len(self.keys) == 1:
            return await super().run(run)
        return ToolOutput(content=plain_text("paid"))


async def test_an_idempotent_call_whose_outcome_is_unknown_is_offered_its_old_key() -> None:
    """The client went away while the tool ran. Whoever goes on asks anew, and the tool can tell."""
    pay = says(calls=[("pay", "{}")])
    model, tool = ScriptedModel(pay, pay, pay, "Paid."), Paying()
    async with serving(agent(model, tool)) as server:
        first = asyncio.create_task(server.chat("Pay", to="trip"))
        await tool.begun.wait()
        (live,) = server.sessions._owner.playing
        first.cancel()
        await live.done
        again = await server.chat("Pay", to="trip")
        items = await server.items("trip")
    calls = [each["id"] for each in items if each["type"] == "call"]
    assert again.text == "Paid."
    assert tool.keys == [calls[0], calls[0], calls[2]], "the key is handed on once"
    assert [each["outcome"] for each in items if each["type"] == "result"] == [
        "unknown",
        "ok",
        "ok",
    ]


# ── answers that would be empty ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_only_waits_for_a_person_says_so_and_is_known_again(
    stream: bool,
) -> None:
    model = ScriptedModel(says(calls=[("pay", '{"to":"you"}')]), "Very well.")
    held = careful(model, HeldTool("pay", held=False))
    async with serving(held) as server:
        asked = await server.chat("Pay", to="trip", stream=stream)
        words = asked.streamed if stream else asked.text
        resent = [
            {"role": "user", "content": "Pay"},
            {"role": "assistant", "content": words},
        ]
        after = await server.chat(*resent, "No, wait", to="trip")
        items = await server.items("trip")
    assert words.startswith("[Waiting for your approval] ") and '"to": "you"' in words
    assert "x-conversation-diverged" not in after.headers
    said = [each["content"][0]["text"] for each in items if each["type"] == "user"]
    assert said == ["Pay", "No, wait"]


async def test_after_an_answer_that_was_cut_by_its_length_no_note_is_shown() -> None:
    world = World(says("Long", finish="length"), "More.")
    async with world.serving() as server:
        cut = await server.chat("Tell me", to="trip")
        await server.chat("Go on", to="trip")
    assert cut.json["choices"][0]["finish_reason"] == "length"
    assert [words for _, words in world.prompt(1)] == ["Tell me", "Long", "Go on"]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_was_cut_by_its_length_is_one_text_with_its_continuations(
    stream: bool,
) -> None:
    """Also where more than one was needed; and who sends that text back is understood."""
    more = says("at noon, ", finish="length")
    world = World(ACT, says("The ship sails ", finish="length"), more)
    world.model.will(says("from Bergen.", calls=[("act", "{}")]))
    world.model.will("Done.")
    world.model.will("Sure.")
    async with world.serving() as server:
        told = await server.chat("Tell me", to="trip", headers=KEY, stream=stream)
        for _ in range(2):
            begun = await go_on(server, told.headers["x-turn-id"])
            await server.ended_turn(begun.json["id"])
            told = await server.chat("Tell me", to="trip", headers=KEY, stream=stream)
        text = told.streamed if stream else told.text
        history = [{"role": "user", "content": "Tell me"}, {"role": "assistant", "content": text}]
        after = await server.chat(*history, "And now?", to="trip")
        said = await world.said(server)
    assert text == "Let me do it.\n\nThe ship sails at noon, from Bergen.\n\nDone."
    assert after.text == "Sure." and "x-conversation-diverged" not in after.headers
    assert said.count("Tell me") == 1


async def test_a_continuation_that_begins_with_a_call_begins_a_paragraph() -> None:
    world = World(says("The ship", finish="length"), says(calls=[("act", "{}")]), "Done.")
    async with world.serving() as server:
        cut = await server.chat("Tell me", to="trip", headers=KEY)
        await server.ended_turn((await go_on(server, cut.headers["x-turn-id"])).json["id"])
        told = await server.chat("Tell me", to="trip", headers=KEY)
    assert told.text == "The ship\n\nDone."


async def test_whoever_resends_what_a_retry_was_answered_is_understood() -> None:
    broken = says("Half a ", "word").failing(ModelFailed("no", status=500), at=1)
    world = World(ACT, broken, "Done.", "Sure.")
    async with world.serving() as server:
        await server.chat("Do it", to="trip", stream=True)
        again = await server.chat("Do it", to="trip", stream=True)
        history = [
            {"role": "user", "content": "Do it"},
            {"role": "assistant", "content": again.streamed},
        ]
        after = await server.chat(*history, "And now?", to="trip")
        said = await world.said(server)
    assert after.text == "Sure." and "x-conversation-diverged" not in after.headers
    assert said.count("Do it") == 1


@pytest.mark.parametrize("continued", [False, True])
@pytest.mark.parametrize("kept", ["", "Let me do it.", "Let me do it.\n\nHalf a ", "with the rest"])
async def test_whoever_resends_what_broke_off_or_leaves_it_out_is_understood(
    kept: str, continued: bool
) -> None:
    """Also if a person has continued it meanwhile, and the client has seen the rest or not."""
    broken = says("Half a ", "word").failing(ModelFailed("no", status=500), at=1)
    world = World(ACT, broken, *(["Done."] if continued else []), "Sure.")
    async with world.serving() as server:
        first = await server.chat("Do it", to="trip", stream=True)
        if continued:
            begun = await go_on(server, first.headers["x-turn-id"])
            await server.ended_turn(begun.json["id"])
        if kept == "with the rest":
            kept = f"Let me do it.\n\nHalf a {'Done.' if continued else ''}"
        answer = [{"role": "assistant", "content": kept}] if kept else []
        asked = {"role": "user", "content": "Do it"}
        after = await server.chat(asked, *answer, "And now?", to="trip")
        said = await world.said(server)
    assert after.text == "Sure." and "x-conversation-diverged" not in after.headers
    rest = ["Done."] if continued else []
    assert said == ["Do it", "Let me do it.", "Half a ", *rest, "And now?", "Sure."]
