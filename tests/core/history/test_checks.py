"""For every promise that a history can show: a case that breaks it, and a neighbour that does not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given

from holdfast.core.codec import Unreadable, encode
from holdfast.core.history import chain, checks
from holdfast.core.history.checks import StoredTurn, Violation, check_history, check_turn
from holdfast.core.history.conversation import Commit, TurnMark, commit_of
from holdfast.core.items import Item, StoredItem, ToolCall
from holdfast.core.turns import events as ev
from holdfast.ids import SessionId, TurnId, Version
from tests.core.builders import (
    after,
    answered,
    asked,
    branch_opened,
    call,
    finished,
    inside,
    kept,
    mint,
    note,
    result,
    said,
    summary,
    thought,
    user,
)
from tests.core.histories import (
    histories,
    new_session,
    session_after,
    stored,
    turn_on,
    waiting_for,
)


def codes(violations: Sequence[Violation]) -> list[str]:
    return [each.code for each in violations]


# ── turns ────────────────────────────────────────────────────────────────────────────────────


class Case(NamedTuple):
    """A turn that breaks one promise, and one much like it that breaks none."""

    code: str
    wrong: Sequence[StoredItem]
    right: Sequence[StoredItem]
    carried: tuple[ToolCall, ...] = ()


HELLO, BYE = user("Hello"), user("Bye")
LOOK, FLY = call("look"), call("fly")
TELL, ASK = call("tell", waits_for="client"), call("ask", waits_for="approval")
LOST = call("look", state="set_aside")
INNER = call("search", path=inside(LOOK))
DEEPEST = call("read", path=inside(INNER))
INNER_TELL = call("tell", waits_for="client", path=inside(LOOK))


def moved(item: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(item, **changes)


CASES = {
    "a message comes twice": Case("duplicate_id", [HELLO, HELLO], [HELLO, BYE]),
    "two kinds of call share an id": Case(
        "duplicate_id", [LOST, moved(thought(), id=LOST.id)], [LOST, thought()]
    ),
    "a call has no result": Case("call_unanswered", [HELLO, LOOK], [HELLO, LOOK, result(LOOK)]),
    "one of two calls has no result": Case(
        "call_unanswered",
        [LOOK, FLY, result(FLY)],
        [LOOK, FLY, result(FLY), result(LOOK)],
    ),
    "a call waits for nobody": Case("call_unanswered", [moved(TELL, waits_for=None)], [TELL]),
    "a sub-agent's call has no result": Case(
        "call_unanswered",
        [LOOK, INNER, result(LOOK)],
        [LOOK, INNER, result(INNER), result(LOOK)],
    ),
    "a call has two results": Case(
        "answered_twice", [LOOK, result(LOOK), result(LOOK)], [LOOK, result(LOOK)]
    ),
    "a carried call has two results": Case(
        "answered_twice", [result(TELL), result(TELL)], [result(TELL)], carried=(TELL,)
    ),
    "a result has no call": Case("result_orphaned", [HELLO, result(TELL)], [HELLO, TELL]),
    "a result comes before its call": Case(
        "result_orphaned", [result(TELL), TELL], [TELL, result(TELL)]
    ),
    "a result lies outside its call's branch": Case(
        "result_misplaced",
        [LOOK, INNER, moved(result(INNER), path=()), result(LOOK)],
        [LOOK, INNER, result(INNER), result(LOOK)],
    ),
    "a branch that no call opened": Case(
        "branch_orphaned",
        [said("Found it", path=inside(LOOK)), LOOK, result(LOOK)],
        [LOOK, said("Found it", path=inside(LOOK)), result(LOOK)],
    ),
    "a branch under the wrong call": Case(
        "branch_orphaned",
        [LOOK, INNER, said(path=(INNER.id,)), result(INNER), result(LOOK)],
        [LOOK, INNER, said(path=inside(INNER)), result(INNER), result(LOOK)],
    ),
    "a branch in a branch that is not there": Case(
        "branch_orphaned",
        [LOOK, INNER, said(path=inside(DEEPEST)), result(INNER), result(LOOK)],
        [
            *(LOOK, INNER, DEEPEST, said(path=inside(DEEPEST))),
            *(result(DEEPEST), result(INNER), result(LOOK)),
        ],
    ),
    "a call waits in a branch": Case(
        "wait_misplaced",
        [LOOK, INNER_TELL, result(LOOK)],
        [LOOK, INNER_TELL, result(INNER_TELL), result(LOOK)],
    ),
    "a call waits in a turn that broke off": Case(
        "wait_misplaced", [TELL, note()], [TELL, result(TELL, outcome="not_run"), note()]
    ),
    "a call that was set aside has a result": Case(
        "set_aside_used", [LOST, result(LOST)], [LOST, LOOK, result(LOOK)]
    ),
    "words broke off, and nobody says so": Case(
        "broken_unmarked",
        [said("The th", state="interrupted")],
        [said("The th", state="interrupted"), note()],
    ),
    "thoughts broke off, and nobody says so": Case(
        "broken_unmarked",
        [thought(state="interrupted"), said()],
        [thought(state="set_aside"), said()],
    ),
    "a carried call is still open": Case(
        "carried_open", [HELLO], [result(TELL), HELLO], carried=(TELL,)
    ),
    "one of two carried calls is still open": Case(
        "carried_open",
        [result(TELL), HELLO],
        [result(TELL), result(ASK, outcome="refused"), HELLO],
        carried=(TELL, ASK),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_turn_is_wrong_in_exactly_one_way_if(case: Case) -> None:
    found = check_turn(case.wrong, carried=case.carried, where="turn_19")
    assert codes(found) == [case.code]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_turn_is_well_formed_unless(case: Case) -> None:
    assert check_turn(case.right, carried=case.carried) == ()


def test_a_violation_names_the_item_and_says_what_is_wrong() -> None:
    (found,) = check_turn([LOOK])
    assert (found.where, found.what) == (LOOK.id, "it has no result")
    (found,) = check_turn([HELLO], carried=(TELL,), where="turn_19")
    assert (found.where, found.what) == ("turn_19", f"{TELL.id} of the turn before has no result")


def test_a_turn_can_be_wrong_in_several_ways_at_once() -> None:
    found = check_turn([HELLO, HELLO, LOOK, result(FLY)])
    assert codes(found) == ["duplicate_id", "result_orphaned", "call_unanswered"]


def test_an_approved_call_may_open_a_branch_in_the_turn_after_its_own() -> None:
    """A sub-agent that needs a person's leave is called in one turn, and works in the next."""
    session = waiting_for(new_session(), ask := call("delegate", waits_for="approval"))
    path = inside(ask)
    turn = after(
        turn_on(session, approved=(ask.id,)),
        branch_opened(ask),
        asked(path),
        answered(said("Found it", path=path)),
        finished(ask),
        asked(),
        answered(said("There.")),
    )
    commit = commit_of(kept(turn), previous=session.link)
    assert check_turn(commit.items, carried=session.waiting) == ()


