"""Summing a session up from outside, while its turns go on."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.loop.compaction import INSTRUCTION
from holdfast.models.demo.demo_model import DemoModel
from holdfast.models.model import Prompt
from holdfast.testing import Gate, ScriptedModel, fails, says
from holdfast.testing.scripted_model import Script
from tests.server.stubs import Answer, Serving, agent, serving


def answer(prompt: Prompt) -> Script | str:
    return "They said hello." if prompt.system == INSTRUCTION else "Yes."


async def compact(server: Serving, name: str = "trip") -> Answer:
    return await server.request("POST", f"/api/sessions/{name}/compact")


async def seen(server: Serving, view: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await server.get(f"/api/sessions/trip/items?view={view}")).json[
        "items"
    ]
    return found


async def test_the_model_sees_the_summary_and_people_see_everything() -> None:
    model = ScriptedModel(otherwise=answer)
    async with serving(agent(model)) as server:
        for text in ("one", "two"):
            await server.chat(text, to="trip")
        before = await seen(server, "people")
        made = await compact(server)
        after = await seen(server, "people")
        by_model = await seen(server, "model")
        await server.chat("three", to="trip")
    assert made.status == 200
    assert (made.json["summary"], made.json["covers_to"]) == ("They said hello.", 4)
    assert before == after
    assert [each["type"] for each in by_model] == ["summary"]
    first, *rest = model.messages(-1)
    assert "They said hello." in str(first.content)
    assert [each.content for each in rest] == ["three"]


async def test_what_is_summed_up_is_not_summed_up_again() -> None:
    async with serving(agent(ScriptedModel(otherwise=answer))) as server:
        await server.chat("one", to="trip")
        assert (await compact(server)).status == 200
        again = await compact(server)
        missing = await compact(server, "nobody")
    assert (again.status, again.error["code"]) == (400, "nothing_to_compact")
    assert (missing.status, missing.error["code"]) == (404, "conversation_not_found")


async def test_a_summary_that_came_first_stands() -> None:
    model, gate = ScriptedModel(otherwise=answer), Gate()
    async with serving(agent(model)) as server:
        await server.chat("one", to="trip")
        model.will(says("Mine.").waiting(gate, at=0))
        mine = asyncio.create_task(compact(server))
        await gate.reached.wait()
        theirs = await compact(server)
        gate.release()
        late = await mine
        (summary,) = await seen(server, "model")
    assert theirs.status == 200
    assert (late.status, late.error["code"]) == (409, "summary_moved")
    assert summary["text"] == "They said hello."


async def test_a_model_that_fails_changes_nothing() -> None:
    model = ScriptedModel("Yes.", fails("overloaded", status=529), otherwise=answer)
    async with serving(agent(model)) as server:
        await server.chat("one", to="trip")
        failed = await compact(server)
        by_model = await seen(server, "model")
        view = await server.get("/api/sessions/trip/items?view=cat")
    assert (failed.status, failed.error["code"]) == (502, "upstream_error")
    assert failed.headers["x-should-retry"] == "true"
    assert [each["type"] for each in by_model] == ["user", "assistant"]
    assert (view.status, view.error["param"]) == (400, "view")


async def test_the_demo_model_knows_afterwards_what_it_has_summed_up() -> None:
    """Its own greeting names the words that make it fail; as a part of a transcript they do not."""
    async with serving(agent(DemoModel(pace_s=0))) as server:
        for text in ("Hello, who are you?", "My name is Ada.", "What did I say before?"):
            await server.chat(text, to="trip")
        made = await compact(server)
        after = await server.chat("What is my name?", to="trip")
    assert made.status == 200
    assert "2. “My name is Ada.”" in made.json["summary"]
    assert "Your name is Ada" in after.text
