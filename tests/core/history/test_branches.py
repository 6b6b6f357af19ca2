"""Which version a request of a client that owns its history goes on from: never a version that differs from it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.exchanges import WHOLE, ShownPast
from holdfast.core.history.branches import (
    PLACES,
    RECENT,
    ClientBranch,
    ComparisonBudget,
    LineMatch,
    TurnDigests,
    answer_digest,
    answer_words,
    begun_after,
    branch_of,
    call_digest,
    digests_of,
    followed_by,
    held_line,
    id_digest,
    matched,
    matched_anywhere,
    matched_unfinished,
)
from holdfast.core.history.conversation import Snapshot, Visibility
from holdfast.core.history.log import Log
from holdfast.core.history.reconciliation import Incoming, IncomingCall
from holdfast.core.items import (
    AssistantMessage,
    CallDecision,
    Image,
    Inline,
    Item,
    Link,
    Part,
    Text,
    ToolCall,
    UserMessage,
    item_id,
)
from holdfast.core.turns import events as ev
from tests.core.builders import (
    after,
    asked,
    call,
    inside,
    interrupted,
    result,
    said,
    thought,
    user,
)
from tests.core.histories import (
    damaged,
    ending,
    new_session,
    noted,
    turn_on,
    waiting_for,
    with_turn,
)

QUESTION = "[Waiting for your approval] This call has not run:"
PICTURE = Image(source=Link(url="https://example.com/oslo.png"))

# ── what clients send, and what lines hold ───────────────────────────────────────────────────


def says(text: str, *parts: Part) -> Incoming:
    return Incoming(role="user", content=(Text(text=text), *parts))


def heard(text: str, *call_ids: str) -> Incoming:
    calls = tuple(IncomingCall(call_id=each, name="tell", arguments="{}") for each in call_ids)
    return Incoming(role="assistant", content=(Text(text=text),) if text else (), calls=calls)


def tells(call_id: str) -> Incoming:
    return Incoming(role="tool", call_id=call_id, content=(Text(text="done"),))


def talk(*texts: str) -> list[Incoming]:
    """Questions and answers in turn, as a client sends them."""
    return [heard(each) if n % 2 else says(each) for n, each in enumerate(texts)]


def line(*texts: str) -> Snapshot:
    """Questions and answers in turn, as a line holds them: each pair is a version, and two items."""
    session = new_session()
    for question, answer in zip(texts[::2], texts[1::2], strict=True):
        session = with_turn(session, user(question), answer=answer)
    return session


def holding(*items: Item) -> Snapshot:
    """A line with these items, whatever turns they came from."""
    return msgspec.structs.replace(new_session(), items=Log(items))


def spoken(text: str) -> AssistantMessage:
    """What an agent of the server has said."""
    return msgspec.structs.replace(said(text), agent="butler")


def compared(messages: Sequence[Incoming], held: Snapshot) -> LineMatch | None:
    """A request up to its last answer, compared with a line at its head."""
    branch = branch_of(messages)
    last = [each for each in branch.boundaries if each.last.is_answered][-1]
    return matched(branch, last, held_line(held), ComparisonBudget())


def place(found: LineMatch | None) -> tuple[int, int, int] | None:
    """Version, known messages, and where the view begins."""
    return None if found is None else (int(found.version), found.known, found.shown.since)


def found_by(
    messages: Sequence[Incoming],
    *items: Item,
    waiting: Sequence[ToolCall] = (),
    whole: bool = True,
    shown: ShownPast = WHOLE,
    answer_id: str = "",
) -> TurnDigests:
    """The digests of a turn with this request and these items."""
    followed = followed_by(
        branch_of(messages),
        name="chat-1",
        answer_id=answer_id,
        streamed=True,
        shown=shown,
    )
    return digests_of(items, waiting, followed, whole=whole)


def prefix_of(*messages: Incoming) -> bytes:
    """The prefix of a request up to its last boundary."""
    return branch_of(messages).boundaries[-1].prefix


# ── words ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "shown",
    [
        "Cold.",
        " Co ld.\n",
        "<think>North.</think>Cold.",
        "<THINKING>\nNorth.\n</THINKING>\nCold.",
        '<details type="reasoning" done="true">North.</details>Cold.',
        f"Cold.\n\n{QUESTION}\n\n```\nfly\n```",
    ],
)
def test_white_space_reasoning_and_the_servers_questions_do_not_count(shown: str) -> None:
    assert answer_words(shown) == "Cold."


def test_an_answer_in_which_only_the_server_asked_is_still_an_answer() -> None:
    assert answer_words(QUESTION) not in ("", answer_words("Cold."))
    assert answer_words("<think>North.</think>") == answer_words(" ") == ""
    assert answer_words("1 < 2") == "1<2"
    assert answer_words("<details>North.</details>") == "<details>North.</details>"


def test_a_letter_is_the_same_however_it_is_composed() -> None:
    assert answer_words("e\u0301tude") == answer_words("\u00e9tude") == "\u00e9tude"


@pytest.mark.parametrize(
    "opened",
    ["<think>", "<details ", '<details type="a">', '<details type="a', "<thought></think>"],
)
def test_an_answer_that_opens_many_elements_and_closes_none_is_read_once(opened: str) -> None:
    """A search from each of them would keep a server busy for hours."""
    text = opened * 100_000
    assert answer_words(text) == "".join(text.split())


# ── requests ─────────────────────────────────────────────────────────────────────────────────


def ends(branch: ClientBranch) -> list[tuple[int, int, bool]]:
    """Where versions may end: after how many messages, in which exchange, and whether it is answered there."""
    return [(each.end, each.exchanges, each.last.is_answered) for each in branch.boundaries]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], []),
        ([says("a")], []),
        (talk("a", "A", "b"), [(1, 1, False), (2, 1, True)]),
        (talk("a", "A", "b", "B"), [(1, 1, False), (2, 1, True), (3, 2, False), (4, 2, True)]),
        ([says("a"), says("b")], [(1, 1, False)]),
        ([says("a"), says(" "), heard("A")], [(2, 1, False), (3, 1, True)]),
        ([says("", PICTURE), heard("A")], [(1, 1, False), (2, 1, True)]),
        ([says("a"), heard("A"), heard("B")], [(1, 1, False), (3, 1, True)]),
        ([heard("A"), says("b")], [(1, 1, True)]),
        ([says("a"), heard("")], [(1, 1, False)]),
        (
            [says("a"), heard("", "call_1"), tells("call_1"), heard("A")],
            [(1, 1, False), (2, 1, True), (4, 1, True)],
        ),
        ([Incoming(role="system"), says("a"), heard("A")], [(2, 1, False), (3, 1, True)]),
    ],
)
def test_a_version_may_end_with_an_answer_or_before_it(
    messages: list[Incoming], expected: list[tuple[int, int, bool]]
) -> None:
    assert ends(branch_of(messages)) == expected


def test_an_answer_that_a_later_message_turns_into_reasoning_is_none() -> None:
    """Clients cut texts where they like, also inside of reasoning."""
    pieces = [heard("<think>North"), heard("</think>"), heard("Cold.")]
    assert ends(branch_of(pieces)) == [(3, 1, True)]
    branch = branch_of([says("a"), *pieces])
    assert ends(branch) == [(1, 1, False), (4, 1, True)]
    assert branch.boundaries[-1].prefix == prefix_of(*talk("a", "Cold."))


def test_how_a_client_groups_an_answer_makes_no_other_conversation() -> None:
    at_once = [says("a"), heard("One. Two.", "call_1", "call_2"), says("b"), heard("B")]
    in_pieces = [says("a "), heard("One."), heard("Two.", "call_2"), heard("", "call_1")]
    assert prefix_of(*at_once) == prefix_of(*in_pieces, says("b"), heard("B"))


@pytest.mark.parametrize(
    "other",
    [
        talk("b", "A"),
        talk("a", "B"),
        [says("a", PICTURE), heard("A")],
        [says("a"), heard("A", "call_1")],
        [says("a"), says("a"), heard("A")],
        [heard("A")],
        talk("x", "X", "a", "A"),
    ],
)
def test_any_other_word_picture_or_call_makes_another_conversation(other: list[Incoming]) -> None:
    assert prefix_of(*other) != prefix_of(*talk("a", "A"))


@pytest.mark.parametrize(
    "unit",
    [
        (says("a"),),
        (heard(""), says("a")),
        (heard("<think>", "call_1"), tells("call_1")),
        (heard("b", "call_1"), tells("call_1")),
    ],
)
def test_an_exchange_of_many_messages_has_few_places(unit: tuple[Incoming, ...]) -> None:
    """Else a request of 4 MB takes gigabytes to compare."""
    branch = branch_of([says("q"), *unit * 20_000, says("new")])
    assert len(branch.boundaries) <= PLACES
    assert branch.boundaries[-1].end >= 20_000 * len(unit)


def test_instructions_behind_an_answer_do_not_make_it_the_past() -> None:
    """Some programs ask for more of an answer, or for a person's part, with a system message at the end."""
    nudge = Incoming(role="system", content=(Text(text="Go on."),))
    assert branch_of([*talk("a", "A"), nudge]).continues_answer
    assert not branch_of([*talk("a", "A"), says("b"), nudge]).continues_answer


