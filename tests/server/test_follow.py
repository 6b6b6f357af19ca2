"""Chat programs that own the history: what a person sees in the program is what the model is shown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast import limits
from holdfast.store.memory_store import MemoryStore
from holdfast.store.store import Store
from holdfast.testing import ScriptedModel, fails
from tests.server.chat_program import ChatProgram, Node
from tests.server.stubs import Answer, Serving, agent, serving
from tests.store.verification.test_verification import findings

CHAT = {"X-OpenWebUI-Chat-Id": "chat-1"}


def said(*texts: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": each} for n, each in enumerate(texts)]


async def ask(server: Serving, *texts: str, headers: dict[str, str] | None = None) -> Answer:
    answer = await server.chat(*said(*texts), headers={**CHAT, **(headers or {})})
    assert answer.status == 200, answer.body
    return answer


def shown(model: ScriptedModel) -> list[str]:
    return [str(each.content) for each in model.messages() if each.role != "system"]


async def test_side_calls_and_regenerated_answers_are_lines_of_their_own(store: Store) -> None:
    model = ScriptedModel(otherwise=lambda prompt: f"A{len(model.prompts)}")
    async with serving(agent(model), store=store) as server:
        await ask(server, "### Task: title")
        one = await ask(server, "one")
        two = await ask(server, "one", "A2", "two")
        assert two.headers["x-session-id"] == one.headers["x-session-id"]
        assert two.headers["x-conversation-base"] == "1"
        assert shown(model) == ["one", "A2", "two"]
        await ask(server, "### Task: tags")
        again = await ask(server, "one", "A2", "two")
        assert again.headers["x-session-id"] != one.headers["x-session-id"]
        assert again.headers["x-conversation-base"] == "1"
        assert shown(model) == ["one", "A2", "two"]
        three = await ask(server, "one", "A2", "two", "A5", "three")
        assert three.headers["x-session-id"] == again.headers["x-session-id"]
        assert shown(model) == ["one", "A2", "two", "A5", "three"]
        edit = await ask(server, "ONE")
        assert shown(model) == ["ONE"]
        assert edit.headers["x-conversation-base"] == "0"
        on = await ask(server, "one", "A2", "two", "A5")
        assert shown(model) == ["one", "A2", "two", "A5"]
        last = await ask(server, "one", "A2", "two", "A5 A8", "four")
        assert last.headers["x-session-id"] == on.headers["x-session-id"]
        assert shown(model) == ["one", "A2", "two", "A5", "A8", "four"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_name_whose_first_turn_was_discarded_means_the_retry(streamed: bool) -> None:
    """Else the conversation is in no list, and whoever names it from elsewhere finds it empty."""
    model = ScriptedModel(fails(status=503), "Yes.", "Again.")
    body = {"model": "root", "stream": streamed, "messages": [{"role": "user", "content": "Hi"}]}
    async with serving(agent(model)) as server:
        for _ in range(2):
            await server.request(
                "POST",
                "/c/task/v1/chat/completions",
                headers={"Content-Type": "application/json"},
                data=msgspec.json.encode(body),
            )
        (listed,) = (await server.get("/api/sessions")).json["sessions"]
        await server.chat("And?", to="task")
        items = await server.items("task")
    assert listed["keys"] == ["task"] and listed["title"] == "Hi"
    assert [each["type"] for each in items] == ["user", "assistant"] * 2


async def test_a_system_message_behind_an_answer_asks_for_more() -> None:
    """Programs for role play ask so for the rest of an answer, for a summary, or for what the person could say."""
    model = ScriptedModel(otherwise=lambda prompt: f"A{len(model.prompts)}")
    nudge = {"role": "system", "content": "Write what Ada says next."}
    async with serving(agent(model)) as server:
        one = await ask(server, "one")
        more = await server.chat(*said("one", "A1"), nudge, headers=CHAT)
        assert (more.status, more.text) == (200, "A2")
        assert shown(model) == ["one", "A1"]
        assert "Write what Ada says next." in model.prompts[-1].system
        assert more.headers["x-session-id"] == one.headers["x-session-id"]
        on = await ask(server, "one", "A1A2", "two")
        assert on.headers["x-session-id"] == one.headers["x-session-id"]
        await ask(server, "one", "A1", "two")
        assert shown(model) == ["one", "A1", "two"], "what the nudge brought is another line"


async def test_equal_words_about_different_pictures_are_different_lines() -> None:
    """A person asks the same about two pictures, is answered the same, and goes back to the first one."""
    model, store = ScriptedModel(otherwise=lambda _: "A cat."), MemoryStore()
    one, two = ("data:image/png;base64,iVBORw0KGgo" + 8 * each + "=" for each in "AB")

    def about(picture: str, *then: str) -> list[dict[str, Any]]:
        parts = [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": picture}},
        ]
        return [{"role": "user", "content": parts}, *said("", *then)[1:]]

    def seen() -> str:
        prompt = msgspec.json.decode(b"[" + b",".join(model.prompts[-1].messages) + b"]")
        parts = next(each["content"] for each in prompt if isinstance(each["content"], list))
        return next(str(each["image_url"]["url"]) for each in parts if "image_url" in each)

    async with serving(agent(model), store=store) as server:
        begun = [await server.chat(*about(each), headers=CHAT) for each in (one, two)]
        await server.chat(*about(one, "A cat.", "Sure?"), headers=CHAT)
        assert seen()[-9:-3] == one[-9:-3]
        for picture in (one, two, "https://e.com/two.png"):
            answer = await server.chat(*about(picture, "A cat.", "And now?"), headers=CHAT)
            assert answer.status == 200, answer.body
            assert seen()[-9:-3] == picture[-9:-3], "of two pictures an address is neither"
        changed = await server.chat(*about(two, "A cat.", "Sure?", "A cat.", "So?"), headers=CHAT)
        assert seen()[-9:-3] == two[-9:-3], "it was changed in place"
        assert changed.headers["x-session-id"] != begun[0].headers["x-session-id"]
    assert await findings(store) == []


async def test_of_many_equal_answers_an_early_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat in which every second message is "ok"."""
    monkeypatch.setattr(limits, "family_candidates_max", 3)
    model, store = ScriptedModel(otherwise=lambda _: "ok"), MemoryStore()
    async with serving(agent(model), store=store) as server:
        program = ChatProgram(server, model)
        answers: list[Node] = []
        for _ in range(8):
            answers.append(await program.say("yes", answers[-1] if answers else None))
        assert program.last is not None and program.last.headers["x-conversation-base"] == "7"
        await program.say("no", answers[1])
        assert program.last.headers["x-conversation-base"] == "2", "a fork, not a copy"
    assert await findings(store) == []


async def test_a_chat_of_equal_words_that_was_changed_in_place_is_compared_within_bounds() -> None:
    """Each of its places could be compared with each version of each line."""
    model, store = ScriptedModel(otherwise=lambda _: "ok"), MemoryStore()
    texts = ["yes", "ok"] * 300
    async with serving(agent(model), store=store) as server:
        first = await ask(server, *texts, "yes")
        for _ in range(8):
            texts += ["yes", "ok"]
            await ask(server, *texts, "yes")
        await ask(server, "changed", *texts[1:], "so?")
        assert shown(model) == ["changed", *texts[1:], "so?"]
        deleted = await ask(server, *texts[2:], "so?")
        assert shown(model) == [*texts[2:], "so?"]
        assert deleted.headers["x-session-id"] != first.headers["x-session-id"]
