"""A client that resends all that it has seen, and does not wait for answers: each of its messages is stored once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Literal, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.approval_questions import question_in
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.rebase import StaleRequest, rebased
from holdfast.core.history.reconciliation import (
    Fresh,
    Incoming,
    IncomingCall,
    is_steered_again,
    reconcile,
)
from holdfast.core.history.resends import Arrival, Overtaken, arrival
from holdfast.core.items import Item, ToolResult, UserMessage, plain_text, text_of
from holdfast.core.turns import events as ev
from holdfast.core.turns.events import TurnRequest
from holdfast.core.turns.turn import Turn, begin
from holdfast.ids import MessageId, TurnId, Version
from tests.core.builders import (
    NOON_MS,
    after,
    answered,
    asked,
    call,
    interrupted,
    mint,
    new_minter,
    result,
    said,
    started,
    steered,
    user,
)
from tests.core.builders import finished as finished_call
from tests.core.histories import ending, new_session, turn_on, with_turn


def says(*texts: str) -> tuple[Incoming, ...]:
    return tuple(Incoming(role="user", content=plain_text(each)) for each in texts)


def heard(text: str) -> Incoming:
    return Incoming(role="assistant", content=plain_text(text))


def messages_in(items: Sequence[object]) -> list[UserMessage]:
    return [each for each in items if isinstance(each, UserMessage)]


def texts_of(items: Sequence[object]) -> list[str]:
    return [text_of(each.content) for each in messages_in(items)]


def talk(*turns: tuple[str, ...], on: Snapshot | None = None) -> Snapshot:
    """A session of turns, each with its messages and an answer `re: …` to the last of them."""
    session = on or new_session()
    for texts in turns:
        session = with_turn(session, *map(user, texts), answer=f"re: {texts[-1]}")
    return session


# ── case by case ─────────────────────────────────────────────────────────────────────────────


class Case(NamedTuple):
    held: tuple[tuple[str, ...], ...]
    """The messages of each turn that was committed."""
    since: int
    """How many of them there were when the request arrived."""
    told: tuple[Incoming, ...]
    new: list[str]
    diverged: bool = False


CASES: dict[str, Case] = {
    "a message before the answer": Case((("a",),), 0, says("a", "b"), ["b"]),
    "its answer was committed before it arrived": Case((("a",),), 1, says("a", "b"), ["b"]),
    "its first message was discarded": Case((), 0, says("a", "b"), ["a", "b"]),
    "two messages before the answer": Case((("a",), ("b",)), 0, says("a", "b", "c"), ["c"]),
    "two messages that became one turn": Case((("a", "b"),), 0, says("a", "b", "c"), ["c"]),
    "the second of them was discarded": Case((("a",),), 0, says("a", "b", "c"), ["b", "c"]),
    "the same words three times": Case((("a",), ("a",)), 0, says("a", "a", "a"), ["a"]),
    "nothing after it": Case((("a",),), 0, says("a"), ["a"]),
    "others have spoken meanwhile": Case((("a",), ("x",)), 0, says("a", "b"), ["b"]),
    "others have spoken before": Case((("x",), ("a",)), 0, says("a", "b"), ["b"]),
    "a question that is asked again": Case((("a", "b"),), 1, says("a", "b"), ["b"], True),
    "a question after one that was asked again": Case(
        (("a", "b"), ("b",)), 2, says("a", "b", "c"), ["c"], True
    ),
    "a question that is asked again and again": Case(
        (("a", "b"), ("b",)), 2, says("a", "b"), ["b"], True
    ),
    "the same words again": Case((("a",), ("a",)), 2, says("a", "a"), ["a"], True),
    "the same words once more": Case((("a",), ("a",)), 2, says("a", "a", "a"), ["a"]),
    "the first message, which may be said again, and then others": Case(
        (("a",), ("x",)), 2, says("a", "b"), ["a", "b"], True
    ),
    "two messages, and others have spoken since": Case(
        (("a",), ("b",), ("x",)), 3, says("a", "b"), ["b"], True
    ),
    "two messages and a third one, and others have spoken since": Case(
        (("a", "b"), ("x",)), 2, says("a", "b", "c"), ["c"], True
    ),
    "two messages, and others have spoken between them and the third": Case(
        (("a", "b"), ("x",), ("c",), ("y",)), 4, says("a", "b", "c", "d"), ["d"], True
    ),
    "two messages, one of them asked again, and others have spoken since": Case(
        (("a", "b"), ("b",), ("x",)), 3, says("a", "b", "c"), ["c"], True
    ),
    "two messages, others have spoken, and the third was said while it waited": Case(
        (("a", "b"), ("x",), ("c",)), 2, says("a", "b", "c", "d"), ["d"], True
    ),
    "only new messages": Case((("a",), ("b",)), 2, says("b", "c"), ["b", "c"]),
    "messages that were said, but not first": Case(
        (("z",), ("a",), ("b",)), 3, says("a", "b", "c"), ["a", "b", "c"]
    ),
    "a part of the answer": Case(
        (("a",),), 0, (*says("a"), heard("re:"), *says("b")), ["b"], False
    ),
    "another answer than it was given": Case(
        (("a",),), 0, (*says("a"), heard("no"), *says("b")), ["b"], True
    ),
    "a window of the history": Case(
        (("z",), ("a",), ("b",)), 2, (heard("re: a"), *says("b", "c")), ["c"], True
    ),
    "a window of the history, and its answer was committed": Case(
        (("z",), ("a",), ("b",)), 3, (heard("re: a"), *says("b", "c")), ["c"], True
    ),
    "an answer that was made anew": Case(
        (("a",), ("b",)), 2, (*says("a"), heard("re: a"), *says("b")), ["b"], True
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_new_of_a_request_with(case: Case) -> None:
    session = talk(*case.held)
    found = reconcile(session, case.told, mint, since=Arrival(version=Version(case.since)))
    assert isinstance(found, Fresh)
    assert (texts_of(found.input), found.diverged) == (case.new, case.diverged)


def test_what_a_turn_was_told_while_it_ran_is_told_again_like_any_message() -> None:
    turn = after(turn_on(new_session(), user("a")), asked(), answered(said("so far")))
    turn = after(turn, steered("b"), asked(), answered(said("re: b")))
    session = ending(new_session(), turn)
    found = reconcile(session, says("a", "b", "c"), mint, since=Arrival(version=Version(0)))
    assert isinstance(found, Fresh) and texts_of(found.input) == ["c"]


def test_all_that_a_turn_said_anchors_like_one_answer() -> None:
    """A client whose second message was steered in has heard the same answer to both, and all of it."""
    turn = after(turn_on(new_session(), user("a")), asked(), answered(said("so far")))
    turn = after(turn, steered("b"), asked(), answered(said("re: b")))
    session = talk(("c",), on=ending(new_session(), turn))
    whole = heard("so far re: b")
    told = (*says("a"), whole, *says("b"), whole, *says("c", "d"))
    found = reconcile(session, told, mint)
    assert isinstance(found, Fresh)
    assert (texts_of(found.input), found.diverged) == (["d"], True)


def test_what_a_turn_was_told_last_is_answered_also_if_it_said_nothing_more() -> None:
    turn = after(turn_on(new_session(), user("a")), asked(), answered(said("so far")))
    session = ending(new_session(), after(turn, steered("b"), asked(), interrupted()))
    whole = heard("so far")
    told = (*says("a"), whole, *says("b"), whole, *says("c", "d"))
    for held, new in ((session, ["c", "d"]), (talk(("c",), on=session), ["d"])):
        found = reconcile(held, told, mint, since=Arrival(version=Version(1)))
        assert isinstance(found, Fresh)
        assert (texts_of(found.input), len(found.input)) == (new, len(new))


@pytest.mark.parametrize(
    ("told", "again"),
    [
        (says("c"), True),
        (says("b", "c"), True),
        (says("a", "b", "c"), True),
        ((*says("a"), heard("re: a"), *says("b", "c")), True),
        ((*says("a"), heard("re: a"), *says("b"), heard("One m"), *says("c")), True),
        (says("b"), False),
        (says("a", "c"), False),
        (says("x", "a", "b", "c"), False),
        (says("b", "c", "d"), False),
        ((*says("a"), heard("re: x"), *says("b", "c")), False),
        ((), False),
    ],
)
def test_a_message_that_the_last_turn_heard_while_it_ran_is_known_again(
    told: tuple[Incoming, ...], again: bool
) -> None:
    """Not the turn's first message: to say that again is to ask for another answer."""
    session = talk(("a",))
    turn = after(turn_on(session, user("b")), asked(), answered(said("One moment.")))
    session = ending(session, after(turn, steered("c"), asked(), answered(said("re: c"))))
    assert is_steered_again(session, told) is again
    system = Incoming(role="system", content=plain_text("Be kind."))
    assert is_steered_again(session, (system, *told)) is again


