"""The promises hold in each line of a chat: retries, keys, preconditions, continuations, approvals, ids and tenants."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec

from holdfast.core.policy import Policy
from holdfast.ids import Tenant
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, fails, says
from tests.server.access.test_authentication import bearer, put_key
from tests.server.chat_program import joined
from tests.server.stubs import Answer, HeldTool, Serving, agent, chat_body, serving
from tests.server.test_chat_approvals import careful, pays
from tests.server.test_follow import CHAT, ask, said, shown
from tests.store.verification.test_verification import findings

JSON = {"Content-Type": "application/json"}


def answering() -> ScriptedModel:
    model = ScriptedModel(otherwise=lambda prompt: f"A{len(model.prompts)}")
    return model


def line(answer: Answer) -> str:
    return answer.headers["x-session-id"]


def base(answer: Answer) -> int:
    return int(answer.headers["x-conversation-base"])


# ── retries and keys ─────────────────────────────────────────────────────────────────────────


async def test_first_requests_at_once_are_lines_of_one_chat() -> None:
    model, store = answering(), MemoryStore()
    async with serving(agent(model), store=store) as server:
        found = await asyncio.gather(*(server.chat("Hi", headers=CHAT) for _ in range(12)))
        assert Counter(each.status for each in found) == {200: 12}
        assert len({line(each) for each in found}) == 12
        (listed,) = (await server.get("/api/sessions")).json["sessions"]
        assert listed["keys"] == ["chat-1"]
        on = await ask(server, "Hi", found[7].text, "And?")
        assert line(on) == line(found[7]), "each of them can be gone on with"
    assert await findings(store) == []


async def test_requests_with_one_key_are_one_turn_in_whichever_line() -> None:
    model, store = answering(), MemoryStore()
    keyed = {"Idempotency-Key": "k1"}
    async with serving(agent(model), store=store) as server:
        await ask(server, "one")
        await ask(server, "one", "A1", "two")

        async def again() -> Answer:
            return await ask(server, "one", "A1", "edited", headers=keyed)

        found = await asyncio.gather(*(again() for _ in range(8)))
        assert len({(each.headers["x-turn-id"], each.text) for each in found}) == 1
        moved = await ask(server, "one", "A1", "edited", found[0].text or "", "on")
        assert line(moved) == line(found[0])
        assert (await again()).headers["x-turn-id"] == found[0].headers["x-turn-id"]
        other = await server.chat(*said("one", "A1", "other"), headers={**CHAT, **keyed})
        assert (other.status, other.error["code"]) == (422, "idempotency_key_reused")
    assert len(model.prompts) == 4
    assert await findings(store) == []


async def test_an_sdks_retry_joins_its_turn_though_a_person_has_regenerated_meanwhile() -> None:
    gate = Gate()
    model = ScriptedModel("A1", says("sl", "ow").waiting(gate, at=1), "again")
    body = chat_body(*said("one", "A1", "two"), stream=True)
    async with serving(agent(model)) as server:
        await ask(server, "one")
        url = f"{server.url}/v1/chat/completions"
        async with server.http.post(url, headers=CHAT, data=body) as first:
            await gate.reached.wait()
            other = await server.request("POST", "/v1/chat/completions", headers=CHAT, data=body)
            assert other.streamed == "again" and line(other) != first.headers["x-session-id"]
            retry = {**CHAT, "x-stainless-retry-count": "1"}
            async with server.http.post(url, headers=retry, data=body) as second:
                assert second.headers["x-turn-id"] == first.headers["x-turn-id"]
                gate.release()
                assert await second.read() and await first.read()
    assert len(model.prompts) == 3


async def test_an_unfinished_turn_is_continued_by_the_same_request_and_forked_by_another() -> None:
    tool = HeldTool("act", held=False)
    acts = says("Let me.", calls=[("act", "{}")])
    model, store = ScriptedModel(acts, fails(status=503), "Done.", "Thanked."), MemoryStore()
    async with serving(agent(model, tool), store=store) as server:
        failed = await server.chat("Do it", headers=CHAT)
        assert failed.status >= 500
        again = await ask(server, "Do it")
        assert again.headers["x-turn-continues"] == failed.headers["x-turn-id"]
        assert tool.runs == 1 and base(again) == 1
        on = await ask(server, "Do it", str(again.text), "Thanks")
        assert line(on) == line(again) and base(on) == 2
    assert await findings(store) == []


async def test_an_answer_that_was_stopped_is_gone_on_from_as_far_as_the_program_has_it() -> None:
    """The stop button only disconnects; what was said by then is kept."""
    for policy, expected in ((Policy(disconnect="keep"), 1), (Policy(), 0)):
        gate = Gate()
        model = ScriptedModel(says("Hel", "lo").waiting(gate, at=1), "B", "C", "D")
        async with serving(agent(model, policy=policy)) as server:
            body = chat_body("Greet", stream=True)
            url = f"{server.url}/v1/chat/completions"
            async with server.http.post(url, headers=CHAT, data=body) as response:
                await gate.reached.wait()
            await server.ended_turn(response.headers["x-turn-id"])
            partly = await ask(server, "Greet", "Hel", "Never mind")
            assert base(partly) == expected
            assert shown(model)[:2] == ["Greet", "Hel"] and shown(model)[-1] == "Never mind"
            on = await ask(server, "Greet", "Hel", "Never mind", "B", "So?")
            assert line(on) == line(partly)
            longer = await ask(server, "Greet", "Hello", "Edited")
            assert base(longer) == 0 and shown(model) == ["Greet", "Hello", "Edited"]


# ── approvals ────────────────────────────────────────────────────────────────────────────────


async def test_a_waiting_approval_is_used_by_one_line() -> None:
    tool = HeldTool("pay", held=False)
    model, store = ScriptedModel(pays(), otherwise=lambda _: "Very well."), MemoryStore()
    async with serving(careful(model, tool), store=store, approve_in_chat="auto") as server:
        asked = await ask(server, "Pay")
        unclear = await ask(server, "Pay", str(asked.text), "Hm?")
        paid = await ask(server, "Pay", str(asked.text), "Hm?", str(unclear.text), "yes")
        assert (tool.runs, line(paid)) == (1, line(asked))
        again = await ask(server, "Pay", str(asked.text), "yes")
        assert (tool.runs, base(again)) == (1, 1)
        assert line(again) != line(asked)
    assert await findings(store) == []


# ── preconditions and ids ────────────────────────────────────────────────────────────────────


async def test_if_match_compares_with_the_version_that_the_request_goes_on_from() -> None:
    async with serving(agent(answering())) as server:
        for texts, version in (
            (["one"], 0),
            (["one", "A1", "two"], 1),
            (["one", "A1", "two"], 1),
            (["edited"], 0),
        ):
            answer = await ask(server, *texts, headers={"If-Match": f'"{version}"'})
            assert base(answer) == version
        refused = await server.chat(*said("one", "A1", "two"), headers={**CHAT, "If-Match": '"2"'})
        assert (refused.status, refused.error["code"]) == (412, "version_mismatch")


async def test_an_id_tells_lines_apart_that_look_alike_and_chooses_none_that_does_not() -> None:
    """Lying, stale and repeated ids are no help, and no harm."""
    model, store = ScriptedModel(otherwise=lambda _: "ok"), MemoryStore()

    def ids(parent: str, answer: str) -> dict[str, str]:
        return {"X-History-Parent": parent, "X-History-Answer": answer}

    async with serving(agent(model), store=store) as server:
        first = await ask(server, "one", headers=ids("", "a1"))
        twin = await ask(server, "one", headers=ids("", "a2"))
        await ask(server, "one", "ok", "two", headers=ids("a1", "a3"))
        on = await ask(server, "one", "ok", "three", headers=ids("a1", "a4"))
        assert (base(on), line(on) not in (line(first), line(twin))) == (1, True), "no head, but it"
        on = await ask(server, "one", "ok", "three", headers=ids("a2", "a5"))
        assert line(on) == line(twin)
        for parent in ("a5", "gone", "a1"):
            lied = await ask(server, "one", "ok", "two", "ok", "so?", headers=ids(parent, "a1"))
            assert (base(lied), shown(model)) == (2, ["one", "ok", "two", "ok", "so?"])
        edited = await ask(server, "one", "no", "two", headers=ids("a1", "a9"))
        assert (base(edited), shown(model)) == (0, ["one", "no", "two"])
    assert await findings(store) == []


async def test_equal_ids_of_calls_are_told_apart_by_what_was_said() -> None:
    """Some providers count calls anew in each answer."""
    look = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]

    def calls(text: str | None) -> dict[str, Any]:
        call = {"id": "call_0", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        return {"role": "assistant", "content": text, "tool_calls": [call]}

    def result(text: str) -> dict[str, str]:
        return {"role": "tool", "tool_call_id": "call_0", "content": text}

    rounds = [says(each, calls=[("look", "{}")]) for each in ("One.", "", "Other.")]
    model, store = ScriptedModel(*rounds[:2], "Done.", rounds[2], "Done.", "B", "C"), MemoryStore()
    async with serving(agent(model), store=store) as server:

        async def send(*messages: Any) -> Answer:
            return await server.chat(*messages, headers=CHAT, tools=look)

        told = [*said("q"), calls("One."), result("r1"), calls(None), result("r2")]
        found = [await send(*told[: 2 * n + 1]) for n in range(3)]
        other = [*said("q"), calls("Other."), result("R")]
        twins = [await send(*other[: 2 * n + 1]) for n in range(2)]
        for answers in (found, twins):
            assert [base(each) for each in answers] == [*range(len(answers))]
            assert len({line(each) for each in answers}) == 1
        assert line(found[0]) != line(twins[0])
        for messages, expected in ((told, found), (other, twins)):
            on = await send(*messages, *said("", "Done.", "So?")[1:])
            assert line(on) == line(expected[0]), on.body
    assert await findings(store) == []


# ── other clients ────────────────────────────────────────────────────────────────────────────


async def test_an_answer_whose_call_waits_goes_on_without_it_in_a_line_of_its_own() -> None:
    """A program may tell an answer without its calls, and a person may let it go on though a result never came."""
    look = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    calls = says("Let me look.", calls=[("look", "{}", "call_1")])
    model, store = ScriptedModel(calls, "It is cold.", "Yes.", "It snows."), MemoryStore()
    async with serving(agent(model), store=store) as server:
        first = await server.chat("Cold?", headers=CHAT, tools=[look])
        told = first.json["choices"][0]["message"]
        on = await ask(server, "Cold?", "Let me look.")
        assert shown(model) == ["Cold?", "Let me look."]
        assert line(on) != line(first)
        after = await ask(server, "Cold?", "Let me look. It is cold.", "Sure?")
        assert line(after) == line(on)
        result = {"role": "tool", "tool_call_id": "call_1", "content": "snow"}
        late = await server.chat("Cold?", told, result, headers=CHAT, tools=[look])
        assert line(late) == line(first), "its call has waited on"
    assert await findings(store) == []


async def test_what_another_client_appends_is_told_to_the_program_that_forks_behind_it() -> None:
    model = answering()
    async with serving(agent(model)) as server:
        first = await ask(server, "one")
        appended = await server.chat("By a script", to="chat-1")
        assert line(appended) == line(first)
        behind = await ask(server, "one", "A1", "two")
        assert behind.headers["x-conversation-diverged"] == "true"
        assert shown(model) == ["one", "A1", "two"]
        on = await ask(server, "one", "A1", "two", "A3", "three")
        assert "x-conversation-diverged" not in on.headers and line(on) == line(behind)
        appended = await server.chat("By a script", to="chat-1")
        assert line(appended) == line(on), "the name means the line last continued"


async def test_chats_of_two_tenants_with_one_id_know_nothing_of_each_other() -> None:
    model, store = answering(), MemoryStore()
    tenants = [Tenant("north"), Tenant("south")]
    keys = [bearer(await put_key(store, each, nth=n)) for n, each in enumerate(tenants, 1)]
    async with serving(agent(model), store=store, auth="auto") as server:

        async def send(by: int, *texts: str, **headers: str) -> Answer:
            sent = {**CHAT, **keys[by], "X-History-Answer": "a1", **headers}
            answer = await server.chat(*said(*texts), headers=sent)
            assert answer.status == 200, answer.body
            return answer

        await send(0, "one")
        await send(0, "one", "A1", "two")
        parent = {"X-History-Parent": "a1"}
        other = await send(1, "one", "A1", "two", **parent)
        assert base(other) == 0 and shown(model) == ["one", "A1", "two"]
        families = [
            await server.request("GET", "/api/sessions/chat-1/family", headers=each)
            for each in keys
        ]
        assert [len(each.json["lines"]) for each in families] == [1, 1]
        assert families[0].json["id"] != families[1].json["id"]
    assert await findings(store) == []


async def test_other_apis_follow_a_chat_by_a_name_in_the_base_url() -> None:
    """OpenAI's Responses and Anthropic's Messages, whose clients resend everything as well."""
    model, store = answering(), MemoryStore()
    doors = {
        "/c/one/v1/responses": lambda told: {"input": told},
        "/c/two/v1/messages": lambda told: {"messages": told, "max_tokens": 99},
    }
    async with serving(agent(model), store=store) as server:
        for path, body in doors.items():

            async def send(*texts: str, path: str = path, body: Any = body) -> Answer:
                data = msgspec.json.encode({"model": "root", **body(said(*texts))})
                answer = await server.request("POST", path, headers=JSON, data=data)
                assert answer.status == 200, answer.body
                assert shown(model) == [*texts]
                return answer

            first = await send("one")
            held = f"A{len(model.prompts)}"
            two = await send("one", held, "two")
            assert (line(two), base(two)) == (line(first), 1)
            again = await send("one", held, "two")
            assert (line(again) == line(first), base(again)) == (False, 1)
            edited, more = await send("ONE"), await send("one", held)
            assert (base(edited), base(more)) == (0, 1)
    assert await findings(store) == []


# ── programs of many kinds ───────────────────────────────────────────────────────────────────


class Program:
    """A program that makes of a chat what it likes: what it sends is what the model is shown."""

    def __init__(self, server: Serving, model: ScriptedModel) -> None:
        self.server = server
        self.model = model

    async def send(self, *messages: dict[str, Any]) -> Answer:
        answer = await self.server.chat(*messages, headers=CHAT)
        assert answer.status == 200, answer.body
        told = [_told(each) for each in messages if each["role"] != "system"]
        assert joined(self._shown()) == joined([each for each in told if each[1]])
        return answer

    def _shown(self) -> list[tuple[str, str]]:
        pieces = b"[" + b",".join(self.model.prompts[-1].messages) + b"]"
        return [_told(each) for each in msgspec.json.decode(pieces) if each["role"] != "system"]


def _told(message: dict[str, Any]) -> tuple[str, str]:
    content = message["content"]
    if isinstance(content, list):
        content = "".join(each["text"] for each in content)
    return message["role"], content or ""


def system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


def answered(text: str | None) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


async def test_a_program_for_role_play_swipes_greets_and_asks_by_system_messages() -> None:
    model, store = answering(), MemoryStore()
    card, note = system("You are Ada."), system("[Stay in character]")
    async with serving(agent(model), store=store) as server:
        program = Program(server, model)
        begun = [card, answered("Well met."), *said("Hi")]
        await program.send(*begun, note)
        swiped = await program.send(*begun, note)
        told = [*begun, *said("", "A2", "More")[1:]]
        on = await program.send(*told, note)
        assert (line(on), base(on)) == (line(swiped), 1)
        told += [answered("A3")]
        for nudge in ("[Write what the person says next]", "[Continue your last message]"):
            assert base(await program.send(*told, system(nudge))) == 2
        as_a_person = await program.send(*told, *said("I go north."))
        assert base(as_a_person) == 2
        examples = [system("[Example]"), {**system("A question"), "name": "example_user"}]
        assert base(await program.send(*examples, *told, *said("And so?"))) == 2
        other = await program.send(card, answered("Another greeting."), *told[2:], *said("Go"))
        assert base(other) == 0
    assert await findings(store) == []


async def test_a_program_for_code_condenses_its_task_and_cuts_out_its_middle() -> None:
    """Its messages are in parts, results are words of the user, and what is too long is summed up."""
    model, store = answering(), MemoryStore()

    def parts(*texts: str) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "text", "text": each} for each in texts]}

    async with serving(agent(model), store=store) as server:
        program = Program(server, model)
        told = [system("You write code."), parts("<task>Fix it</task>", "<files>a.py</files>")]
        for n in range(4):
            answer = await program.send(*told)
            assert base(answer) == n
            told += [answered(answer.text), parts("[read_file]", f"line {n}")]
        condensed = [*told[:3], parts("[Summary of all]"), *told[-2:]]
        first = await program.send(*condensed)
        assert base(first) == 1
        on = await program.send(*condensed, *said("", str(first.text), "On")[1:])
        assert (line(on), base(on)) == (line(first), 2)
        cut = await program.send(*told[:2], parts("[Messages were left out]"), *told[-2:])
        assert base(cut) == 0
    assert await findings(store) == []


async def test_empty_answers_and_messages_in_parts_are_no_other_conversation() -> None:
    """A program shows an empty answer until there is one, and keeps it if it was stopped."""
    model, store = answering(), MemoryStore()
    async with serving(agent(model), store=store) as server:
        program = Program(server, model)
        one = await program.send(*said("one"), answered(""))
        two = await program.send(*said("one", "A1", "two"), answered(None))
        assert (line(two), base(two)) == (line(one), 1)
        left = await program.send(*said("one", "A1", "two"), answered(""), *said("three"))
        assert (base(left), line(left) == line(one)) == (1, False)
        text = [{"type": "text", "text": each} for each in ("o", "ne")]
        again = await program.send(
            {"role": "user", "content": text}, *said("", "A1", "two", "A2", "x")[1:]
        )
        assert (line(again), base(again)) == (line(one), 2)
    assert await findings(store) == []
