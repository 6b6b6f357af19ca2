"""Asking again, and asking somebody else."""

from __future__ import annotations

from contextlib import aclosing

import msgspec
import pytest

from holdfast.core.turns.deltas import FinishDelta, TextDelta, UsageDelta
from holdfast.core.turns.events import Usage
from holdfast.models.fallback import FallbackModel, together
from holdfast.models.model import Model, ModelFailed
from holdfast.models.retries import RetryingModel, pause_s
from holdfast.testing import FakeUpstream, Script, ScriptedModel, fails, refuses, says
from tests.models.conversations import heard, model_at, prompt


class Pauses:
    """Sleeps that take no time, and are remembered."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


def retrying(model: Model, pauses: Pauses, *, attempts_max: int = 3) -> RetryingModel:
    return RetryingModel(model, attempts_max=attempts_max, sleep=pauses, chance=lambda: 0.0)


async def failure_of(model: Model) -> ModelFailed:
    with pytest.raises(ModelFailed) as raised:
        await heard(model)
    return raised.value


# ── retry ────────────────────────────────────────────────────────────────────────────────────


async def test_a_failure_that_passes_is_not_noticed() -> None:
    model, pauses = ScriptedModel(fails(), fails(), says("Hi")), Pauses()
    assert await heard(retrying(model, pauses)) == [
        TextDelta(text="Hi"),
        FinishDelta(finish="stop"),
    ]
    assert pauses.taken == [0.5, 1.0]
    assert model.prompts == [prompt()] * 3
    assert model.speaking == model.left_early == 0


async def test_patience_ends() -> None:
    model, pauses = ScriptedModel(fails("1"), fails("2"), fails("3")), Pauses()
    assert (await failure_of(retrying(model, pauses))).detail == "3"
    assert len(pauses.taken) == 2


async def test_the_log_says_once_that_a_model_fails_and_once_that_it_is_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.observe.trouble.STEADY_S", 0.0)
    down, cut = (fails(status=503, reason="overloaded") for _ in range(2)), says("a", "b")
    wrong = fails(transient=False, status=400, reason="invalid_prompt")
    script = (wrong, *down, cut.failing(at=1), says("Hi"), says("Hi"))
    model = retrying(ScriptedModel(*script), Pauses(), attempts_max=1)
    for _ in range(4):
        await failure_of(model)
    for _ in range(2):
        await heard(model)
    told = [each.getMessage().partition(": ")[2] for each in caplog.records]
    assert told[0] == "it fails: 503 overloaded"
    assert (
        told[1] == "it fails: scripted (scripted to fail)"
        and told[2] == "it works again, after 3 failures"
    )
    assert len(told) == 3


async def test_a_refusal_is_not_asked_again() -> None:
    model, pauses = ScriptedModel(fails(transient=False)), Pauses()
    await failure_of(retrying(model, pauses))
    assert pauses.taken == []


@pytest.mark.parametrize(
    "shown",
    [
        says("a", "b"),
        says(thinks=["a", "b"]),
        says(calls=[("look", "{}")]),
        says(refuses=["a", "b"]),
    ],
)
async def test_what_was_shown_is_not_taken_back(shown: Script) -> None:
    model, pauses = ScriptedModel(shown.failing(at=1), "again"), Pauses()
    await failure_of(retrying(model, pauses))
    assert len(model.prompts) == 1


async def test_what_shows_nothing_is_forgotten_with_its_attempt() -> None:
    spent = UsageDelta(usage=Usage(input_tokens=7))
    failing = Script(spent, ModelFailed("no", transient=True))
    model = ScriptedModel(failing, says("Hi", usage=Usage(input_tokens=1)))
    assert await heard(retrying(model, Pauses())) == [
        TextDelta(text="Hi"),
        UsageDelta(usage=Usage(input_tokens=1)),
        FinishDelta(finish="stop"),
    ]


async def test_an_answer_without_words_is_an_answer() -> None:
    assert await heard(retrying(ScriptedModel(says()), Pauses())) == [FinishDelta(finish="stop")]


@pytest.mark.parametrize(
    ("hint", "attempt", "pause"),
    [
        (None, 1, 0.5),
        (None, 2, 1.0),
        (None, 3, 2.0),
        (None, 9, 8.0),
        (0.0, 1, 0.0),
        (2.0, 1, 2.0),
        (30.0, 1, 30.0),
        (31.0, 1, None),
    ],
)
def test_a_hint_is_kept_to_unless_it_is_too_long(
    hint: float | None, attempt: int, pause: float | None
) -> None:
    failure = ModelFailed("no", retry_after_s=hint, transient=True)
    assert pause_s(failure, attempt, chance=0.0) == pause


def test_chance_spreads_the_crowd() -> None:
    failure = ModelFailed("no", transient=True)
    assert pause_s(failure, 1, chance=1.0) == 0.375
    hinted = ModelFailed("no", retry_after_s=0.0, transient=True)
    assert pause_s(hinted, 1, chance=1.0) == 0.25


async def test_leaving_early_leaves_the_model_too() -> None:
    model = ScriptedModel(says("a", "b"))
    async with aclosing(FallbackModel(retrying(model, Pauses())).stream(prompt())) as deltas:
        await anext(deltas)
        assert model.speaking == 1
    assert (model.speaking, model.left_early) == (0, 1)


async def test_over_the_wire() -> None:
    pauses = Pauses()
    async with FakeUpstream(
        refuses(503), refuses(429, headers={"retry-after": "7"}), "Hi"
    ) as upstream:
        model = retrying(model_at(upstream.base_url), pauses)
        assert await heard(model) == [TextDelta(text="Hi"), FinishDelta(finish="stop")]
        assert pauses.taken == [0.5, 7.0]
        assert len({request.body for request in upstream.requests}) == 1
        await model.close()


# ── fallback ─────────────────────────────────────────────────────────────────────────────────


async def test_the_next_one_answers_when_one_cannot() -> None:
    first = ScriptedModel(fails(transient=False), name="a")
    second = ScriptedModel(says("Hi"), name="b")
    both = FallbackModel(first, second)
    assert (await heard(both))[0] == TextDelta(text="Hi")
    assert both.name == "a"
    assert second.prompts == first.prompts


async def test_the_first_one_answers_when_it_can() -> None:
    first, second = ScriptedModel(says("Hi")), ScriptedModel()
    await heard(FallbackModel(first, second))
    assert second.prompts == []


async def test_nobody_continues_what_another_began() -> None:
    first, second = ScriptedModel(says("a", "b").failing(at=1)), ScriptedModel("c")
    await failure_of(FallbackModel(first, second))
    assert second.prompts == []


async def test_when_nobody_can_answer_the_most_hopeful_failure_counts() -> None:
    models = (
        ScriptedModel(
            fails("too long", status=400, reason="context_length_exceeded", transient=False),
            name="a",
        ),
        ScriptedModel(fails("busy", status=429, reason="rate", retry_after_s=9), name="b"),
        ScriptedModel(fails("busy", status=429, reason="rate", retry_after_s=3), name="c"),
    )
    failure = await failure_of(FallbackModel(*models))
    assert (failure.status, failure.reason, failure.transient) == (429, "rate", True)
    assert failure.retry_after_s == 3
    assert "a: too long; b: busy" in failure.detail


def test_failures_without_hope_stay_so() -> None:
    gone = ModelFailed("gone", status=404)
    assert together([("a", gone)]) is gone
    assert not together([("a", gone), ("b", gone)]).transient
    hinted = ModelFailed("busy", transient=True, retry_after_s=3)
    unhinted = ModelFailed("busy", transient=True)
    assert together([("a", hinted), ("b", unhinted)]).retry_after_s is None


async def test_wrappers_are_models() -> None:
    first = ScriptedModel(name="a", knows=frozenset({"seed", "stop"}))
    second = ScriptedModel(name="b", knows=frozenset({"seed"}))
    model = FallbackModel(RetryingModel(first), RetryingModel(second))
    assert (model.name, model.dialect.name) == ("a", "chat")
    assert model.knows == {"seed"}
    assert repr(model).count("ScriptedModel") == 2
    await model.close()
    assert first.closed and second.closed


class Wristwatch:
    """A monotonic clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_model_that_failed_is_left_alone_for_a_while() -> None:
    """Otherwise every turn of an outage waits for the same failure first."""
    clock = Wristwatch()
    first = ScriptedModel(fails(), says("I am back"), name="first")
    second = ScriptedModel(says("one"), says("two"), name="second")
    model = FallbackModel(first, second, cooldown_s=60.0, clock=clock)
    assert await heard(model) == [TextDelta(text="one"), FinishDelta(finish="stop")]
    assert await heard(model) == [TextDelta(text="two"), FinishDelta(finish="stop")]
    assert len(first.prompts) == 1
    clock.now += 60.0
    assert await heard(model) == [TextDelta(text="I am back"), FinishDelta(finish="stop")]