@pytest.mark.parametrize("text", ["a", "b"])
def test_a_request_is_overtaken_by_one_that_has_brought_its_message_with_a_newer_one(
    text: str,
) -> None:
    told = says("a", "b") if text == "b" else says("a")
    session = talk(("a", "b", "c"))
    assert reconcile(session, told, mint, since=Arrival(version=Version(0))) == Overtaken(
        turn_id=session.marks[0].turn_id
    )
    running = tuple(map(user, ("a", "b", "c")))
    assert reconcile(new_session(), told, mint, running=running) == Overtaken(turn_id=None)
    # Nothing has overtaken a request that came later: it says the same words again.
    assert isinstance(reconcile(session, told, mint), Fresh)


def test_what_was_said_before_a_request_came_does_not_overtake_it() -> None:
    """Its words are its own, however often others have said them to the turn that was open by then."""
    session = talk(("yes", "quickly"))
    for words, running in ((session, None), (new_session(), tuple(map(user, ("yes", "quickly"))))):
        for at_ms, new in ((NOON_MS, None), (NOON_MS + 1, ["yes"])):
            since = Arrival(version=Version(0), at_ms=at_ms)
            found = reconcile(words, says("yes"), mint, since=since, running=running)
            assert (texts_of(found.input) if isinstance(found, Fresh) else None) == new
    request = TurnRequest(
        turn_id=mint(TurnId), base=Version(0), input=(user("yes"),), came_ms=NOON_MS + 1
    )
    opened = rebased(request, msgspec.structs.replace(session, source_key=""), mint)
    assert not isinstance(opened, StaleRequest) and opened.input == request.input


