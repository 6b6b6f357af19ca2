"""What of a request is new: nothing is stored twice, nothing that was said is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.history.checks import check_turn
from holdfast.core.history.conversation import Snapshot, Visibility
from holdfast.core.history.log import Log
from holdfast.core.history.reconciliation import (
    NOT_ANSWERED,
    REFUSED,
    ApprovalClosed,
    ApprovalsMissing,
    Fresh,
    Incoming,
    IncomingCall,
    NothingNew,
    Reconciled,
    ResultsMissing,
    Thought,
    UnknownCall,
    reconcile,
    take_in,
)
from holdfast.core.items import (
    AssistantMessage,
    Blob,
    File,
    ForeignContent,
    ForeignItem,
    Image,
    Inline,
    Item,
    Link,
    Opaque,
    Outcome,
    Part,
    Parts,
    Reasoning,
    Source,
    SystemMessage,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    text_of,
)
from holdfast.core.turns import events as ev
from holdfast.ids import CallId, ItemId
from tests.core.builders import (
    after,
    answered,
    asked,
    branch_opened,
    call,
    finished,
    inside,
    interrupted,
    new_minter,
    result,
    said,
    started,
    user,
)
from tests.core.histories import (
    CountingLog,
    damaged,
    ending,
    new_session,
    noted,
    turn_on,
    waiting_for,
    with_turn,
)

# ── what clients send ────────────────────────────────────────────────────────────────────────


def says(text: str, *parts: Part) -> Incoming:
    return Incoming(role="user", content=(Text(text=text), *parts))


def heard(text: str, *call_ids: str) -> Incoming:
    """An answer, as a client tells it: its text, and the calls that are the client's to answer."""
    calls = tuple(IncomingCall(call_id=each, name="tell", arguments="{}") for each in call_ids)
    return Incoming(role="assistant", content=(Text(text=text),) if text else (), calls=calls)


def tells(call_id: str, text: str = "done") -> Incoming:
    return Incoming(role="tool", call_id=call_id, content=(Text(text=text),))


def instructs(text: str = "Be brief.") -> Incoming:
    return Incoming(role="system", content=(Text(text=text),))


def fresh(
    session: Snapshot,
    *messages: Incoming,
    approvals: Mapping[CallId, bool] | None = None,
    system_is_stored: bool = False,
) -> Fresh:
    """What is new, which must be something. The ids are the same whenever the items are."""
    found = reconcile(
        session,
        messages,
        new_minter(at_ms=1),
        approvals=approvals,
        system_is_stored=system_is_stored,
    )
    assert isinstance(found, Fresh), found
    return found


def told(*messages: Incoming, on: Snapshot) -> Reconciled:
    return reconcile(on, messages, new_minter(at_ms=1))


def words(items: Sequence[Item]) -> list[str]:
    """Items in short: who, and what."""
    return [_short(each) for each in items]


def _short(item: Item) -> str:
    match item:
        case UserMessage() | SystemMessage() | AssistantMessage():
            return f"{type(item).__name__[0]}: {text_of(item.content)}"
        case ToolCall():
            return f"call {item.call_id}"
        case ToolResult():
            return f"{item.outcome} {item.call_id if item.from_client else ''}".strip()
    raise AssertionError(item)


TALK = with_turn(
    with_turn(new_session(), user("Hello"), answer="Hi"), user("Oslo?"), answer="Cold."
)
SO_FAR = (says("Hello"), heard("Hi"), says("Oslo?"), heard("Cold."))

# ── messages ─────────────────────────────────────────────────────────────────────────────────


def test_a_new_message_is_new() -> None:
    found = fresh(TALK, says("And Rome?"))
    assert words(found.input) == ["U: And Rome?"]
    assert (found.dropped, found.diverged) == (0, False)


def test_what_was_sent_before_is_dropped() -> None:
    found = fresh(TALK, *SO_FAR, says("And Rome?"))
    assert words(found.input) == ["U: And Rome?"]
    assert (found.dropped, found.diverged) == (4, False)


def test_several_new_messages_are_all_kept() -> None:
    assert words(fresh(TALK, says("And"), says("Rome?")).input) == ["U: And", "U: Rome?"]
    assert words(fresh(TALK, *SO_FAR, says("And"), says("Rome?")).input) == ["U: And", "U: Rome?"]


def test_continue_said_twice_is_two_messages() -> None:
    """Only a resend of the whole history is one; words that merely repeat are said again."""
    session = with_turn(new_session(), user("continue"), answer="one")
    again = fresh(session, says("continue"))
    assert (words(again.input), again.dropped) == (["U: continue"], 0)
    session = with_turn(session, *again.input, answer="two")
    resent = fresh(
        session, says("continue"), heard("one"), says("continue"), heard("two"), says("continue")
    )
    assert (words(resent.input), resent.dropped) == (["U: continue"], 4)


def test_the_same_words_after_a_turn_that_was_stopped_at_once_are_said_again() -> None:
    """The user says "continue", stops, and says it again. Nobody has answered in between, so the request
    looks like the whole history; but it was sent to be answered."""
    stopped = after(turn_on(new_session(), user("continue")), asked(), interrupted())
    session = ending(new_session(), stopped)
    for request in ([says("continue")], [says("continue"), says(" ")]):
        again = fresh(session, *request)
        assert (words(again.input), again.diverged) == (["U: continue"], False)
    assert words(fresh(session, says("continue"), says("go on")).input) == ["U: go on"]


def test_name_and_extras_of_a_message_are_kept() -> None:
    extra = Opaque(owner="openai", json='{ "x":1}')
    message = msgspec.structs.replace(says("Hello"), name="Ada", extras=(extra,))
    (item,) = fresh(new_session(), message).input
    assert isinstance(item, UserMessage)
    assert (item.name, item.extras) == ("Ada", (extra,))


