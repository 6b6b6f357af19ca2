"""The lines of a chat: shown as a tree, exported and deleted together, and named one by one."""

from __future__ import annotations

from typing import Any

from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel, fails
from tests.server.chat_program import ChatProgram
from tests.server.stubs import Serving, agent, serving
from tests.store.verification.test_verification import findings


async def talk(server: Serving, model: ScriptedModel) -> ChatProgram:
    """A chat with a title, a regenerated answer that was gone on with, and an edit of the first message."""
    program = ChatProgram(server, model)
    await program.side_call("### Task: title", "One")
    one = await program.say("One", stream=True)
    two = await program.say("Two", one)
    assert two.parent is not None
    again = await program.answer(two.parent)
    await program.say("Three", again)
    await program.say("Uno")
    return program


def answering() -> ScriptedModel:
    model = ScriptedModel(otherwise=lambda prompt: f"A{len(model.prompts)}")
    return model


async def family_of(server: Serving, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await server.get(f"/api/sessions/{name}/family")).json
    return found


def asked(line: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["asked"], each["answered"]) for each in line["exchanges"]]


async def test_a_chat_is_a_tree_of_lines() -> None:
    model, store = answering(), MemoryStore()
    async with serving(agent(model), store=store) as server:
        await talk(server, model)
        family = await family_of(server, "chat-1")
        assert family["is_whole"]
        lines = {each["id"]: each for each in family["lines"]}
        current = lines[family["current"]]
        assert current["keys"] == ["chat-1"] and current["is_listed"]
        assert asked(current) == [("Two", "A4"), ("Three", "A5")]
        (parent,) = [each for each in lines.values() if asked(each)[0] == ("One", "A2")]
        assert asked(parent) == [("One", "A2"), ("Two", "A3")]
        assert current["after"] == parent["exchanges"][0]["id"]
        by_first = {each["exchanges"][0]["asked"]: each for each in lines.values()}
        (title,) = [each for first, each in by_first.items() if first.startswith("### Task: title")]
        assert title["is_aside"] and not by_first["Uno"]["is_aside"]
        assert not parent["is_aside"] and not current["is_aside"]
        assert {each["after"] for each in lines.values()} == {None, current["after"]}
        for each in lines:
            assert (await family_of(server, each))["id"] == family["id"], "from any of its lines"
            assert (await server.get(f"/api/sessions/{each}")).json["family"] == family["id"]


async def test_a_search_finds_what_was_said_in_any_line() -> None:
    """It is told once for each chat, with the line; what a title call says of a chat is not found."""
    model, store = answering(), MemoryStore()
    async with serving(agent(model), store=store) as server:
        await talk(server, model)
        await server.chat("Uno, due", to="another")
        current = (await family_of(server, "chat-1"))["current"]
        lines = {
            words: {each["id"]: each["match"]["line"] for each in await found(server, words)}
            for words in ("two", "a3", "three", "uno", "a6", "task", "a1")
        }
        assert lines["two"] == lines["three"] == {current: None}
        assert lines["task"] == lines["a1"] == {}
        for words, first in (("a3", "One"), ("uno", "Uno"), ("a6", "Uno")):
            line = lines[words].pop(current)
            assert asked_first(await family_of(server, line), line) == first, words
        assert len(lines["uno"]) == 1 and not lines["a3"] and not lines["a6"]
        aside = await found(server, "task", anonymous="true")
        assert [each["match"]["line"] for each in aside] == [None]


def asked_first(family: dict[str, Any], line: str) -> str:
    (found,) = [each for each in family["lines"] if each["id"] == line]
    return str(found["exchanges"][0]["asked"])


async def found(server: Serving, words: str, anonymous: str = "false") -> list[dict[str, Any]]:
    page = await server.get(f"/api/sessions?q={words}&anonymous={anonymous}")
    sessions: list[dict[str, Any]] = page.json["sessions"]
    return sessions


async def test_a_chat_that_was_changed_in_place_is_no_side_call() -> None:
    """Its line begins by itself, with one turn that brings all that was said before: shown in the tree, and found."""
    model, store = answering(), MemoryStore()
    async with serving(agent(model), store=store) as server:
        program = ChatProgram(server, model)
        one = await program.say("One", stream=True)
        two = await program.say("Two", one)
        three = await program.say("Three", two)
        assert one.parent is not None
        one.parent.text = "Uno"
        await program.say("Quattro", three)
        assert asked_first(await family_of(server, "chat-1"), program.line) == "Quattro"
        assert not any(each["is_aside"] for each in (await family_of(server, "chat-1"))["lines"])
        assert [each["match"]["line"] for each in await found(server, "quattro")] == [program.line]