async def test_a_model_that_rests_is_asked_when_nobody_else_can_answer() -> None:
    first = ScriptedModel(fails(), says("after all"), name="first")
    second = ScriptedModel(says("one"), fails(), name="second")
    model = FallbackModel(first, second, cooldown_s=60.0, clock=Wristwatch())
    await heard(model)
    assert await heard(model) == [TextDelta(text="after all"), FinishDelta(finish="stop")]


async def test_a_refusal_sends_nobody_to_rest() -> None:
    """A request that is too long says nothing about the next one."""
    first = ScriptedModel(fails(transient=False), says("short enough"), name="first")
    second = ScriptedModel(says("one"), name="second")
    model = FallbackModel(first, second, cooldown_s=60.0, clock=Wristwatch())
    await heard(model)
    assert await heard(model) == [TextDelta(text="short enough"), FinishDelta(finish="stop")]


async def test_models_that_take_turns_are_asked_by_the_name_of_the_step() -> None:
    """A step that is tried again asks the same model; over many steps each of them is asked."""
    one, two = ScriptedModel(otherwise=lambda _: "a"), ScriptedModel(otherwise=lambda _: "b")
    both = FallbackModel(one, two, takes_turns=True)
    for n in range(20):
        asked = msgspec.structs.replace(prompt(), call_key=f"turn_1/{n}")
        assert len({str(await heard(both, asked)) for _ in range(2)}) == 1
    assert len(one.prompts) + len(two.prompts) == 40
    assert len(one.prompts) > 4 and len(two.prompts) > 4