def test_what_was_thought_comes_before_what_was_said() -> None:
    extra = Opaque(owner="openai", json="{}")
    thoughts = (Thought(text="Hm.", extras=(extra,)), Thought())
    answer = msgspec.structs.replace(heard("Yes.", "call_9"), thoughts=thoughts)
    found = take_in(new_session(), [says("Hi"), answer, tells("call_9")], new_minter())
    assert isinstance(found, Fresh)
    _, first, second, said, call, _ = found.input
    assert isinstance(first, Reasoning) and isinstance(second, Reasoning)
    assert (first.text, first.extras, first.agent) == ("Hm.", (extra,), "")
    assert isinstance(said, AssistantMessage) and isinstance(call, ToolCall)


DIVERGED: dict[str, tuple[list[Incoming], list[str], int]] = {
    "the last message was edited": ([*SO_FAR[:2], says("Rome?")], ["U: Rome?"], 2),
    "the last answer shall be made anew": ([*SO_FAR[:3]], ["U: Oslo?"], 2),
    "an answer was edited": (
        [*SO_FAR[:3], heard("Warm."), says("Really?")],
        ["U: Really?"],
        4,
    ),
    "an early message was edited": (
        [says("Good day"), *SO_FAR[1:], says("Really?")],
        ["U: Really?"],
        4,
    ),
    "the middle was cut out": ([*SO_FAR[:2], says("So?")], ["U: So?"], 2),
    "the beginning was cut off": ([*SO_FAR[2:], says("So?")], ["U: So?"], 2),
    "another conversation altogether": (
        [says("Hey"), heard("Ho"), says("Let's"), says("go")],
        ["U: Let's", "U: go"],
        2,
    ),
}


@pytest.mark.parametrize(("messages", "new", "dropped"), DIVERGED.values(), ids=DIVERGED.keys())
def test_only_what_follows_the_last_answer_is_new_if(
    messages: list[Incoming], new: list[str], dropped: int
) -> None:
    """And the client is told that its telling and ours have parted."""
    found = fresh(TALK, *messages)
    assert words(found.input) == new
    assert (found.dropped, found.diverged) == (dropped, True)


def test_an_edited_first_message_is_a_new_message() -> None:
    """It cannot be told apart from one, since nobody has answered in it."""
    found = fresh(TALK, says("Good day"))
    assert (words(found.input), found.diverged) == (["U: Good day"], False)


# ── the same thing, told differently ─────────────────────────────────────────────────────────

PNG = b"\x89PNG"
DIGEST = f"sha256:{sha256(PNG).hexdigest()}"
INLINE = Inline(media_type="image/png", data=PNG)
BLOB = Blob(media_type="image/png", digest=DIGEST, size_bytes=4)
LINK = Link(url="https://example.com/x.png")


def shows(source: Source, text: str = "") -> Parts:
    return (Text(text=text), Image(source=source))


SAME: dict[str, tuple[Parts, Parts, bool]] = {
    "space around it": ((Text(text="Hello"),), (Text(text=" Hello\n"),), True),
    "text in several parts": (
        (Text(text="Hello"),),
        (Text(text="Hel"), Text(text="lo")),
        True,
    ),
    "space inside it": ((Text(text="Hello you"),), (Text(text="Hello  you"),), False),
    "case": ((Text(text="Hello"),), (Text(text="hello"),), False),
    "an image that has moved to a blob": (shows(BLOB), shows(INLINE), True),
    "an image by its address": (shows(LINK), shows(LINK), True),
    "another address": (shows(LINK), shows(Link(url="https://example.com/y.png")), False),
    "another image": (shows(BLOB), shows(Inline(media_type="image/png", data=b"x")), False),
    "an image that is gone": (shows(BLOB, "Look"), (Text(text="Look"),), False),
}


@pytest.mark.parametrize(("stored", "resent", "same"), SAME.values(), ids=SAME.keys())
def test_a_message_is_the_same_or_not_in_spite_of(stored: Parts, resent: Parts, same: bool) -> None:
    session = with_turn(new_session(), msgspec.structs.replace(user(), content=stored))
    resends = Incoming(role="user", content=resent)
    found = fresh(session, resends, heard("Hi"), says("So?"))
    assert words(found.input) == ["U: So?"]
    assert found.diverged is not same


def test_a_turn_of_many_steps_is_one_answer_to_its_client() -> None:
    """Tools that run here, and what sub-agents say among themselves, are not what a client has heard."""
    look, ask = call("look"), call("ask")
    turn = after(
        turn_on(new_session(), user("Oslo?")),
        asked(),
        answered(said("Let me see. "), look),
        started(look),
        finished(look),
        asked(),
        ev.StepBroken(items=(said("It i", state="set_aside"),)),
        asked(),
        answered(ask),
        branch_opened(ask),
        asked(inside(ask)),
        answered(said("Among ourselves", path=inside(ask))),
        finished(ask),
        asked(),
        answered(said("Cold.")),
    )
    session = ending(new_session(), turn)
    for answer in (
        [heard("Let me see. Cold.")],
        [heard("Let me see.\n\nCold.")],
        [heard("Let me see. "), heard("Cold.")],
    ):
        found = fresh(session, says("Oslo?"), *answer, says("So?"))
        assert (words(found.input), found.diverged) == (["U: So?"], False)


def broken_off(session: Snapshot, prompt: str, text: str) -> Snapshot:
    """The session after a turn that was stopped in the middle of its answer, and kept."""
    message = said("")
    turn = after(
        turn_on(session, user(prompt)),
        asked(),
        ev.ItemOpened(item=message.id, kind="message"),
        ev.Grew(item=message.id, text=text),
        interrupted(),
    )
    return ending(session, turn)


@pytest.mark.parametrize(
    "kept", [[heard("It is c")], [heard("It")], []], ids=["all", "part", "none"]
)
def test_a_stopped_answer_is_known_again_by_whatever_a_client_kept_of_it(
    kept: list[Incoming],
) -> None:
    """A stop button keeps less than we do, or nothing; what was asked is not stored twice for that."""
    for before, told_before in ((new_session(), ()), (TALK, SO_FAR)):
        session = broken_off(before, "Rome?", "It is c")
        found = fresh(session, *told_before, says("Rome?"), *kept, says("So?"))
        assert (words(found.input), found.diverged) == (["U: So?"], False)