def test_results_after_the_last_answer_are_looked_up_by_their_calls() -> None:
    asks = [says("a"), heard("", "call_1", "call_2")]
    branch = branch_of([*asks, tells("call_2"), tells("call_1")])
    assert branch.results == ((2, "call_2"), (3, "call_1"))
    assert {call_digest("call_1"), call_digest("call_2")} <= branch.digests()
    assert branch_of([*asks, tells("call_1"), heard("A")]).results == ()
    assert branch_of([*asks, tells("call_1"), says("b")]).results == ()
    twice = branch_of([*asks, tells("call_2"), tells("call_2")])
    assert twice.results == ((2, "call_2"),), "a result that is told again is no other one"
    alone = branch_of([tells("call_1")])
    assert not alone.exchanges
    assert alone.digests() == frozenset({call_digest("call_1")})


def test_the_last_exchanges_are_looked_up_first() -> None:
    long = branch_of(talk(*(f"text {n}" for n in range(4 * RECENT)), "new"))
    assert long.digests() < long.digests(recent=None)
    assert long.boundaries[-1].prefix in long.digests()
    assert long.boundaries[0].prefix not in long.digests()


@pytest.mark.parametrize(
    ("messages", "before", "continues"),
    [
        ([], 0, False),
        (talk("a"), 0, False),
        (talk("a", "A"), 0, True),
        (talk("a", "A", "b"), 2, False),
        (talk("a", "A", "b", "B"), 2, True),
        ([says("a"), heard("A"), says("b"), says("c")], 2, False),
    ],
)
def test_a_request_ends_with_a_question_or_with_an_answer_that_is_to_go_on(
    messages: list[Incoming], before: int, continues: bool
) -> None:
    branch = branch_of(messages)
    answer = branch.answer_before
    assert (answer.end if answer else 0, branch.continues_answer) == (before, continues)