def test_a_turn_that_has_said_something_since_a_request_came_had_not_ended_by_then() -> None:
    ended_ms = NOON_MS + 9
    last = msgspec.structs.replace(said("re: b"), id=new_minter(at_ms=ended_ms)(MessageId))
    turn = after(turn_on(talk(("a",)), user("b")), asked(), answered(last))
    session = ending(talk(("a",)), turn)
    for at_ms, version in ((NOON_MS, 0), (NOON_MS + 1, 1), (ended_ms, 1), (ended_ms + 1, 2)):
        assert arrival(session, at_ms=at_ms) == Arrival(version=Version(version), at_ms=at_ms)
    for known in (1, 7):
        found = arrival(session, at_ms=ended_ms + 1, known=Version(known))
        assert found.version == min(known, 2)
    for least in (
        0,
        1,
        2,
    ):  # what the server had in mind by then had ended, whatever the clocks say
        found = arrival(session, at_ms=NOON_MS, least=least)
        assert found.version == least


def test_two_turns_do_not_overtake_a_request_together() -> None:
    stopped = after(turn_on(new_session(), user("a")), asked(), interrupted())
    session = talk(("b",), on=ending(new_session(), stopped))
    found = reconcile(session, says("a"), mint, since=Arrival(version=Version(0)))
    assert isinstance(found, Fresh) and texts_of(found.input) == ["a"]


# ── turns that broke off, and were continued ─────────────────────────────────────────────────


def goes_on(session: Snapshot) -> Turn:
    """A turn that continues the last one."""
    request = turn_on(session, continues=session.marks[-1].turn_id).request
    return begin(ev.Began(request=msgspec.structs.replace(request, input=())))


def broken_in(turn: Turn, text: str) -> Turn:
    """The turn after it broke off in the middle of its answer."""
    half = said("")
    opened = ev.ItemOpened(item=half.id, kind="message")
    return after(turn, asked(), opened, ev.Grew(item=half.id, text=text), interrupted())


def whole(turn: Turn, text: str) -> Turn:
    return after(turn, asked(), answered(said(text)))


def unfinished() -> Snapshot:
    """A session whose only turn has said something, acted, and broken off in the middle of the next word."""
    act = call("act")
    does = answered(said("So. "), act, finish="tool_calls")
    turn = after(turn_on(new_session(), user("a")), asked(), does, started(act), finished_call(act))
    return ending(new_session(), broken_in(turn, "Hal"))