def test_what_cannot_be_read_is_not_held_against_its_turn() -> None:
    assert check_turn([HELLO, Unreadable(raw=b"", why="damaged"), said()]) == ()


# ── histories ────────────────────────────────────────────────────────────────────────────────


def linked(*turns: Sequence[Item | bytes], **first: Any) -> list[StoredTurn]:
    """Turns with these items, with marks and links as they should be."""
    previous = first.get("previous", chain.GENESIS)
    version, start = first.get("version", 0), first.get("position", 0)
    made = []
    for items in turns:
        version += 1
        encoded = tuple(each if isinstance(each, bytes) else encode(each) for each in items)
        turn_id = mint(TurnId)
        header = chain.LinkHeader(
            turn_id=turn_id, version=Version(version), ended_by="completed", agent=""
        )
        previous = chain.link(previous, header, items=encoded, changes=())
        mark = TurnMark(
            turn_id=turn_id,
            version=Version(version),
            start=start,
            end=start + len(encoded),
            link=previous,
        )
        start = mark.end
        made.append(StoredTurn(mark=mark, encoded=encoded))
    return made


def with_mark(turn: StoredTurn, **changes: Any) -> StoredTurn:
    """A turn whose mark lies, with a link that fits the lie."""
    mark = msgspec.structs.replace(turn.mark, **changes)
    header = chain.LinkHeader(
        turn_id=mark.turn_id, version=mark.version, ended_by=mark.ended_by, agent=mark.agent
    )
    link = chain.link(chain.GENESIS, header, items=turn.encoded, changes=())
    return StoredTurn(mark=msgspec.structs.replace(mark, link=link), encoded=turn.encoded)


def summing_up(covers_to: int) -> list[StoredTurn]:
    return linked(
        [user(), said()], [user(), said()], [user(), summary(covers_to=covers_to), said()]
    )


(ONE,) = linked([user(), said()])
IN_A_BRANCH: list[Item | bytes] = [
    *(LOOK, INNER, summary(covers_to=1, path=inside(LOOK))),
    *(result(INNER), result(LOOK)),
]

