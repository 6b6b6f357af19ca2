"""The judge sees every kind of flaw in a conversation, and none in one that is as it should be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from scenarios import judging
from scenarios.behaviours import flaws, was_refused
from scenarios.judging import Presence
from scenarios.stage import answer_to
from systems.base import Answer, Said, said_of

HELLO, CHARGE, NEXT = "Ada is my name", "please charge me", "and what is next"
TEXTS = (HELLO, CHARGE)


def user(text: str, *, marked: bool = False) -> Said:
    return Said("user", text, marked=marked)


def says(text: str, *, marked: bool = False) -> Said:
    return Said("assistant", text, marked=marked)


def answer(text: str) -> Said:
    return says(answer_to(text))


def half(text: str, *, marked: bool = False) -> Said:
    return says(answer_to(text)[:15], marked=marked)


def calls(*names: str) -> Said:
    return Said("assistant", calls=names)


def result(name: str) -> Said:
    return Said("tool", "charged", answers=name)


ANSWERED = (user(HELLO), answer(HELLO))
CHARGED = (user(CHARGE), calls("call_1"), result("call_1"), answer(CHARGE))


# ── conversations without a flaw ──

CLEAN = {
    "nothing at all": (),
    "an answered turn": ANSWERED,
    "a turn with a tool": (*ANSWERED, *CHARGED),
    "two calls at once": (user(CHARGE), calls("a", "b"), result("b"), result("a"), answer(CHARGE)),
    "a question that is about to be answered": (*ANSWERED, user(NEXT)),
    "half an answer that says so": (*ANSWERED, user(CHARGE), half(CHARGE, marked=True), user(NEXT)),
    "a message that says that it was broken off": (
        *ANSWERED,
        user(CHARGE, marked=True),
        user(NEXT),
    ),
    "an interrupted call with a result": (
        user(CHARGE),
        calls("call_1"),
        result("call_1"),
        user(NEXT),
    ),
}


@pytest.mark.parametrize("said", CLEAN.values(), ids=CLEAN.keys())
def test_a_conversation_as_it_should_be_has_no_flaw(said: Sequence[Said]) -> None:
    assert judging.every_flaw(said, TEXTS) == []
    assert flaws(said, TEXTS, []) == []


# ── every kind of flaw ──

FLAWED = {
    "a call without a result": (
        (*ANSWERED, user(CHARGE), calls("call_1"), answer(CHARGE)),
        ["call call_1 has no result"],
    ),
    "one of two results is missing": (
        (user(CHARGE), calls("a", "b"), result("b"), answer(CHARGE)),
        ["call a has no result"],
    ),
    "a result before its call": (
        (user(CHARGE), result("call_1"), calls("call_1"), answer(CHARGE)),
        ["call call_1 has no result"],
    ),
    "a result without a call": (
        (user(CHARGE), result("call_9"), answer(CHARGE)),
        ["a result for call_9, which nobody has called"],
    ),
    "two results for one call": (
        (user(CHARGE), calls("call_1"), result("call_1"), result("call_1"), answer(CHARGE)),
        ["call call_1 has 2 results"],
    ),
    "a message twice": (
        (*ANSWERED, *ANSWERED),
        [f"{HELLO!r} is there 2 times"],
    ),
    "a message without an answer": (
        (user(HELLO), user(NEXT)),
        [f"{HELLO!r} has stayed without an answer"],
    ),
    "a retry after a failure that was kept": (
        (user(HELLO), user(HELLO), answer(HELLO)),
        [f"{HELLO!r} is there 2 times", f"{HELLO!r} has stayed without an answer"],
    ),
    "half an answer": (
        (user(HELLO), half(HELLO), user(NEXT)),
        [f"half an answer passes for a whole one: {half(HELLO).text!r}"],
    ),
}


@pytest.mark.parametrize(("said", "found"), FLAWED.values(), ids=FLAWED.keys())
def test_every_flaw_is_seen_and_named(said: Sequence[Said], found: Sequence[str]) -> None:
    assert judging.every_flaw(said, TEXTS) == found


# ── turns, and how much of them is there ──

PRESENCE: dict[str, tuple[Sequence[Said], Presence]] = {
    "whole": (CHARGED, "whole"),
    "whole between others": ((*ANSWERED, *CHARGED, user(NEXT)), "whole"),
    "absent": (ANSWERED, "absent"),
    "cut and marked": ((*ANSWERED, user(CHARGE), half(CHARGE, marked=True)), "marked"),
    "its message alone": ((*ANSWERED, user(CHARGE), user(NEXT)), "torn"),
    "its answer alone": ((*ANSWERED, answer(CHARGE)), "torn"),
    "there twice": ((*CHARGED, *CHARGED), "torn"),
    "cut and marked, and there again": (
        (user(CHARGE), half(CHARGE, marked=True), user(CHARGE)),
        "torn",
    ),
    "half of its answer, without its message": ((*ANSWERED, says(answer_to(CHARGE)[:28])), "torn"),
    "half of its answer": ((user(CHARGE), half(CHARGE)), "torn"),
    "another turn inside it": ((user(CHARGE), user(NEXT), answer(CHARGE), answer(NEXT)), "torn"),
}


@pytest.mark.parametrize(("said", "presence"), PRESENCE.values(), ids=PRESENCE.keys())
def test_how_much_of_a_turn_is_there(said: Sequence[Said], presence: Presence) -> None:
    assert judging.presence(said, CHARGE) == presence


def test_an_answered_turn_that_is_gone_is_misplaced() -> None:
    assert list(judging.misplaced(ANSWERED, TEXTS)) == [
        f"{CHARGE!r} was answered, and is there 0 times"
    ]


def test_an_answer_that_stands_elsewhere_is_misplaced() -> None:
    """As when two turns at once have written their messages first, and their answers then."""
    mixed = (user(HELLO), user(CHARGE), answer(HELLO), answer(CHARGE))
    assert list(judging.misplaced(mixed, TEXTS)) == [
        f"{HELLO!r} was answered, and its answer does not follow it"
    ]


def test_turns_that_are_in_place_are_not_misplaced() -> None:
    assert list(judging.misplaced((*CHARGED, *ANSWERED), TEXTS)) == []


def test_a_turn_that_is_there_in_part_is_a_flaw_of_its_own() -> None:
    said = (*ANSWERED, user(CHARGE), says("I will see."), user(NEXT))
    assert judging.every_flaw(said, TEXTS) == []
    assert flaws(said, TEXTS, []) == [f"{CHARGE!r} is there in part"]


def test_only_a_call_shows_that_the_tool_has_run() -> None:
    assert judging.shows_call(CHARGED)
    assert not judging.shows_call((*ANSWERED, user(CHARGE), says("I have charged you.")))


# ── notes ──


@pytest.mark.parametrize(
    "note",
    [
        "[Interrupted by the user]",
        "interrupted: crash",
        "The run was cancelled.",
        "Aborted",
        "(broken off)",
        "The previous run timed out.",
        "Run failed: RuntimeError",
        "status: incomplete",
        "The client has disconnected.",
        "The server crashed here.",
    ],
)
@pytest.mark.parametrize("role", [user, says])
def test_a_note_becomes_a_mark_on_what_it_follows(role: Callable[[str], Said], note: str) -> None:
    said = (*ANSWERED, user(CHARGE), half(CHARGE), role(note), user(NEXT))
    assert judging.folded(said, TEXTS) == (
        *ANSWERED,
        user(CHARGE),
        half(CHARGE, marked=True),
        user(NEXT),
    )
    assert flaws(said, TEXTS, []) == []


@pytest.mark.parametrize(
    "said",
    [
        pytest.param((*ANSWERED, user(NEXT)), id="no note"),
        pytest.param((says("interrupted"),), id="a note on nothing"),
        pytest.param((user(CHARGE), Said("tool", "interrupted", answers="call_1")), id="a result"),
        pytest.param((user(HELLO), Said("assistant", "aborted", calls=("a",))), id="a call"),
        pytest.param((*ANSWERED, user(f"{CHARGE}, or cancel")), id="a message of the scenario"),
    ],
)
def test_what_is_no_note_stays(said: Sequence[Said]) -> None:
    assert judging.folded(said, TEXTS) == tuple(said)


def test_a_mark_in_what_a_system_shows_is_read() -> None:
    shown: list[dict[str, object]] = [
        {"role": "user", "content": CHARGE, "marked": True},
        {"role": "assistant", "content": "Answer to", "tool_calls": [], "marked": True},
        {"role": "user", "content": NEXT},
    ]
    assert said_of(shown) == (user(CHARGE, marked=True), says("Answer to", marked=True), user(NEXT))


# ── tries that were given up ──


def test_a_try_that_is_marked_and_was_made_again_does_not_count() -> None:
    """A store may show every run of a session, the failed ones with their state."""
    tried = (*ANSWERED, user(CHARGE), half(CHARGE, marked=True), *CHARGED)
    assert judging.standing(tried, TEXTS) == (*ANSWERED, *CHARGED)


def test_a_try_that_does_not_say_so_is_a_repetition() -> None:
    tried = (*ANSWERED, user(CHARGE), half(CHARGE), *CHARGED)
    assert judging.standing(tried, TEXTS) == tried


def test_the_last_try_counts_however_it_ended() -> None:
    tried = (*ANSWERED, *CHARGED, user(CHARGE, marked=True))
    assert judging.standing(tried, TEXTS) == tried


# ── refusals ──


@pytest.mark.parametrize("status", [400, 404, 409, 422, 423, 429, 499])
def test_a_refusal_is_a_refusal_in_whichever_status(status: int) -> None:
    assert was_refused(Answer(status, "", failure="no"))


@pytest.mark.parametrize("status", [0, 200, 500, 503])
def test_an_accident_is_no_refusal(status: int) -> None:
    assert not was_refused(Answer(status, "", failure="oh"))


# ── turns at once ──


def test_turns_that_were_told_of_each_other_were_played_one_after_the_other() -> None:
    prompts = [(user(HELLO),), (*ANSWERED, user(CHARGE)), (*ANSWERED, *CHARGED, user(NEXT))]
    assert list(judging.side_by_side(prompts, TEXTS)) == []


def test_turns_that_began_from_the_same_history_were_not() -> None:
    """The conversation looks as if one had followed the other, and neither knew."""
    prompts = [(user(HELLO),), (user(CHARGE),), (*ANSWERED, *CHARGED, user(NEXT))]
    assert list(judging.side_by_side(prompts, TEXTS)) == [
        f"{HELLO!r} and {CHARGE!r} were played side by side"
    ]


def test_words_around_a_message_hide_no_turns_at_once() -> None:
    """Some systems put words of their own around what users say."""

    def wrapped(text: str) -> Said:
        return user(f"[ada at noon] {text}")

    after = (wrapped(HELLO), answer(HELLO), wrapped(CHARGE), answer(CHARGE), wrapped(NEXT))
    assert list(judging.side_by_side([(wrapped(HELLO),), (wrapped(CHARGE),), after], TEXTS)) == [
        f"{HELLO!r} and {CHARGE!r} were played side by side"
    ]
    assert list(judging.side_by_side([(wrapped(HELLO),), after[:3], after], TEXTS)) == []


def test_turns_may_be_shown_in_another_order_than_they_were_played() -> None:
    prompts = [(user(HELLO),), (*ANSWERED, user(CHARGE)), (*CHARGED, *ANSWERED, user(NEXT))]
    assert list(judging.side_by_side(prompts, TEXTS)) == []


def test_a_turn_that_was_refused_is_not_missed() -> None:
    prompts = [(user(HELLO),), (*ANSWERED, user(NEXT))]
    assert list(judging.side_by_side(prompts, TEXTS)) == []


@pytest.mark.parametrize("happened", [0, 1])
def test_what_the_conversation_knows_of_is_not_forgotten(happened: int) -> None:
    assert list(judging.forgotten((*ANSWERED, *CHARGED), happened)) == []


def test_what_a_refused_turn_has_done_is_forgotten() -> None:
    """To be told that nothing was stored is little help to somebody who has been charged."""
    assert list(judging.forgotten((*ANSWERED, *CHARGED), 6)) == [
        "the tool ran 6 times, and the agent was told of 1"
    ]