TOLD = {"nothing": [], "less": ["So."], "part": ["So. H"], "all": ["So.", "Hal"]}


@pytest.mark.parametrize("kept", TOLD.values(), ids=TOLD)
@pytest.mark.parametrize("waited", [False, True])
def test_what_broke_off_may_be_told_or_not(kept: list[str], waited: bool) -> None:
    """Also if it was continued while the request waited: its client has not seen that."""
    session = unfinished()
    if waited:
        session = ending(session, whole(goes_on(session), "Done."))
    told = (*says("a"), *map(heard, kept), *says("c"))
    found = reconcile(session, told, mint, since=Arrival(version=Version(1)))
    assert isinstance(found, Fresh)
    assert (texts_of(found.input), len(found.input), found.diverged) == (["c"], 1, False)


HEARD = {"the chain": "So. Done.", "all of it": "So. Hal Ha Done.", "both mixed": "So. Hal Done."}


@pytest.mark.parametrize("answer", HEARD.values(), ids=HEARD)
@pytest.mark.parametrize("since", [0, 1, 3])
def test_a_chain_of_turns_is_told_as_one_answer(answer: str, since: int) -> None:
    """A retry is answered with all but what broke off; who reads along has seen that, too."""
    session = unfinished()
    session = ending(session, broken_in(goes_on(session), "Ha"))
    session = ending(session, whole(goes_on(session), "Done."))
    told = (*says("a"), heard(answer), *says("c"))
    found = reconcile(session, told, mint, since=Arrival(version=Version(since)))
    assert isinstance(found, Fresh)
    assert (texts_of(found.input), len(found.input)) == (["c"], 1)
    if since != 1:
        assert found.diverged == (answer == HEARD["both mixed"])
    # One that has heard the answer, and sends two messages before the next one.
    told = (*says("a"), heard(answer), *says("c", "d"))
    found = reconcile(talk(("c",), on=session), told, mint, since=Arrival(version=Version(since)))
    assert isinstance(found, Fresh)
    assert (texts_of(found.input), len(found.input)) == (["d"], 1) or answer == HEARD["both mixed"]


@pytest.mark.parametrize("asks", [False, True])
def test_what_a_turn_said_anchors_also_after_it_was_continued(asks: bool) -> None:
    """Two messages were answered with the same words; what its continuation adds was never heard, calls included."""
    turn = after(turn_on(new_session(), user("a")), asked(), answered(said("so far")))
    turn = after(turn, steered("b"), asked(), answered(said("re: b")), steered("c"), interrupted())
    session = ending(new_session(), turn)
    more = [call("ask", waits_for="client")] if asks else []
    goes = after(goes_on(session), asked(), answered(said("more"), *more))
    session = ending(session, goes)
    whole_answer = heard("so far re: b")
    told = (*says("a"), whole_answer, *says("b"), whole_answer, *says("c", "d"))
    found = reconcile(session, told, mint)
    assert isinstance(found, Fresh)
    assert (texts_of(found.input), found.diverged) == (["d"], True)


@pytest.mark.parametrize("asked_for", [("a", "b"), ("b",)], ids=["by both", "by one"])
def test_a_continuation_is_told_by_its_own_words(asked_for: tuple[str, ...]) -> None:
    """So a person has heard it who had the turn continued, and so a message is answered that was said to it meanwhile."""
    session = unfinished()
    goes = after(goes_on(session), asked(), answered(said("Go. ")), steered("b"))
    session = talk(("c",), on=ending(session, whole(goes, "Done.")))
    own = {each: (heard("Go. Done."),) for each in asked_for}
    told = (*says("a"), *own.get("a", ()), *says("b"), *own["b"], *says("c", "d"))
    found = reconcile(session, told, mint)
    assert isinstance(found, Fresh)
    assert (texts_of(found.input), found.diverged) == (["d"], True)


def test_a_retry_that_broke_off_is_told_after_what_was_whole_before_it() -> None:
    session = unfinished()
    session = ending(session, broken_in(goes_on(session), "Ha"))
    session = talk(("c",), on=ending(session, whole(goes_on(session), "Done.")))
    found = reconcile(session, (*says("a"), heard("So. Ha"), *says("c", "d")), mint)
    assert isinstance(found, Fresh) and texts_of(found.input) == ["d"]


