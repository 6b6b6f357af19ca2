"""Which of the last steps made the same calls."""

from __future__ import annotations

import pytest

from holdfast.core.items import Item, ToolCall
from holdfast.core.turns.repeated_calls import repeated_steps
from tests.core.builders import call, result, said

ONE, TWO = call("look", '{"a": 1, "b": 2}'), call("look", '{"b":2,"a":1}')
OTHER, BROKEN = call("look", '{"a": 2}'), call("look", "{")


def step(*calls: ToolCall) -> list[Item]:
    return [*calls, *(result(each) for each in calls)]


@pytest.mark.parametrize(
    ("items", "count"),
    [
        ([], 0),
        ([said("Hi.")], 0),
        ([ONE], 1),
        ([*step(ONE), TWO], 2),
        ([*step(ONE), said("Again."), *step(TWO), ONE], 3),
        ([*step(ONE), *step(OTHER), *step(TWO)], 1),
        ([*step(ONE, OTHER), *step(OTHER, TWO)], 2),
        ([*step(ONE), said("Hi.")], 1),
        ([*step(BROKEN), BROKEN], 2),
        ([*step(ONE), call("look", '{"a":1,"b":2}', state="set_aside"), TWO], 2),
    ],
)
def test_how_often_a_step_was_made(items: list[Item], count: int) -> None:
    assert repeated_steps(items, ()) == count


def test_another_branch_does_not_count() -> None:
    assert repeated_steps([*step(ONE), TWO], (ONE.id,)) == 0