# ── what a turn is found by ──────────────────────────────────────────────────────────────────


def test_a_turn_is_found_by_what_its_client_has_said_and_seen() -> None:
    made = found_by(talk("a", "A", "b"), user("b"), spoken("B"), answer_id="m4")
    assert made.prefix == prefix_of(*talk("a", "A", "b", "B"))
    assert made.answer == answer_digest("B")
    assert made.answer_id == id_digest("m4")
    assert made.answer in branch_of(talk("a", "A", "b", "B", "c")).digests()


def test_an_answer_that_went_on_is_found_as_one() -> None:
    made = found_by(talk("a", "One."), spoken("Two."))
    assert made.prefix == prefix_of(*talk("a", "One. Two."))
    assert made.answer == answer_digest("One.Two.")


def test_only_what_agents_told_the_client_is_the_answer() -> None:
    look = call()
    inner = msgspec.structs.replace(said("Found", path=inside(look)), agent="helper")
    aside = msgspec.structs.replace(spoken("Let m"), state="set_aside")
    items = (said("Foreign."), user("a"), thought(), aside, inner, look, result(look), spoken("A"))
    assert found_by(talk("a"), *items).answer == answer_digest("A")


def test_a_turn_that_did_not_complete_is_found_by_its_question() -> None:
    made = found_by(talk("a", "A", "b"), user("b"), spoken("Th"), whole=False)
    assert made.prefix == branch_of(talk("a", "A", "b", "B")).boundaries[2].prefix
    assert made.answer == answer_digest("Th")
    assert found_by(talk("a"), user("a"), whole=False).answer is None