def test_nothing_but_words_that_broke_off_may_be_the_answer() -> None:
    """The continuation has nothing to add: whoever tells the words does not bring them."""
    session = ending(new_session(), broken_in(turn_on(new_session(), user("a")), "Hal"))
    session = ending(session, whole(goes_on(session), " "))
    found = reconcile(session, (*says("a"), heard("Hal"), *says("c")), mint)
    assert isinstance(found, Fresh)
    assert (texts_of(found.input), len(found.input), found.diverged) == (["c"], 1, False)


def test_a_request_is_overtaken_by_a_turn_that_broke_off_and_answered_by_its_continuation() -> None:
    turn = turn_on(new_session(), *map(user, ("a", "b", "c")))
    session = ending(new_session(), broken_in(turn, "Hal"))
    session = ending(session, whole(goes_on(session), "Done."))
    found = reconcile(session, says("a", "b"), mint, since=Arrival(version=Version(0)))
    assert found == Overtaken(turn_id=session.marks[1].turn_id)


def test_words_that_the_server_supplied_are_neither_missed_nor_stored() -> None:
    pays = call("pay", waits_for="approval")
    turn = after(turn_on(new_session(), user("a")), asked(), answered(pays, finish="tool_calls"))
    session = ending(new_session(), turn)
    question = question_in([pays], turn.request.turn_id)
    assert question is not None
    told = (*says("a"), heard(question.text), *says("c"))
    found = reconcile(session, told, mint)
    assert isinstance(found, Fresh) and not found.diverged
    assert [type(each) for each in found.input] == [ToolResult, UserMessage]


# ── for all interleavings ────────────────────────────────────────────────────────────────────

Way = Literal["wait", "steer", "interrupt", "queue", "other", "retry", "by_hand", "in_place"]


Break = Literal["first", "later", "silent"] | None


class Move(NamedTuple):
    """A message is sent, or what is open ends."""

    way: Way | None
    """How it is sent; `other`: by another client, which sends only what is new. `retry`, `by_hand` and `in_place` continue
    what broke off instead, if nothing else is open. None: what is open ends."""
    kept: bool = True
    """Whether what ends now is kept."""
    breaks: Break = None
    """What ends now breaks off in the middle of its next words, or of those after, or without one, if it is kept."""
    delivered: bool = True
    """Whether the client hears what was answered by then."""
    lag: int = 0
    """How many versions behind the server takes what the client had seen to be."""


GO_ON: tuple[Way, ...] = ("retry", "by_hand", "in_place")
WAYS = ("wait", "wait", "steer", "interrupt", "queue", "other", *GO_ON, *[None] * 4)
MOVES = st.builds(
    Move,
    way=st.sampled_from(WAYS),
    kept=st.booleans(),
    breaks=st.sampled_from((None, "first", "later", "silent")),
    delivered=st.booleans(),
    lag=st.sampled_from((0, 0, 1, 2)),
)


class Request(NamedTuple):
    text: str
    told: tuple[Incoming, ...]
    since: Version
    queued: TurnRequest | None = None


class Open(NamedTuple):
    """The turn that is open."""

    requests: list[str]
    """What it answers."""
    begins_with: tuple[Item, ...] = ()
    steers: tuple[tuple[UserMessage, ...], ...] = ()
    """What it was told since, each time after it had said something."""
    continues: bool = False
    shown: str = ""
    """What the requests that were there from the first are shown before its own words."""
    joined: tuple[str, ...] = ()
    """Requests that are shown its own words alone."""

    def told(self) -> tuple[Item, ...]:
        return (*self.begins_with, *chain.from_iterable(self.steers))