async def test_a_session_alone_is_the_only_line() -> None:
    async with serving(agent(ScriptedModel("Hello."))) as server:
        await server.chat("Hi", to="trip")
        family = await family_of(server, "trip")
        (line,) = family["lines"]
        assert (line["id"], asked(line)) == (family["current"], [("Hi", "Hello.")])
        assert (await server.get("/api/sessions/trip")).json["family"] is None


async def test_of_a_long_question_the_last_paragraph_is_shown() -> None:
    async with serving(agent(ScriptedModel("Three miles."))) as server:
        await server.chat("Passages. " * 50 + "\n\nHow wide is it?", to="trip")
        (line,) = (await family_of(server, "trip"))["lines"]
        assert asked(line) == [("How wide is it?", "Three miles.")]


async def test_a_line_can_have_a_name_of_its_own() -> None:
    """It is listed by itself, gone on with under its name, and deleted alone; the chat goes with all of its lines."""
    model, store = answering(), MemoryStore()
    async with serving(agent(model), store=store) as server:
        await talk(server, model)
        lines = (await family_of(server, "chat-1"))["lines"]
        (uno,) = [each["id"] for each in lines if asked(each)[0][0] == "Uno"]
        data = b'{"key": "in-italian"}'
        named = await server.request("POST", f"/api/sessions/{uno}/name", data=data)
        assert (named.status, named.json["keys"]) == (200, ["in-italian"])
        taken = await server.request("POST", "/api/sessions/chat-1/name", data=data)
        assert (taken.status, taken.error["code"]) == (409, "name_taken")
        listed = (await server.get("/api/sessions")).json["sessions"]
        assert {each["keys"][0] for each in listed} == {"chat-1", "in-italian"}
        await server.chat("Due", to="in-italian")
        assert [str(each.content) for each in model.messages() if each.role == "user"] == [
            "Uno",
            "Due",
        ]
        family = await family_of(server, "in-italian")
        assert family["current"] != uno and len(family["lines"]) == len(lines)

        assert (await server.request("DELETE", "/api/sessions/in-italian")).status == 200
        assert len((await family_of(server, "chat-1"))["lines"]) == len(lines) - 1
        assert (await server.request("DELETE", "/api/sessions/chat-1")).status == 200
        assert [each async for each in _all(server)] == []
    assert await findings(store) == []


async def _all(server: Serving) -> Any:
    for which in ("false", "true"):
        page = await server.get(f"/api/sessions?anonymous={which}")
        for each in page.json["sessions"]:
            yield each["id"]


async def test_an_exported_chat_goes_on_elsewhere_in_each_of_its_lines() -> None:
    model, store = answering(), MemoryStore()
    async with serving(agent(model), store=store) as server:
        program = await talk(server, model)
        file = (await server.get("/api/sessions/chat-1/export")).body
        before = await family_of(server, "chat-1")
    async with serving(agent(model), store=MemoryStore()) as elsewhere:
        taken = await elsewhere.request("POST", "/api/sessions/import", data=file)
        assert len(taken.json["imported"]) == len(before["lines"])
        assert await family_of(elsewhere, "chat-1") == before
        program.server = elsewhere
        answers = [each for each in program.answers if each.text in ("A3", "A5", "A6")]
        for each in answers:
            await program.say(f"After {each.text}", each)
            assert program.line in {line["id"] for line in before["lines"]}, "in place"


async def test_a_request_that_failed_does_not_keep_the_name() -> None:
    """A title call comes first, and the model is out of order for a moment."""
    model, store = (
        ScriptedModel(fails(), otherwise=lambda prompt: f"A{len(model.prompts)}"),
        MemoryStore(),
    )
    async with serving(agent(model), store=store) as server:
        headers = {"X-OpenWebUI-Chat-Id": "chat-1"}
        failed = await server.chat("### Task: title", headers=headers)
        assert failed.status >= 500, failed.body
        blank = await server.chat(" ", headers=headers)
        assert (blank.status, blank.error["code"]) == (400, "no_new_user_message")
        program = ChatProgram(server, model)
        one = await program.say("One", stream=True)
        line = program.line
        (listed,) = (await server.get("/api/sessions")).json["sessions"]
        assert (listed["id"], listed["keys"]) == (line, ["chat-1"])
        await program.say("Two", one)
        assert program.line == line
        family = (await server.get("/api/sessions/chat-1/family")).json
        assert [each["id"] for each in family["lines"]] == [line]
    assert await findings(store) == []
