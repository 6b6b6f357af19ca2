"""Hooks around the calls of a turn: who is asked when, and what becomes of a no."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import msgspec
import pytest

from holdfast.agents.agent import Agent
from holdfast.core.grants import Grant
from holdfast.core.items import Permissions, ToolCall, ToolResult, TurnLimits, text_of
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import resuming
from holdfast.core.turns.events import Usage
from holdfast.errors import StoreUnavailable, TurnFailed
from holdfast.testing import fails, says
from holdfast.tools.built_in_tools import text_output
from holdfast.tools.hooks import Hook, Hooks
from holdfast.tools.tool import ToolOutput, ToolRun
from tests.core.builders import call, mint
from tests.loop.stage import Deed, OpenInMemory, Stage, agent, scripted, task


def with_hooks(made: Agent, directory: Path, **commands: str) -> Agent:
    made.hooks = msgspec.structs.replace(
        Hooks(directory=directory, environment={"PATH": "/usr/bin:/bin"}),
        every={event: (Hook(command=command),) for event, command in commands.items()},
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
    assert before["tool_input_final"] is False
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
    assert "a pre_tool_use hook: it fails: ended with exit code 1" in caplog.text


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


@pytest.mark.parametrize(
    "answer", ['{"decison": "block"}', '{"decision": "ask"}', '{"updated_input": {}}', "[]"]
)
async def test_an_answer_that_is_not_understood_is_a_no_before_a_tool_and_after_it(
    answer: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    after = Stage(caller(Deed("act"), tmp_path, post_tool_use=f"echo '{answer}'"))
    turn = after.open("Go")
    with pytest.raises(TurnFailed) as raised:
        await after.player(turn)
    assert raised.value.reason == "hook_blocked"
    assert results(turn) == [("ok", "act done")]
    if "ask" in answer or "updated" in answer:
        return
    with caplog.at_level(logging.WARNING, "holdfast.hooks"):
        before = Deed("act")
        turn = await Stage(caller(before, tmp_path, pre_tool_use=f"echo '{answer}'")).play("Go")
    assert [outcome for outcome, _ in results(turn)] == ["refused"] and before.runs == []
    assert "exit code 2" in caplog.text, "the operator is told what to write"


async def test_a_no_where_a_hook_has_no_say_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.hooks"):
        await Stage(caller(Deed("act"), tmp_path, stop="""echo '{"continue": false}'""")).play("Go")
    assert "a stop hook says no, and has no say there" in caplog.text


async def test_a_hook_that_breaks_after_a_tool_is_logged_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.hooks"):
        turn = await Stage(caller(Deed("act"), tmp_path, post_tool_use="exit 7")).play("Go")
    assert results(turn) == [("ok", "act done")]
    assert "a post_tool_use hook: it fails: ended with exit code 7" in caplog.text


async def test_tasks_for_colleagues_are_guarded_too(tmp_path: Path) -> None:
    butler = agent("butler", says("", calls=[task("cook")]), says("Done."), sub_agents=("cook",))
    with_hooks(butler, tmp_path, pre_tool_use="exit 2")
    turn = await Stage(butler, agent("cook")).play("Go")
    assert results(turn) == [("refused", "Refused: it says no")]


@pytest.mark.parametrize("started", [False, True])
async def test_after_a_crash_a_call_that_had_started_is_not_asked_about_again(
    started: bool, tmp_path: Path
) -> None:
    """What was allowed once is not guarded twice; what never came to its intent is, as it stands."""
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


async def test_the_last_word_is_told(tmp_path: Path) -> None:
    butler = with_hooks(agent("butler", says("Good night.")), tmp_path, stop=WRITES)
    await Stage(butler).play("Bye")
    (told,) = log_of(tmp_path)
    assert (told["hook_event_name"], told["stop_response"]) == ("stop", "Good night.")


# ── hooks that change arguments ──


def into(arguments: str) -> str:
    """A hook that changes a call's arguments."""
    return f'cat >> log; echo >> log; echo \'{{"hook_specific_output": {{"updated_input": {arguments}}}}}\''


def calls_of(turn: OpenInMemory) -> list[ToolCall]:
    return [each for each in turn.turn.items if isinstance(each, ToolCall)]