class Server:
    """A session that requests wait for, as the decisions of the core have it."""

    def __init__(self) -> None:
        self.session = new_session()
        self.open: Open | None = None
        self.broken: list[str] = []
        """The requests that the last turn was to answer, if it broke off."""
        self.spoken = ""
        """What that one, and those that it continued, have said as far as it did not break off."""
        self.waiting: list[Request] = []
        self.answered: dict[str, str] = {}

    def send(
        self, way: Way, text: str, told: tuple[Incoming, ...], *, kept: bool, lag: int = 0
    ) -> None:
        request = Request(text, told, Version(max(0, self.session.version - lag)))
        if self.open is None:
            self._begin(request)
        elif way == "steer":
            self._steer(request)
        elif way == "interrupt":
            self.waiting.insert(0, request)
            self.end(kept=kept)
        elif way == "queue":
            self.waiting.append(request._replace(queued=self._queued(told)))
        else:
            self.waiting.append(request)

    def go_on(self, way: Way) -> None:
        """Continue what broke off. A retry is answered with the whole chain. A person sees what is added: after the
        words that broke off, or in their place."""
        if self.open is None and self.broken:
            before = {"retry": self.spoken, "by_hand": self.answered[self.broken[-1]]}
            self.open = Open([*self.broken], continues=True, shown=before.get(way, ""))

    def end(self, *, kept: bool, breaks: Break = None) -> None:
        """The open turn ends, and the next ones begin."""
        assert self.open is not None
        (ends, self.open) = self.open, None
        if kept:
            last = [*ends.requests, *ends.joined][-1]
            words = "" if breaks == "silent" else "half" if breaks else f"re: {last}"
            spoken = "so " * len(ends.steers) + ("well " if breaks == "later" else "")
            self.session = ending(self.session, self._played(ends, words, breaks))
            self.answered |= dict.fromkeys(ends.requests, f"{ends.shown} {spoken}{words}")
            self.answered |= dict.fromkeys(ends.joined, f"{spoken}{words}")
            self.broken = [*ends.requests, *ends.joined] if breaks else []
            self.spoken = f"{self.spoken if ends.continues else ''} {spoken}"
        while self.waiting and self.open is None:
            self._begin(self.waiting.pop(0))

    def _played(self, ends: Open, words: str, breaks: Break) -> Turn:
        turn = goes_on(self.session) if ends.continues else turn_on(self.session, *ends.begins_with)
        for n, items in enumerate(ends.steers):
            turn = after(
                turn, asked(), answered(said("so ")), ev.Steered(items=items, signals=(n,))
            )
        if breaks == "silent":
            return after(turn, asked(), interrupted())
        if breaks == "later":
            act = call("act")
            does = answered(said("well "), act, finish="tool_calls")
            turn = after(turn, asked(), does, started(act), finished_call(act))
        return broken_in(turn, words) if breaks else whole(turn, words)

    def _begin(self, request: Request) -> None:
        if request.queued is not None:
            opened = rebased(request.queued, self.session, mint)
            if not isinstance(opened, StaleRequest):
                self.open = Open([request.text], opened.input)
            return
        found = reconcile(self.session, request.told, mint, since=Arrival(version=request.since))
        if isinstance(found, Fresh):
            self.open = Open([request.text], found.input)
        else:
            assert isinstance(found, Overtaken)

    def _steer(self, request: Request) -> None:
        assert self.open is not None
        found = reconcile(self.session, request.told, mint, running=self.open.told())
        said_now = tuple(messages_in(found.input)) if isinstance(found, Fresh) else ()
        self.open = self.open._replace(
            steers=(*self.open.steers, said_now) if said_now else self.open.steers,
            joined=(*self.open.joined, request.text),
        )

    def _queued(self, told: tuple[Incoming, ...]) -> TurnRequest:
        new = reconcile(self.session, told, mint)
        assert isinstance(new, Fresh)
        return TurnRequest(turn_id=mint(TurnId), base=self.session.version, input=new.input)


