"""What goes wrong between requests (the table in ARCHITECTURE.md), against a real process, a real store and a real upstream."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import aiohttp
import httpx2
import openai
import pytest

from holdfast.testing import refuses, says
from tests.e2e.conftest import WORLDS, worlds_and
from tests.e2e.world import World, until

ANSWER = "This is the whole answer to {} "


async def say(world: World, said: str, *, to: str, stream: bool) -> str:
    """Say something as an SDK does; the answer's text. Raises what the SDK raises."""
    async with world.openai() as client:
        headers = {"X-Conversation-Id": to}
        messages: Any = [{"role": "user", "content": said}]
        if not stream:
            answer = await client.chat.completions.create(
                model="root", messages=messages, extra_headers=headers
            )
            return answer.choices[0].message.content or ""
        text = ""
        async for chunk in await client.chat.completions.create(
            model="root", messages=messages, extra_headers=headers, stream=True
        ):
            text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        return text


@worlds_and("stream", True, False)
async def test_a_request_that_fails_is_not_seen_by_the_next_one(world: World, stream: bool) -> None:
    await say(world, "first", to="trip", stream=stream)
    with pytest.raises(openai.APIError) as failed:
        await say(world, "fail", to="trip", stream=stream)
    assert failed.value.code == "upstream_error"
    if stream:
        with pytest.raises(openai.APIError):
            await say(world, "fail late", to="trip", stream=stream)
    assert await say(world, "after", to="trip", stream=stream) == ANSWER.format("after")

    expected = [["first"], ["first", "fail"]]
    expected += [["first", "fail late"]] if stream else []
    assert world.sent == [*expected, ["first", "after"]]

    await world.restart()
    assert await say(world, "later", to="trip", stream=stream) == ANSWER.format("later")
    assert world.sent[-1] == ["first", "after", "later"]
    await world.verify()


@WORLDS
async def test_half_an_answer_whose_client_has_gone_is_nothing(world: World) -> None:
    gate = world.hold("leave")
    async with world.streaming("leave", to="trip") as response:
        await response.content.readany()
        await gate.reached.wait()
    turn = await world.ended("trip")
    assert (turn["state"], turn["ended_by"]) == ("discarded", "disconnected")
    await until(lambda: world.upstream.requests[0].left_early)

    await world.restart()
    await say(world, "after", to="trip", stream=False)
    assert world.sent[-1] == ["after"]


@WORLDS
async def test_a_client_that_went_before_anything_was_said_leaves_nothing_either(
    world: World,
) -> None:
    gate = world.hold("leave")
    async with aiohttp.ClientSession() as http:
        asking = asyncio.create_task(
            http.post(
                f"{world.url}/v1/chat/completions",
                json={"model": "root", "messages": [{"role": "user", "content": "leave"}]},
                headers={"X-Conversation-Id": "trip"},
            )
        )
        await gate.reached.wait()
        asking.cancel()
        await asyncio.wait({asking})
    turn = await world.ended("trip")
    assert (turn["state"], turn["ended_by"]) == ("discarded", "disconnected")


@WORLDS
async def test_nothing_new_does_not_replay_the_turn_before(world: World) -> None:
    await say(world, "first", to="trip", stream=False)
    for messages in ([""], ["  "], [{"role": "user", "content": []}]):
        answer = await world.chat(*messages, to="trip")
        assert (answer.status, answer.error["code"]) == (400, "no_new_user_message")
    resent = await world.chat(
        "first", {"role": "assistant", "content": ANSWER.format("first")}, to="trip"
    )
    assert resent.status == 400
    assert len(world.sent) == 1


@WORLDS
async def test_two_first_requests_make_one_conversation(world: World) -> None:
    answers = await asyncio.gather(*(world.chat(f"n{n}", to="trip") for n in range(6)))
    assert {each.status for each in answers} == {200}
    assert len({each.headers["x-session-id"] for each in answers}) == 1

    await world.restart()
    await world.chat("last", to="trip")
    assert sorted(world.sent[-1][:-1]) == [f"n{n}" for n in range(6)]
    assert [len(each) for each in world.sent] == [1, 2, 3, 4, 5, 6, 7]


