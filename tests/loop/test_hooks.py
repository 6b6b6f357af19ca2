"""Hooks around the calls of a turn: who is asked when, and what becomes of a no."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import msgspec
import pytest

from holdfast.agents.base import Agent
from holdfast.core import events as ev
from holdfast.core.closing import resuming
from holdfast.core.items import Permissions, ToolResult, text_of
from holdfast.errors import TurnFailed
from holdfast.testing import says
from holdfast.tools.hooks import Hook, Hooks
from tests.core.builders import call, mint
from tests.loop.stage import Deed, OpenInMemory, Stage, agent, task


def with_hooks(made: Agent, directory: Path, **commands: str) -> Agent:
    made.hooks = msgspec.structs.replace(
        Hooks(directory=directory, environment={"PATH": "/usr/bin:/bin"}),
        **{event: (Hook(command=command),) for event, command in commands.items()},
    )
    return made


def caller(tool: Deed, directory: Path, **commands: str) -> Agent:
    scripts = (says("", calls=[(tool.spec.name, '{"a": 1}')]), says("Done."))
    return with_hooks(agent("butler", *scripts, tools=[tool]), directory, **commands)


def results(turn: OpenInMemory) -> list[tuple[str, str]]:
    return [
        (each.outcome, text_of(each.content))
        for each in turn.turn.items
        if isinstance(each, ToolResult)
    ]


def log_of(directory: Path) -> list[dict[str, object]]:
    path = directory / "log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


WRITES = "cat >> log; echo >> log"


async def test_hooks_are_told_of_a_call_before_and_after(tmp_path: Path) -> None:
    look = Deed("look")
    await Stage(caller(look, tmp_path, pre_tool_use=WRITES, post_tool_use=WRITES)).play("Go")
    before, after = log_of(tmp_path)
    assert before["hook_event_name"] == "pre_tool_use"
    assert (before["tool_name"], before["tool_input"]) == ("look", {"a": 1})
    assert before["tool_use_id"] == look.keys[0]
    assert "tool_response" not in before
    assert (after["tool_response"], after["tool_error"]) == ("look done", False)
    assert after["agent_name"] == "butler"


async def test_a_refusal_is_the_calls_result_and_the_turn_goes_on(tmp_path: Path) -> None:
    look = Deed("look")
    turn = await Stage(
        caller(look, tmp_path, pre_tool_use="echo not today >&2; exit 2", post_tool_use=WRITES)
    ).play("Go")
    assert results(turn) == [("refused", "Refused: not today")]
    assert look.runs == [] and turn.durably_started == set()
    assert log_of(tmp_path) == [], "nothing ran, so nothing comes after it"


async def test_a_guard_that_breaks_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    look = Deed("look")
    with caplog.at_level(logging.WARNING, "holdfast.hooks"):
        turn = await Stage(caller(look, tmp_path, pre_tool_use="exit 1")).play("Go")
    assert results(turn) == [("refused", "Refused: the hook that guards it ended with exit code 1")]
    assert look.runs == []
    assert "a pre_tool_use hook ended with exit code 1" in caplog.text


async def test_a_hook_allows_nothing_that_the_rules_refuse(tmp_path: Path) -> None:
    allow = """echo '{"hook_specific_output": {"permission_decision": "allow"}}'; touch asked"""
    butler = caller(Deed("act"), tmp_path, pre_tool_use=allow)
    butler.permissions = Permissions()
    turn = await Stage(butler).play("Go")
    assert results(turn)[0][0] == "refused"
    assert not (tmp_path / "asked").exists()


async def test_the_result_stands_when_a_hook_stops_the_turn_after_it(tmp_path: Path) -> None:
    stage = Stage(caller(Deed("act"), tmp_path, post_tool_use="echo enough; exit 2"))
    turn = stage.open("Go")
    with pytest.raises(TurnFailed) as raised:
        await stage.player(turn)
    assert (raised.value.ended_by, raised.value.reason) == ("tool_error", "hook_blocked")
    assert str(raised.value) == "a hook stopped the turn after 'act': enough"
    assert results(turn) == [("ok", "act done")]


async def test_a_hook_that_breaks_after_a_tool_is_logged_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.hooks"):
        turn = await Stage(caller(Deed("act"), tmp_path, post_tool_use="exit 7")).play("Go")
    assert results(turn) == [("ok", "act done")]
    assert "a post_tool_use hook ended with exit code 7" in caplog.text


async def test_tasks_for_colleagues_are_guarded_too(tmp_path: Path) -> None:
    butler = agent("butler", says("", calls=[task("cook")]), says("Done."), sub_agents=("cook",))
    with_hooks(butler, tmp_path, pre_tool_use="exit 2")
    turn = await Stage(butler, agent("cook")).play("Go")
    assert results(turn) == [("refused", "Refused: it says no")]


@pytest.mark.parametrize("started", [False, True])
async def test_after_a_crash_a_call_that_had_started_is_not_asked_about_again(
    started: bool, tmp_path: Path
) -> None:
    """What was allowed once is not guarded twice; what never came to its intent is."""
    look, wanted = Deed("look", idempotent=True), call("look")
    stage = Stage(
        with_hooks(agent("butler", says("Done."), tools=[look]), tmp_path, pre_tool_use=WRITES)
    )
    turn = stage.open("Go")
    await turn.record(ev.StepStarted(), ev.Answered(items=(wanted,), finish="tool_calls"))
    if started:
        await turn.record(ev.ToolStarted(call=wanted.id, idempotent=True))
    await turn.record(*resuming(turn.turn, mint, after="crash"))
    await stage.go_on(turn)
    assert len(look.runs) == 1
    assert len(log_of(tmp_path)) == (0 if started else 1)


async def test_the_beginning_of_a_session_is_told_once(tmp_path: Path) -> None:
    stage = Stage(
        with_hooks(agent("butler", says("Hi."), says("Yes?")), tmp_path, session_start=WRITES)
    )
    await stage.next("Hello")
    await stage.next("Well?")
    (told,) = log_of(tmp_path)
    assert (told["hook_event_name"], told["source"]) == ("session_start", "startup")


async def test_a_person_who_is_needed_can_be_called(tmp_path: Path) -> None:
    butler = agent(
        "butler",
        says("", calls=[("act", "{}")]),
        tools=[Deed("act")],
        permissions=Permissions(ask=("act",)),
    )
    await Stage(with_hooks(butler, tmp_path, on_user_input=WRITES)).play("Go")
    (told,) = log_of(tmp_path)
    assert told["hook_event_name"] == "on_user_input"