async def test_what_a_hook_changes_is_what_is_recorded_and_run(tmp_path: Path) -> None:
    look = Deed("look")
    butler = caller(look, tmp_path, pre_tool_use=into('{"a": 2}'))
    turn = await Stage(butler).play("Go")
    (run,) = look.runs
    (recorded,) = calls_of(turn)
    assert run.arguments == {"a": 2}
    assert json.loads(recorded.arguments) == {"a": 2}
    assert len(log_of(tmp_path)) == 1, "it is asked once"
    seen = scripted(butler).prompts[1].messages
    assert b'"a\\":2' in b"".join(seen), (
        "the model is told what was done, and not what it asked for"
    )


async def test_hooks_see_what_the_one_before_them_has_made_of_a_call(tmp_path: Path) -> None:
    look = Deed("look")
    butler = caller(look, tmp_path)
    butler.hooks = msgspec.structs.replace(
        butler.hooks,
        every={"pre_tool_use": (Hook(command=into('{"a": 2}')), Hook(command=WRITES))},
    )
    await Stage(butler).play("Go")
    assert [each["tool_input"] for each in log_of(tmp_path)] == [{"a": 1}, {"a": 2}]


async def test_arguments_that_a_hook_makes_unfit_are_refused(tmp_path: Path) -> None:
    strict = Deed("look", parameters='{"type": "object", "properties": {"a": {"type": "integer"}}}')
    turn = await Stage(caller(strict, tmp_path, pre_tool_use=into('{"a": "x"}'))).play("Go")
    ((outcome, words),) = results(turn)
    assert outcome == "refused"
    assert words.startswith("Refused: a hook changed its arguments, and they do not fit")
    assert strict.runs == []


async def test_a_person_is_asked_about_what_will_run(tmp_path: Path) -> None:
    act = Deed("act")
    butler = caller(act, tmp_path, pre_tool_use=into('{"a": 2}'))
    butler.permissions = Permissions(ask=("act",))
    stage = Stage(butler)
    turn = await stage.next("Go")
    (waiting,) = turn.turn.waiting
    assert json.loads(waiting.arguments) == {"a": 2}
    await stage.next(approved=(waiting.id,))
    (run,) = act.runs
    assert run.arguments == {"a": 2}
    first, again = log_of(tmp_path)
    assert (first["tool_input_final"], again["tool_input_final"]) == (False, True)


async def test_what_a_person_has_approved_is_not_changed_afterwards(tmp_path: Path) -> None:
    """Nobody runs what nobody was shown: a hook that comes too late refuses."""
    act = Deed("act")
    butler = caller(act, tmp_path)
    butler.permissions = Permissions(ask=("act",))
    stage = Stage(butler)
    (waiting,) = (await stage.next("Go")).turn.waiting
    with_hooks(butler, tmp_path, pre_tool_use=into('{"a": 666}'))
    turn = await stage.next(approved=(waiting.id,))
    assert act.runs == []
    why = "Refused: a hook would change its arguments, and it is too late for that"
    assert ("refused", why) in results(turn)


async def test_nobody_is_asked_about_what_a_hook_refuses(tmp_path: Path) -> None:
    butler = caller(Deed("act"), tmp_path, pre_tool_use="exit 2")
    butler.permissions = Permissions(ask=("act",))
    turn = await Stage(butler).play("Go")
    assert turn.turn.waiting == ()
    assert results(turn) == [("refused", "Refused: it says no")]


ASKS = (
    """cat >> log; echo >> log; echo '{"hook_specific_output": {"permission_decision": "ask"}}'"""
)


async def test_a_hook_may_want_a_person_to_be_asked(tmp_path: Path) -> None:
    act = Deed("act")
    stage = Stage(caller(act, tmp_path, pre_tool_use=ASKS))
    (waiting,) = (await stage.next("Go")).turn.waiting
    assert (waiting.waits_for, act.runs) == ("approval", [])
    await stage.next(approved=(waiting.id,))
    assert len(act.runs) == 1


async def test_in_a_branch_a_hook_that_wants_a_person_refuses(tmp_path: Path) -> None:
    act = Deed("act")
    cook = with_hooks(
        agent("cook", says("", calls=[("act", "{}")]), says("No."), tools=[act]),
        tmp_path,
        pre_tool_use=ASKS,
    )
    butler = agent("butler", says("", calls=[task("cook")]), says("Done."), sub_agents=("cook",))
    turn = await Stage(butler, cook).play("Go")
    refused = "Refused: a hook wants an approval for it, and no person can be asked here"
    assert ("refused", refused) in results(turn)
    assert act.runs == []


