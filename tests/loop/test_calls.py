"""Every call is answered: by its tool, by whoever it waits for, or by a sentence that says why not."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from holdfast.agents.agent import Agent
from holdfast.core.grants import Grant
from holdfast.core.history.conversation import SettingsChanged
from holdfast.core.items import Permissions, SessionSettings, ToolCall, plain_text, text_of
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import advanced, resuming
from holdfast.core.turns.turn import begin
from holdfast.testing import says
from holdfast.tools.tool import ToolOutput, ToolRun
from tests.core.builders import after, answered, asked, call, mint, result, started, user
from tests.core.histories import noted, turn_on
from tests.loop.stage import (
    ANYTHING,
    Deed,
    OpenInMemory,
    Stage,
    Tools,
    agent,
    calls_of,
    outcomes,
    results_of,
    scripted,
    task,
    told,
    words,
)

NOTHING = Permissions()
ASKING = Permissions(ask=("fly",))
FLY = ("fly", '{"to":"Oslo"}')
TO = '{"type":"object","properties":{"to":{"type":"string"}},"required":["to"]}'


async def test_a_tool_that_is_not_there_is_told_with_those_that_are() -> None:
    butler = agent(
        "butler", says(calls=[("dig", "{}")]), "Well.", tools=[Deed("look"), Deed("fly")]
    )
    turn = await Stage(butler).play("Go")
    assert outcomes(turn) == {"dig": "error"}
    assert told(turn, "dig") == "There is no tool 'dig'. There are: look, fly."


async def test_the_log_says_once_that_a_tool_fails_and_once_that_it_is_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.observe.trouble.STEADY_S", 0.0)
    is_down = [True, True, False, False]

    async def fly(run: ToolRun) -> ToolOutput:
        if is_down.pop(0):
            raise ConnectionError("no tower")
        return ToolOutput(content=plain_text("done"))

    script = [says(calls=[FLY]), says("Well.")] * 4
    stage = Stage(agent("butler", *script, tools=[Deed("fly", do=fly)]))
    for _ in range(4):
        await stage.next("Go")
    failed, back = [each.getMessage() for each in caplog.records]
    assert failed.startswith("butler: tool fly: it fails: ConnectionError in test_calls.py:")
    assert failed.endswith("(no tower)")
    assert back == "butler: tool fly: it works again, after 2 failures"


@pytest.mark.parametrize("arguments", ["", "{", "[]", "{}", '{"to":1}'])
async def test_arguments_that_do_not_fit_are_told_and_nothing_runs(arguments: str) -> None:
    fly = Deed("fly", parameters=TO)
    turn = await Stage(
        agent("butler", says(calls=[("fly", arguments)]), "Well.", tools=[fly])
    ).play("")
    assert outcomes(turn) == {"fly": "error"}
    assert (fly.runs, turn.turn.acted) == ([], False)


async def test_what_no_rule_allows_is_refused_and_what_only_reads_is_not() -> None:
    fly, look = Deed("fly"), Deed("look", read_only=True)
    butler = agent(
        "butler",
        says(calls=[FLY, ("look", "{}")]),
        "Well.",
        tools=[fly, look],
        permissions=NOTHING,
    )
    turn = await Stage(butler).play("Go")
    assert outcomes(turn) == {"fly": "refused", "look": "ok"}
    assert fly.runs == []


async def test_a_rule_of_the_session_is_a_rule() -> None:
    fly = Deed("fly")
    stage = Stage(agent("butler", "Hi.", says(calls=[FLY]), "Well.", tools=[fly]))
    await stage.next("Hello")
    settings = SessionSettings(permissions=Permissions(deny=("fly",)))
    stage.snapshot = noted(stage.snapshot, SettingsChanged(settings=settings))
    assert outcomes(await stage.play("Go")) == {"fly": "refused"}


# ── calls that wait ──────────────────────────────────────────────────────────────────────────


def waiting(turn: OpenInMemory) -> dict[str, str | None]:
    return {each.name: each.waits_for for each in turn.turn.waiting}


async def test_a_call_that_has_to_be_approved_waits_and_others_run() -> None:
    fly, look = Deed("fly"), Deed("look", read_only=True)
    butler = agent(
        "butler", says("May I?", calls=[FLY, ("look", "{}")]), tools=[fly, look], permissions=ASKING
    )
    turn = await Stage(butler).play("Go")
    assert turn.turn.complete
    assert waiting(turn) == {"fly": "approval"}
    assert (fly.runs, len(look.runs)) == ([], 1)


async def asked_for_approval(*after_that: str, calls: int = 1) -> tuple[Stage, Deed]:
    fly = Deed("fly")
    butler = agent("butler", says("May I?", calls=[FLY] * calls), tools=[fly], permissions=ASKING)
    scripted(butler).will(*after_that)
    stage = Stage(butler)
    await stage.next("Go")
    return stage, fly


async def test_an_approval_runs_exactly_that_call() -> None:
    stage, fly = await asked_for_approval("Off we go.", calls=2)
    first, second = stage.snapshot.waiting
    no = result(second, "No.", outcome="refused")
    turn = await stage.next(no, user("The first one"), approved=(first.id,))
    assert fly.keys == [str(first.id)]
    asked_then = stage.team.agents["butler"]
    assert [words(each) for each in scripted(asked_then).messages()][2:] == [
        "No.",
        "fly done",
        "The first one",
    ]
    assert turn.turn.acted


async def test_an_approval_needs_no_words() -> None:
    stage, fly = await asked_for_approval("Off we go.")
    (only,) = stage.snapshot.waiting
    asked_for = turn_on(stage.snapshot, agent="butler", approved=(only.id,)).request
    wordless = begin(ev.Began(request=msgspec.structs.replace(asked_for, input=())))
    await stage.go_on(OpenInMemory(wordless, stage.snapshot))
    assert fly.keys == [str(only.id)]


def redescribed(butler: Agent, other: Deed) -> None:
    other.spec = msgspec.structs.replace(other.spec, description="to flee")
    butler.toolsets = (Tools(other),)


def declared_otherwise(butler: Agent, other: Deed) -> None:
    butler.toolsets, butler.origins = (Tools(other),), ("another command",)


def taken_over(butler: Agent, other: Deed) -> None:
    butler.toolsets = (Tools(), Tools(other))


@pytest.mark.parametrize("rules", [ASKING, ANYTHING], ids=["asked about", "allowed now"])
@pytest.mark.parametrize("change", [redescribed, declared_otherwise, taken_over])
async def test_an_approval_does_not_run_another_tool_of_that_name(
    change: Callable[[Agent, Deed], None], rules: Permissions
) -> None:
    stage, fly = await asked_for_approval()
    (only,) = stage.snapshot.waiting
    butler, other = stage.team.agents["butler"], Deed("fly")
    change(butler, other)
    butler.permissions = rules
    scripted(butler).will(says("Again?", calls=[FLY]), "There.")
    turn = await stage.play("Yes", approved=(only.id,))
    assert "not the tool any more that a person was asked about" in told_of(turn, only)
    assert fly.runs == []
    if rules is ASKING:
        assert other.runs == []
        (again,) = turn.turn.waiting
        assert again.fingerprint != only.fingerprint
    else:
        assert str(only.id) not in other.keys


def told_of(turn: OpenInMemory, call: ToolCall) -> str:
    (found,) = [each for each in results_of(turn) if each.call == call.id]
    return text_of(found.content)


async def test_what_was_approved_may_have_been_forbidden_since() -> None:
    stage, fly = await asked_for_approval("A pity.")
    (only,) = stage.snapshot.waiting
    settings = SessionSettings(permissions=Permissions(deny=("fly",)))
    stage.snapshot = noted(stage.snapshot, SettingsChanged(settings=settings))
    turn = await stage.play("Yes", approved=(only.id,))
    assert outcomes(turn) == {"fly": "refused"}
    assert fly.runs == []


async def test_the_client_runs_its_own_tools() -> None:
    """Also if one is called like one of ours: the client knows what it meant."""
    look = Deed("look")
    butler = agent("butler", says(calls=[("look", "{}"), ("tell", "{}")]), "I see.", tools=[look])
    stage = Stage(butler)
    theirs = tuple(ev.ToolDefinition(name=name) for name in ("look", "tell"))
    turn = await stage.next("Go", client_tools=theirs)
    assert waiting(turn) == {"look": "client", "tell": "client"}
    assert look.runs == []
    assert [each.name for each in scripted(butler).prompts[0].tools] == ["look", "tell"]

    answers = [result(each, f"{each.name}: done") for each in stage.snapshot.waiting]
    await stage.next(*answers, user("Well?"), client_tools=theirs)
    assert [words(each) for each in scripted(butler).messages()][2:] == [
        "look: done",
        "tell: done",
        "Well?",
    ]


async def test_calls_that_wait_and_calls_that_run_may_come_in_one_step() -> None:
    look = Deed("look")
    butler = agent("butler", says(calls=[("look", "{}"), ("tell", "{}")]), "I see.", tools=[look])
    stage = Stage(butler)
    theirs = (ev.ToolDefinition(name="tell"),)
    await stage.next("Go", client_tools=theirs)
    (tell,) = stage.snapshot.waiting
    await stage.next(result(tell), client_tools=theirs)
    assert len(scripted(butler).messages()) == 4


# ── after a crash ────────────────────────────────────────────────────────────────────────────


def crashed(stage: Stage, made: ToolCall, *happened: ev.Event) -> OpenInMemory:
    """A turn that is taken up again after these events."""
    turn = after(turn_on(stage.snapshot, agent="butler"), asked(), answered(made), *happened)
    return OpenInMemory(advanced(turn, resuming(turn, mint, after="crash")), stage.snapshot)


async def test_an_idempotent_call_that_is_not_run_again_may_have_run() -> None:
    """Its tool is gone, or forbidden now: but nobody may say that it was not run."""
    for tools, rules in (([], NOTHING), ([Deed("fly", idempotent=True)], NOTHING)):
        fly = call("fly")
        stage = Stage(agent("butler", "Hm.", tools=tools, permissions=rules))
        turn = crashed(stage, fly, started(fly, idempotent=True))
        await stage.go_on(turn)
        assert outcomes(turn) == {"fly": "unknown"}
        assert "not run again" in told(turn, "fly")


async def test_an_idempotent_call_is_run_again_under_the_same_key() -> None:
    fly, made = Deed("fly", idempotent=True), call("fly")
    stage = Stage(agent("butler", "Done.", tools=[fly]))
    turn = crashed(stage, made, started(made, idempotent=True))
    await stage.go_on(turn)
    assert fly.keys == [str(made.id)]
    assert outcomes(turn) == {"fly": "ok"}


async def test_a_call_whose_agent_is_gone_is_told() -> None:
    stage, _fly = await asked_for_approval()
    (only,) = stage.snapshot.waiting
    there = Stage(agent("gardener", "I am new here."), snapshot=stage.snapshot)
    turn = await there.play("Yes", agent="gardener", approved=(only.id,))
    assert outcomes(turn) == {"fly": "error"}
    assert "'butler'" in told(turn, "fly")


# ── what a tool is told ──────────────────────────────────────────────────────────────────────


async def test_tools_say_who_asks_and_for_whom() -> None:
    fly = Deed("fly")
    stage = Stage(agent("butler", says(calls=[FLY]), "Done.", tools=[fly]))
    turn = await stage.play("Go")
    (run,) = fly.runs
    (made,) = calls_of(turn)
    assert (run.agent, run.tenant, run.session_id) == ("butler", "acme", stage.snapshot.session_id)
    assert run.call_key == made.id


# ── deferred tools ───────────────────────────────────────────────────────────────────────────


def offered(of: Agent, n: int) -> list[str]:
    return [each.name for each in scripted(of).prompts[n].tools]


async def test_a_deferred_tool_is_looked_for_loaded_and_called() -> None:
    fly, look = Deed("fly", parameters=TO), Deed("look")
    fly.spec = msgspec.structs.replace(fly.spec, deferred=True)
    butler = agent(
        "butler",
        says(calls=[("search_tool", '{"query":"fly"}')]),
        says(calls=[("add_tool", '{"name":"fly"}')]),
        says(calls=[FLY]),
        "There.",
        "Again?",
        tools=[fly, look],
    )
    stage = Stage(butler)
    turn = await stage.next("Go")
    assert outcomes(turn) == {"search_tool": "ok", "add_tool": "ok", "fly": "ok"}
    assert told(turn, "search_tool") == "fly: to fly"
    assert offered(butler, 0) == ["look", "search_tool", "add_tool"]
    assert offered(butler, 2) == ["fly", "look", "search_tool", "add_tool"]
    await stage.next("And now?")
    assert "fly" in offered(butler, 4), "it stays loaded in the session"


async def test_a_deferred_tool_that_was_not_loaded_is_not_called() -> None:
    fly = Deed("fly")
    fly.spec = msgspec.structs.replace(fly.spec, deferred=True)
    turn = await Stage(agent("butler", says(calls=[FLY]), "Well.", tools=[fly])).play("Go")
    assert outcomes(turn) == {"fly": "error"}
    assert told(turn, "fly") == "'fly' is not loaded; load it with add_tool first."
    assert fly.runs == []


async def test_nobody_is_asked_about_a_tool_that_is_not_loaded() -> None:
    fly = Deed("fly")
    fly.spec = msgspec.structs.replace(fly.spec, deferred=True)
    butler = agent("butler", says(calls=[FLY]), "Well.", tools=[fly], permissions=ASKING)
    turn = await Stage(butler).play("Go")
    assert (waiting(turn), outcomes(turn)) == ({}, {"fly": "error"})


# ── granted for good ─────────────────────────────────────────────────────────────────────────


def grant_of(call: ToolCall, *, arguments: str | None) -> Grant:
    return Grant(tool=call.name, fingerprint=call.fingerprint, arguments=arguments)


async def played_with(grants: list[Grant], butler: Agent) -> OpenInMemory:
    stage = Stage(butler)
    turn = stage.open("Go")
    turn.granted = grants
    await stage.go_on(turn)
    return turn


async def flight(*, to: str = "Oslo", **fields: str) -> tuple[Agent, Deed]:
    fly = Deed("fly", parameters=TO)
    fly.spec = msgspec.structs.replace(fly.spec, **fields)
    calls = [(fly.spec.name, f'{{"to":"{to}"}}')]
    asking = Permissions(ask=("*",))
    made = agent("butler", says(calls=calls), "There.", tools=[fly], permissions=asking)
    return made, fly


async def first_asked() -> ToolCall:
    """The call that a person was asked about."""
    (call,) = (await Stage((await flight())[0]).play("Go")).turn.waiting
    assert call.fingerprint
    return call


@pytest.mark.parametrize("arguments", [None, '{"to":"Oslo"}'])
async def test_what_was_granted_runs_without_asking(arguments: str | None) -> None:
    butler, fly = await flight()
    turn = await played_with([grant_of(await first_asked(), arguments=arguments)], butler)
    assert (waiting(turn), outcomes(turn)) == ({}, {"fly": "ok"})
    assert len(fly.runs) == 1


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"to": "Bergen"}, "fly"),
        ({"name": "flee"}, "flee"),
        ({"description": "to fly first class"}, "fly"),
        ({"parameters": '{"type":"object"}'}, "fly"),
    ],
    ids=["other arguments", "other name", "other description", "other schema"],
)
async def test_a_grant_is_good_for_that_tool_as_it_was_with_those_arguments(
    fields: dict[str, str], name: str
) -> None:
    granted = grant_of(await first_asked(), arguments='{"to":"Oslo"}')
    butler, fly = await flight(**fields)
    assert waiting(await played_with([granted], butler)) == {name: "approval"}
    assert fly.runs == []


async def test_a_grant_is_not_good_for_a_toolset_from_elsewhere() -> None:
    granted = grant_of(await first_asked(), arguments=None)
    butler, _ = await flight()
    butler.origins = ("another server",)
    assert waiting(await played_with([granted], butler)) == {"fly": "approval"}


async def test_a_grant_answers_the_question_and_no_other_rule() -> None:
    granted = grant_of(await first_asked(), arguments=None)
    for rules in (NOTHING, Permissions(ask=("*",), deny=("fly",))):
        butler, fly = await flight()
        butler.permissions = rules
        assert outcomes(await played_with([granted], butler)) == {"fly": "refused"}
        assert fly.runs == []


async def test_a_grant_that_is_taken_back_before_the_call_runs_stops_it() -> None:
    """It was granted when the answer was recorded; it is looked at again before the intent."""
    granted = grant_of(await first_asked(), arguments=None)
    butler, fly = await flight()
    stage = Stage(butler)
    turn = stage.open("Go")
    turn.granted = [granted]
    record = turn.record

    async def record_and_revoke(*events: ev.Event) -> None:
        if any(isinstance(each, ev.Answered) for each in events):
            turn.granted = []
        await record(*events)

    turn.record = record_and_revoke  # type: ignore[method-assign]
    await stage.go_on(turn)
    assert outcomes(turn) == {"fly": "refused"}
    assert fly.runs == []


async def test_a_sub_agent_may_do_what_it_was_granted() -> None:
    granted = grant_of(await first_asked(), arguments=None)
    for grants, outcome in (([granted], "ok"), ([], "refused")):
        pilot, _ = await flight()
        pilot.name = "pilot"
        butler = agent("butler", says(calls=[task("pilot")]), "Done.", sub_agents=("pilot",))
        stage = Stage(butler, pilot)
        turn = stage.open("Go")
        turn.granted = grants
        await stage.go_on(turn)
        assert outcomes(turn)["fly"] == outcome