class Client:
    """One that remembers what it said and heard, each answer after the message that it was asked for with."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.heard: dict[str, str] = {}

    def hears(self, server: Server) -> None:
        """All answers so far to its own requests."""
        self.heard |= {each: server.answered[each] for each in self.said if each in server.answered}

    def tells(self, text: str) -> tuple[Incoming, ...]:
        past: list[Incoming] = []
        for each in self.said:
            past += says(each)
            past += [heard(self.heard[each])] if each in self.heard else []
        return (*past, *says(text))


def played(moves: Sequence[Move]) -> tuple[Server, Client]:
    """A conversation, in which others may speak, too."""
    server, client = Server(), Client()
    for n, move in enumerate(moves):
        text = f"says-{n}"
        if move.way == "other":
            server.send("wait", text, says(text), kept=True)
        elif move.way in GO_ON:
            server.go_on(move.way)
        elif move.way is not None:
            server.send(move.way, text, client.tells(text), kept=move.kept, lag=move.lag)
            client.said.append(text)
        elif server.open is not None:
            server.end(kept=move.kept, breaks=move.breaks)
        if move.delivered:
            client.hears(server)
    return server, client


def finished(server: Server, client: Client, *, hears: bool = False) -> list[str]:
    """The messages of the history after everything that waits was answered, which the client `hears` or not, and one
    more message."""
    while server.open is not None:
        server.end(kept=True)
    if hears:
        client.hears(server)
    server.send("wait", "last", client.tells("last"), kept=True)
    server.end(kept=True)
    client.said.append("last")
    return texts_of(tuple(server.session.items))


@given(st.lists(MOVES, max_size=14))
def test_a_client_that_resends_what_it_has_seen_stores_each_message_once_and_loses_none(
    moves: list[Move],
) -> None:
    alone = [each for each in moves if each.way != "other"]
    server, client = played(alone)
    assert finished(server, client) == client.said


@given(st.lists(MOVES, max_size=14))
def test_no_message_is_stored_twice_whoever_else_speaks(moves: list[Move]) -> None:
    """If the client has heard what was answered by then; else a message of somebody else parts its telling from the
    history before any answer that would anchor it."""
    server, client = played([each._replace(delivered=True) for each in moves])
    stored = finished(server, client, hears=True)
    assert len(stored) == len(set(stored))


@given(st.lists(MOVES, max_size=14))
def test_no_message_is_stored_twice_after_two_of_a_client_that_hears_no_answer(
    moves: list[Move],
) -> None:
    """Whoever else speaks: the conversation begins with two messages of this client, and that anchors all it tells."""
    begins = [Move("wait", delivered=False), Move(None, delivered=False)] * 2
    server, client = played([*begins, *(each._replace(delivered=False) for each in moves)])
    stored = finished(server, client)
    assert len(stored) == len(set(stored))
    assert [each for each in stored if each in client.said] == client.said


@given(st.lists(st.tuples(st.sampled_from(["next", "again"]), st.booleans()), max_size=12))
def test_a_client_that_hears_no_answer_stores_only_what_it_asks_again(
    moves: list[tuple[str, bool]],
) -> None:
    """It tells all of its messages each time, and asks the last one again or the next one; some turns are discarded."""
    session, told = new_session(), ["says-0"]
    stored: list[str] = []
    for n, (way, kept) in enumerate(moves, 1):
        told += [f"says-{n}"] if way == "next" else []
        found = reconcile(session, says(*told), mint)
        assert isinstance(found, Fresh)
        new = [*(each for each in told[:-1] if each not in stored), told[-1]]
        assert texts_of(found.input) == new
        assert not found.diverged or stored.count(told[-1]) or len(set(stored)) < len(stored)
        if kept:
            session, stored = with_turn(session, *found.input), stored + new


def test_a_queued_request_keeps_what_only_its_client_has_said() -> None:
    """Answers that it brought along from elsewhere are as new as its messages."""
    session = talk(("a",))
    request = TurnRequest(
        turn_id=mint(TurnId),
        base=Version(0),
        input=(user("a"), said("elsewhere"), user("b")),
        source_key="agents/butler.yaml",
    )
    opened = rebased(request, session, mint)
    assert not isinstance(opened, StaleRequest)
    assert opened.input == request.input[1:]
    assert rebased(msgspec.structs.replace(request, base=Version(1)), session, mint) == (
        msgspec.structs.replace(
            request,
            base=session.version,
            base_length=len(session.items),
            agent=opened.agent,
            limits=opened.limits,
        )
    )


def test_an_answer_that_was_given_twice_anchors_where_it_was_asked_for() -> None:
    """The last one that is like it would be another one, with less after it."""
    session = with_turn(talk(("z",)), user("a"), answer="Hm")
    session = with_turn(talk(("b",), on=session), user("c"), answer="Hm")
    told = (*says("a"), heard("Hm"), *says("b", "c", "d"))
    found = reconcile(session, told, mint)
    assert isinstance(found, Fresh) and texts_of(found.input) == ["d"]
    # Without what it was asked for, nobody can tell.
    found = reconcile(session, told[1:], mint)
    assert isinstance(found, Fresh) and texts_of(found.input) == ["b", "c", "d"]


def test_an_answer_to_several_messages_anchors_also_if_it_was_given_meanwhile() -> None:
    """The turn was open when the request came, as far as the server knows, and its client had all of its answer."""
    turn = after(turn_on(new_session(), user("a")), asked(), answered(said("so far")))
    turn = after(turn, steered("b"), asked(), answered(said("re: b")))
    session = talk(("c",), on=ending(new_session(), turn))
    told = (*says("a"), heard("so far re: b"), *says("b", "c", "d"))
    found = reconcile(session, told, mint, since=Arrival(version=Version(0)))
    assert isinstance(found, Fresh) and texts_of(found.input) == ["d"]
    # The turn may have said nothing between the two messages.
    session = talk(("a", "b"), ("c",))
    told = (*says("a"), heard("re: b"), *says("b", "c", "d"))
    found = reconcile(session, told, mint, since=Arrival(version=Version(0)))
    assert isinstance(found, Fresh) and texts_of(found.input) == ["d"]


def test_an_answer_to_several_messages_anchors_also_while_another_turn_is_open() -> None:
    turn = after(turn_on(new_session(), user("a")), asked(), answered(said("so far")))
    turn = after(turn, steered("b"), asked(), answered(said("re: b")))
    told = (*says("a"), heard("so far re: b"), *says("b", "c", "d"))
    running = (user("c"),)
    found = reconcile(
        ending(new_session(), turn), told, mint, since=Arrival(version=Version(0)), running=running
    )
    assert isinstance(found, Fresh) and texts_of(found.input) == ["d"]


# ── calls that the client answers ────────────────────────────────────────────────────────────

LOOK = call("look", waits_for="client")
LOOKED = with_turn(
    ending(
        new_session(),
        after(turn_on(new_session(), user("a")), asked(), answered(said("Well"), LOOK)),
    ),
    result(LOOK),
    answer="Cold.",
)
"""A question, a call that its client has answered, and an answer."""


def calls(text: str) -> Incoming:
    look = IncomingCall(call_id=LOOK.call_id, name="look", arguments="{}")
    return Incoming(role="assistant", content=plain_text(text), calls=(look,))


def gives() -> Incoming:
    return Incoming(role="tool", call_id=LOOK.call_id, content=plain_text("done"))


def test_a_request_without_a_result_that_its_client_has_given_has_diverged() -> None:
    found = reconcile(LOOKED, (*says("a"), calls("Well"), heard("Cold."), *says("b")), mint)
    assert isinstance(found, Fresh) and texts_of(found.input) == ["b"]
    assert found.diverged


def test_a_request_without_answers_and_results_shares_the_questions_of_the_history() -> None:
    found = reconcile(talk(("b",), on=LOOKED), says("a", "b", "c"), mint)
    assert isinstance(found, Fresh) and texts_of(found.input) == ["c"]
    assert found.diverged


def test_an_answer_without_its_call_is_known_only_if_the_result_of_the_call_is_sent() -> None:
    asks = ending(
        new_session(),
        after(turn_on(new_session(), user("a")), asked(), answered(said("Well"), LOOK)),
    )
    kept = reconcile(asks, (*says("a"), heard("Well"), gives()), mint)
    assert isinstance(kept, Fresh) and not kept.diverged
    lost = reconcile(asks, (*says("a"), heard("Well"), *says("b")), mint)
    assert isinstance(lost, Fresh) and texts_of(lost.input) == ["b"]
    assert lost.diverged


def test_an_answer_after_a_result_anchors_where_its_question_was_asked() -> None:
    session = talk(("b",), ("x",), on=LOOKED)
    told = (*says("a"), calls("Well"), gives(), heard("Cold."), *says("b", "c"))
    found = reconcile(session, told, mint)
    assert isinstance(found, Fresh) and texts_of(found.input) == ["c"]


def test_an_answer_before_the_first_question_anchors_like_any_other() -> None:
    """A client has written a greeting into the history before anybody asked."""
    session = talk(("a",), ("x",), on=with_turn(new_session(), said("Welcome"), answer="Ask me."))
    found = reconcile(session, (heard("Welcome Ask me."), *says("a", "b")), mint)
    assert isinstance(found, Fresh) and texts_of(found.input) == ["b"]
