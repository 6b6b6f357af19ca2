"""A person decides about a waiting call in an ordinary chat client, and nothing else does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast.agents.agent import Agent
from holdfast.core.items import Permissions
from holdfast.ids import Tenant, TurnId
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel, says
from tests.server.access.test_authentication import bearer, put_key
from tests.server.stubs import Answer, HeldTool, Serving, StubTools, agent, serving, until

WAITING = "[Waiting for your approval]"
UNDECIDED = "[Nothing was decided]"


def careful(model: ScriptedModel, *tools: HeldTool) -> Agent:
    made = agent(model)
    made.toolsets = (StubTools(*tools),)
    made.permissions = Permissions(ask=("pay",), allow=("look",))
    return made


def pays(*arguments: str) -> Any:
    calls = [("pay", each, f"call_{n}_{each}") for n, each in enumerate(arguments or ('{"kr":5}',))]
    return says("May I?", calls=calls)


class Chat:
    """A conversation in which a call waits, as an ordinary chat client has it."""

    def __init__(self, server: Serving, model: ScriptedModel, tool: HeldTool) -> None:
        self.server = server
        self.model = model
        self.tool = tool
        self.history: list[dict[str, Any]] = []

    async def say(self, text: str, *, to: str = "trip", **options: Any) -> Answer:
        """Send only what is new."""
        return await self.server.chat(text, to=to, **options)

    async def resend(self, text: str, *, to: str = "trip", **options: Any) -> Answer:
        """Send everything that the client shows, and keep what it is answered."""
        self.history.append({"role": "user", "content": text})
        answer = await self.server.chat(*self.history, to=to, **options)
        self.history.append({"role": "assistant", "content": answer.text})
        return answer

    async def outcomes(self) -> list[str]:
        items = await self.server.items("trip")
        return [each["outcome"] for each in items if each["type"] == "result"]

    def codes(self, text: str) -> list[str]:
        return [line[:-1] for line in text.split("\n") if len(line) == 3 and line.endswith(":")]


@asynccontextmanager
async def chat(*steps: Any, **options: Any) -> AsyncIterator[Chat]:
    tool = HeldTool("pay", held=False)
    model = ScriptedModel(*(steps or (pays(),)), otherwise=lambda _: "Very well.")
    options.setdefault("approve_in_chat", "auto")
    async with serving(careful(model, tool), **options) as server:
        yield Chat(server, model, tool)


# ── the question ─────────────────────────────────────────────────────────────────────────────


async def test_an_answer_ends_with_the_question_and_how_to_decide() -> None:
    async with chat() as here:
        asked = await here.say("Pay the bill")
    assert asked.text == (
        f'May I?\n\n{WAITING} This call has not run:\n\n```\npay {{\n  "kr": 5\n}}\n```\n\n'
        "Answer `yes` to run it, or `no` to refuse it. Any other message decides nothing."
    )
    assert asked.json["choices"][0]["finish_reason"] == "stop"
    assert [each["name"] for each in asked.json["holdfast"]["approvals"]] == ["pay"]


async def test_a_stream_has_the_same_question_and_so_has_an_answer_without_words_before_it() -> (
    None
):
    async with chat(pays(), says(calls=[("pay", '{"kr":5}')])) as here:
        asked = await here.say("Pay", stream=True)
        silent = await here.say("Pay", to="other")
    assert asked.streamed == f"May I?\n\n{silent.text}"
    assert silent.text.startswith(WAITING)


async def test_where_nobody_may_decide_in_the_chat_the_question_says_so() -> None:
    async with chat(approve_in_chat="off") as here:
        asked = await here.say("Pay")
        call = asked.json["holdfast"]["approvals"][0]["id"]
        turn = asked.headers["x-turn-id"]
        assert f"`holdfast approvals decide {turn} --approve {call}`" in asked.text
        assert asked.text.endswith("Any other message refuses it.")
        assert (await here.say("yes")).text == "Very well."
        assert await here.outcomes() == ["refused"]
    assert here.tool.runs == 0


async def test_where_nothing_is_stored_the_question_says_that_nobody_can_decide() -> None:
    async with chat(pays(), pays()) as here:
        asked = await here.server.chat("Pay")
        responded = await here.server.respond("Pay", store=False)
        yes = {"role": "user", "content": "yes"}
        told = [{"role": "assistant", "content": asked.text}, yes]
        assert (await here.server.chat("Pay", *told)).text == "Very well."
    for text in (asked.text, responded.json["output"][-1]["content"][0]["text"]):
        assert "Nothing of this conversation is stored" in text and "approvals decide" not in text
    assert here.tool.runs == 0


async def test_a_client_that_reads_fields_is_asked_in_fields() -> None:
    async with chat(pays(), "Fine.") as here:
        fields = {"X-Approvals": "fields"}
        asked = await here.say("Pay", headers=fields)
        assert asked.text == "May I?"
        assert (await here.say("yes", headers=fields)).text == "Fine."
        assert await here.outcomes() == ["refused"]


# ── what decides ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("word", ["yes", " Yes. ", "Y", "approve", "ALLOW!"])
async def test_a_yes_runs_the_call_once(word: str) -> None:
    async with chat() as here:
        await here.say("Pay")
        assert (await here.say(word)).text == "Very well."
        assert await here.outcomes() == ["ok"]
    assert here.tool.runs == 1


@pytest.mark.parametrize("word", ["yes", "no", "hm"])
async def test_a_person_may_decide_by_anthropics_api_too(word: str) -> None:
    async with chat() as here:

        async def say(*said: str) -> str:
            roles = ("user", "assistant", "user")
            messages = [{"role": r, "content": each} for r, each in zip(roles, said, strict=False)]
            body = {"model": "root", "max_tokens": 99, "messages": messages}
            answer = await here.server.request(
                "POST",
                "/v1/messages",
                headers={"X-Conversation-Id": "trip", "anthropic-version": "2023-06-01"},
                data=msgspec.json.encode(body),
            )
            return "".join(each["text"] for each in answer.json["content"])

        asked = await say("Pay")
        assert WAITING in asked
        answer = await say("Pay", asked, word)
        assert answer.startswith(UNDECIDED if word == "hm" else "Very well.")
        assert await here.outcomes() == {"yes": ["ok"], "no": ["refused"], "hm": []}[word]
    assert here.tool.runs == (word == "yes")


async def test_a_no_refuses_it() -> None:
    async with chat() as here:
        await here.say("Pay")
        assert (await here.say("no")).text == "Very well."
        assert await here.outcomes() == ["refused"]
    assert here.tool.runs == 0


async def test_people_see_the_word_and_models_see_neither_it_nor_the_question() -> None:
    async with chat() as here:
        await here.resend("Pay")
        await here.resend("hm?")
        await here.resend("yes")
        await here.resend("Thanks")
        items = await here.server.items("trip")
    said = [each["content"][0]["text"] for each in items if each["type"] == "user"]
    assert said == ["Pay", "yes", "Thanks"]
    told = str([here.model.messages(n) for n in range(len(here.model.prompts))])
    assert WAITING not in told and UNDECIDED not in told and "'yes'" not in told
    assert [each.role for each in here.model.messages(1)] == ["user", "assistant", "tool"]


async def test_a_client_that_resends_everything_is_understood() -> None:
    """It sends the questions back too, those that were repeated, and what decided nothing before them."""
    async with chat() as here:
        await here.resend("Pay")
        for text in ("Yes, but only 5", "hm"):
            assert (await here.resend(text)).text.startswith(UNDECIDED)
        decided = await here.resend("yes")
        thanked = await here.resend("Thanks")
        turns = await here.server.turns("trip")
    assert decided.text == thanked.text == "Very well."
    assert "x-conversation-diverged" not in thanked.headers
    assert len(turns) == 3
    assert here.tool.runs == 1


async def test_several_calls_are_decided_on_by_their_codes() -> None:
    async with chat(pays('{"kr":1}', '{"kr":2}')) as here:
        asked = await here.say("Pay both")
        first, second = here.codes(asked.text)
        for unclear in ("yes", "no", f"yes {first}", f"yes {first} {first}", f"{first} {second}"):
            assert (await here.say(unclear)).text.startswith(UNDECIDED)
        assert (await here.say(f"yes {first.lower()}, no {second}")).text == "Very well."
        assert sorted(await here.outcomes()) == ["ok", "refused"]
    assert here.tool.runs == 1


# ── what does not decide ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "said",
    [
        "Yes, but only 5",
        "yes please",
        "ok",
        "yes\u200b",
        "y\u200des",
        "\u202eyes",
        "ｙｅｓ",
        "уes",
        "yes 7K 2P",
        "yes\nno",
    ],
)
async def test_what_is_no_listed_word_decides_nothing_stores_nothing_and_is_asked_again(
    said: str,
) -> None:
    async with chat() as here:
        asked = await here.say("Pay")
        again = await here.say(said)
        streamed = await here.say(said, stream=True)
        turns = await here.server.turns("trip")
        assert await here.outcomes() == []
    assert again.status == 200
    assert again.text.startswith(UNDECIDED) and again.text.endswith(asked.text.partition("\n\n")[2])
    assert streamed.streamed == again.text
    assert again.json["holdfast"] == asked.json["holdfast"]
    assert again.json["id"] != asked.json["id"]
    assert len(turns) == 1 and len(here.model.prompts) == 1


async def test_a_picture_beside_the_word_is_more_than_the_word() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    async with chat() as here:
        await here.say("Pay")
        said = {"role": "user", "content": [{"type": "text", "text": "yes"}, picture]}
        assert (await here.server.chat(said, to="trip")).text.startswith(UNDECIDED)


async def test_an_old_yes_is_not_about_a_new_question() -> None:
    async with chat(pays(), pays('{"kr":900}')) as here:
        await here.resend("Pay")
        await here.resend("yes")
        assert here.tool.runs == 1
        *old, _ = here.history
        for messages in (old, [each for each in old if each["role"] == "user"]):
            answer = await here.server.chat(*messages, to="trip")
            assert answer.text.startswith(UNDECIDED)
            assert "900" in answer.text
        assert here.tool.runs == 1
        assert (await here.resend("yes")).text == "Very well."
    assert here.tool.runs == 2


async def test_an_old_yes_is_not_about_a_new_question_in_the_same_words() -> None:
    async with chat(pays(), pays()) as here:
        await here.resend("Pay")
        old = [*here.history, {"role": "user", "content": "yes"}]
        await here.resend("yes")
        assert (await here.server.chat(*old, to="trip")).text.startswith(UNDECIDED)
        assert here.tool.runs == 1
        assert (await here.resend("yes")).text == "Very well."
    assert here.tool.runs == 2


async def test_a_yes_that_waited_behind_the_asking_turn_decides_nothing() -> None:
    look, model = (
        HeldTool("look", read_only=True),
        ScriptedModel(says(calls=[("look", "{}")]), pays(), otherwise=lambda _: "Very well."),
    )
    pay = HeldTool("pay", held=False)
    async with serving(careful(model, look, pay), approve_in_chat="auto") as server:
        here = Chat(server, model, pay)
        asking = asyncio.create_task(here.say("Pay"))
        await look.begun.wait()
        early = asyncio.create_task(here.say("yes"))
        await until(lambda: bool(server.sessions._lanes.waiting))
        look.let_go.set()
        assert (await asking).text.startswith("May I?")
        assert (await early).text.startswith(UNDECIDED)
        assert pay.runs == 0
        assert (await here.say("yes")).text == "Very well."
    assert pay.runs == 1


async def test_a_steered_yes_decides_nothing() -> None:
    look = HeldTool("look", read_only=True)
    model = ScriptedModel(says(calls=[("look", "{}")]), pays(), otherwise=lambda _: "Very well.")
    pay = HeldTool("pay", held=False)
    async with serving(careful(model, look, pay), approve_in_chat="auto") as server:
        here = Chat(server, model, pay)
        asking = asyncio.create_task(here.say("Pay"))
        await look.begun.wait()
        steered = asyncio.create_task(here.say("yes", headers={"X-On-Busy": "steer"}))
        await until(lambda: any(each.turn.items for each in server.sessions._owner.live.values()))
        look.let_go.set()
        answers = (await asking, await steered)
        assert all(WAITING in each.text for each in answers)
        assert pay.runs == 0


async def test_before_the_question_was_received_nothing_decides() -> None:
    async with chat() as here:
        asked = await here.server.respond(
            "Pay", background=True, headers={"X-Conversation-Id": "trip"}
        )
        await here.server.ended_turn(asked.json["id"].replace("resp_", "turn_"))
        assert (await here.say("yes")).text == "Very well.", "it was asked in no chat"
        assert await here.outcomes() == ["refused"]
    store = MemoryStore()
    async with chat(store=store) as here:
        acknowledge = store.acknowledge

        async def lost(tenant: Tenant, turn_id: TurnId) -> None:
            """The answer never arrived."""

        store.acknowledge = lost  # type: ignore[method-assign]
        await here.say("Pay")
        store.acknowledge = acknowledge  # type: ignore[method-assign]
        assert (await here.say("yes")).text.startswith(UNDECIDED)
        assert here.tool.runs == 0
        assert (await here.say("yes")).text == "Very well.", "the question was received this time"
    assert here.tool.runs == 1
    await store.close()


async def test_a_fork_cannot_use_the_question() -> None:
    async with chat() as here:
        await here.say("Pay")
        fork = await here.server.request("POST", "/api/sessions/trip/fork")
        assert (await here.say("yes", to=fork.json["id"])).text == "Very well."
        assert here.tool.runs == 0
        assert (await here.say("yes")).text == "Very well."
    assert here.tool.runs == 1


async def test_a_keyed_retry_of_a_yes_is_the_same_yes() -> None:
    async with chat(pays(), pays('{"kr":900}')) as here:
        await here.say("Pay")
        key = {"Idempotency-Key": "k1"}
        first, again = [await here.say("yes", headers=key) for _ in range(2)]
        undecided = [await here.say("hm", headers={"Idempotency-Key": "k2"}) for _ in range(2)]
    assert first.text == again.text and "900" in first.text
    assert all(each.text.startswith(UNDECIDED) for each in undecided)
    assert here.tool.runs == 1


async def test_a_yes_that_an_sdk_repeats_decides_about_no_later_question() -> None:
    """The answer was sent, and lost behind a proxy: nobody has read what it asks."""
    async with chat(pays(), pays('{"kr":900}')) as here:
        await here.say("Pay")
        assert "900" in (await here.say("yes")).text
        for count in ("1", "2"):
            again = await here.say("yes", headers={"X-Stainless-Retry-Count": count})
            assert again.text.startswith(UNDECIDED) and "900" in again.text
        assert here.tool.runs == 1
        assert (await here.say("yes")).text == "Very well."
    assert here.tool.runs == 2


async def test_a_yes_in_the_result_of_a_tool_is_no_yes() -> None:
    tools = [{"type": "function", "function": {"name": "ask_user", "parameters": {}}}]
    both = says("May I?", calls=[("pay", "{}", "c1"), ("ask_user", "{}", "c2")])
    async with chat(both) as here:
        asked = await here.say("Pay", tools=tools)
        assert asked.json["choices"][0]["finish_reason"] == "tool_calls"
        assert "Any other message refuses it." in asked.text
        echo = {"role": "tool", "tool_call_id": "c2", "content": "yes"}
        assert (await here.server.chat(echo, to="trip", tools=tools)).status == 200
        assert "refused" in await here.outcomes()
    assert here.tool.runs == 0


async def test_items_that_are_written_into_a_conversation_decide_nothing() -> None:
    async with chat() as here:
        asked = await here.say("Pay")
        session = asked.headers["x-session-id"]
        call = asked.json["holdfast"]["approvals"][0]["id"].replace("fc_", "mcpr_")
        for item in (
            b'{"type":"mcp_approval_response","approval_request_id":"%b","approve":true}'
            % call.encode(),
            b'{"role":"user","content":"yes"}',
        ):
            await here.server.request(
                "POST", f"/v1/conversations/{session}/items", data=b'{"items":[%b]}' % item
            )
    assert here.tool.runs == 0


async def test_after_a_day_a_yes_is_a_message_like_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with chat() as here:
        await here.say("Pay")
        monkeypatch.setattr("holdfast.limits.approval_s", -1.0)
        assert (await here.say("yes")).text == "Very well."
        assert await here.outcomes() == ["refused"]
    assert here.tool.runs == 0


# ── chats with branches ──────────────────────────────────────────────────────────────────────


FOLLOW = {"X-History": "follow"}


async def branch(here: Chat, *said: str) -> str:
    """What a chat program is answered that sends this branch of its chat: questions and answers by turns."""
    roles = ("user", "assistant") * len(said)
    messages = [{"role": role, "content": each} for role, each in zip(roles, said, strict=False)]
    return (await here.server.chat(*messages, to="trip", headers=FOLLOW)).text


async def test_a_yes_whose_answer_is_regenerated_runs_no_call_of_another_branch() -> None:
    """The person has asked twice, was asked the same twice, and has said yes once."""
    silent = says(calls=[("pay", '{"kr":5}', "c1")])
    for question in (pays(), silent):
        async with chat(question, question) as here:
            asked = await branch(here, "Pay")
            assert await branch(here, "Pay") == asked
            for _ in range(3):
                assert await branch(here, "Pay", asked, "yes") == "Very well."
            assert here.tool.runs == 1


async def test_a_yes_is_about_the_question_of_its_branch() -> None:
    """The answers had no words of the model, and differ by their questions alone."""
    asks = [says(calls=[("pay", f'{{"kr":{n}}}', f"c{n}")]) for n in (5, 900)]
    async with chat(*asks) as here:
        small, large = [await branch(here, "Pay") for _ in range(2)]
        assert await branch(here, "Pay", small, "yes") == "Very well."
        assert await branch(here, "Pay", small, "yes") == "Very well."
        prompts = [str(here.model.messages(n)) for n in range(len(here.model.prompts))]
        assert here.tool.runs == 1 and not any("900" in each for each in prompts)
        assert await branch(here, "Pay", large, "no") == "Very well."
        assert "900" in str(here.model.messages(-1))
    assert here.tool.runs == 1


# ── keys ─────────────────────────────────────────────────────────────────────────────────────


async def test_only_the_key_that_was_asked_decides() -> None:
    store = MemoryStore()
    first, second = [bearer(await put_key(store, nth=n)) for n in (1, 2)]
    async with chat(store=store, auth="required", approve_in_chat="on") as here:
        await here.say("Pay", headers=first)
        other = await here.say("yes", headers=second)
        assert "another API key" in other.text and other.text.startswith(UNDECIDED)
        assert here.tool.runs == 0
        assert (await here.say("yes", headers=first)).text == "Very well."
    assert here.tool.runs == 1
    async with chat(store=store, auth="required", approve_in_chat="auto") as here:
        asked = await here.say("Pay", to="other", headers=first)
        assert "Any other message refuses it." in asked.text, "with keys it is off by default"
    await store.close()


async def test_what_was_said_in_a_chat_is_audited(caplog: pytest.LogCaptureFixture) -> None:
    async with chat() as here:
        await here.say("Pay")
        with caplog.at_level(logging.INFO, logger="holdfast.audit"):
            await here.say("hm")
            await here.say("yes", headers={"Idempotency-Key": "k"})
            await here.say("yes", headers={"Idempotency-Key": "k"})
    (line,) = [each for each in caplog.records if each.getMessage() == "approval.decide"]
    fields = line.fields  # type: ignore[attr-defined]
    assert fields["how"] == "said in chat" and fields["decision"] == "approved"


# ── Responses ────────────────────────────────────────────────────────────────────────────────


def kinds(output: list[dict[str, Any]]) -> list[str]:
    return [each["type"] for each in output]


def words(output: list[dict[str, Any]]) -> str:
    messages = (each["content"] for each in output if each["type"] == "message")
    return "".join(part["text"] for content in messages for part in content)


def approved(request: dict[str, Any], approve: bool = True, **more: Any) -> dict[str, Any]:
    named = {"approval_request_id": request["id"], "approve": approve}
    return {"type": "mcp_approval_response", **named, **more}


async def test_a_response_has_the_request_for_approval_live_replayed_and_later() -> None:
    async with chat(pays(), pays()) as here:
        asked = (await here.server.respond("Pay", conversation=None)).json
        live = (await here.server.respond("Pay", stream=True)).named_events
        streamed = live[-1]["response"]
        later = (await here.server.get(f"/v1/responses/{streamed['id']}")).json
        replayed = (
            await here.server.get(f"/v1/responses/{streamed['id']}?stream=true")
        ).named_events
    message, request, question = asked["output"]
    assert kinds(asked["output"]) == ["message", "mcp_approval_request", "message"]
    assert (request["server_label"], request["name"], request["arguments"]) == (
        "root",
        "pay",
        '{"kr":5}',
    )
    assert request["id"].startswith("mcpr_")
    assert WAITING in words([question]) and WAITING not in words([message])
    assert kinds(streamed["output"]) == kinds(asked["output"])
    assert streamed["output"] == later["output"] == replayed[-1]["response"]["output"]
    done = [each["item"] for each in live if each["type"] == "response.output_item.done"]
    assert done == streamed["output"]
    added = [each for each in live if each["type"].startswith("response.output_item")]
    assert [each["output_index"] for each in added] == [0, 0, 1, 1, 2, 2], "one item at a time"


async def test_a_response_to_the_request_decides_and_is_an_item_of_the_input() -> None:
    async with chat(pays(), "Paid.") as here:
        asked = (await here.server.respond("Pay")).json
        answer = approved(asked["output"][1])
        done = (await here.server.respond([answer], previous_response_id=asked["id"])).json
        assert words(done["output"]) == "Paid."
        assert here.tool.runs == 1
        page = (await here.server.get(f"/v1/responses/{done['id']}/input_items")).json["data"]
        assert [{**each, "id": ""} for each in page] == [{**answer, "id": "", "reason": None}]
        again = await here.server.respond([answer], previous_response_id=done["id"])
        assert (again.status, again.error["code"]) == (409, "approval_closed")
        told = str(here.model.messages(-1))
        assert [each.role for each in here.model.messages(-1)] == ["user", "assistant", "tool"], (
            told
        )
    assert here.tool.runs == 1


async def test_a_refusal_has_its_reason_and_the_agent_hears_of_it() -> None:
    async with chat(pays(), "As you wish.") as here:
        asked = (await here.server.respond("Pay")).json
        answer = approved(asked["output"][1], approve=False, reason="Too much.")
        await here.server.respond([answer], previous_response_id=asked["id"])
        assert "Too much." in str(here.model.messages(-1))
    assert here.tool.runs == 0


async def test_a_client_that_sends_all_items_back_is_understood_and_an_old_response_is_not_new() -> (
    None
):
    async with chat(pays(), pays('{"kr":900}')) as here:
        conversation = (await here.server.request("POST", "/v1/conversations", data=b"{}")).json
        name = {"conversation": conversation["id"]}
        told: list[dict[str, Any]] = [{"role": "user", "content": "Pay"}]
        asked = (await here.server.respond(told, **name)).json
        answer = approved(asked["output"][1])
        told += [*asked["output"], answer]
        second = (await here.server.respond(told, **name)).json
        assert here.tool.runs == 1 and "900" in words(second["output"])
        resent = await here.server.respond(told, **name)
        assert (resent.status, resent.error["code"]) == (409, "approval_closed")
        assert here.tool.runs == 1
        told += [*second["output"], {"role": "user", "content": "yes"}]
        third = (await here.server.respond(told, **name)).json
        assert words(third["output"]) == "Very well."
        listed = await here.server.get(f"/v1/conversations/{conversation['id']}/items?limit=100")
        assert kinds(listed.json["data"]).count("mcp_approval_request") == 2
        assert kinds(listed.json["data"]).count("mcp_approval_response") == 1
    assert here.tool.runs == 2


async def test_a_reference_to_the_question_is_the_question() -> None:
    async with chat() as here:
        asked = (await here.server.respond("Pay")).json
        told = [
            {"role": "user", "content": "Pay"},
            *({"type": "item_reference", "id": each["id"]} for each in asked["output"]),
            {"role": "user", "content": "yes"},
        ]
        done = await here.server.respond(told, previous_response_id=asked["id"])
        assert words(done.json["output"]) == "Very well."
    assert here.tool.runs == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_decides_nothing_is_the_one_that_asked(stream: bool) -> None:
    async with chat() as here:
        asked = (await here.server.respond("Pay")).json
        previous = {"previous_response_id": asked["id"]}
        again = await here.server.respond("Yes, but only 5", stream=stream, **previous)
        shown = again.named_events[-1]["response"] if stream else again.json
        assert shown["id"] == asked["id"] and shown["status"] == "completed"
        assert kinds(shown["output"]) == ["mcp_approval_request", "message"]
        assert words(shown["output"]).startswith(UNDECIDED)
        done = await here.server.respond("yes", **previous)
        assert words(done.json["output"]) == "Very well."
    assert here.tool.runs == 1


async def test_a_response_from_the_background_is_no_person() -> None:
    async with chat() as here:
        asked = (await here.server.respond("Pay")).json
        sent = await here.server.respond("yes", background=True, previous_response_id=asked["id"])
        await here.server.ended_turn(sent.json["id"].replace("resp_", "turn_"))
    assert here.tool.runs == 0


async def test_a_client_that_fails_on_the_item_is_asked_in_words() -> None:
    """The Agents SDK raises an error on a request for approval from a server that it has not declared."""
    known = [{"type": "mcp", "server_label": "root", "server_url": "https://example.com"}]
    headers = {"User-Agent": "Agents/Python 1.0"}
    async with chat(pays(), pays()) as here:
        plain = (await here.server.respond("Pay", headers=headers)).json
        declared = (await here.server.respond("Pay", headers=headers, tools=known)).json
    assert kinds(plain["output"]) == ["message", "message"]
    assert kinds(declared["output"]) == ["message", "mcp_approval_request", "message"]
