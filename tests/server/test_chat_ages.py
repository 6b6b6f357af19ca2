"""Chats that are old: one that was left for a month, and chats that a server from before families has stored."""

from __future__ import annotations

from time import time

from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel
from tests.server.chat_program import ChatProgram, Node
from tests.server.stubs import Serving, agent, serving
from tests.store.verification.test_verification import findings

MONTH_MS = 31 * 24 * 3_600_000
AS_BEFORE = {"X-History": "append"}
"""An older server appended what a chat program sent, and wrote no digests."""


def answering() -> ScriptedModel:
    model = ScriptedModel(otherwise=lambda prompt: f"A{len(model.prompts)}")
    return model


async def test_a_chat_of_one_question_goes_on_after_a_month() -> None:
    later_ms = 0
    model, store = answering(), MemoryStore(now_ms=lambda: int(time() * 1000) + later_ms)
    async with serving(agent(model), store=store) as server:
        program = ChatProgram(server, model)
        await program.side_call("### Task: title")
        one = await program.say("One", stream=True)
        line = program.line
    later_ms = MONTH_MS
    while (await store.prune(trust_clock=True)).more:
        pass
    async with serving(agent(model), store=store) as server:
        program.server = server
        await program.say("Two", one)
        assert program.line == line, "in place"
        family = (await server.get("/api/sessions/chat-1/family")).json
        assert len(family["lines"]) == 2, "the side call, too"
    assert await findings(store) == []


async def stored_before(server: Serving, *texts: str) -> str:
    """A conversation under the chat's name, as an older server has stored it: one turn for each text."""
    headers = {"X-OpenWebUI-Chat-Id": "chat-1", **AS_BEFORE}
    answers = [await server.chat(each, headers=headers) for each in texts]
    assert {each.status for each in answers} == {200}
    return str(answers[-1].headers["x-session-id"])


async def test_a_chat_from_before_goes_on_in_place_and_becomes_a_family() -> None:
    model, store = answering(), MemoryStore()
    async with serving(agent(model), store=store) as server:
        line = await stored_before(server, "One", "Two")
        one = Node("assistant", "A1", Node("user", "One", None))
        two = Node("assistant", "A2", Node("user", "Two", one))
        program = ChatProgram(server, model)
        await program.side_call("### Task: tags")
        three = await program.say("Three", two)
        assert program.line == line
        await program.say("Two, again", one)
        assert program.line != line
        await program.say("Four", three)
        assert program.line == line
        assert len((await server.get("/api/sessions")).json["sessions"]) == 1
    assert await findings(store) == []


async def test_a_chat_that_was_mixed_with_side_calls_begins_anew_and_loses_nothing() -> None:
    """Its title call came first, and its tags between the messages: the person never saw these."""
    model, store = answering(), MemoryStore()
    async with serving(agent(model), store=store) as server:
        mixed = await stored_before(server, "### Task: title", "One", "### Task: tags", "Two")
        one = Node("assistant", "A2", Node("user", "One", None))
        two = Node("assistant", "A4", Node("user", "Two", one))
        program = ChatProgram(server, model)
        three = await program.say("Three", two, stream=True)
        fresh = program.line
        assert fresh != mixed
        await program.say("Four", three)
        assert program.line == fresh
        assert len(await server.items(mixed)) == 8, "what was stored stays"
        family = (await server.get("/api/sessions/chat-1/family")).json
        assert family["current"] == fresh
    assert await findings(store) == []