def test_other_words_than_those_of_a_stopped_answer_diverge() -> None:
    session = broken_off(new_session(), "Rome?", "It is c")
    found = fresh(session, says("Rome?"), heard("Warm"), says("So?"))
    assert (words(found.input), found.diverged) == (["U: So?"], True)


def test_asking_again_after_a_stop_is_a_new_message() -> None:
    """Pressing stop and then retry sends the conversation up to the question, and nothing after it."""
    session = broken_off(TALK, "Rome?", "It is c")
    again = fresh(session, *SO_FAR, says("Rome?"))
    assert (words(again.input), again.diverged) == (["U: Rome?"], True)


def test_an_empty_answer_in_a_resend_is_nothing() -> None:
    """Some clients keep a place for the answer that never came."""
    stopped = after(turn_on(new_session(), user("Oslo?")), asked(), interrupted())
    session = ending(new_session(), stopped)
    for empty in (heard(""), heard(" \n")):
        found = fresh(session, says("Oslo?"), empty, says("So?"))
        assert (words(found.input), found.diverged) == (["U: So?"], False)
        session_after = with_turn(session, *found.input, answer="Cold.")
        again = fresh(
            session_after, says("Oslo?"), empty, says("So?"), heard("Cold."), says("Rome?")
        )
        assert (words(again.input), again.diverged) == (["U: Rome?"], False)


def test_white_space_between_messages_is_neither_stored_nor_missed_in_a_resend() -> None:
    first = fresh(new_session(), says("Hello"), says(" \n"), says("you"))
    assert words(first.input) == ["U: Hello", "U: you"]
    stopped = after(turn_on(new_session(), *first.input), asked(), interrupted())
    resent = fresh(
        ending(new_session(), stopped), says("Hello"), says(" \n"), says("you"), says("So?")
    )
    assert (words(resent.input), resent.diverged) == (["U: So?"], False)


def test_what_was_hidden_from_people_or_damaged_is_not_expected_in_a_resend() -> None:
    first = TALK.items[0]
    assert isinstance(first, UserMessage)
    hidden = noted(TALK, Visibility(to_people=False), first.id)
    for session in (hidden, damaged(TALK, 0)):
        assert not fresh(session, *SO_FAR[1:], says("So?")).diverged
        assert fresh(session, *SO_FAR, says("So?")).diverged


# ── a conversation from elsewhere ────────────────────────────────────────────────────────────


def test_a_first_request_may_bring_a_whole_conversation() -> None:
    found = fresh(new_session(), *SO_FAR, says("So?"))
    assert words(found.input) == ["U: Hello", "A: Hi", "U: Oslo?", "A: Cold.", "U: So?"]
    assert (found.dropped, found.diverged) == (0, False)
    session = with_turn(new_session(), *found.input, answer="So.")
    then = fresh(session, *SO_FAR, says("So?"), heard("So."), says("Bye"))
    assert (words(then.input), then.diverged) == (["U: Bye"], False)


FOREIGN: dict[str, tuple[list[Incoming], list[str]]] = {
    "calls and results": (
        [says("Go"), heard("", "a", "b"), tells("a"), tells("b"), heard("Went.")],
        ["U: Go", "call a", "call b", "ok a", "ok b", "A: Went."],
    ),
    "calls that nobody answered": (
        [says("Go"), heard("Well,", "a"), says("Stop")],
        ["U: Go", "A: Well,", "call a", "not_answered a", "U: Stop"],
    ),
    "calls that nobody answered, at the end": (
        [says("Go"), heard("", "a")],
        ["U: Go", "call a", "not_answered a"],
    ),
    "the same call id in every turn": (
        [says("1"), heard("", "a"), tells("a"), says("2"), heard("", "a"), tells("a"), says("3")],
        ["U: 1", "call a", "ok a", "U: 2", "call a", "ok a", "U: 3"],
    ),
    "the same call id twice in one answer": (
        [says("Go"), heard("", "a", "a"), tells("a"), tells("a")],
        ["U: Go", "call a", "call a", "ok a", "ok a"],
    ),
    "the same call id twice, and no answer": (
        [says("Go"), heard("", "a", "a"), says("Stop")],
        ["U: Go", "call a", "call a", "not_answered a", "not_answered a", "U: Stop"],
    ),
    "an answer that says nothing": ([says("Go"), heard(" "), says("So?")], ["U: Go", "U: So?"]),
}


@pytest.mark.parametrize(("messages", "stored"), FOREIGN.values(), ids=FOREIGN.keys())
def test_a_conversation_from_elsewhere_is_stored_well_formed_with(
    messages: list[Incoming], stored: list[str]
) -> None:
    found = fresh(new_session(), *messages)
    assert words(found.input) == stored
    assert check_turn(found.input) == ()


def test_a_conversation_from_elsewhere_with_half_its_results_is_refused() -> None:
    found = told(says("Go"), heard("", "a", "b"), tells("a"), says("So?"), on=new_session())
    assert found == ResultsMissing(call_ids=("b",))


def test_what_a_client_heard_elsewhere_meanwhile_is_brought_along() -> None:
    found = fresh(TALK, *SO_FAR, says("Rome?"), heard("Warm."), says("So?"))
    assert words(found.input) == ["U: Rome?", "A: Warm.", "U: So?"]
    assert (found.dropped, found.diverged) == (4, False)


# ── nothing new ──────────────────────────────────────────────────────────────────────────────

NOTHING: dict[str, list[Incoming]] = {
    "no messages": [],
    "white space": [says(" \t\n")],
    "an empty message": [Incoming(role="user")],
    "instructions only": [instructs()],
    "the history and nothing more": [*SO_FAR],
    "the history and white space": [*SO_FAR, says("  ")],
    "the history and an answer that we never gave": [*SO_FAR, heard("Warm.")],
    "an answer and nothing more": [heard("Warm.")],
    "another telling that ends with an answer": [says("Oslo?"), heard("Warm.")],
}