def test_a_turn_whose_calls_wait_for_the_client_is_found_by_the_last_of_them() -> None:
    one, two = call(waits_for="client"), call(waits_for="client")
    made = found_by(talk("a"), user("a"), spoken("Wait."), one, two, waiting=(one, two))
    assert made.answer == call_digest(two.call_id)
    assert made.prefix == prefix_of(says("a"), heard("Wait.", two.call_id, one.call_id))


def test_a_turn_that_only_asks_for_an_approval_is_found_by_the_question() -> None:
    fly = call(waits_for="approval")
    made = found_by(talk("a"), user("a"), fly, waiting=(fly,))
    assert made.prefix == prefix_of(says("a"), heard(QUESTION))
    assert made.answer in branch_of([says("a"), heard(QUESTION)]).digests()


def test_a_turn_of_a_window_and_a_turn_of_another_client_are_found_by_their_answers() -> None:
    window = found_by(talk("b"), user("b"), spoken("B"), shown=ShownPast(since=2))
    assert window.answer == answer_digest("B")
    assert window.prefix not in (None, *branch_of(talk("b", "B", "c")).digests(recent=None))
    appended = digests_of((user("b"), spoken("B")), (), None, whole=True)
    assert appended == TurnDigests(answer=answer_digest("B"))
    assert found_by([]).answer is None


# ── a line ───────────────────────────────────────────────────────────────────────────────────

LINE = line("a", "A", "b", "B", "c", "C")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (talk("a", "A", "b", "B", "c", "C", "new"), (3, 6, 0)),
        (talk("b", "B", "c", "C", "new"), (3, 4, 2)),
        ([heard("B"), *talk("c", "C", "new")], (3, 3, 3)),
        ([heard("C"), says("new")], (3, 1, 5)),
        (talk("a", "A", "b", "B", "x", "C", "new"), None),
        (talk("x", "B", "c", "C", "new"), None),
        (talk("b", "x", "c", "C", "new"), None),
        (talk("x", "A", "a", "A", "b", "B", "c", "C"), None),
        ([says("x"), says("c"), heard("C")], None),
    ],
)
def test_the_last_answer_anchors_if_everything_before_it_agrees(
    messages: list[Incoming], expected: tuple[int, int, int] | None
) -> None:
    """The request may begin later than the line. Then the model's view begins where the request does."""
    assert place(compared(messages, LINE)) == expected


def test_passages_in_front_of_a_held_question_may_be_missing_later() -> None:
    held = line("Passages.\n\na", "A", "More passages.\nb", "B")
    found = compared(talk("a", "A", "b", "B", "c"), held)
    assert place(found) == (2, 4, 0)
    assert found is not None and found.shown.ends == ((0, 1), (2, 1)), "the model sees the same"
    assert compared(talk("a", "A", "Other passages.\nb", "B", "c"), held) is None


def _shows(address: str) -> Image:
    return Image(source=Link(url=address))


