"""Which messages of a chat decide about a waiting call: decided from values alone."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.approval_questions import ChatQuestion, question_in
from holdfast.core.history.conversation import Snapshot, decided_flag
from holdfast.core.history.reconciliation import (
    ApprovalClosed,
    ApprovalsMissing,
    Fresh,
    Incoming,
    Reconciled,
    Speaker,
    StillAsked,
    WhyUndecided,
    question_of,
    question_shown,
    reconcile,
    take_in,
    without_repeats,
)
from holdfast.core.history.resends import Arrival
from holdfast.core.items import (
    AssistantMessage,
    CallDecision,
    Text,
    ToolResult,
    UserMessage,
    text_of,
)
from holdfast.ids import Version
from tests.core.builders import after, answered, asked, call, mint, user
from tests.core.histories import ending, new_session, turn_on

READER = Speaker(key="", has_read=True)


def waits(n: int = 1, *, key: str | None = "") -> Snapshot:
    calls = [
        msgspec.structs.replace(call(f"pay{k}", waits_for="approval"), chat_key=key)
        for k in range(n)
    ]
    turn = after(
        turn_on(new_session(), user("Pay")), asked(), answered(*calls, finish="tool_calls")
    )
    return ending(new_session(), turn)


def question(session: Snapshot) -> ChatQuestion:
    last = session.marks[-1]
    found = question_in(session.said_by(last), last.turn_id)
    assert found is not None
    return found


def says(text: str) -> Incoming:
    return Incoming(role="user", content=(Text(text=text),))


def hears(text: str) -> Incoming:
    return Incoming(role="assistant", content=(Text(text=text),))


def told(session: Snapshot, *messages: Incoming, speaker: Speaker | None = READER) -> Reconciled:
    return reconcile(session, messages, mint, speaker=speaker)


def decided(found: Reconciled) -> tuple[CallDecision, ...]:
    assert isinstance(found, Fresh), found
    (message,) = (each for each in found.input if isinstance(each, UserMessage))
    return message.decisions


def test_a_listed_word_decides_and_is_kept_with_what_it_decided() -> None:
    session = waits()
    (pays,) = session.asked
    found = told(session, says("yes"))
    assert decided(found) == (CallDecision(call=pays.id, approve=True),)
    assert isinstance(found, Fresh) and found.approved == (pays.id,)
    refused = told(session, says("no"))
    assert isinstance(refused, Fresh) and not refused.approved
    assert [type(each) for each in refused.input] == [ToolResult, UserMessage]


def test_codes_decide_about_several() -> None:
    session = waits(2)
    first, second = question(session).codes
    found = told(session, says(f"yes {second} no {first}"))
    assert isinstance(found, Fresh) and found.approved == (session.asked[1].id,)
    assert f"yes {first} no {second}" in question(session).text
    for unclear in ("yes", f"yes {first} no", "yes 00 11", f"yes {first}", "", f"{first} {second}"):
        assert question(session).decisions(unclear) is None


@pytest.mark.parametrize(
    ("why", "messages", "speaker"),
    [
        ("no_answer", [says("Yes, but only 5")], READER),
        ("no_answer", [says("yes"), says("yes")], READER),
        ("other_key", [says("yes")], Speaker(key="key_2", has_read=True)),
        ("too_early", [says("yes")], Speaker(key="", has_read=False)),
        ("no_answer", [says("Pay"), hears("Something else."), says("yes")], READER),
        ("old_answer", [says("Pay"), says("yes")], READER),
    ],
)
def test_it_decides_nothing_if(
    why: WhyUndecided, messages: list[Incoming], speaker: Speaker
) -> None:
    session = waits()
    found = told(session, *messages, speaker=speaker)
    assert found == StillAsked(question=question(session), why=why)


def test_an_answer_that_asks_cannot_go_on_undecided() -> None:
    """A chat program's request to go on with the last answer is no decision."""
    session = waits()
    history = [says("Pay"), hears(question(session).text)]
    found = reconcile(session, history, mint, speaker=READER, known=2, needs_question=False)
    assert found == StillAsked(question=question(session), why="no_answer")


def test_a_message_from_before_the_question_decides_nothing() -> None:
    session = waits()
    since = Arrival(version=Version(0))
    found = reconcile(session, [says("yes")], mint, speaker=READER, since=since)
    assert isinstance(found, StillAsked) and found.why == "too_early"