@pytest.mark.parametrize("messages", NOTHING.values(), ids=NOTHING.keys())
def test_there_is_nothing_new_in(messages: list[Incoming]) -> None:
    """Otherwise a continuation without a new message would play the previous turn again."""
    assert told(*messages, on=TALK) == NothingNew()


@pytest.mark.parametrize("source", [INLINE, BLOB, LINK])
def test_an_image_or_a_file_alone_is_something(source: Source) -> None:
    for part in (Image(source=source), File(source=source)):
        (item,) = fresh(TALK, Incoming(role="user", content=(part,))).input
        assert isinstance(item, UserMessage)
        assert item.content == (part,)


# ── instructions ─────────────────────────────────────────────────────────────────────────────


def test_instructions_are_not_stored_on_chat() -> None:
    found = fresh(TALK, instructs(), *SO_FAR, instructs("Be kind."), says("So?"))
    assert (words(found.input), found.diverged) == (["U: So?"], False)


def test_instructions_are_items_where_the_api_says_so() -> None:
    first = fresh(new_session(), instructs(), says("Hello"), system_is_stored=True)
    assert words(first.input) == ["S: Be brief.", "U: Hello"]
    session = with_turn(new_session(), *first.input)
    then = fresh(
        session, instructs(), says("Hello"), heard("Hi"), says("So?"), system_is_stored=True
    )
    assert (words(then.input), then.diverged) == (["U: So?"], False)
    assert fresh(session, says("Hello"), heard("Hi"), says("So?"), system_is_stored=True).diverged


def test_instructions_alone_are_nothing_new_either_way() -> None:
    found = reconcile(TALK, [instructs()], new_minter(), system_is_stored=True)
    assert found == NothingNew()


# ── calls that wait for the client ───────────────────────────────────────────────────────────

ONE, TWO = call("tell", waits_for="client"), call("tell", waits_for="client")
WAITING = waiting_for(new_session(), ONE, TWO)

ANSWERS: dict[str, tuple[list[Incoming], list[str]]] = {
    "all, in order": ([tells(ONE.call_id), tells(TWO.call_id)], ["ok 1", "ok 2"]),
    "all, after a message": (
        [says("Here:"), tells(ONE.call_id), tells(TWO.call_id)],
        ["ok 1", "ok 2", "U: Here:"],
    ),
    "all, in another order": ([tells(TWO.call_id), tells(ONE.call_id)], ["ok 2", "ok 1"]),
    "all, and a message": (
        [tells(ONE.call_id), tells(TWO.call_id), says("So?")],
        ["ok 1", "ok 2", "U: So?"],
    ),
    "all, and white space": (
        [tells(ONE.call_id), says(" "), tells(TWO.call_id)],
        ["ok 1", "ok 2"],
    ),
    "all, by words of white space": (
        [tells(ONE.call_id, " "), tells(TWO.call_id, "")],
        ["ok 1", "ok 2"],
    ),
    "all, and the first one again": (
        [tells(ONE.call_id), tells(TWO.call_id), tells(ONE.call_id)],
        ["ok 1", "ok 2"],
    ),
    "none, but a message": ([says("Stop")], ["not_answered 1", "not_answered 2", "U: Stop"]),
}