async def test_nobody_is_left_at_work_when_the_store_does_not_answer(tmp_path: Path) -> None:
    """One call is being guarded while another one's grants cannot be read: the turn fails, and nothing goes on."""
    calls = [("look", "{}"), ("fly", "{}")]
    butler = agent(
        "butler",
        says("", calls=calls),
        tools=[Deed("look"), Deed("fly")],
        permissions=Permissions(allow=("look",), ask=("fly",)),
    )
    butler.hooks = msgspec.structs.replace(
        butler.hooks,
        every={"pre_tool_use": (Hook(command="sleep 0.2; touch guarded", matcher="look"),)},
        directory=tmp_path,
        environment={"PATH": "/usr/bin:/bin"},
    )
    stage = Stage(butler)
    turn = stage.open("Go")

    async def unreadable(agent: str) -> tuple[Grant, ...]:
        raise StoreUnavailable("the store did not answer")

    turn.grants = unreadable  # type: ignore[method-assign]
    others = asyncio.all_tasks()
    with pytest.raises(StoreUnavailable):
        await stage.player(turn)
    assert asyncio.all_tasks() == others
    assert (tmp_path / "guarded").exists(), "it was waited for"


# ── the events around steps ──


def tells(words: str) -> str:
    return f"""echo '{{"hook_specific_output": {{"additional_context": "{words}"}}}}'"""


async def test_words_of_hooks_are_told_to_the_model_and_kept_nowhere(tmp_path: Path) -> None:
    butler = with_hooks(
        agent("butler", says("Hi."), instruction="Serve."),
        tmp_path,
        session_start=tells("first"),
        user_prompt_submit=tells("second"),
        turn_start=tells("third"),
    )
    turn = await Stage(butler).play("Go")
    (prompt,) = scripted(butler).prompts
    assert prompt.system == "Serve.\n\nfirst\n\nsecond\n\nthird"
    assert "second" not in str(turn.turn.items)


async def test_what_a_plain_hook_prints_is_told_as_it_is(tmp_path: Path) -> None:
    butler = agent("butler", says("Hi."))
    fact = Hook(command="echo '{ on branch main'", is_plain=True)
    with_hooks(butler, tmp_path)
    butler.hooks = msgspec.structs.replace(butler.hooks, every={"user_prompt_submit": (fact,)})
    await Stage(butler).play("Go")
    assert scripted(butler).prompts[0].system == "{ on branch main"


@pytest.mark.parametrize("event", ["user_prompt_submit", "before_llm_call"])
@pytest.mark.parametrize("answer", ["exit 2", """echo '{"decision": "block"}'""", "echo '{'"])
async def test_a_hook_may_stop_a_turn_before_the_model_is_asked(
    tmp_path: Path, event: str, answer: str
) -> None:
    butler = with_hooks(agent("butler", says("Hi.")), tmp_path, **{event: answer})
    with pytest.raises(TurnFailed, match=f"a {event} hook stopped the turn"):
        await Stage(butler).play("Go")
    assert scripted(butler).prompts == []


async def test_every_event_of_a_turn_is_told_with_its_facts(tmp_path: Path) -> None:
    events = ("user_prompt_submit", "turn_start", "before_llm_call", "after_llm_call", "turn_end", "stop")  # fmt: skip
    butler = with_hooks(agent("butler", says("Hi.")), tmp_path, **dict.fromkeys(events, WRITES))
    await Stage(butler).play("Go")
    told = log_of(tmp_path)
    assert [each["hook_event_name"] for each in told] == list(events)
    assert told[0]["prompt"] == "Go"
    assert told[3]["stop_response"] == "Hi."


async def test_a_hook_after_an_answer_is_told_what_it_used(tmp_path: Path) -> None:
    """docker-agent's ledger of costs is such a hook."""
    used = Usage(input_tokens=30, output_tokens=4, cached_tokens=20, cost_micros=1500)
    butler = with_hooks(agent("butler", says("Hi.", usage=used)), tmp_path, after_llm_call=WRITES)
    await Stage(butler).play("Go")
    (told,) = log_of(tmp_path)
    assert (told["model_id"], told["cost"]) == (butler.model.name, 0.0015)
    assert told["usage"] == {
        "input_tokens": 30,
        "output_tokens": 4,
        "cached_input_tokens": 20,
        "cached_write_tokens": 0,
        "reasoning_tokens": 0,
    }


async def test_a_failure_is_told(tmp_path: Path) -> None:
    events = ("on_error", "notification", "turn_end")
    broken = agent("butler", fails("gone", transient=False))
    butler = with_hooks(broken, tmp_path, **dict.fromkeys(events, WRITES))
    with pytest.raises(TurnFailed):
        await Stage(butler).play("Go")
    assert [each["hook_event_name"] for each in log_of(tmp_path)] == list(events)


