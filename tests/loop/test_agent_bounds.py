"""What an agent file says about how its agents go on: budgets, circles, forced hand-offs, other models, models as hooks."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.agents.agent import Agent, Budget
from holdfast.agents.hook_prompts import UnfitPrompt, check_prompt, filled_prompt
from holdfast.agents.model_routes import ModelRoute, best_route
from holdfast.core.items import AssistantMessage, HandOff, ToolCall, ToolResult, text_of
from holdfast.core.turns import events as ev
from holdfast.loop.budgets import STATE
from holdfast.loop.player import Player
from holdfast.testing import fails, says
from holdfast.tools.hooks import Hook, HookEvent, Hooks
from holdfast.tools.notes.model_choice import ModelPickerToolset
from tests.loop.stage import Deed, Model, OpenInMemory, Stage, Tools, agent, handoff, scripted, task

USED = ev.Usage(input_tokens=60, output_tokens=40, cost_micros=7)


def spent(turn: OpenInMemory) -> dict[str, dict[str, int]]:
    changes = {each.name: each.value for each in turn.turn.changes if isinstance(each, ev.StateSet)}
    return msgspec.json.decode(changes.get(STATE, "{}"))  # type: ignore[no-any-return]


def words_of(turn: OpenInMemory) -> list[str]:
    return [text_of(each.content) for each in turn.turn.items if isinstance(each, AssistantMessage)]


# ── budgets ──


def on_budget(made: Agent, **bounds: int) -> Agent:
    made.budgets = (Budget(name="budgets.small", **bounds),)
    return made


@pytest.mark.parametrize(
    ("bounds", "detail"),
    [
        ({"tokens_max": 150}, "budgets.small.max_tokens"),
        ({"cost_micros_max": 14}, "budgets.small.max_cost"),
        ({"time_ms_max": 1900}, "budgets.small.max_time"),
    ],
)
async def test_a_budget_spans_the_conversation(bounds: dict[str, int], detail: str) -> None:
    """The step under way may pass it, and none after that, in this turn or a later one."""
    butler = on_budget(agent("butler", *(says(f"{n}.", usage=USED) for n in range(5))), **bounds)
    stage = Stage(butler)
    clock = iter(range(100))
    stage.player = Player(stage.player._find_team, now_s=lambda: next(clock))
    for _ in range(2):
        turn = await stage.play("Go")
        assert turn.turn.interrupted is None
        stage.snapshot = stage.kept(turn)
    turn = await stage.play("Go")
    assert turn.turn.interrupted == ev.Interrupted(by="limit", detail=detail)
    assert len(scripted(butler).prompts) == 2, "no model is asked any more"


async def test_agents_with_one_budget_share_it() -> None:
    scout = on_budget(agent("scout", says("Quiet.", usage=USED)), tokens_max=250)
    butler = agent(
        "butler",
        says(calls=[task("scout")], usage=USED),
        says("Done.", usage=USED),
        sub_agents=("scout",),
    )
    turn = await Stage(on_budget(butler, tokens_max=250), scout).play("Go")
    assert spent(turn)["budgets.small"]["tokens"] == 300
    assert turn.turn.interrupted is None, "the last step was under way at 200"


async def test_a_budget_that_a_colleague_exhausts_ends_the_turn() -> None:
    scout = on_budget(agent("scout", says("Quiet.", usage=USED)), tokens_max=100)
    butler = agent(
        "butler", says(calls=[task("scout")], usage=USED), says("Done."), sub_agents=("scout",)
    )
    turn = await Stage(on_budget(butler, tokens_max=100), scout).play("Go")
    assert turn.turn.interrupted == ev.Interrupted(by="limit", detail="budgets.small.max_tokens")
    assert scripted(scout).prompts == []


async def test_an_agent_without_a_budget_keeps_no_account() -> None:
    turn = await Stage(agent("butler", says("Hi.", usage=USED))).play("Go")
    assert turn.turn.changes == ()


# ── going in circles ──


async def test_the_same_calls_again_and_again_end_the_turn() -> None:
    look = Deed("look")
    again = [
        says(calls=[("look", args)])
        for args in ('{"a":1,"b":2}', '{"b": 2, "a": 1}', '{"a":1,"b":2}')
    ]
    butler = agent("butler", *again, says("Done."), tools=[look])
    butler.same_calls_max = 3
    turn = await Stage(butler).play("Go")
    assert turn.turn.interrupted == ev.Interrupted(by="limit", detail="max_consecutive_tool_calls")
    assert len(look.runs) == 2, "the third of them does not run"


async def test_other_calls_in_between_are_no_circle() -> None:
    look = Deed("look")
    steps = [says(calls=[("look", f'{{"n":{n % 2}}}')]) for n in range(6)]
    butler = agent("butler", *steps, says("Done."), tools=[look])
    butler.same_calls_max = 2
    turn = await Stage(butler).play("Go")
    assert turn.turn.interrupted is None and len(look.runs) == 6


# ── forced hand-offs ──


async def test_an_agent_hands_over_with_its_last_answer() -> None:
    look = Deed("look")
    reader = agent(
        "reader", says("Let me see.", calls=[("look", "{}")]), says("Three facts."), tools=[look]
    )
    reader.force_handoff = "writer"
    writer = agent("writer", says("A summary."))
    stage = Stage(reader, writer)
    turn = await stage.play("Go")
    assert words_of(turn) == ["Let me see.", "Three facts.", "A summary."]
    assert [each.to_agent for each in turn.turn.items if isinstance(each, HandOff)] == ["writer"]
    assert turn.turn.agent == "writer"
    offered = [tool.name for tool in scripted(reader).prompts[0].tools]
    assert "handoff" not in offered, "its model is not offered the choice"


async def test_an_answer_that_was_cut_is_not_the_last() -> None:
    reader = agent("reader", says("Three f", finish="length"))
    reader.force_handoff = "writer"
    turn = await Stage(reader, agent("writer", says("A summary."))).play("Go")
    assert turn.turn.agent != "writer"


async def test_a_choice_of_the_model_comes_first() -> None:
    reader = agent("reader", says(calls=[handoff("clerk")]), handoffs=("clerk",))
    reader.force_handoff = "writer"
    clerk = agent("clerk", says("The bill."))
    turn = await Stage(reader, clerk, agent("writer")).play("Go")
    assert turn.turn.agent == "clerk"


# ── other models ──


def with_models(made: Agent, *routes: ModelRoute, **models: Model) -> Agent:
    made.routes = routes
    made.other_models = {
        name: made.on(model, ev.Parameters(temperature=0.5), 1000) for name, model in models.items()
    }
    return made


async def test_an_agent_chooses_its_model() -> None:
    picker = ModelPickerToolset(("deep",))
    deep = Model(says("Thinking."), says(calls=[("revert_model", "{}")]))
    butler = agent("butler", says(calls=[("change_model", '{"model":"deep"}')]), says("Back."))
    butler.toolsets = (Tools(*picker.listed),)
    stage = Stage(with_models(butler, deep=deep))
    turn = await stage.play("Think")
    assert words_of(turn) == ["Thinking."]
    assert deep.prompts[0].parameters.temperature == 0.5
    stage.snapshot = stage.kept(turn)
    turn = await stage.play("And now?")
    assert words_of(turn) == ["Back."], "the choice holds until it is changed"


async def test_the_results_of_a_toolset_are_read_by_its_model() -> None:
    """For one step only, and in the branch of the call."""
    quick = Model(says("Done.", calls=[("dig", "{}")]))
    butler = agent(
        "butler", says(calls=[("look", "{}"), ("dig", "{}")]), says("Own."), says("Later.")
    )
    butler.toolsets = (Tools(Deed("dig")), Tools(Deed("look")))
    butler.origins = ("garden", "house")
    butler = with_models(butler, quick=quick)
    butler.result_models = {"house": "quick"}
    stage = Stage(butler)
    turn = await stage.play("Look")
    assert words_of(turn) == ["Done.", "Own."]
    assert len(quick.prompts) == 1, "what it called itself is read by the agent's own model"
    stage.snapshot = stage.kept(turn)
    assert words_of(await stage.play("And now?")) == ["Later."]


async def test_a_request_goes_to_the_model_whose_examples_it_is_like() -> None:
    code, own = Model(says("def")), Model(says("Hello."))
    route = ModelRoute(model="code", examples=("Write a function", "fix this bug"))
    butler = with_models(agent("butler", model=own), route, code=code)
    assert words_of(await Stage(butler).play("Please fix the bug in my function")) == ["def"]
    assert words_of(await Stage(butler).play("Good morning")) == ["Hello."]


def test_likeness() -> None:
    routes = (
        ModelRoute(model="code", examples=("Write a Python function", "Debug this program")),
        ModelRoute(model="poem", examples=("Write a poem about the sea", "a haiku")),
    )
    assert best_route("write me a poem", routes) == "poem"
    assert best_route("DEBUG my program!", routes) == "code"
    assert best_route("how are you", routes) is None
    assert best_route("", routes) is None
    assert best_route("sea", ()) is None
    twins = (ModelRoute(model="a", examples=("x y",)), ModelRoute(model="b", examples=("x y",)))
    assert best_route("x", twins) == "a"


# ── hooks that ask a model ──


def judged_by(
    made: Agent, model: Model, event: HookEvent = "pre_tool_use", *, decides: bool = True
) -> Agent:
    prompt = "May {{ .ToolName }} run with {{ .ToolInput | toJSON }}?"
    hook = Hook(command="", model="judge", prompt=prompt, decides=decides, timeout_s=5)
    made.hooks = Hooks(every={event: (hook,)})
    made.hook_models = {"judge": model}
    return made


def results(turn: OpenInMemory) -> list[tuple[str, str]]:
    return [
        (each.outcome, text_of(each.content))
        for each in turn.turn.items
        if isinstance(each, ToolResult)
    ]


@pytest.mark.parametrize(
    ("answer", "outcome", "said"),
    [
        ('{"decision": "allow"}', "ok", "look done"),
        ('```json\n{"decision": "deny", "reason": "no"}\n```', "refused", "Refused: no"),
        ("Sure!", "refused", "asked for a decision, and answered: Sure!"),
        ('{"verdict": "allow"}', "refused", "asked for a decision"),
        ('{"decision": "maybe"}', "refused", "was not understood"),
    ],
)
async def test_a_model_decides_about_a_call(answer: str, outcome: str, said: str) -> None:
    look, judge = Deed("look"), Model(says(answer))
    butler = agent("butler", says(calls=[("look", '{"a":1}')]), says("Done."), tools=[look])
    turn = await Stage(judged_by(butler, judge)).play("Go")
    ((found, words),) = results(turn)
    assert found == outcome and said in words
    assert b'May look run with {\\"a\\":1}?' in judge.prompts[0].messages[0]


async def test_a_judge_may_have_a_person_asked() -> None:
    butler = agent("butler", says(calls=[("look", "{}")]), tools=[Deed("look")])
    turn = await Stage(judged_by(butler, Model(says('{"decision":"ask"}')))).play("Go")
    assert [each.waits_for for each in turn.turn.items if isinstance(each, ToolCall)] == [
        "approval"
    ]


async def test_a_judge_that_fails_refuses() -> None:
    butler = agent("butler", says(calls=[("look", "{}")]), says("Done."), tools=[Deed("look")])
    turn = await Stage(judged_by(butler, Model(fails()))).play("Go")
    ((outcome, words),) = results(turn)
    assert outcome == "refused" and "could not ask its model" in words


async def test_the_words_of_a_model_are_told_to_the_agents() -> None:
    butler = agent("butler", says("Done."))
    made = judged_by(butler, Model(says("It rains.")), "turn_start", decides=False)
    await Stage(made).play("Go")
    assert "It rains." in scripted(butler).prompts[0].system


@pytest.mark.parametrize(
    ("prompt", "filled"),
    [
        ("{{ .ToolName }}", "look"),
        ("a {{- .ToolName -}} b", "alookb"),
        ("{{.ToolInput.cmd}} {{ .ToolInput.gone }}", "ls "),
        ("{{ toJSON .ToolName }}{{ .Prompt }}", '"look"'),
        ("{{/* why */}}x", "x"),
    ],
)
def test_prompts_are_filled_in(prompt: str, filled: str) -> None:
    check_prompt(prompt)
    assert filled_prompt(prompt, {"tool_name": "look", "tool_input": {"cmd": "ls"}}) == filled


@pytest.mark.parametrize(
    "prompt", ["{{ if .ToolName }}x{{ end }}", "{{ .Nope }}", "{{ .ToolName", "a }} b"]
)
def test_a_prompt_that_cannot_be_filled_in_is_refused(prompt: str) -> None:
    with pytest.raises(UnfitPrompt):
        check_prompt(prompt)