@pytest.mark.parametrize(("messages", "stored"), ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("resent", [False, True], ids=["only new", "resent"])
def test_waiting_calls_may_be_answered(
    messages: list[Incoming], stored: list[str], resent: bool
) -> None:
    history = [says("Hello"), heard("One moment.", ONE.call_id, TWO.call_id)] if resent else []
    found = fresh(WAITING, *history, *messages)
    names = {"1": ONE.call_id, "2": TWO.call_id}
    assert words(found.input) == [
        " ".join(names.get(word, word) for word in each.split(" ")) for each in stored
    ]
    assert not found.diverged
    assert check_turn(found.input, carried=WAITING.waiting) == ()


REFUSALS: dict[str, tuple[list[Incoming], Reconciled]] = {
    "one of two": ([tells(ONE.call_id)], ResultsMissing(call_ids=(TWO.call_id,))),
    "the other of two": ([tells(TWO.call_id)], ResultsMissing(call_ids=(ONE.call_id,))),
    "one of two, and a message": (
        [tells(ONE.call_id), says("So?")],
        ResultsMissing(call_ids=(TWO.call_id,)),
    ),
    "a call that nobody made": ([tells("call_x")], UnknownCall(call_id="call_x")),
    "a call twice": (
        [tells(ONE.call_id), tells(ONE.call_id)],
        ResultsMissing(call_ids=(TWO.call_id,)),
    ),
    "a call twice, and otherwise": (
        [tells(ONE.call_id), tells(ONE.call_id, "not yet"), tells(TWO.call_id)],
        UnknownCall(call_id=ONE.call_id),
    ),
    "some, after going on": (
        [says("Stop"), tells(ONE.call_id)],
        ResultsMissing(call_ids=(TWO.call_id,)),
    ),
    "by white space": ([says("  ")], NothingNew()),
    "by nothing": ([], NothingNew()),
}


@pytest.mark.parametrize(("messages", "outcome"), REFUSALS.values(), ids=REFUSALS.keys())
def test_waiting_calls_may_not_be_answered(messages: list[Incoming], outcome: Reconciled) -> None:
    assert told(*messages, on=WAITING) == outcome


def test_a_result_that_was_given_already_is_refused() -> None:
    session = with_turn(WAITING, *fresh(WAITING, tells(ONE.call_id), tells(TWO.call_id)).input)
    assert told(tells(ONE.call_id), on=session) == UnknownCall(call_id=ONE.call_id)


def test_a_result_says_whether_the_clients_tool_has_failed() -> None:
    failed = msgspec.structs.replace(tells(ONE.call_id, "no such place"), failed=True)
    found = fresh(WAITING, failed, tells(TWO.call_id))
    assert words(found.input) == [f"error {ONE.call_id}", f"ok {TWO.call_id}"]


THREE = call("tell", waits_for="client")
GIVEN = with_turn(WAITING, *fresh(WAITING, tells(ONE.call_id), tells(TWO.call_id)).input)
ASKS = heard("One moment.", ONE.call_id, TWO.call_id)
"""What comes before `GIVEN`."""


@pytest.mark.parametrize("history", [[], [says("Hello"), ASKS], [ASKS]], ids=["none", "all", "end"])
def test_a_result_that_was_given_already_is_nothing_beside_a_new_one(
    history: list[Incoming],
) -> None:
    session = waiting_for(GIVEN, THREE)
    results = [tells(each.call_id) for each in (ONE, THREE, TWO)]
    found = fresh(session, *history, *results)
    assert words(found.input) == [f"ok {THREE.call_id}"]
    assert words(fresh(GIVEN, *results[:1], says("So?")).input) == ["U: So?"]


def test_a_result_that_differs_from_the_one_that_was_given_is_refused() -> None:
    """The stored one cannot be changed, and it would be a guess which of the two counts."""
    session = waiting_for(GIVEN, THREE)
    found = told(tells(ONE.call_id, "no"), tells(THREE.call_id), on=session)
    assert found == UnknownCall(call_id=ONE.call_id)
    # Beside its call it is a part of another telling of the same history.
    history = (says("Good day"), heard("", ONE.call_id, TWO.call_id, THREE.call_id))
    results = (tells(ONE.call_id, "no"), tells(TWO.call_id), tells(THREE.call_id))
    parted = fresh(session, *history, *results)
    assert (words(parted.input), parted.diverged) == ([f"ok {THREE.call_id}"], True)


def test_a_result_that_comes_too_late_is_not_stored() -> None:
    """The user has gone on instead. A client that tells the result beside its call has another history than we have."""
    session = with_turn(WAITING, *fresh(WAITING, says("Stop")).input, answer="Stopped.")
    late = [tells(ONE.call_id), tells(TWO.call_id)]
    stopped = [says("Stop"), heard("Stopped.")]
    found = fresh(session, says("Hello"), ASKS, *late, *stopped, says("So?"))
    assert (words(found.input), found.diverged) == (["U: So?"], True)
    after_all = told(says("Hello"), ASKS, *stopped, *late, on=session)
    assert after_all == UnknownCall(call_id=ONE.call_id)


def test_an_answer_before_the_one_that_was_not_heard_is_known_by_its_calls() -> None:
    """The client sent its next message before it had the answer to its results."""
    results = [tells(ONE.call_id), tells(TWO.call_id)]
    found = fresh(GIVEN, says("Hello"), ASKS, *results, says("So?"))
    assert (words(found.input), found.diverged) == (["U: So?"], False)
    part = fresh(GIVEN, says("Hello"), heard("One mom", ONE.call_id), *results, says("So?"))
    assert (words(part.input), part.diverged) == (["U: So?"], True)


def test_an_answer_that_is_known_in_part_has_diverged() -> None:
    found = fresh(TALK, *SO_FAR[:3], heard("Cold. And wet."), says("So?"))
    assert (words(found.input), found.diverged) == (["U: So?"], True)
    other = fresh(WAITING, says("Hello"), heard("Well."), tells(ONE.call_id), tells(TWO.call_id))
    assert (len(other.input), other.diverged) == (2, True)
    # In a message of its own, the rest would be another answer, from elsewhere.
    session = waiting_for(new_session(), THREE)
    brought = [tells(THREE.call_id), heard("From elsewhere."), says("So?")]
    found = fresh(session, says("Hello"), heard("One moment.", THREE.call_id), *brought)
    assert words(found.input) == [f"ok {THREE.call_id}", "A: From elsewhere.", "U: So?"]
    assert not found.diverged


def test_a_result_says_which_call_it_is_for_and_what_came_out() -> None:
    extra = Opaque(owner="openai", json="1")
    message = msgspec.structs.replace(tells(ONE.call_id, "It rains."), extras=(extra,))
    first, _ = fresh(WAITING, message, tells(TWO.call_id)).input
    assert isinstance(first, ToolResult)
    assert (first.call, first.call_id, first.outcome) == (ONE.id, ONE.call_id, "ok")
    assert (text_of(first.content), first.extras) == ("It rains.", (extra,))


def test_results_are_dropped_with_the_history_that_they_belong_to() -> None:
    results = [tells(ONE.call_id), tells(TWO.call_id)]
    session = with_turn(WAITING, *fresh(WAITING, *results).input, answer="Thanks.")
    asks = heard("One moment.", ONE.call_id, TWO.call_id)
    found = fresh(session, says("Hello"), asks, *results, heard("Thanks."), says("So?"))
    assert (words(found.input), found.diverged) == (["U: So?"], False)


def test_a_client_that_went_on_without_answering_has_not_diverged() -> None:
    """What we noted in place of its result is not what it has seen."""
    session = with_turn(WAITING, *fresh(WAITING, says("Stop")).input, answer="Stopped.")
    asks = heard("One moment.", ONE.call_id, TWO.call_id)
    found = fresh(session, says("Hello"), asks, says("Stop"), heard("Stopped."), says("So?"))
    assert (words(found.input), found.diverged) == (["U: So?"], False)


def test_calls_that_share_the_providers_id_are_answered_one_by_one() -> None:
    """Some servers number the calls of each answer from 0, some give the same id to all."""
    twin = msgspec.structs.replace(call("tell", waits_for="client"), call_id=ONE.call_id)
    session = waiting_for(new_session(), ONE, twin)
    found = fresh(session, tells(ONE.call_id, "one"), tells(ONE.call_id, "two"))
    assert [each.call for each in found.input if isinstance(each, ToolResult)] == [ONE.id, twin.id]
    assert check_turn(fresh(session, says("Stop")).input, carried=session.waiting) == ()


# ── calls that wait for a person's leave ─────────────────────────────────────────────────────

FLY, PAY = call("fly", waits_for="approval"), call("pay", waits_for="approval")
ASKING = waiting_for(new_session(), FLY, PAY, ONE)


class Approval(NamedTuple):
    """Answers of a person, messages beside them, and what becomes of each of the waiting calls."""

    approvals: dict[CallId, bool]
    messages: list[Incoming]
    approved: tuple[CallId, ...]
    outcomes: dict[CallId, Outcome]


APPROVALS: dict[str, Approval] = {
    "both allowed": Approval(
        {FLY.id: True, PAY.id: True},
        [tells(ONE.call_id)],
        (FLY.id, PAY.id),
        {ONE.id: "ok"},
    ),
    "one allowed, one denied": Approval(
        {FLY.id: True, PAY.id: False},
        [tells(ONE.call_id)],
        (FLY.id,),
        {PAY.id: "refused", ONE.id: "ok"},
    ),
    "both denied": Approval(
        {FLY.id: False, PAY.id: False},
        [],
        (),
        {FLY.id: "refused", PAY.id: "refused", ONE.id: "not_answered"},
    ),
    "one allowed, and a message instead of a word about the other": Approval(
        {FLY.id: True},
        [says("Never mind the rest")],
        (FLY.id,),
        {PAY.id: "refused", ONE.id: "not_answered"},
    ),
    "ignored by a message": Approval(
        {}, [says("Stop")], (), {FLY.id: "refused", PAY.id: "refused", ONE.id: "not_answered"}
    ),
    "ignored by a result": Approval(
        {}, [tells(ONE.call_id)], (), {ONE.id: "ok", FLY.id: "refused", PAY.id: "refused"}
    ),
    "allowed beside a message": Approval(
        {FLY.id: True, PAY.id: True},
        [says("Quickly!")],
        (FLY.id, PAY.id),
        {ONE.id: "not_answered"},
    ),
}


@pytest.mark.parametrize("case", APPROVALS.values(), ids=APPROVALS.keys())
def test_calls_that_ask_first_are(case: Approval) -> None:
    found = fresh(ASKING, *case.messages, approvals=case.approvals)
    results = [each for each in found.input if isinstance(each, ToolResult)]
    assert found.approved == case.approved
    assert {each.call: each.outcome for each in results} == case.outcomes
    still_to_run = tuple(each for each in ASKING.waiting if each.id not in case.approved)
    assert check_turn(found.input, carried=still_to_run) == ()


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("whose", [call().id, ONE.id], ids=["nobody's call", "the client's call"])
@pytest.mark.parametrize("messages", [[], [says("Go on")]], ids=["alone", "with a message"])
def test_leave_for_a_call_that_does_not_ask_is_refused(
    whose: CallId, allowed: bool, messages: list[Incoming]
) -> None:
    approvals = {FLY.id: True, PAY.id: True, whose: allowed}
    found = reconcile(ASKING, messages, new_minter(), approvals=approvals)
    assert found == ApprovalClosed(calls=(whose,))


@pytest.mark.parametrize("messages", [[], [tells(ONE.call_id)], [says(" ")]])
def test_all_calls_that_ask_are_decided_on_at_once(messages: list[Incoming]) -> None:
    found = reconcile(ASKING, messages, new_minter(), approvals={FLY.id: True})
    assert found == ApprovalsMissing(calls=(PAY.id,))


def test_the_client_cannot_give_the_result_of_a_call_that_asks_first() -> None:
    assert told(tells(FLY.call_id), on=ASKING) == UnknownCall(call_id=FLY.call_id)


def test_the_model_is_told_in_words_why_there_is_no_result() -> None:
    results = [each for each in fresh(ASKING, says("Stop")).input if isinstance(each, ToolResult)]
    assert {(each.outcome, text_of(each.content)) for each in results} == {
        ("refused", REFUSED),
        ("not_answered", NOT_ANSWERED),
    }


# ── what it costs ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("length", [10, 10_000])
@pytest.mark.parametrize("text", ["So?", "Hello 0"], ids=["new words", "the words it began with"])
def test_with_only_new_messages_the_history_is_not_walked(length: int, text: str) -> None:
    talk = [make(f"Hello {n}") for n in range(length // 2) for make in (user, said)]
    log = CountingLog(talk)
    session = msgspec.structs.replace(new_session(), items=log)
    assert words(fresh(session, says(text)).input) == [f"U: {text}"]
    assert log.looks <= 4


@pytest.mark.parametrize("length", [10, 10_000])
def test_results_that_are_sent_again_cost_their_turn_and_not_the_history(length: int) -> None:
    talk = [make(f"Hello {n}") for n in range(length // 2) for make in (user, said)]
    start = msgspec.structs.replace(new_session(), items=Log(talk))
    turn = after(turn_on(start, user("Go")), asked(), answered(ONE))
    session = ending(start, turn)
    session = ending(session, after(turn_on(session, result(ONE)), asked(), answered(THREE)))
    log = CountingLog(session.items)
    session = msgspec.structs.replace(session, items=log)
    results = [tells(ONE.call_id), tells(THREE.call_id)]
    for request in (results, [says("Go"), *results]):
        log.looks = 0
        assert words(fresh(session, *request).input) == [f"ok {THREE.call_id}"]
        assert log.looks <= 24


# ── for all conversations ────────────────────────────────────────────────────────────────────


class Exchange(NamedTuple):
    """One request and what came of it."""

    text: str
    image: bool
    steps: tuple[str, ...]
    """What the agent says between looking things up."""
    waits: int
    """How many calls it leaves to the client."""
    stopped: bool
    obliging: bool
    """Whether the client answers the calls that were left to it, or goes on."""


TEXTS = st.sampled_from(["continue", "yes", " yes ", "Hello\n", "Where?"])
EXCHANGES = st.builds(
    Exchange,
    text=TEXTS,
    image=st.booleans(),
    steps=st.lists(
        st.sampled_from(["", " ", "Well, ", "yes", "continue", "\nSo."]), max_size=3
    ).map(tuple),
    waits=st.integers(0, 2),
    stopped=st.booleans(),
    obliging=st.booleans(),
)


class Client:
    """A chat client that remembers everything it said and heard, and a session that should agree."""

    def __init__(self) -> None:
        self.session = new_session()
        self.transcript: list[Incoming] = []

    def requests(self, exchange: Exchange) -> list[Incoming]:
        """What it has to say now."""
        if self.session.waiting and exchange.obliging:
            return [tells(each.call_id) for each in self.session.waiting]
        parts = (Image(source=LINK),) if exchange.image else ()
        return [says(exchange.text, *parts)]

    def hears(self, exchange: Exchange, said_now: list[Incoming], stored: Sequence[Item]) -> None:
        """The turn is played and committed, and the client has heard what was streamed."""
        turn = turn_on(self.session, *stored)
        for text in exchange.steps:
            look = call("look")
            speech = (said(text),) if text else ()
            turn = after(turn, asked(), answered(*speech, look), started(look), finished(look))
        calls = [call("tell", waits_for="client") for _ in range(exchange.waits)]
        if exchange.stopped:
            turn, calls = after(turn, asked(), interrupted()), []
        else:
            turn = after(turn, asked(), answered(said("There."), *calls))
        self.session = ending(self.session, turn)
        text = "".join(exchange.steps) + ("" if exchange.stopped else "There.")
        self.transcript += said_now
        if text or calls:
            self.transcript.append(heard(text, *(each.call_id for each in calls)))


@given(st.lists(EXCHANGES, min_size=1, max_size=6))
def test_sending_only_what_is_new_and_resending_everything_store_the_same(
    exchanges: list[Exchange],
) -> None:
    client = Client()
    for exchange in exchanges:
        new = client.requests(exchange)
        only_new = fresh(client.session, *new)
        resent = fresh(client.session, *client.transcript, *new)
        assert only_new.input == resent.input
        assert (only_new.dropped, only_new.diverged, resent.diverged) == (0, False, False)
        assert len(words(resent.input)) >= len(new)
        assert check_turn(resent.input, carried=client.session.waiting) == ()
        client.hears(exchange, new, only_new.input)


def is_answer(message: Incoming) -> bool:
    """Whether an agent has said something here, or asked for something."""
    said_something = text_of(message.content).strip() or message.calls
    return message.role == "assistant" and bool(said_something)


@given(exchanges=st.lists(EXCHANGES, min_size=1, max_size=4), text=TEXTS, at=st.integers(0, 8))
def test_a_telling_that_differs_somewhere_stores_only_what_follows_its_last_answer(
    exchanges: list[Exchange], text: str, at: int
) -> None:
    client = Client()
    for exchange in exchanges:
        new = client.requests(exchange)
        client.hears(exchange, new, fresh(client.session, *new).input)
    answers = [n for n, each in enumerate(client.transcript) if is_answer(each)]
    if not answers:
        return
    edited = answers[at % len(answers)]
    telling = list(client.transcript)
    telling[edited] = heard("Something else entirely")
    found = fresh(client.session, *telling[: answers[-1] + 1], says(text))
    messages = [each for each in found.input if not isinstance(each, ToolResult)]
    assert words(messages) == [f"U: {text}"]
    assert found.diverged


@given(st.lists(EXCHANGES, min_size=1, max_size=4))
def test_a_resend_with_nothing_more_is_nothing_new_once_somebody_has_answered(
    exchanges: list[Exchange],
) -> None:
    client = Client()
    for exchange in exchanges:
        new = client.requests(exchange)
        client.hears(exchange, new, fresh(client.session, *new).input)
    if any(map(is_answer, client.transcript)):
        assert told(*client.transcript, on=client.session) == NothingNew()


# ── requests of clients that own their history ───────────────────────────────────────────────


def owned(known: int, *messages: Incoming, on: Snapshot, goes_on: bool = False) -> Reconciled:
    """A request of which the first messages are known to be the history."""
    return reconcile(on, messages, new_minter(at_ms=1), known=known, needs_question=not goes_on)


def test_all_messages_after_the_history_that_a_client_owns_are_new() -> None:
    """Also answers of other models, and words that the history has already."""
    brings = (*SO_FAR, says("Hello"), heard("Hi"), instructs(), says("Oslo?"))
    found = owned(len(SO_FAR), *brings, on=TALK)
    assert isinstance(found, Fresh) and not found.diverged
    assert words(found.input) == ["U: Hello", "A: Hi", "U: Oslo?"]


def test_after_the_history_that_a_client_owns_only_open_calls_take_results() -> None:
    """A result for another call belongs to the history, wherever the client tells it."""
    tell = call("tell", waits_for="client")
    session = waiting_for(new_session(), tell)
    told_so_far = (says("Hello"), heard("One moment.", tell.call_id))
    found = owned(2, *told_so_far, tells("old"), tells(tell.call_id), on=session)
    assert isinstance(found, Fresh) and words(found.input) == [f"ok {tell.call_id}"]
    found = owned(1, says("Hello"), tells(tell.call_id), on=session)
    assert isinstance(found, Fresh) and words(found.input) == [f"ok {tell.call_id}"]
    brings = (*SO_FAR, heard("", "new"), tells("old"), tells("new"), says("Go on"))
    found = owned(len(SO_FAR), *brings, on=TALK)
    assert isinstance(found, Fresh)
    assert words(found.input) == ["call new", "ok new", "U: Go on"]


def test_a_result_for_an_open_call_is_new_though_the_client_tells_it_before_the_rest() -> None:
    """Clients group an answer as they like. Calls of several rounds may share an id: then results come in order."""
    tell = call("tell", waits_for="client")
    told_so_far = (says("Go"), heard("", tell.call_id), tells(tell.call_id), heard("One moment."))
    found = owned(4, *told_so_far, on=waiting_for(new_session(), tell), goes_on=True)
    assert isinstance(found, Fresh) and words(found.input) == [f"ok {tell.call_id}"]
    again = msgspec.structs.replace(call("tell", waits_for="client"), call_id=tell.call_id)
    session = waiting_for(new_session(), tell)
    session = ending(session, after(turn_on(session, result(tell)), asked(), answered(again)))
    first, second = tells(tell.call_id), tells(tell.call_id, "then")
    both = (says("Go"), heard("", tell.call_id, tell.call_id))
    brings: dict[int, tuple[Incoming, ...]] = {
        2: (*both, first, second),
        5: (*both, first, second, heard("")),
        1: (says("Go"), first, second),
    }
    for known, messages in brings.items():
        found = owned(known, *messages, on=session)
        assert isinstance(found, Fresh)
        (given,) = found.input
        assert isinstance(given, ToolResult) and text_of(given.content) == "then"
    stopped = owned(3, *both, first, says("Stop"), on=session)
    assert isinstance(stopped, Fresh)
    assert words(stopped.input) == [f"not_answered {tell.call_id}", "U: Stop"]


def test_an_answer_whose_calls_wait_cannot_go_on() -> None:
    tell, pay = call("tell", waits_for="client"), call("pay", waits_for="approval")
    for wanted in (tell, pay):
        session = waiting_for(new_session(), wanted)
        told_so_far = (says("Go"), heard("Yes.", tell.call_id))
        found = owned(2, *told_so_far, on=session, goes_on=True)
        missing = ResultsMissing(call_ids=(tell.call_id,))
        assert found == (missing if wanted is tell else NothingNew())


def test_a_request_to_go_on_with_the_last_answer_needs_no_question() -> None:
    assert owned(len(SO_FAR), *SO_FAR, on=TALK) == NothingNew()
    assert owned(len(SO_FAR), *SO_FAR, on=TALK, goes_on=True) == Fresh(input=())


# ── items that only other servers act on ─────────────────────────────────────────────────────


def foreign(
    json: str = '{"type":"search"}', *, given_id: str = "", ours: ItemId | None = None
) -> Incoming:
    content = ForeignContent(kind="search", json=json, given_id=given_id)
    return Incoming(role="foreign", foreign=content, ours=ours)


def searched(*messages: Incoming) -> Snapshot:
    """A session after a turn with these messages, and the answer `Hi`."""
    return with_turn(new_session(), *fresh(new_session(), *messages).input)


def foreign_in(found: Reconciled) -> int:
    """How many foreign items are new."""
    assert isinstance(found, Fresh), found
    return sum(isinstance(each, ForeignItem) for each in found.input)


def test_a_foreign_item_is_stored_as_it_came() -> None:
    search = foreign()
    (item, _) = fresh(new_session(), search, says("Hello")).input
    assert isinstance(item, ForeignItem) and item.original == search.foreign


def test_a_foreign_item_is_known_by_its_content_in_a_resend_of_messages_only() -> None:
    """A client may mean the same item twice."""
    session = searched(foreign(), says("Hello"))
    resend = (foreign(), says("Hello"), heard("Hi"))
    assert foreign_in(told(*resend, says("More"), on=session)) == 0
    assert foreign_in(told(*resend, foreign(), says("More"), on=session)) == 1
    assert foreign_in(told(foreign(), says("More"), on=session)) == 1


def test_a_foreign_item_with_an_id_is_known_however_its_json_is_written() -> None:
    session = searched(foreign('{"id":"s1","type":"search"}', given_id="s1"), says("Hello"))
    again = foreign('{ "type": "search", "id": "s1" }', given_id="s1")
    assert foreign_in(told(again, says("More"), on=session)) == 0
    other = foreign('{"id":"s2","type":"search"}', given_id="s2")
    assert foreign_in(told(other, says("More"), on=session)) == 1


def test_a_foreign_item_that_repeats_an_item_of_ours_is_known_by_the_id_of_that_item() -> None:
    """Answers show some items in a form that other servers use, and list foreign items without an id under ours."""
    session = searched(foreign(), says("Hello"))
    for item in session.items:
        assert isinstance(item, ForeignItem | UserMessage | AssistantMessage)
        shown = foreign(f'{{"type":"search","id":"{item.id}"}}', given_id=item.id, ours=item.id)
        assert foreign_in(told(shown, says("More"), on=session)) == 0
    elsewhere = foreign(ours=user().id)
    unknown = msgspec.structs.replace(
        elsewhere, foreign=ForeignContent(kind="search", json='{"type":"search","q":1}')
    )
    assert foreign_in(told(unknown, says("More"), on=session)) == 1


# ── items that are added as they are ─────────────────────────────────────────────────────────


def test_what_is_added_is_never_taken_for_history() -> None:
    found = take_in(TALK, SO_FAR, new_minter(at_ms=1))
    assert isinstance(found, Fresh)
    assert words(found.input) == ["U: Hello", "A: Hi", "U: Oslo?", "A: Cold."]
    assert not found.diverged and not found.dropped


def test_an_answer_or_an_instruction_alone_can_be_added_but_nothing_cannot() -> None:
    for each in (heard("Noted."), instructs()):
        assert isinstance(take_in(TALK, [each], new_minter(at_ms=1)), Fresh)
    for nothing in ([], [says("  ")]):
        assert take_in(TALK, nothing, new_minter(at_ms=1)) == NothingNew()


def test_calls_that_are_added_are_answered_among_what_is_added_or_by_nobody() -> None:
    found = take_in(TALK, [heard("", "a", "b"), tells("a"), tells("b")], new_minter(at_ms=1))
    assert isinstance(found, Fresh)
    assert words(found.input) == ["call a", "call b", "ok a", "ok b"]
    alone = take_in(TALK, [heard("", "a")], new_minter(at_ms=1))
    assert isinstance(alone, Fresh)
    assert words(alone.input) == ["call a", "not_answered a"]
    assert not check_turn(alone.input)
    apart = take_in(
        TALK, [heard("", "a"), heard("", "b"), tells("b"), tells("a")], new_minter(at_ms=1)
    )
    assert isinstance(apart, Fresh)
    assert words(apart.input) == ["call a", "call b", "ok b", "ok a"]
    assert take_in(TALK, [tells("x")], new_minter(at_ms=1)) == UnknownCall(call_id="x")
    some = take_in(TALK, [heard("", "a", "b"), tells("a")], new_minter(at_ms=1))
    assert some == ResultsMissing(call_ids=("b",))