def test_a_client_that_resends_shows_the_question_and_those_that_were_repeated() -> None:
    session = waits()
    asked_first, again = hears(question(session).text), hears(question(session).repeated("Why."))
    for history in ([asked_first], [asked_first, says("hm"), again], [says("hm"), again]):
        found = told(session, says("Pay"), *history, says("yes"))
        assert len(decided(found)) == 1
        assert isinstance(found, Fresh) and not found.diverged


@pytest.mark.parametrize("speaker", [READER, None])
def test_where_the_question_said_that_a_message_refuses_it_refuses(speaker: Speaker | None) -> None:
    session = waits(key=None if speaker else "")
    found = told(session, says("yes"), speaker=speaker)
    assert decided(found) == ()
    assert isinstance(found, Fresh) and not found.approved
    assert ("Any other message refuses it." in question(session).text) is (speaker is not None)


def test_a_question_that_comes_back_is_no_answer_of_the_models() -> None:
    """A client brings a conversation from elsewhere, with our words in it."""
    both = hears(f"May I?\n\n{question(waits()).text}")
    found = told(new_session(), says("Pay"), both, says("yes"), speaker=None)
    assert isinstance(found, Fresh)
    answers = [text_of(e.content) for e in found.input if isinstance(e, AssistantMessage)]
    assert answers == ["May I?"]


def test_only_calls_that_wait_for_an_approval_are_asked_about() -> None:
    session = waits()
    for others in ([], [call("look", waits_for="client")]):
        assert question_in(others, session.marks[-1].turn_id) is None
    both = [*session.asked, call("look", waits_for="client")]
    mixed = question_in(both, session.marks[-1].turn_id)
    assert mixed is not None and not mixed.in_chat
    two = ChatQuestion(turn_id=mixed.turn_id, calls=waits(2, key=None).asked)
    assert "Any other message refuses them." in two.text


def test_repeated_questions_are_left_out_with_the_messages_that_decided_nothing() -> None:
    asks = question(waits())
    first, yes = (says("Pay"), hears(asks.text)), says("yes")
    repeated = hears(asks.repeated("The message is no answer to the question."))
    assert without_repeats((*first, says("Hm"), says("Well"), repeated, yes)) == (*first, yes)
    assert without_repeats((*first, yes)) == (*first, yes)


# ── decisions by id ──────────────────────────────────────────────────────────────────────────


def decides(session: Snapshot, n: int = 0, *, approve: bool = True, reason: str = "") -> Incoming:
    one = CallDecision(call=session.asked[n].id, approve=approve, reason=reason)
    return Incoming(role="user", decisions=(one,))


def test_a_decision_names_its_call_and_needs_no_speaker() -> None:
    session = waits(key=None)
    found = told(session, decides(session), speaker=None)
    assert isinstance(found, Fresh) and found.approved == (session.asked[0].id,)
    refused = told(session, decides(session, approve=False, reason="Too much."), speaker=None)
    assert isinstance(refused, Fresh)
    assert "Too much." in text_of(
        next(e for e in refused.input if isinstance(e, ToolResult)).content
    )


def test_decisions_cover_all_calls_or_none() -> None:
    session = waits(2)
    missing = told(session, decides(session), speaker=None)
    assert missing == ApprovalsMissing(calls=(session.asked[1].id,))
    both = told(session, decides(session), decides(session, 1), speaker=None)
    assert isinstance(both, Fresh) and len(both.approved) == 2


def test_a_decision_about_another_call_is_closed() -> None:
    stranger = decides(waits())
    assert isinstance(told(waits(), stranger, speaker=None), ApprovalClosed)


def test_a_history_that_is_written_decides_nothing() -> None:
    session = waits()
    found = take_in(session, [decides(session), says("Well")], mint)
    assert isinstance(found, Fresh) and not found.approved
    assert decided(found) == ()


def test_a_request_shows_a_question_if_its_last_answer_ends_with_it() -> None:
    asks = question(waits()).text
    assert question_shown([hears("Well?"), says("Pay"), hears(asks), says("yes")]) == asks
    assert question_shown([hears(asks), says("yes"), hears("Paid."), says("Thanks")]) == ""
    assert question_shown([says("Pay")]) == ""


def test_a_session_ends_with_a_question_if_its_last_turn_asks_one() -> None:
    session = waits()
    assert question_of(session) == question(session)
    assert question_of(new_session()) is None


def test_the_flag_of_a_decision_says_who_made_it_and_when() -> None:
    made = decided_flag(approve=False, key="key_1", at_ms=7)
    assert made.value == "refused key_1 7"
    assert decided_flag(approve=True, key=None, at_ms=7).value == "approved - 7"