def _data(letter: bytes) -> Image:
    return Image(source=Inline(media_type="image/png", data=letter))


@pytest.mark.parametrize(
    ("sent", "held", "agrees"),
    [
        ([_data(b"a")], [_data(b"a")], True),
        ([_data(b"a")], [_data(b"b")], False),
        ([_shows("https://e.com/a?x=1")], [_shows("https://e.com/a?x=2")], True),
        ([_shows("https://e.com/a")], [_shows("https://e.com/b")], False),
        ([_shows("https://e.com/a")], [_data(b"a")], True),
        ([_data(b"a")], [_shows("https://e.com/a")], True),
        ([_data(b"a"), _data(b"b")], [_data(b"a"), _data(b"c")], False),
        ([], [_data(b"a")], True),
        ([_data(b"a")], [], False),
    ],
)
def test_a_picture_that_is_certainly_another_one_is_not_the_held_one(
    sent: list[Part], held: list[Part], agrees: bool
) -> None:
    """Equal bytes are one picture; of bytes and an address nobody knows; an address may be signed anew."""
    question = msgspec.structs.replace(user("what"), content=(Text(text="what"), *held))
    told = [says("what", *sent), heard("A cat."), says("new")]
    found = compared(told, holding(question, spoken("A cat.")))
    assert (found is not None) is agrees
    stopped = holding(question)
    branch = branch_of([told[0], says("new")])
    unfinished = matched_unfinished(branch, branch.boundaries[0], held_line(stopped))
    assert (unfinished is not None) is (agrees or not held)


def test_what_is_found_by_digests_alone_has_no_picture() -> None:
    assert branch_of([says("what", PICTURE), *talk("b", "B")[1:]]).has_media
    assert not branch_of(talk("b", "B", "c")).has_media
    followed = followed_by(
        branch_of([says("what", PICTURE)]),
        name="chat-1",
        answer_id="",
        streamed=False,
        shown=WHOLE,
    )
    assert [each.media for each in followed.last.asked] == [()]


def test_what_is_left_of_a_question_is_whole_words() -> None:
    held = line("All about cats", "A")
    assert compared(talk("s", "A", "b"), held) is None
    found = compared(talk("about cats", "A", "b"), held)
    assert found is not None and found.shown == ShownPast(ends=((0, 10),))


def test_a_request_that_begins_after_a_version_shows_nothing_of_it() -> None:
    assert begun_after(LINE) == LineMatch(
        version=LINE.version, known=0, shown=ShownPast(since=len(LINE.items))
    )


def test_a_window_may_begin_between_two_questions_but_none_is_missing_later() -> None:
    held = with_turn(line("a", "A"), user("b"), user("c"), answer="C")
    assert place(compared([says("c"), heard("C"), says("d")], held)) == (2, 2, 3)
    assert compared(talk("a", "A", "b", "C"), held) is None
    held = with_turn(held, user("d"), answer="D")
    assert place(compared(talk("c", "C", "d", "D", "e"), held)) == (3, 4, 3)
    assert compared(talk("a", "A", "c", "C", "d", "D", "e"), held) is None


def test_calls_are_compared_by_their_ids() -> None:
    tell = call(waits_for="client")
    held = waiting_for(line("a", "A"), tell)
    asks = talk("a", "A", "Hello")
    answer = heard("One moment.", tell.call_id)
    assert place(compared([*asks, answer], held)) == (2, 4, 0)
    assert place(compared([*asks, heard("One moment.")], held)) == (2, 4, 0), "some leave calls out"
    assert compared([*asks, heard("One moment.", "call_other")], held) is None


def test_a_question_without_an_answer_is_not_taken_for_calls_that_the_line_does_not_have() -> None:
    stopped = ending(
        new_session(), after(turn_on(new_session(), user("a")), asked(), interrupted())
    )
    foreign = heard("", "call_other")
    for request in ([says("a"), foreign], [foreign]):
        assert (
            matched_anywhere(
                branch_of([*request, tells("call_other")]), stopped, ComparisonBudget()
            )
            is None
        )