@WORLDS
async def test_a_follow_up_waits_for_the_turn_before_it(world: World) -> None:
    gate = world.hold("slow")
    first = asyncio.create_task(world.chat("slow", to="trip"))
    await gate.reached.wait()
    second = asyncio.create_task(world.chat("quick", to="trip"))
    rejected = await world.chat("no time", to="trip", headers={"X-On-Busy": "reject"})
    gate.release()
    assert (await first).status == (await second).status == 200
    assert (rejected.status, rejected.error["code"]) == (409, "conversation_locked")
    assert world.sent == [["slow"], ["slow", "quick"]]


@WORLDS
async def test_what_the_upstream_refuses_is_told_in_words_that_sdks_understand(
    world: World,
) -> None:
    expected = {
        "too often": (429, "rate_limit_exceeded", "true", openai.RateLimitError),
        "too long": (400, "context_length_exceeded", "false", openai.BadRequestError),
        "not allowed": (400, "content_policy_violation", "false", openai.BadRequestError),
        "wrong key": (502, "upstream_refused", "false", openai.InternalServerError),
        "no such model": (502, "upstream_refused", "false", openai.InternalServerError),
        "overloaded": (502, "upstream_error", "true", openai.InternalServerError),
    }
    for said, (status, code, retry, kind) in expected.items():
        for stream in (False, True):
            with pytest.raises(kind) as caught:
                await say(world, said, to="trip", stream=stream)
            assert (caught.value.status_code, caught.value.code) == (status, code)
            assert caught.value.response.headers["x-should-retry"] == retry
            if said == "too often":
                assert caught.value.response.headers["retry-after"] == "45"
    assert len(world.sent) == 2 * len(expected)
    assert await world.items("trip") == []


# ── stopping ─────────────────────────────────────────────────────────────────────────────────


async def cancel(world: World, name: str) -> dict[str, Any]:
    newest = (await world.turns(name))[0]
    answer = await world.request("POST", f"/api/turns/{newest['id']}/cancel")
    assert answer.status == 200
    found: dict[str, Any] = answer.json
    return found


@WORLDS
async def test_a_cancelled_answer_is_kept_as_far_as_it_came(world: World) -> None:
    gate = world.hold("long")
    waiting = asyncio.create_task(world.chat("long", to="trip"))
    await gate.reached.wait()
    turn = await cancel(world, "trip")
    answer = await waiting
    assert (turn["state"], turn["ended_by"]) == ("committed", "cancelled")
    assert (answer.status, answer.error["code"]) == (409, "turn_cancelled")

    await world.restart()
    await world.chat("after", to="trip")
    spoken = world.upstream.requests[-1].json["messages"]
    assert spoken[1]["content"] == "long"
    assert spoken[2]["role"] == "assistant" and spoken[2]["content"].startswith("This is")
    assert "interrupted" in str(spoken[3]["content"])
    assert spoken[-1]["content"] == "after"
    await world.verify()


@WORLDS
async def test_a_turn_cancelled_inside_a_tool_stays_well_formed(world: World) -> None:
    waiting = asyncio.create_task(world.chat("act now", to="trip"))
    await until(lambda: world.runs == 1)
    turn = await cancel(world, "trip")
    assert (turn["state"], turn["ended_by"]) == ("committed", "cancelled")
    assert (await waiting).status == 409
    world.let_tools_go()

    await world.restart()
    answer = await world.chat("after", to="trip")
    assert answer.status == 200
    spoken = world.upstream.requests[-1].json["messages"]
    calls = [call["id"] for m in spoken for call in m.get("tool_calls", [])]
    results = [m["tool_call_id"] for m in spoken if m["role"] == "tool"]
    assert calls == results and len(calls) == 1
    assert world.runs == 1
    await world.verify()


