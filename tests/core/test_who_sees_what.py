"""People see everything but what was hidden from them; the model sees what it can make sense of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import Unreadable
from holdfast.core.history.conversation import (
    Commit,
    Snapshot,
    Summarized,
    Visibility,
    further,
    seen_by_model,
    seen_by_people,
    seen_in_turn,
    settled_to,
)
from holdfast.core.history.log import Log
from holdfast.core.items import Item, StoredItem, Summary, ToolCall, ToolResult, item_id
from holdfast.core.turns import events as ev
from holdfast.ids import ItemId
from tests.core.builders import (
    after,
    answered,
    asked,
    branch_opened,
    call,
    finished,
    inside,
    note,
    result,
    said,
    started,
    summary,
    thought,
    user,
)
from tests.core.histories import (
    CountingLog,
    damaged,
    ending,
    histories,
    new_session,
    noted,
    session_after,
    turn_on,
    waiting_for,
    with_turn,
)


def holding(*items: StoredItem) -> Snapshot:
    """A session with these items, however they came there."""
    return msgspec.structs.replace(new_session(), items=Log(items))


def hiding(session: Snapshot, *items: Item) -> Snapshot:
    for each in items:
        session = noted(session, Visibility(to_model=False), each.id)
    return session


def ids(items: Iterable[StoredItem]) -> list[ItemId | None]:
    return [item_id(each) for each in items]


# ── the model ────────────────────────────────────────────────────────────────────────────────

LOOK = call("look")
BRANCH = inside(LOOK)
INNER = call("search", path=BRANCH)

SEEN: dict[str, tuple[list[StoredItem], list[int]]] = {
    "what was said": ([user(), said()], [0, 1]),
    "calls with their results": ([user(), LOOK, result(LOOK), said()], [0, 1, 2, 3]),
    "not what sub-agents say among themselves": (
        [LOOK, user(path=BRANCH), INNER, result(INNER), said(path=BRANCH), result(LOOK), said()],
        [0, 5, 6],
    ),
    "not what was set aside": (
        [user(), said("Let m", state="set_aside"), call(state="set_aside"), said()],
        [0, 3],
    ),
    "words that broke off, and that they did": (
        [user(), said("The th", state="interrupted"), note()],
        [0, 1, 2],
    ),
    "finished reasoning only": (
        [thought(), thought(state="interrupted"), thought(state="set_aside"), said()],
        [0, 3],
    ),
    "not what cannot be read": ([user(), Unreadable(raw=b"", why="damaged"), said()], [0, 2]),
    "no result without its call": ([user(), result(LOOK), said()], [0, 2]),
    "no call without its result": ([user(), LOOK, said()], [0, 2]),
}


@pytest.mark.parametrize(("items", "seen"), SEEN.values(), ids=SEEN.keys())
def test_the_model_sees(items: list[StoredItem], seen: list[int]) -> None:
    assert ids(seen_by_model(holding(*items))) == ids(items[n] for n in seen)


def test_hiding_a_call_or_its_result_hides_both_from_the_model() -> None:
    """A call without a result, or a result without a call, is refused by every provider for ever."""
    look, fly = call("look"), call("fly")
    session = holding(user(), look, fly, result(look), of_fly := result(fly), said())
    assert ids(seen_by_model(hiding(session, look))) == ids(session.items[n] for n in (0, 2, 4, 5))
    assert ids(seen_by_model(hiding(session, of_fly))) == ids(
        session.items[n] for n in (0, 1, 3, 5)
    )


def test_a_damaged_call_takes_its_result_along_and_the_other_way() -> None:
    look, fly = call("look"), call("fly")
    session = holding(user(), look, fly, result(look), result(fly), said())
    assert ids(seen_by_model(damaged(session, 1))) == ids(session.items[n] for n in (0, 2, 4, 5))
    assert ids(seen_by_model(damaged(session, 4))) == ids(session.items[n] for n in (0, 1, 3, 5))


def test_what_is_shown_again_is_seen_again() -> None:
    session = holding(message := user(), said())
    hidden = hiding(session, message)
    shown = noted(hidden, Visibility(to_model=True), message.id)
    assert ids(seen_by_model(shown)) == ids(session.items)


def test_a_call_that_waits_is_seen_before_it_has_a_result() -> None:
    session = waiting_for(new_session(), tell := call(waits_for="client"))
    assert tell in list(seen_by_model(session))


# ── summaries ────────────────────────────────────────────────────────────────────────────────


def test_a_summary_stands_in_place_of_what_it_covers() -> None:
    session = with_turn(with_turn(new_session(), user("one")), user("two"))
    short = noted(session, Summarized(summary=(made := summary(covers_to=2))))
    assert list(seen_by_model(short)) == [made, *session.items[2:]]
    assert list(seen_by_people(short)) == list(session.items)


def test_a_summary_made_inside_a_turn_lands_with_it() -> None:
    session = with_turn(new_session(), user("one"))
    made = summary(covers_to=2)
    turn = after(
        turn_on(session, again := user("two")),
        ev.Compacted(summary=made),
        asked(),
        answered(reply := said("Two it is")),
    )
    assert list(seen_by_model(ending(session, turn))) == [made, again, reply]


def test_only_the_summary_that_reaches_furthest_is_seen() -> None:
    session = with_turn(with_turn(new_session(), user("one")), user("two"))
    session = noted(session, Summarized(summary=(far := summary(covers_to=4))))
    session = noted(session, Summarized(summary=summary("Later, of less", covers_to=2)))
    # The last one said beside the history counts; the other kind of summary competes by its reach.
    assert session.notes.summary != far
    inside_turn = msgspec.structs.replace(session, turn_summary=far)
    assert list(seen_by_model(inside_turn)) == [far]


def test_hiding_a_summary_brings_back_what_it_covered() -> None:
    """It may be a bad one; what it stands for was never gone."""
    session = with_turn(new_session(), user("one"))
    turn = turn_on(session, user("two"))
    made = summary(covers_to=2)
    turn = after(turn, ev.Compacted(summary=made), asked(), answered(said()))
    everything = [each for each in ending(session, turn).items if each != made]
    assert list(seen_by_model(hiding(ending(session, turn), made))) == everything


def test_a_call_comes_along_when_a_summary_covers_it_but_not_its_result() -> None:
    """The summary was made while the call waited for the client. The model has to see the answer, and no
    provider takes an answer without its call."""
    session = waiting_for(new_session(), tell := call(waits_for="client"))
    made = summary(covers_to=len(session.items))
    short = noted(session, Summarized(summary=made))
    told = result(tell)
    then = with_turn(short, told, user("Well?"))
    assert list(seen_by_model(short)) == [made, tell]
    assert list(seen_by_model(then))[:3] == [made, tell, told]
    assert list(seen_by_model(hiding(then, tell))) == [made, *then.items[-2:]]


def test_a_turn_that_answers_a_call_may_compact_everything_before_it() -> None:
    session = waiting_for(new_session(), tell := call(waits_for="client"))
    made, told = summary(covers_to=len(session.items)), result(tell)
    turn = turn_on(session, told)
    turn = after(turn, ev.Compacted(summary=made), asked(), answered(reply := said()))
    assert list(seen_by_model(ending(session, turn))) == [made, tell, told, reply]


# ── only what is new ─────────────────────────────────────────────────────────────────────────


def test_a_view_can_be_continued_instead_of_being_taken_anew() -> None:
    first = with_turn(new_session(), user("one"))
    then = with_turn(first, user("two"))
    assert list(seen_by_model(then, since=len(first.items))) == list(then.items[2:])
    assert list(seen_by_model(then, since=len(then.items))) == []


def test_a_continued_view_does_not_repeat_the_summary() -> None:
    session = with_turn(with_turn(new_session(), user("one")), user("two"))
    short = noted(session, Summarized(summary=summary(covers_to=2)))
    assert list(seen_by_model(short, since=2)) == list(session.items[2:])


def test_a_result_in_a_continued_view_belongs_to_a_call_that_was_seen_before() -> None:
    session = waiting_for(new_session(), tell := call(waits_for="client"))
    then = with_turn(session, told := result(tell))
    since = len(session.items)
    assert told in list(seen_by_model(then, since=since))
    assert told not in list(seen_by_model(hiding(then, tell), since=since))
    assert told not in list(seen_by_model(damaged(then, since - 1), since=since))


@pytest.mark.parametrize("length", [10, 1000])
def test_continuing_a_view_does_not_look_at_what_came_before(length: int) -> None:
    history: list[StoredItem] = [user(str(n)) for n in range(length)]
    log = CountingLog([*history, user("new"), said()])
    session = msgspec.structs.replace(new_session(), items=log)
    assert len(list(seen_by_model(session, since=length))) == 2
    assert log.looks == 2


# ── what is settled ──────────────────────────────────────────────────────────────────────────


def settled(session: Snapshot) -> int:
    return settled_to(session, session.marks[-1])


def test_a_turn_is_settled_unless_its_calls_wait() -> None:
    session = with_turn(new_session(), user("one"))
    assert settled(session) == len(session.items)
    look, tell = call("look"), call("tell", waits_for="client")
    asks = answered(thought(), said("One moment."), look, tell)
    turn = after(turn_on(session), asked(), asks, started(look), finished(look))
    waiting = ending(session, turn)
    assert settled(waiting) == len(session.items) + 1
    assert list(seen_by_model(waiting, since=settled(waiting)))[1:] == [
        *asks.items[1:],
        result_in(waiting),
    ]


def result_in(session: Snapshot) -> StoredItem:
    return next(each for each in session.items if isinstance(each, ToolResult))


def test_what_cannot_be_read_does_not_cut_a_step_in_two() -> None:
    look, tell = call("look"), call("tell", waits_for="client")
    turn = after(turn_on(new_session()), asked(), answered(look, said("Hm."), tell), started(look))
    waiting = ending(new_session(), after(turn, finished(look)))
    assert settled(damaged(waiting, 2)) == settled(waiting) == 1


def test_a_call_that_waits_comes_along_from_where_it_was_settled_though_a_summary_covers_it() -> (
    None
):
    session = waiting_for(new_session(), tell := call(waits_for="client"))
    short = noted(session, Summarized(summary=(made := summary(covers_to=len(session.items)))))
    assert list(seen_by_model(short, since=settled(short))) == [tell]
    then = with_turn(short, told := result(tell))
    assert list(seen_by_model(then))[:3] == [made, tell, told]
    assert list(seen_by_model(then, since=settled(short)))[:2] == [tell, told]


# ── a turn that is open ──────────────────────────────────────────────────────────────────────


def test_a_branch_of_an_open_turn_sees_its_own_work() -> None:
    look = call("look")
    path = inside(look)
    turn = after(
        turn_on(new_session(), question := user("Well?")),
        asked(),
        ev.StepBroken(items=(said("Let m", state="set_aside"),)),
        asked(),
        answered(look),
        opened := branch_opened(look),
        ev.Compacted(summary=summary()),
    )
    assert seen_in_turn(turn, path) == [opened.task]
    turn = after(turn, asked(path), answered(said("Found", path=path)), done := finished(look))
    assert seen_in_turn(turn) == [question, look, done.result]


def test_a_result_in_an_open_turn_needs_its_call() -> None:
    session = waiting_for(new_session(), tell := call(waits_for="client"))
    turn = turn_on(session, told := result(tell), more := user("Well?"))
    assert seen_in_turn(turn, after=[tell]) == [tell, told, more]
    assert seen_in_turn(turn) == [more]


# ── for all histories ────────────────────────────────────────────────────────────────────────


class Remark(NamedTuple):
    """A random annotation: something is hidden or shown, or everything up to a turn is summed up."""

    at: int
    to_people: bool | None
    to_model: bool | None
    sums_up: bool


REMARKS = st.lists(
    st.builds(
        Remark,
        at=st.integers(0, 60),
        to_people=st.none() | st.booleans(),
        to_model=st.none() | st.booleans(),
        sums_up=st.booleans(),
    ),
    max_size=8,
)


def remarked(session: Snapshot, remarks: list[Remark]) -> Snapshot:
    for each in remarks:
        if each.sums_up:
            turn = session.marks[each.at % len(session.marks)]
            session = noted(session, Summarized(summary=summary(covers_to=turn.end)))
        else:
            item = item_id(session.items[each.at % len(session.items)])
            patch = Visibility(to_people=each.to_people, to_model=each.to_model)
            session = noted(session, patch, item)
    return session


def broken_pairs(view: Iterable[Item], waiting: Iterable[ToolCall]) -> list[Item]:
    """Results without a call before them, and calls without exactly one result that do not wait."""
    open_calls: dict[ItemId, ToolCall] = {}
    broken: list[Item] = []
    for each in view:
        if isinstance(each, ToolCall):
            open_calls[each.id] = each
        elif isinstance(each, ToolResult) and open_calls.pop(each.call, None) is None:
            broken.append(each)
    left = {each.id for each in waiting}
    return broken + [each for each in open_calls.values() if each.id not in left]


@given(
    commits=histories(),
    remarks=REMARKS,
    damage=st.sets(st.integers(0, 60), max_size=2),
)
def test_the_model_always_sees_calls_together_with_their_results(
    commits: tuple[Commit, ...], remarks: list[Remark], damage: set[int]
) -> None:
    """Whatever was hidden, summed up or damaged: a provider would refuse anything else, for ever."""
    session = remarked(session_after(commits), remarks)
    session = damaged(session, *(at % len(session.items) for at in damage))
    view = list(seen_by_model(session))
    assert broken_pairs(view, session.waiting) == []
    assert len(set(ids(view))) == len(view)


@given(commits=histories(), remarks=REMARKS)
def test_the_model_sees_nothing_that_was_hidden_covered_or_not_for_it(
    commits: tuple[Commit, ...], remarks: list[Remark]
) -> None:
    session = remarked(session_after(commits), remarks)
    view = list(seen_by_model(session))
    hidden = session.notes.hidden_from_model
    made = (session.turn_summary, session.notes.summary)
    covering = further(*(each for each in made if each and each.id not in hidden))
    covered = session.items[: covering.covers_to] if covering else ()
    assert [each for each in view if isinstance(each, Summary)] == [covering] * bool(covering)
    assert not any(each.path for each in view)
    assert hidden.isdisjoint(each.id for each in view)
    # What is covered comes along only as the other half of a pair.
    assert all(isinstance(each, ToolCall) for each in view if each in covered)


@given(commits=histories(), remarks=REMARKS, damage=st.sets(st.integers(0, 60), max_size=2))
def test_people_lose_nothing_but_what_was_hidden_from_them(
    commits: tuple[Commit, ...], remarks: list[Remark], damage: set[int]
) -> None:
    session = remarked(session_after(commits), remarks)
    session = damaged(session, *(at % len(session.items) for at in damage))
    hidden = session.notes.hidden_from_people
    assert list(seen_by_people(session)) == [
        each for each in session.items if item_id(each) not in hidden
    ]


@given(commits=histories(), at=st.integers(0, 4))
def test_a_view_continued_is_the_view_taken_anew(commits: tuple[Commit, ...], at: int) -> None:
    before, now = session_after(commits[:at]), session_after(commits)
    if before.turn_summary == now.turn_summary:
        continued = [*seen_by_model(before), *seen_by_model(now, since=len(before.items))]
        if before.items:
            assert continued == list(seen_by_model(now))


@given(commits=histories(), remarks=REMARKS, at=st.integers(0, 60))
def test_a_view_cut_where_it_is_settled_is_the_whole_view(
    commits: tuple[Commit, ...], remarks: list[Remark], at: int
) -> None:
    session = remarked(session_after(commits), remarks)
    cut = settled_to(session, session.marks[at % len(session.marks)])
    before = {item_id(each) for each in session.items[:cut]}
    whole = list(seen_by_model(session))
    rest = list(seen_by_model(session, since=cut))
    if cut:
        assert rest == [e for e in whole if e.id not in before and not isinstance(e, Summary)]
    assert broken_pairs(rest, session.waiting) == []
