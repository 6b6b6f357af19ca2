"""Which turns can be continued, by whom, how often, and what is then seen, counted and offered again."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from holdfast import limits
from holdfast.core.codec import encode
from holdfast.core.history import chain
from holdfast.core.history.conversation import Snapshot, commit_of, seen_by_model
from holdfast.core.items import (
    AssistantMessage,
    EndedBy,
    Interruption,
    Item,
    ToolCall,
    ToolResult,
    TurnLimits,
    UserMessage,
    plain_text,
)
from holdfast.core.policy import Policy, resolve_policy
from holdfast.core.turns import events as ev
from holdfast.core.turns.effects import limit_reached
from holdfast.core.turns.turn import Turn, advance, begin
from holdfast.core.turns.unfinished_turns import (
    Spent,
    broken_off,
    keys_of_calls,
    links_after,
    may_pass,
    retries_left,
)
from holdfast.ids import (
    CallId,
    MessageId,
    Minter,
    NoteId,
    ResultId,
    SessionId,
    TurnId,
    Version,
)

PLAIN = resolve_policy(promised_return=False)
MAX = limits.continuations_max


@pytest.fixture
def mint() -> Minter:
    return Minter(now_ms=lambda: 1, random_bits=lambda bits: 0)


# ── who may continue ─────────────────────────────────────────────────────────────────────────

LEFT: dict[EndedBy, int | None] = {
    "completed": None,
    "cancelled": None,
    "limit": None,
    "disconnected": MAX,
    "deadline": MAX,
    "model_error": MAX,
    "tool_error": MAX,
    "crash": MAX,
    "shutdown": MAX,
    "superseded": MAX,
    "deleted": 0,
}
"""How many retries may continue a turn that ended so, if it is kept at all. None: a repetition is no retry."""


@pytest.mark.parametrize("by", get_args(EndedBy))
def test_every_end_says_who_may_continue_it(by: EndedBy) -> None:
    assert retries_left(by, "", PLAIN, links=0) == LEFT[by]


@pytest.mark.parametrize("by", ["model_error", "tool_error"])
@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("", True),
        ("upstream_error", True),
        ("rate_limit_exceeded", True),
        ("upstream_timeout", True),
        ("storage_unavailable", True),
        ("upstream_refused", False),
        ("insufficient_quota", False),
        ("context_length_exceeded", False),
        ("agent_not_found", False),
        ("a_word_of_somebody_else", False),
    ],
)
def test_only_what_can_pass_is_continued_by_a_retry(by: EndedBy, code: str, passes: bool) -> None:
    assert may_pass(by, code) is passes
    assert retries_left(by, code, PLAIN, links=0) == (MAX if passes else 0)


def test_a_client_whose_stop_button_disconnects_has_stopped_it() -> None:
    keep = resolve_policy(Policy(disconnect="keep"), promised_return=False)
    assert retries_left("disconnected", "", keep, links=0) is None
    assert retries_left("model_error", "", keep, links=0) == MAX


def test_retries_in_a_row_are_bounded() -> None:
    left: int | None = retries_left("model_error", "", PLAIN, links=0)
    for n in range(1, MAX + 1):
        links = links_after(left)
        assert links == n
        left = retries_left("model_error", "", PLAIN, links=links)
    assert left == 0 and links_after(left) is links_after(None) is None


# ── bounds ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("bounds", "spent", "limit"),
    [
        (TurnLimits(steps_max=2), Spent(steps=1), None),
        (TurnLimits(steps_max=2), Spent(steps=2), "steps"),
        (TurnLimits(calls_max=2), Spent(calls=2), None),
        (TurnLimits(calls_max=2), Spent(calls=3), "calls"),
        (TurnLimits(output_chars_max=5), Spent(output_chars=4), None),
        (TurnLimits(output_chars_max=5), Spent(output_chars=5), "output_chars"),
        (TurnLimits(cost_micros_max=5), Spent(cost_micros=4), None),
        (TurnLimits(cost_micros_max=5), Spent(cost_micros=5), "cost"),
    ],
)
def test_what_was_spent_before_counts(
    mint: Minter, bounds: TurnLimits, spent: Spent, limit: str | None
) -> None:
    request = ev.TurnRequest(turn_id=mint(TurnId), limits=bounds, spent=spent)
    assert limit_reached(begin(ev.Began(request=request))) == limit


# ── what a commit says ───────────────────────────────────────────────────────────────────────


def user(mint: Minter) -> UserMessage:
    return UserMessage(id=mint(MessageId), content=plain_text("Do it"))


def broken(mint: Minter, request: ev.TurnRequest, *, by: EndedBy = "model_error") -> Turn:
    """A turn that called a tool, and broke off in the middle of its next words."""
    turn = begin(ev.Began(request=request))
    call = ToolCall(id=mint(CallId), call_id="c", name="act", arguments="{}", agent="butler")
    half = AssistantMessage(
        id=mint(MessageId), content=plain_text("Half"), agent="butler", state="interrupted"
    )
    result = ToolResult(id=mint(ResultId), call=call.id, outcome="ok")
    for event in (
        ev.StepStarted(),
        ev.Answered(items=(call,), finish="tool_calls"),
        ev.ToolStarted(call=call.id),
        ev.ToolFinished(result=result),
        ev.StepStarted(),
        ev.Interrupted(by=by),
        ev.StepBroken(items=(half,)),
        ev.Closed(note=Interruption(id=mint(NoteId), ended_by=by)),
        ev.Ended(by=by, kept=True),
    ):
        turn = advance(turn, event)
    return turn


def answered(mint: Minter, request: ev.TurnRequest) -> Turn:
    turn = begin(ev.Began(request=request))
    said = AssistantMessage(id=mint(MessageId), content=plain_text("Done."), agent="butler")
    for event in (
        ev.StepStarted(),
        ev.Answered(items=(said,)),
        ev.Ended(by="completed", kept=True),
    ):
        turn = advance(turn, event)
    return turn


def request_on(snapshot: Snapshot, mint: Minter, *, links: int = 0, said: bool) -> ev.TurnRequest:
    return ev.TurnRequest(
        turn_id=mint(TurnId),
        base=snapshot.version,
        base_length=len(snapshot.items),
        input=(user(mint),) if said else (),
        policy=PLAIN,
        continues=None if said else snapshot.marks[-1].turn_id,
        links=links,
    )


def test_a_chain_of_turns_is_one_thing_to_a_model_and_several_to_people(mint: Minter) -> None:
    snapshot = Snapshot(session_id=mint(SessionId))
    first = broken(mint, request_on(snapshot, mint, said=True))
    made = commit_of(first, previous=snapshot.link)
    assert (made.unfinished, made.retries_left, made.links) == (Version(1), MAX, None)
    snapshot = snapshot.with_commit(made)
    assert snapshot.is_unfinished and not snapshot.broken_off

    second = broken(mint, request_on(snapshot, mint, links=1, said=False))
    made = commit_of(second, previous=snapshot.link)
    assert (made.unfinished, made.retries_left, made.links) == (Version(2), MAX - 1, 1)
    snapshot = snapshot.with_commit(made)
    third = answered(mint, request_on(snapshot, mint, links=2, said=False))
    made = commit_of(third, previous=snapshot.link)
    assert (made.unfinished, made.retries_left, made.links) == (None, None, 2)
    snapshot = snapshot.with_commit(made)

    shown = list(seen_by_model(snapshot))
    assert not any(isinstance(each, Interruption) for each in shown)
    assert [each for each in shown if isinstance(each, AssistantMessage)] == [third.items[-1]]
    assert len(snapshot.items) == len(first.items) + len(second.items) + len(third.items)
    last = snapshot.marks[-1]
    assert [each.version for each in snapshot.chain_before(last)] == [1, 2]
    assert not broken_off(snapshot.said_by(last))
    assert len(snapshot.said_by(last)) == len(snapshot.items) - 4
    assert snapshot.forked(mint(SessionId)).broken_off == snapshot.broken_off


def test_the_step_that_failed_is_asked_again_as_it_was(mint: Minter) -> None:
    snapshot = Snapshot(session_id=mint(SessionId))
    turn = broken(mint, request_on(snapshot, mint, said=True))
    asked = [each for each in turn.items if each.id not in broken_off(turn.items)]
    after = snapshot.with_commit(commit_of(turn, previous=snapshot.link))
    assert list(seen_by_model(after.continued())) == asked
    assert list(seen_by_model(after)) == list(turn.items), "whoever says something new is told"


@pytest.mark.parametrize("detail", ["output_tokens", "output_chars", "steps"])
def test_an_answer_that_was_cut_by_its_length_left_nothing_open(mint: Minter, detail: str) -> None:
    note = Interruption(id=mint(NoteId), ended_by="limit", detail=detail)
    snapshot = Snapshot(session_id=mint(SessionId))
    snapshot = msgspec.structs.replace(snapshot, items=snapshot.items.appended(note))
    assert bool(list(seen_by_model(snapshot))) == (detail == "steps")


# ── the chain of hashes ──────────────────────────────────────────────────────────────────────


def test_what_a_turn_continues_is_part_of_its_link_and_links_of_old_stay_what_they_are(
    mint: Minter,
) -> None:
    header = chain.LinkHeader(
        turn_id=mint(TurnId), version=Version(2), ended_by="completed", agent="butler"
    )
    on = msgspec.structs.replace(header, continues=mint(TurnId))
    assert b"continues" not in encode(header)
    links = [chain.link(chain.GENESIS, each, items=(), changes=()) for each in (header, on)]
    assert links[0] != links[1]


# ── keys of calls ────────────────────────────────────────────────────────────────────────────


def called(mint: Minter, name: str = "pay", arguments: str = "{}") -> ToolCall:
    return ToolCall(id=mint(CallId), call_id="c", name=name, arguments=arguments)


def lost(mint: Minter, call: ToolCall, *, idempotent: bool = True) -> ToolResult:
    return ToolResult(id=mint(ResultId), call=call.id, outcome="unknown", idempotent=idempotent)


def test_a_call_that_repeats_a_lost_one_goes_by_its_key_once(mint: Minter) -> None:
    first, again, more, other = called(mint), called(mint), called(mint), called(mint, "see")
    items: list[Item] = [first, lost(mint, first), other, again, more]
    keys = keys_of_calls(items)
    assert keys[again.id] == keys[first.id] == first.id
    assert (keys[more.id], keys[other.id]) == (more.id, other.id)


def test_a_key_is_handed_on_however_often_its_call_is_lost(mint: Minter) -> None:
    calls = [called(mint) for _ in range(3)]
    items: list[Item] = []
    for each in calls[:2]:
        items += (each, lost(mint, each))
    assert set(keys_of_calls([*items, calls[2]]).values()) == {calls[0].id}


@pytest.mark.parametrize(("idempotent", "arguments"), [(False, "{}"), (True, '{"to":"you"}')])
def test_no_other_call_is_taken_for_it(mint: Minter, idempotent: bool, arguments: str) -> None:
    first, again = called(mint), called(mint, arguments=arguments)
    items: list[Item] = [first, lost(mint, first, idempotent=idempotent), again]
    assert keys_of_calls(items)[again.id] == again.id


def test_a_lost_result_whose_call_is_not_among_them_hands_nothing_on(mint: Minter) -> None:
    first, again = called(mint), called(mint)
    assert keys_of_calls([lost(mint, first), again]) == {again.id: again.id}


@pytest.mark.parametrize("replayable", [False, True])
def test_the_journal_of_an_unfinished_turn_is_of_use_and_of_a_replayable_one(
    mint: Minter, replayable: bool
) -> None:
    snapshot = Snapshot(session_id=mint(SessionId))
    request = request_on(snapshot, mint, said=True)
    ended = commit_of(answered(mint, request), previous=snapshot.link)
    broke_off = commit_of(broken(mint, request), previous=snapshot.link)
    assert ended.keeps_journal(replayable=replayable) is replayable
    assert broke_off.keeps_journal(replayable=replayable)