@WORLDS
async def test_a_turn_that_runs_out_of_time_inside_a_tool_does_not_deny_it(world: World) -> None:
    deadline_s = 0.7
    while True:
        await world.restart(HOLDFAST_TURN_DEADLINE_S=f"{deadline_s:g}")
        name = f"trip-{deadline_s:g}"
        answer = await world.chat("act slowly", to=name)
        assert (answer.status, answer.error["code"]) == (504, "turn_deadline_exceeded")
        if world.runs or deadline_s > 40:
            break
        deadline_s *= 4  # this machine needs longer to come to the tool
    assert answer.headers["x-should-retry"] == "true"  # it goes on with what was done
    assert world.runs == 1

    await world.restart()
    world.let_tools_go()
    assert (await world.chat("after", to=name)).status == 200
    spoken = world.upstream.requests[-1].json["messages"]
    (result,) = [m for m in spoken if m["role"] == "tool"]
    assert "unknown" in str(result["content"]).lower()
    assert world.runs == 1
    await world.verify()


# ── retries ──────────────────────────────────────────────────────────────────────────────────

KEY = {"Idempotency-Key": "7d8f"}


@WORLDS
async def test_a_keyed_request_is_one_turn_however_often_it_is_sent(world: World) -> None:
    gate = world.hold("once")
    first = asyncio.create_task(world.chat("once", to="trip", headers=KEY))
    await gate.reached.wait()
    while_it_runs = asyncio.create_task(world.chat("once", to="trip", headers=KEY))
    gate.release()
    one, two = await first, await while_it_runs
    after_its_end = await world.chat("once", to="trip", headers=KEY)
    other = await world.chat("twice", to="trip", headers=KEY)
    await world.restart()
    after_a_restart = await world.chat("once", to="trip", headers=KEY)
    assert one.status == 200
    assert one.body == two.body == after_its_end.body == after_a_restart.body
    assert (other.status, other.error["code"]) == (422, "idempotency_key_reused")
    assert world.sent == [["once"]]


@worlds_and("stream", True, False)
async def test_a_keyed_retry_pays_for_no_step_twice(world: World, stream: bool) -> None:
    """The model fails at the second of two steps. The first is not asked for again, nor is its tool run."""
    world.upstream.will(says("Let me see.", calls=[("look", "{}")]), refuses(500), "Cold.")
    first = await world.chat("weather?", to="trip", headers=KEY, stream=stream)
    assert (await world.turns("trip"))[0]["state"] == "discarded"
    assert (world.runs, len(world.sent)) == (1, 2)

    await world.restart()
    again = await world.chat("weather?", to="trip", headers=KEY, stream=stream)

    assert "Cold." not in first.body.decode()
    assert again.status == 200
    assert again.body.decode().count("Let me see.") == again.body.decode().count("Cold.") == 1
    assert (world.runs, len(world.sent)) == (1, 3)
    second, retry = (each.json["messages"] for each in world.upstream.requests[1:])
    assert second == retry, "the model is asked what it was asked before"
    assert (await world.turns("trip"))[0]["state"] == "committed"
    await world.verify()


@pytest.mark.parametrize("headers", [KEY, {}], ids=["keyed", "plain"])
@worlds_and("stream", True, False)
async def test_a_turn_that_fails_after_it_has_acted_is_finished_by_asking_again(
    world: World, headers: dict[str, str], stream: bool
) -> None:
    """The tool has acted, then the model fails. Nothing of it is done or said twice."""
    world.let_tools_go()
    world.upstream.will(says("Let me.", calls=[("act", "{}")]), refuses(500), refuses(500), "Done.")
    answers = []
    for _ in range(3):
        answers.append(await world.chat("act now", to="trip", headers=headers, stream=stream))
        await world.restart()

    assert all("Done." not in each.body.decode() for each in answers[:2])
    if not stream:
        assert [each.status for each in answers] == [502, 502, 200]
        assert answers[1].headers["x-should-retry"] == "true"
    text = answers[2].body.decode()
    assert text.count("Let me.") == text.count("Done.") == 1
    assert (world.runs, len(world.sent)) == (1, 4)
    first, *again = (each.json["messages"] for each in world.upstream.requests[1:])
    assert again == [first, first], "the model is asked what it was asked before"
    items = await world.items("trip")
    assert [each["type"] for each in items if each["type"] == "user"] == ["user"]
    ended = [(each["state"], each["ended_by"]) for each in await world.turns("trip")]
    assert ended == [
        ("committed", "completed"),
        ("discarded", "model_error"),
        ("committed", "model_error"),
    ]
    await world.verify()


