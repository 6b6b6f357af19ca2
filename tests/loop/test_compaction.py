"""A conversation may grow for ever: the model is shown what it takes, and people lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from holdfast import limits
from holdfast.agents.agent import Agent, SummaryRules
from holdfast.core.history.conversation import (
    Snapshot,
    Summarized,
    Visibility,
    seen_by_people,
    summary_seen,
)
from holdfast.core.items import (
    Summary,
    Text,
    ToolResult,
    UserMessage,
    text_of,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.estimates import BYTES_PER_TOKEN
from holdfast.ids import SessionId
from holdfast.loop.compaction import INSTRUCTION, TOO_LONG, coverable
from holdfast.loop.prompt_sizes import PromptSizes
from holdfast.loop.shortened_results import LAST_WHOLE, SHOWN_CHARS, STRIDE, shortened
from holdfast.models.model import ModelFailed, Prompt
from holdfast.models.windows import context_window
from holdfast.testing.scripted_model import Script, fails, says
from holdfast.tools.tool import ToolOutput, ToolRun
from tests.core.builders import call, mint, result, summary, user
from tests.core.histories import new_session, noted, waiting_for, with_turn
from tests.loop.stage import Deed, Model, Stage, agent, messages_of, results_of, words

WINDOW = 4_000
"""Tokens; 16,000 bytes of prompt."""

Answer = Callable[[Prompt], Script | str]


def tokens_of(prompt: Prompt) -> int:
    tools = sum(len(each.parameters) + len(each.description) for each in prompt.tools)
    return round((len(prompt.system) + tools + sum(map(len, prompt.messages))) / BYTES_PER_TOKEN)


def is_summing_up(prompt: Prompt) -> bool:
    return prompt.system == INSTRUCTION


class Small(Model):
    """A model with a small window. It refuses more, and sums up by counting what it was shown."""

    def __init__(self, *, window: int = WINDOW, answer: Answer = lambda _: "Noted.") -> None:
        super().__init__(otherwise=self._answer)
        self._window = window
        self._speak = answer
        self.refusals = 0

    def _answer(self, prompt: Prompt) -> Script | str:
        tokens = tokens_of(prompt)
        if tokens > self._window:
            self.refusals += 1
            return fails("too long", status=400, reason=TOO_LONG, transient=False)
        if is_summing_up(prompt):
            (shown,) = messages_of(prompt)
            return says(
                f"They spoke of {words(shown).count('fact')} facts.",
                usage=ev.Usage(input_tokens=tokens, output_tokens=9),
            )
        return self._speak(prompt)

    @property
    def summaries_asked(self) -> list[Prompt]:
        return [each for each in self.prompts if is_summing_up(each)]

    @property
    def turns_asked(self) -> list[Prompt]:
        return [each for each in self.prompts if not is_summing_up(each)]


def butler(model: Model, *tools: Deed, window: int | None = WINDOW) -> Agent:
    made = agent("butler", model=model, tools=tools)
    made.context_window = window
    return made


def fact(n: int, *, size: int = 400) -> str:
    return f"fact {n}: " + "x" * size


def long_session(turns: int, *, size: int = 400) -> Snapshot:
    session = new_session()
    for n in range(turns):
        session = with_turn(session, user(fact(n, size=size)))
    return session


def summaries_in(session: Snapshot) -> list[Summary]:
    return [each for each in session.items if isinstance(each, Summary)]


# ── before the window overflows ──────────────────────────────────────────────────────────────


async def test_a_past_that_would_not_fit_is_summed_up_first() -> None:
    model = Small()
    stage = Stage(butler(model), snapshot=long_session(32))
    before = list(seen_by_people(stage.snapshot))
    turn = await stage.next("And now?")
    (made,) = summaries_in(stage.snapshot)
    (asked,) = model.turns_asked
    assert model.refusals == 0
    assert tokens_of(asked) <= WINDOW * limits.compact_at_share
    first, *rest = messages_of(asked)
    assert made.text in words(first)
    assert words(rest[-1]) == "And now?"
    # People see everything that they saw before, and the turn besides.
    assert list(seen_by_people(stage.snapshot))[: len(before)] == before
    # What writing it took is part of what the turn took.
    assert turn.turn.usage.output_tokens == 9 * len(model.summaries_asked)


async def test_another_model_may_write_the_summary() -> None:
    model, scribe = Small(), Small()
    made = butler(model)
    made.compaction = SummaryRules(model=scribe, at_share=0.5)
    stage = Stage(made, snapshot=long_session(20))
    await stage.next("And now?")
    assert len(summaries_in(stage.snapshot)) == 1
    assert scribe.summaries_asked and not scribe.turns_asked and not model.summaries_asked
    (asked,) = model.turns_asked
    assert tokens_of(asked) <= WINDOW * 0.5


async def test_an_agent_may_do_without_summaries() -> None:
    model = Small(window=100_000)
    made = butler(model)
    made.compaction = SummaryRules(by_itself=False)
    stage = Stage(made, snapshot=long_session(40))
    await stage.next("And now?")
    assert summaries_in(stage.snapshot) == [] and len(model.prompts) == 1


async def test_the_newest_turns_stay_as_they_were_said() -> None:
    model = Small()
    stage = Stage(butler(model), snapshot=long_session(32))
    await stage.next("And now?")
    (made,) = summaries_in(stage.snapshot)
    (asked,) = model.turns_asked
    kept = [n for n in range(32) if any(f"fact {n}:" in words(m) for m in messages_of(asked))]
    assert kept == list(range(kept[0], 32)), "without a gap"
    assert len(kept) >= 3
    assert made.covers_to == 2 * kept[0], "a summary ends where a turn ends"
    read = "".join(words(messages_of(each)[0]) for each in model.summaries_asked)
    assert f"fact {kept[0] - 1}:" in read
    assert f"fact {kept[0]}:" not in read


async def test_a_past_that_fits_is_left_alone() -> None:
    model = Small()
    stage = Stage(butler(model), snapshot=long_session(5))
    await stage.next("And now?")
    assert summaries_in(stage.snapshot) == [] == model.summaries_asked


async def test_nothing_is_summed_up_where_nobody_knows_what_fits() -> None:
    model = Small(window=1_000_000)
    stage = Stage(butler(model, window=None), snapshot=long_session(100))
    await stage.next("And now?")
    assert model.summaries_asked == []


async def test_a_summary_goes_on_from_the_one_before() -> None:
    model = Small()
    stage = Stage(butler(model))
    for n in range(120):
        await stage.next(fact(n))
    made = summaries_in(stage.snapshot)
    assert len(made) > 2
    assert [each.covers_to for each in made] == sorted({each.covers_to for each in made})
    assert "Summary of everything before: They spoke of" in words(
        messages_of(model.summaries_asked[-1])[0]
    )
    assert model.refusals == 0


async def test_between_two_summaries_a_prompt_only_grows_at_its_end() -> None:
    model = Small()
    stage = Stage(butler(model))
    for n in range(120):
        await stage.next(fact(n))
    sent = [b",".join(each.messages) for each in model.turns_asked]
    grown = sum(now.startswith(before) for before, now in pairwise(sent))
    assert len(sent) - 1 - grown == len(summaries_in(stage.snapshot))


async def test_a_past_longer_than_the_window_is_read_in_portions() -> None:
    model = Small()
    stage = Stage(butler(model), snapshot=long_session(200, size=600))
    await stage.next("And now?")
    assert len(model.summaries_asked) > 3
    assert model.refusals == 0
    for prompt in model.summaries_asked[1:]:
        assert "Summary of everything before: They spoke of" in words(messages_of(prompt)[0])
    assert len(summaries_in(stage.snapshot)) == 1


async def test_what_is_hidden_from_the_model_is_not_summed_up_for_it() -> None:
    session = long_session(32)
    secret = session.items[0]
    assert isinstance(secret, UserMessage)
    session = noted(session, Visibility(to_model=False), secret.id)
    model = Small()
    await Stage(butler(model), snapshot=session).next("And now?")
    read = "".join(words(messages_of(each)[0]) for each in model.summaries_asked)
    assert "fact 0:" not in read
    assert "fact 1:" in read


async def test_a_summary_that_cannot_be_written_is_done_without() -> None:
    model = Model(
        fails("busy", transient=True), "It did fit.", name="gpt-4o", dialect=Small().dialect
    )
    stage = Stage(butler(model), snapshot=long_session(32))
    await stage.next("And now?")
    assert summaries_in(stage.snapshot) == []
    assert is_summing_up(model.prompts[0])


@pytest.mark.parametrize(
    "written", [says("  \n"), says("So far", "so good").ending(at=1), says(refuses=["No."])]
)
async def test_an_empty_or_broken_summary_is_none(written: Script) -> None:
    model = Model(written, "Fine.")
    stage = Stage(butler(model), snapshot=long_session(32))
    await stage.next("And now?")
    assert summaries_in(stage.snapshot) == []


async def test_a_model_that_repeats_the_conversation_is_cut_short() -> None:
    model = Model(says("word " * 10_000), says("word " * 10_000), "Fine.")
    stage = Stage(butler(model), snapshot=long_session(32))
    await stage.next("And now?")
    (made,) = summaries_in(stage.snapshot)
    assert len(made.text) < limits.summary_chars_max + 100


async def test_calls_that_wait_for_the_client_keep_their_place() -> None:
    errand = call("errand", waits_for="client")
    session = waiting_for(long_session(32), errand)
    model = Small()
    stage = Stage(butler(model), snapshot=session)
    # The stage's model refuses what a provider would: a call without its result, or the other way round.
    await stage.next(result(errand, "done"))
    assert summaries_in(stage.snapshot) != []


# ── after it has overflowed ──────────────────────────────────────────────────────────────────


async def test_a_model_that_refuses_is_asked_once_more_with_less() -> None:
    model = Small()
    stage = Stage(butler(model, window=None), snapshot=long_session(50))
    turn = await stage.next("And now?")
    assert model.refusals == 1
    assert len(summaries_in(stage.snapshot)) == 1
    kinds = [type(each).__name__ for each in turn.events]
    begins = kinds.index("StepStarted")
    assert kinds[begins : begins + 4] == ["StepStarted", "StepBroken", "Compacted", "StepStarted"]
    await stage.next("And then?")
    assert model.refusals == 1, "what it takes is known by now"


async def test_where_there_is_no_less_the_refusal_stands() -> None:
    model = Small()
    stage = Stage(butler(model, window=None))
    with pytest.raises(ModelFailed, match="too long"):
        await stage.play("y" * 40_000)
    assert model.refusals == 1


async def test_a_model_that_refuses_whatever_it_is_shown_is_asked_twice() -> None:
    refusal = fails("too long", status=400, reason=TOO_LONG, transient=False)
    model = Model(refusal, "They counted.", "They counted on.", refusal)
    stage = Stage(butler(model, window=None), snapshot=long_session(50))
    with pytest.raises(ModelFailed, match="too long"):
        await stage.play("And now?")
    assert [is_summing_up(each) for each in model.prompts] == [False, True, True, False]


async def test_other_refusals_are_not_ours_to_help() -> None:
    model = Model(fails("no", status=400, reason="invalid_prompt", transient=False))
    with pytest.raises(ModelFailed, match="no"):
        await Stage(butler(model), snapshot=long_session(3)).play("And now?")
    assert len(model.prompts) == 1


# ── a turn that is too long by itself ────────────────────────────────────────────────────────


async def read_a_page(run: ToolRun) -> ToolOutput:
    return ToolOutput(content=(Text(text=f"page {len(PAGES.runs)} " + "z" * 1_500),))


PAGES = Deed("read", read_only=True, do=read_a_page)


async def test_a_turn_that_reads_much_has_its_old_results_shortened() -> None:
    asked = 0

    def read_on(prompt: Prompt) -> Script | str:
        nonlocal asked
        asked += 1
        return says(calls=[("read", "{}", f"call_{asked}")]) if asked <= 30 else "Read it all."

    window = 8_000  # 30 pages are 46,000 bytes, 11,500 tokens
    model = Small(window=window, answer=read_on)
    stage = Stage(butler(model, PAGES, window=window), snapshot=long_session(8))
    turn = await stage.next("Read the book")
    assert model.refusals == 0
    assert all(tokens_of(each) <= window for each in model.turns_asked)
    # What is stored is whole; only what is shown was cut.
    assert [len(text_of(each.content)) > 1_500 for each in results_of(turn)] == [True] * 30
    last = [words(m) for m in messages_of(model.turns_asked[-1]) if m.role == "tool"]
    assert ["left out" in each for each in last[-LAST_WHOLE:]] == [False] * LAST_WHOLE
    assert "left out" in last[0]


def test_results_are_shortened_oldest_first_and_several_at_a_time() -> None:
    calls = [call("read") for _ in range(40)]
    items = [each for c in calls for each in (c, result(c, "q" * 2_000))]

    def cut(bytes_max: int) -> list[bool]:
        short = shortened(items, bytes_max=bytes_max)
        assert len(short) == len(items)
        results = [each for each in short if isinstance(each, ToolResult)]
        return [len(text_of(each.content)) < SHOWN_CHARS + 100 for each in results]

    assert cut(10**6) == [False] * 40
    some = cut(60_000)
    assert some == sorted(some, reverse=True), "the oldest first"
    assert sum(some) % STRIDE == 0
    assert cut(0) == [True] * (40 - LAST_WHOLE) + [False] * LAST_WHOLE


# ── how far ──────────────────────────────────────────────────────────────────────────────────


def test_what_fits_is_kept_and_the_rest_can_be_covered() -> None:
    session = long_session(10)
    assert coverable(session, keep_bytes=10**6) is None
    assert coverable(session, keep_bytes=0) == len(session.items)
    some = coverable(session, keep_bytes=2_000)
    assert some is not None
    assert 0 < some < len(session.items)
    assert some in {mark.end for mark in session.marks}


def test_what_is_covered_already_is_not_covered_again() -> None:
    session = long_session(10)
    session = noted(session, Summarized(summary=summary("Much.", covers_to=12)))
    assert summary_seen(session) is not None
    assert coverable(session, keep_bytes=0) == 20
    assert coverable(session, keep_bytes=10**6) is None
    whole = noted(session, Summarized(summary=summary("All.", covers_to=20)))
    assert coverable(whole, keep_bytes=0) is None


# ── what fits ────────────────────────────────────────────────────────────────────────────────

HERE = mint(SessionId)


def test_what_a_provider_reports_makes_the_estimate_better() -> None:
    gauge, somebody = PromptSizes(), butler(Model())
    assert gauge.tokens(somebody, HERE, 8_000) == 2_000
    gauge.learn(somebody, HERE, 8_000, tokens=1_000)
    assert gauge.tokens(somebody, HERE, 8_000) == 1_000
    assert gauge.bytes(somebody, HERE, 1_000) == 8_000
    gauge.learn(somebody, HERE, 8_000, tokens=0)  # it did not say
    gauge.learn(somebody, HERE, 80, tokens=500)  # mostly what it adds by itself
    assert gauge.tokens(somebody, HERE, 8_000) == 1_000
    assert gauge.tokens(somebody, mint(SessionId), 8_000) == 2_000


def test_the_smallest_window_that_was_heard_of_counts() -> None:
    gauge = PromptSizes()
    unknown, known = butler(Model(), window=None), butler(Model(), window=500)
    assert gauge.window(unknown, HERE) is None
    assert gauge.window(known, HERE) == 500
    gauge.learn_refused(unknown, HERE, 1_600)
    assert gauge.window(unknown, HERE) == gauge.window(known, HERE) == 400
    gauge.learn_refused(unknown, HERE, 16_000)
    assert gauge.window(unknown, HERE) == 400


def test_only_recent_sessions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "gauge_entries_max", 2)
    gauge, somebody = PromptSizes(), butler(Model())
    first, second, third = (mint(SessionId) for _ in range(3))
    for each in (first, second, first, third):
        gauge.learn(somebody, each, 8_000, tokens=1_000)
    assert [gauge.tokens(somebody, each, 8_000) for each in (first, second, third)] == [
        1_000,
        2_000,
        1_000,
    ]


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("openai/gpt-4o-mini", 128_000),
        ("gpt-4.1", 1_047_576),
        ("gpt-4", 8_192),
        ("openrouter/anthropic/claude-sonnet-4-5", 200_000),
        ("google/gemini-2.5-pro", 1_048_576),
        ("demo", None),
    ],
)
def test_the_windows_of_well_known_models(name: str, window: int | None) -> None:
    assert context_window(name) == window