def test_an_approval_in_the_chat_is_a_question_and_its_answer() -> None:
    fly = call(waits_for="approval")
    decides = msgspec.structs.replace(
        user("yes"), decisions=(CallDecision(call=fly.id, approve=True),)
    )
    told = [says("a"), heard(QUESTION), says("yes"), heard("Done."), says("b")]
    held = holding(user("a"), fly, decides, result(fly), spoken("Done."))
    assert place(compared(told, held)) == (0, 4, 0)
    explained = holding(user("a"), spoken("Now."), fly, decides, result(fly), spoken("Done."))
    assert compared(told, explained) is None
    told[1] = heard(f"Now.\n\n{QUESTION}")
    assert place(compared(told, explained)) == (0, 4, 0)


def test_a_decision_without_words_divides_no_answer() -> None:
    fly = call(waits_for="approval")
    decides = msgspec.structs.replace(user(), content=())
    held = holding(user("a"), spoken("Now."), fly, decides, result(fly), spoken("Done."))
    decision = Incoming(role="user", decisions=(CallDecision(call=fly.id, approve=True),))
    told = [says("a"), heard("Now."), decision, heard("Done."), says("b")]
    assert place(compared(told, held)) == (0, 4, 0)


def test_what_clients_do_not_see_is_not_compared() -> None:
    look = call()
    aside, hidden = said("Let m", state="set_aside"), said("Secret.")
    inner = user("Find out", path=inside(look))
    seen = (user("a"), thought(), aside, look, inner, result(look), hidden, said("A"))
    held = noted(holding(*seen), Visibility(to_people=False), hidden.id)
    assert place(compared(talk("a", "A", "b"), held)) == (0, 2, 0)
    broken = msgspec.structs.replace(holding(*seen), broken_off=frozenset({hidden.id}))
    assert place(compared(talk("a", "A", "b"), broken)) == (0, 2, 0)
    lost = damaged(line("a", "A", "b", "B"), 0, 1)
    assert place(compared(talk("b", "B", "c"), lost)) == (2, 2, 0)


def test_an_empty_answer_divides_no_questions() -> None:
    """Clients leave such an answer out, or send it."""
    held = holding(user("a"), said(""), user("b"), said("B"))
    for answer in ([], [heard("")]):
        told = [says("a"), *answer, says("b"), heard("B"), says("c")]
        assert place(compared(told, held)) == (0, len(told) - 1, 0)


# ── versions without digests ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (talk("a", "A", "b", "B", "c", "C", "new"), (3, 6, 0)),
        (talk("a", "A", "b", "B", "edited"), (2, 4, 0)),
        (talk("a", "A", "b", "B", "edited", "of another model", "new"), (2, 4, 0)),
        (talk("b", "B", "edited"), (2, 2, 2)),
        (talk("a", "A"), (1, 2, 0)),
        (talk("edited", "A", "b", "B"), None),
        (talk("a"), None),
    ],
)
def test_the_version_that_covers_most_of_a_request_is_found_in_its_line(
    messages: list[Incoming], expected: tuple[int, int, int] | None
) -> None:
    assert place(matched_anywhere(branch_of(messages), LINE, ComparisonBudget())) == expected


def test_a_new_line_has_no_version_to_go_on_from() -> None:
    assert (
        matched_anywhere(branch_of(talk("a", "A", "b")), new_session(), ComparisonBudget()) is None
    )


def test_a_request_that_has_spent_its_budget_matches_nothing() -> None:
    """A chat of equal words could be compared with itself in each of its places."""
    request, held = branch_of(talk(*["yes", "ok"] * 40, "new")), line(*["yes", "ok"] * 40)
    for left in (0, 100, 170):
        assert matched_anywhere(request, held, ComparisonBudget(left)) is None
    assert place(matched_anywhere(request, held, ComparisonBudget())) == (40, 80, 0)
    last = request.boundaries[-1]
    assert matched(request, last, held_line(held), ComparisonBudget(20)) is None


