"""An answer that breaks off is counted: as reported, and the rest as an estimate."""

from __future__ import annotations

import pytest

from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import advanced, closing, resuming
from holdfast.core.turns.estimates import counted, text_bytes, tokens_in
from holdfast.core.turns.turn import Turn
from holdfast.ids import ReasoningId
from tests.core.builders import after, begun, interrupted, new_minter

mint = new_minter()
ESTIMATE = ev.StepEstimate(prompt_tokens=100, input_price=2_000_000, output_price=500_000)


def thinking(*, estimate: ev.StepEstimate | None = ESTIMATE, words: str = "Hm, é!") -> Turn:
    """A turn whose model has thought this, and reported nothing."""
    item = mint(ReasoningId)
    turn = after(begun(), ev.StepStarted(estimate=estimate))
    if not words:
        return turn
    opened = ev.ItemOpened(item=item, kind="reasoning")
    return after(turn, opened, ev.Grew(item=item, text=words))


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (
            ev.Usage(),
            ev.Usage(input_tokens=100, output_tokens=3, reasoning_tokens=1, cost_micros=202,
                     estimated_tokens=103),
        ),
        (
            ev.Usage(input_tokens=7, output_tokens=2, cost_micros=40),
            ev.Usage(input_tokens=7, output_tokens=3, reasoning_tokens=1, cost_micros=41,
                     estimated_tokens=1),
        ),
        (
            ev.Usage(input_tokens=7, output_tokens=9, reasoning_tokens=5),
            ev.Usage(input_tokens=7, output_tokens=9, reasoning_tokens=5),
        ),
    ],
    ids=["nothing", "a part", "more than came"],
)  # fmt: skip
def test_what_was_reported_counts_and_the_rest_is_estimated(
    reported: ev.Usage, expected: ev.Usage
) -> None:
    assert counted(reported, ESTIMATE, said_bytes=8, thought_bytes=4) == expected


def test_a_text_is_measured_by_its_bytes() -> None:
    assert text_bytes(("abc", "é", "\ud800")) == 3 + 2 + 3
    assert [tokens_in(n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_a_turn_that_is_kept_discarded_or_resumed_is_counted_alike() -> None:
    open_turn = thinking()
    stopped = after(open_turn, interrupted("deadline"))
    kept = advanced(stopped, closing(stopped, mint))
    again = advanced(open_turn, resuming(open_turn, mint, after="crash"))
    assert stopped.usage == ev.Usage() and stopped.spent == kept.usage == again.usage
    assert kept.spent == kept.usage
    assert (kept.usage.reasoning_tokens, kept.usage.estimated_tokens) == (2, 102)


def test_a_model_that_failed_counts_once_it_has_answered() -> None:
    silent, heard = (
        after(thinking(words=words), interrupted("model_error")) for words in ("", "x")
    )
    assert silent.spent == ev.Usage()
    assert heard.spent.estimated_tokens == 101
    assert after(thinking(words=""), interrupted("disconnected")).spent.input_tokens == 100


def test_without_an_estimate_only_reports_count() -> None:
    assert thinking(estimate=None).spent == ev.Usage()
