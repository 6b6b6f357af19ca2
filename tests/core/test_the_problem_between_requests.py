"""How agent servers lose the plot between requests, and that this one does not.

One test for each row of the problem that values alone decide. The other rows need a store, a lane or a
connection, and are tested where those live.
"""

from __future__ import annotations

import pytest

from holdfast.core.history.checks import check_turn
from holdfast.core.history.conversation import (
    Flagged,
    Snapshot,
    Summarized,
    Titled,
    Visibility,
    seen_by_model,
    seen_by_people,
)
from holdfast.core.history.reconciliation import Fresh, Incoming, NothingNew, reconcile
from holdfast.core.identity import Ambiguous, FoundSource, NotFound, find_source
from holdfast.core.items import Interruption, Item, Text, ToolResult, text_of
from holdfast.core.turns import events as ev
from holdfast.errors import IllegalEvent
from tests.core.builders import (
    after,
    answered,
    asked,
    call,
    interrupted,
    mint,
    said,
    started,
    summary,
    user,
)
from tests.core.histories import (
    bytes_of,
    commit_on,
    ending,
    new_session,
    noted,
    turn_on,
    with_turn,
)

TALK = with_turn(new_session(), user("Hello"), answer="Hi")
HELLO = Incoming(role="user", content=(Text(text="Hello"),))
HI = Incoming(role="assistant", content=(Text(text="Hi"),))
OSLO = Incoming(role="user", content=(Text(text="Oslo?"),))


def new_in(session: Snapshot, *messages: Incoming) -> tuple[Item, ...]:
    found = reconcile(session, messages, mint)
    assert isinstance(found, Fresh)
    return found.input


def times_said(session: Snapshot, text: str) -> int:
    seen = (each for each in seen_by_people(session) if not isinstance(each, ToolResult))
    return sum(text_of(getattr(each, "content", ())) == text for each in seen)


@pytest.mark.parametrize("resent", [(), (HELLO, HI)], ids=["only what is new", "everything"])
def test_a_request_fails_half_way_and_the_retry_sees_its_message_once(
    resent: tuple[Incoming, ...],
) -> None:
    before = bytes_of(TALK)
    failed = after(turn_on(TALK, *new_in(TALK, *resent, OSLO)), asked())
    after(failed, interrupted("model_error"), ev.Ended(by="model_error", kept=False))
    assert bytes_of(TALK) == before

    retried = turn_on(TALK, *new_in(TALK, *resent, OSLO))
    session = ending(TALK, after(retried, asked(), answered(said("Cold."))))
    assert times_said(session, "Oslo?") == 1
    assert session.version == 2


def test_the_client_goes_away_and_half_a_turn_is_never_stored_as_a_success() -> None:
    """Success is a state that was reached, not the absence of an error."""
    half = after(turn_on(TALK, user("Oslo?")), asked())
    with pytest.raises(IllegalEvent, match="only a whole turn is kept"):
        commit_on(TALK, half)
    session = ending(TALK, after(half, interrupted("disconnected")))
    assert session.marks[-1].ended_by == "disconnected"
    assert isinstance(session.items[-1], Interruption)


@pytest.mark.parametrize(
    "messages",
    [(), (HELLO, HI), (Incoming(role="user", content=(Text(text=" \n"),)),), (HELLO, HI, HI)],
    ids=["no message", "the history again", "white space", "an answer of its own"],
)
def test_a_continuation_without_a_new_message_does_not_play_the_previous_turn_again(
    messages: tuple[Incoming, ...],
) -> None:
    assert reconcile(TALK, messages, mint) == NothingNew()


def test_two_turns_that_began_from_one_version_cannot_both_be_committed() -> None:
    one, other = (
        commit_on(TALK, after(turn_on(TALK, user(text)), asked(), answered(said())))
        for text in ("Oslo?", "Rome?")
    )
    session = TALK.with_commit(one)
    with pytest.raises(AssertionError):
        session.with_commit(other)
    assert times_said(session, "Rome?") == 0


def test_the_user_presses_stop_and_neither_forgets_nor_corrupts_the_turn() -> None:
    """The call that was under way has a result that says so, and the agent is told what happened."""
    fly, pay = call("fly"), call("pay")
    running = after(turn_on(TALK, user("Book it")), asked(), answered(said("Booking."), fly, pay))
    session = ending(TALK, after(running, started(fly), interrupted("cancelled")))

    mark = session.marks[-1]
    assert check_turn(session.items[mark.start : mark.end]) == ()
    assert times_said(session, "Booking.") == 1
    view = list(seen_by_model(session))
    outcomes = {each.call: each.outcome for each in view if isinstance(each, ToolResult)}
    assert outcomes == {fly.id: "unknown", pay.id: "not_run"}
    assert isinstance(view[-1], Interruption)


def test_a_commit_does_not_undo_flags_and_summaries_that_were_written_meanwhile() -> None:
    began_from = TALK
    turn = after(turn_on(began_from, user("Oslo?")), asked(), answered(said("Cold.")))

    first = TALK.items[0]
    assert not isinstance(first, ToolResult) and hasattr(first, "id")
    meanwhile = noted(TALK, Flagged(name="liked", value="very"), first.id)
    meanwhile = noted(meanwhile, Visibility(to_model=False), first.id)
    meanwhile = noted(meanwhile, Summarized(summary=summary(covers_to=2)))
    meanwhile = noted(meanwhile, Titled(title="A trip"))

    session = meanwhile.with_commit(commit_on(began_from, turn))
    assert session.notes == meanwhile.notes
    assert tuple(session.items[:2]) == tuple(TALK.items)


def test_people_still_see_everything_after_a_summary() -> None:
    session = noted(with_turn(TALK, user("Oslo?")), Summarized(summary=summary(covers_to=2)))
    assert list(seen_by_people(session)) == list(session.items)


OLD, NEW = (
    "https://agents.example.com/butler.yaml?v=1",
    "https://agents.example.com/butler.yaml?v=2",
)


def test_the_server_restarts_with_a_new_version_of_an_agent_and_sessions_find_it() -> None:
    assert find_source(OLD, [NEW, "pilot.yaml"]) == FoundSource(key=NEW, exact=False)
    assert find_source(OLD, [NEW, OLD]) == FoundSource(key=OLD, exact=True)


def test_a_session_whose_agent_is_gone_or_cannot_be_told_apart_is_refused_not_guessed() -> None:
    assert find_source(OLD, ["pilot.yaml"]) == NotFound(key=OLD)
    assert find_source(OLD, [NEW, f"{NEW}.1"]) == Ambiguous(keys=(NEW, f"{NEW}.1"))