HISTORIES: dict[str, tuple[str, Sequence[StoredTurn], Sequence[StoredTurn]]] = {
    "a version is skipped": ("not_dense", [with_mark(ONE, version=Version(2))], [ONE]),
    "a version comes again": ("not_dense", [with_mark(ONE, version=Version(0))], [ONE]),
    "positions have a gap": ("not_dense", [with_mark(ONE, start=1, end=3)], [ONE]),
    "positions are fewer than items": ("not_dense", [with_mark(ONE, end=1)], [ONE]),
    "the bytes are not those that were linked": (
        "link_broken",
        [msgspec.structs.replace(ONE, encoded=linked([user(), said()])[0].encoded)],
        [ONE],
    ),
    "a summary covers half a turn": ("summary_astray", summing_up(3), summing_up(2)),
    "a summary covers its own turn": ("summary_astray", summing_up(5), summing_up(4)),
    "a summary covers what is not there": ("summary_astray", summing_up(99), summing_up(0)),
    "bytes cannot be read": (
        "unreadable",
        linked([user(), b"\xff", said()]),
        linked([user(), said(), said()]),
    ),
    "a call of the turn before is still open": (
        "carried_open",
        linked([user(), TELL], [user()]),
        linked([user(), TELL], [result(TELL), user()]),
    ),
}


@pytest.mark.parametrize(("code", "wrong", "_right"), HISTORIES.values(), ids=HISTORIES.keys())
def test_a_history_is_wrong_in_exactly_one_way_if(
    code: str, wrong: Sequence[StoredTurn], _right: Sequence[StoredTurn]
) -> None:
    (found,) = check_history(wrong)
    assert found.code == code


@pytest.mark.parametrize(("_code", "_wrong", "right"), HISTORIES.values(), ids=HISTORIES.keys())
def test_a_history_is_whole_unless(
    _code: str, _wrong: Sequence[StoredTurn], right: Sequence[StoredTurn]
) -> None:
    assert list(check_history(right)) == []


def test_a_sub_agents_summary_is_its_own_business() -> None:
    """Positions in it are the branch's, not the session's."""
    assert list(check_history(linked(IN_A_BRANCH))) == []


def test_damage_is_reported_where_it_is_and_the_rest_is_still_checked() -> None:
    turns = linked([user(), said()], [user(), b"\xff"], [user(), LOOK])
    assert [(each.code, each.where) for each in check_history(turns)] == [
        ("unreadable", str(turns[1].mark.turn_id)),
        ("call_unanswered", str(LOOK.id)),
    ]


def test_a_fork_is_checked_from_where_it_begins() -> None:
    fork = waiting_for(new_session(), tell := call(waits_for="client")).forked(mint(SessionId))
    begins: dict[str, Any] = {
        "previous": fork.link,
        "version": int(fork.version),
        "position": len(fork.items),
    }
    turns = linked([result(tell), user(), summary(covers_to=len(fork.items)), said()], **begins)
    assert list(check_history(turns, **begins, carried=fork.waiting)) == []
    assert codes(list(check_history(turns))) == [
        "not_dense",
        "result_orphaned",
        "summary_astray",
        "link_broken",
    ]


def test_a_summary_in_a_fork_may_cover_a_part_of_its_parents_past() -> None:
    """Keeping the last few turns in full is what compaction does. Where they begin, the parent knows."""
    begins: dict[str, Any] = {"version": 3, "position": 6}
    (turn,) = linked([user(), summary(covers_to=2), said()], **begins)
    (astray,) = linked([user(), summary(covers_to=7), said()], **begins)
    assert list(check_history([turn], **begins)) == []
    assert codes(list(check_history([astray], **begins))) == ["summary_astray"]


def test_an_empty_history_is_whole() -> None:
    assert list(check_history(())) == []


@given(histories())
def test_whatever_is_played_is_found_to_be_whole(commits: tuple[Commit, ...]) -> None:
    assert list(check_history(stored(commits))) == []


@given(histories())
def test_a_history_can_be_checked_in_two_halves(commits: tuple[Commit, ...]) -> None:
    first, second = stored(commits)[:1], stored(commits)[1:]
    middle = session_after(commits[:1])
    assert list(check_history(first)) == []
    found = check_history(
        second,
        previous=middle.link,
        version=int(middle.version),
        position=len(middle.items),
        carried=middle.waiting,
    )
    assert list(found) == []


# ── the list of codes ────────────────────────────────────────────────────────────────────────


def test_every_code_is_explained_and_has_a_case() -> None:
    explained = set(re.findall(r"^  ([a-z_]+)  ", checks.__doc__ or "", re.MULTILINE))
    tried = {case.code for case in CASES.values()} | {code for code, _, _ in HISTORIES.values()}
    assert explained == tried


def test_an_acting_turn_that_broke_off_is_well_formed_once_closed() -> None:
    turn = after(turn_on(new_session()), asked(), answered(fly := call("fly")))
    turn = after(turn, ev.ToolStarted(call=fly.id), ev.Interrupted(by="crash"))
    turn = after(turn, finished(fly, outcome="unknown"), ev.Closed(note=note("crash")))
    commit = commit_of(kept(turn, by="crash"), previous=chain.GENESIS)
    assert check_turn(commit.items) == ()
