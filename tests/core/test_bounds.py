"""How much of the past a model is shown where an agent says how much, and how far a turn may go where several say."""

from __future__ import annotations

from holdfast.core.history.conversation import Snapshot, Summarized, seen_after, seen_by_agent
from holdfast.core.items import Summary, TurnLimits, UserMessage, text_of
from tests.core.builders import summary, user
from tests.core.histories import new_session, noted, with_turn


def conversation(turns: int) -> Snapshot:
    """Turns of two items each."""
    session = new_session()
    for n in range(turns):
        session = with_turn(session, user(f"q{n}"), answer=f"a{n}")
    return session


def asked(session: Snapshot, items_max: int | None) -> list[str]:
    seen = seen_by_agent(session, items_max=items_max)
    return [text_of(each.content) for each in seen if isinstance(each, UserMessage)]


def test_without_a_bound_everything_is_seen() -> None:
    assert asked(conversation(3), None) == ["q0", "q1", "q2"]


def test_a_bound_shows_whole_turns_and_moves_in_strides() -> None:
    starts = [asked(conversation(turns), 8)[0] for turns in range(1, 9)]
    assert starts == ["q0"] * 4 + ["q2"] * 2 + ["q4"] * 2


def test_the_newest_turn_is_seen_however_long_it_is() -> None:
    session = with_turn(conversation(1), user("Tell"), *(user(f"{n}") for n in range(9)))
    assert seen_after(session, items_max=2) == 1
    assert seen_after(conversation(1), items_max=1) == 0


def test_a_summary_that_reaches_as_far_stands_for_the_past() -> None:
    session = conversation(6)
    summed = noted(session, Summarized(summary=summary("So far.", covers_to=10)))
    assert seen_after(summed, items_max=4) == 0
    shown = list(seen_by_agent(summed, items_max=4))
    assert isinstance(shown[0], Summary)


def test_of_two_limits_the_tighter_one_holds() -> None:
    agent = TurnLimits(steps_max=5, calls_max=9)
    session = TurnLimits(steps_max=7, calls_max=2, cost_micros_max=100)
    both = TurnLimits(steps_max=5, calls_max=2, cost_micros_max=100)
    assert agent.within(session) == session.within(agent) == both
    assert TurnLimits().within(TurnLimits()) == TurnLimits()