async def test_a_hook_may_spare_a_person_the_question_but_not_answer_it(tmp_path: Path) -> None:
    for answer, outcome in (("exit 2", "refused"), (ALLOWS, "")):
        act = Deed("act")
        scripts = (says("", calls=[("act", "{}")]), says("Done."))
        butler = agent("butler", *scripts, tools=[act], permissions=Permissions(ask=("act",)))
        turn = await Stage(with_hooks(butler, tmp_path, permission_request=answer)).play("Go")
        assert act.runs == []
        assert [each.waits_for for each in turn.turn.waiting] == ([] if outcome else ["approval"])


ALLOWS = """echo '{"hook_specific_output": {"permission_decision": "allow"}}'"""
CHANGES = """echo '{"hook_specific_output": {"updated_tool_response": "changed"}}'"""


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (CHANGES, "changed"),
        ("true", "act done"),
        ("exit 1", "[Withheld"),
        ("echo '{'", "[Withheld"),
    ],
)
async def test_a_result_is_recorded_as_a_hook_leaves_it(
    tmp_path: Path, answer: str, kept: str
) -> None:
    """A hook that takes secrets out of results, and breaks, must not let them through."""
    turn = await Stage(caller(Deed("act"), tmp_path, tool_response_transform=answer)).play("Go")
    ((outcome, text),) = results(turn)
    assert outcome == "ok" and text.startswith(kept)


async def test_secrets_are_taken_out_of_calls_results_and_prompts(tmp_path: Path) -> None:
    secret = "ghp_" + "a1" * 18

    async def leak(run: ToolRun) -> ToolOutput:
        return text_output(f"it is {secret}")

    tool = Deed("act", do=leak)
    scripts = (says("", calls=[("act", f'{{"a": "{secret}"}}')]), says("Done."))
    butler = agent("butler", *scripts, tools=[tool])
    butler.redacts = True
    turn = await Stage(butler).play(f"Use {secret}")
    assert tool.runs[0].arguments == {"a": "[REDACTED]"}
    assert results(turn) == [("ok", "it is [REDACTED]")]
    assert all(
        secret.encode() not in part for each in scripted(butler).prompts for part in each.messages
    )


# ── the rarer events ──


async def test_hooks_are_told_what_became_of_a_call(tmp_path: Path) -> None:
    look = Deed("look")
    await Stage(caller(look, tmp_path, on_tool_approval_decision=WRITES)).play("Go")
    refused = caller(Deed("look"), tmp_path, on_tool_approval_decision=WRITES)
    refused.permissions = Permissions(deny=("look",))
    await Stage(refused).play("Go")
    told = [(each["tool_name"], each["approval_decision"]) for each in log_of(tmp_path)]
    assert told == [("look", "allow"), ("look", "deny")]


async def test_a_message_that_was_queued_is_told_first_and_may_be_refused(tmp_path: Path) -> None:
    both = {"user_followup_submit": WRITES, "user_prompt_submit": WRITES}
    await Stage(with_hooks(agent("butler", says("Hi.")), tmp_path, **both)).play("Go", came_ms=7)
    told = [(each["hook_event_name"], each["prompt"]) for each in log_of(tmp_path)]
    assert told == [("user_followup_submit", "Go"), ("user_prompt_submit", "Go")]
    guarded = with_hooks(agent("butler", says("Hi.")), tmp_path, user_followup_submit="exit 2")
    with pytest.raises(TurnFailed, match="user_followup_submit"):
        await Stage(guarded).play("Go", came_ms=7)
    assert (await Stage(guarded).play("Go")).turn.interrupted is None, "this one was not queued"


async def test_hooks_are_told_when_a_turn_goes_on_that_had_reached_a_limit(tmp_path: Path) -> None:
    look = Deed("look")
    butler = agent("butler", says(calls=[("look", "{}")]), says("Done."), tools=[look])
    stage = Stage(with_hooks(butler, tmp_path, on_session_resume=WRITES))
    first = await stage.play("Go", limits=TurnLimits(steps_max=1))
    assert first.turn.interrupted is not None and log_of(tmp_path) == []
    stage.snapshot = stage.kept(first)
    unfinished = stage.snapshot.marks[-1].turn_id
    await stage.play(continues=unfinished, limits=TurnLimits(steps_max=5))
    (told,) = log_of(tmp_path)
    assert (told["hook_event_name"], told["new_max_iterations"]) == ("on_session_resume", 5)