# ── a turn that did not complete ─────────────────────────────────────────────────────────────


def _broken_off() -> Snapshot:
    opened = ev.ItemOpened(item=(lost := said("")).id, kind="message")
    grew = ev.Grew(item=lost.id, text="The thing is")
    turn = after(turn_on(LINE, user("d")), asked(), opened, grew, interrupted())
    return ending(LINE, turn)


UNFINISHED = _broken_off()
SO_FAR = talk("a", "A", "b", "B", "c", "C", "d")


@pytest.mark.parametrize(
    ("then", "known"),
    [
        ([says("e")], 7),
        ([heard(""), says("e")], 8),
        ([heard("")], 7),
        ([heard("The thi"), says("e")], 8),
        ([heard("The thing is")], 8),
        ([heard("The thing was"), says("e")], None),
        ([heard("The thi", "call_1"), tells("call_1")], None),
    ],
)
def test_a_turn_that_did_not_complete_matches_without_its_answer_or_with_a_beginning_of_it(
    then: list[Incoming], known: int | None
) -> None:
    branch = branch_of([*SO_FAR, *then])
    made = found_by(SO_FAR, user("d"), spoken("The thing is"), whole=False)
    asks = next(each for each in branch.boundaries if each.prefix == made.prefix)
    found = matched_unfinished(branch, asks, held_line(UNFINISHED))
    assert place(found) == (None if known is None else (4, known, 0))


def test_a_turn_that_did_not_complete_matches_though_its_items_are_hidden() -> None:
    branch = branch_of(talk("a", "A", "b"))
    held = line("a", "A")
    for each in held.items:
        held = noted(held, Visibility(to_people=False), item_id(each))
    assert matched_unfinished(branch, branch.boundaries[0], held_line(held)) is None
    branch = branch_of([says("a"), says("b")])
    assert place(matched_unfinished(branch, branch.boundaries[0], held_line(held))) == (1, 1, 0)


# ── any conversation ─────────────────────────────────────────────────────────────────────────

TALKS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("AB")), min_size=1, max_size=4)


def _texts(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [text for pair in pairs for text in pair]


@given(sent=TALKS, held=TALKS)
def test_a_line_matches_exactly_if_it_ends_with_the_request(
    sent: list[tuple[str, str]], held: list[tuple[str, str]]
) -> None:
    found = compared(talk(*_texts(sent), "new"), line(*_texts(held)))
    if held[-len(sent) :] == sent:
        start = 2 * (len(held) - len(sent))
        assert place(found) == (len(held), 2 * len(sent), start)
    else:
        assert found is None


@given(data=st.data())
def test_in_any_tree_of_edits_and_regenerations_a_request_finds_the_answer_it_goes_on_from(
    data: st.DataObject,
) -> None:
    """And no answer whose branch tells another conversation."""
    branches: list[tuple[str, ...]] = [()]
    digests: dict[tuple[str, ...], TurnDigests] = {}
    for question in data.draw(st.lists(st.sampled_from("ab"), min_size=1, max_size=8)):
        told = (*data.draw(st.sampled_from(branches)), question)
        answer = data.draw(st.sampled_from("AB"))
        made = found_by(talk(*told), user(question), spoken(answer))
        branches.append((*told, answer))
        digests[*told, answer] = made
    for told, expected in digests.items():
        request = branch_of(talk(*told, "new"))
        last = request.boundaries[-1]
        found = {each for each, made in digests.items() if made.prefix == last.prefix}
        assert (found, last.end) == ({told}, len(told))
        assert expected.answer in last.answers


def test_items_of_these_tests_are_what_turns_hold() -> None:
    """`line` has two items for each version, which the positions above count on."""
    kinds = [type(each) for each in LINE.items]
    assert kinds == [UserMessage, AssistantMessage] * 3