@WORLDS
async def test_a_keyed_turn_goes_on_without_its_client_and_after_a_crash(world: World) -> None:
    gate = world.hold("important")
    async with world.streaming("important", to="trip", headers=KEY) as response:
        await response.content.readany()
        await gate.reached.wait()
    await world.kill()
    world.gates.clear()
    await world.start()
    answer = await world.chat("important", to="trip", headers=KEY, stream=True)
    assert answer.status == 200
    items = await world.items("trip")
    whole = [each for each in items if each.get("state") != "set_aside"]
    assert [each["type"] for each in whole] == ["user", "assistant"]
    assert world.sent == [["important"], ["important"]]
    await world.verify()


@WORLDS
async def test_an_sdk_whose_answer_is_lost_does_not_make_a_second_turn(world: World) -> None:
    """The SDK times out and repeats its request, which carries nothing but a counter."""
    gate = world.hold("slow")

    async with world.openai(max_retries=2, timeout=120) as client:
        original = client._client.send

        async def send(request: Any, **options: Any) -> Any:
            if request.headers["x-stainless-retry-count"] != "0":
                gate.release()
                return await original(request, **options)
            asking = asyncio.create_task(original(request, **options))
            await gate.reached.wait()
            asking.cancel()
            await asyncio.wait({asking})
            raise httpx2.ReadTimeout("nothing came for long", request=request)

        client._client.send = send  # type: ignore[method-assign]
        answer = await client.chat.completions.create(
            model="root",
            messages=[{"role": "user", "content": "slow"}],
            extra_headers={"X-Conversation-Id": "trip", "X-Turn-Policy": "disconnect=finish"},
        )
    assert answer.choices[0].message.content == ANSWER.format("slow")
    assert world.sent == [["slow"]]
    assert len(await world.items("trip")) == 2


@WORLDS
async def test_a_client_that_resends_everything_is_understood(world: World) -> None:
    history: list[Any] = []
    for said in ("one", "two", "three"):
        history.append({"role": "user", "content": said})
        answer = await world.chat(*history, to="trip")
        assert "x-conversation-diverged" not in answer.headers
        history.append(answer.json["choices"][0]["message"])
        if said == "two":
            await world.restart()
    assert world.sent == [["one"], ["one", "two"], ["one", "two", "three"]]


# ── crashes ──────────────────────────────────────────────────────────────────────────────────


@worlds_and("seed", *range(5))
async def test_whenever_the_server_is_killed_a_turn_is_there_whole_or_not_at_all(
    world: World, seed: int
) -> None:
    chance = random.Random(seed)
    world.pace_s = 0.005
    await say(world, "first", to="trip", stream=False)
    chunks = chance.choice((0, 1, 3, 6, 10, 99))
    said, finished = b"", False
    async with world.streaming("second", to="trip") as response:
        try:
            for _ in range(chunks):
                piece = await response.content.readany()
                said += piece
                if not piece:
                    break
        except aiohttp.ClientError:
            pass
        finished = b"[DONE]" in said
        await world.kill()
    await world.start()
    items = await world.items("trip")
    texts = [each["content"][0]["text"] for each in items]
    assert texts[:2] == ["first", ANSWER.format("first")]
    assert texts[2:] in ([], ["second", ANSWER.format("second")])
    assert texts[2:] or not finished, "what was acknowledged is there"
    assert (await world.chat("third", to="trip")).status == 200
    assert world.sent[-1] == ["first", *(["second"] if texts[2:] else []), "third"]
    await world.verify()
