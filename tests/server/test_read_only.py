"""`X-Read-Only`: a request narrows its agents to tools that change nothing."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.items import Permissions
from holdfast.models.model import ModelFailed
from holdfast.testing import ScriptedModel, says
from tests.server.stubs import HeldTool, StubTools, agent, serving

NARROW = {"X-Read-Only": "true"}


def both() -> tuple[HeldTool, HeldTool]:
    return HeldTool("act", held=False), HeldTool("look", read_only=True, held=False)


async def test_tools_that_change_something_are_not_offered_and_do_not_run() -> None:
    act, look = both()
    model = ScriptedModel(says(calls=[("act", "{}"), ("look", "{}")]), otherwise=lambda _: "Done.")
    careful = agent(model, act, look)
    careful.permissions = Permissions(allow=("*",))
    async with serving(careful) as server:
        answer = await server.chat("Do it", to="trip", headers=NARROW)
        items = await server.items("trip")
        assert [each.name for each in model.prompts[0].tools] == ["look"]
        await server.chat("And now", to="trip")
        assert [each.name for each in model.prompts[-1].tools] == ["act", "look"], "this turn alone"
    assert answer.text == "Done."
    assert (act.runs, look.runs) == (0, 1)
    outcomes = [each["outcome"] for each in items if each["type"] == "result"]
    assert sorted(outcomes) == ["ok", "refused"]


async def test_a_call_is_not_asked_about_and_an_approval_does_not_widen() -> None:
    act, look = both()
    model = ScriptedModel(says("May I?", calls=[("act", "{}")]), otherwise=lambda _: "Done.")
    careful = agent(model)
    careful.toolsets = (StubTools(act, look),)
    careful.permissions = Permissions(ask=("act",))
    async with serving(careful) as server:
        asked = await server.chat("Do it", to="trip", headers=NARROW)
        assert "approvals" not in asked.json["holdfast"]
        model.will(says("May I?", calls=[("act", "{}")]))
        wide = await server.chat("Do it now", to="trip")
        (call,) = wide.json["holdfast"]["approvals"]
        body = {"decisions": {call["id"]: {"approve": True}}}
        where = f"/api/turns/{wide.headers['x-turn-id']}/approvals"
        begun = await server.request("POST", where, headers=NARROW, data=msgspec.json.encode(body))
        await server.ended_turn(begun.json["id"])
    assert act.runs == 0


async def test_a_continuation_is_as_narrow_as_its_turn() -> None:
    act, look = both()
    broken = says("Half").failing(ModelFailed("out of order"), at=0)
    model = ScriptedModel(says(calls=[("look", "{}")]), broken)
    careful = agent(model, act, look)
    careful.permissions = Permissions(allow=("*",))
    async with serving(careful) as server:
        failed = await server.chat(
            "Do it", to="trip", headers={**NARROW, "X-Turn-Policy": "error=keep"}
        )
        assert failed.status >= 400, failed.json
        model.will("Done.")
        turn = failed.headers["x-turn-id"]
        begun = await server.request("POST", f"/api/turns/{turn}/continue")
        assert begun.status == 202, begun.json
        await server.ended_turn(begun.json["id"])
    assert [each.name for each in model.prompts[-1].tools] == ["look"]


@pytest.mark.parametrize("said", ["maybe", ""])
async def test_what_is_not_understood_is_refused(said: str) -> None:
    async with serving(agent(ScriptedModel())) as server:
        refused = await server.chat("Hello", to="trip", headers={"X-Read-Only": said})
    assert refused.status == 400


async def test_a_narrow_message_is_not_steered_into_a_wide_turn() -> None:
    async with serving(agent(ScriptedModel())) as server:
        refused = await server.chat("Hello", to="trip", headers={**NARROW, "X-On-Busy": "steer"})
    assert (refused.status, refused.error["param"]) == (400, "x-read-only")
