"""The table in the design's first section, as far as pure functions decide it.

Each part names what happens in other systems, and shows at every moment of one turn's life that it does not
happen here. What depends on comparing requests with history is in `history/test_reconciliation.py`, what depends on
addresses in `test_identity.py`, the rest needs a store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from holdfast.core.codec import Unreadable
from holdfast.core.history.checks import check_turn
from holdfast.core.history.conversation import Snapshot, commit_of
from holdfast.core.items import (
    AssistantMessage,
    EndedBy,
    Interruption,
    Item,
    ToolCall,
    ToolResult,
    UserMessage,
    text_of,
)
from holdfast.core.policy import decide, resolve_policy
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import (
    NOT_RUN,
    UNKNOWN,
    advanced,
    closing,
    note_for_model,
    resuming,
)
from holdfast.core.turns.effects import Close, wanted
from holdfast.core.turns.journal import Record, decode_records, encode_records, fold, numbered
from holdfast.core.turns.turn import Turn, advance, begin, committed_items
from holdfast.errors import IllegalEvent
from holdfast.ids import CallId, MessageId, SessionId
from tests.core.builders import (
    after,
    asked,
    call,
    complete,
    finished,
    frozen,
    interrupted,
    kept,
    mint,
    request,
    started,
    user,
)
from tests.core.players import fulfilled, played_out

NOBODY_SAID_ANYTHING = resolve_policy(promised_return=False)
WILL_COME_BACK = resolve_policy(promised_return=True)

# ── one turn's life ──────────────────────────────────────────────────────────────────────────

LOOK, FLY = call("look"), call("fly")
WORDS, LAST_WORDS = mint(MessageId), mint(MessageId)


def message(item: MessageId, text: str) -> AssistantMessage:
    return AssistantMessage(id=item, content=user(text).content)


LIFE: tuple[ev.Event, ...] = (
    ev.Began(request=request(user("Book me a flight to Oslo"))),
    asked(),
    ev.ItemOpened(item=WORDS, kind="message"),
    ev.Grew(item=WORDS, text="Let me "),
    ev.Grew(item=WORDS, text="see."),
    ev.Answered(items=(message(WORDS, "Let me see."), LOOK, FLY), finish="tool_calls"),
    started(LOOK, read_only=True),
    started(FLY),
    finished(FLY, "Booked.", changes=(ev.StateSet(name="trip", value='"Oslo"'),)),
    finished(LOOK, "Sunny."),
    asked(),
    ev.ItemOpened(item=LAST_WORDS, kind="message"),
    ev.Grew(item=LAST_WORDS, text="All done."),
    ev.Answered(items=(message(LAST_WORDS, "All done."),)),
)
JOURNAL = numbered(LIFE, first=0, at_ms=0)


def moments() -> Iterator[tuple[int, Turn]]:
    """The turn after each of its records."""
    began = LIFE[0]
    assert isinstance(began, ev.Began)
    turn = begin(began)
    yield 1, turn
    for n, event in enumerate(LIFE[1:], start=2):
        turn = advance(turn, event)
        yield n, turn


EVERY_MOMENT = [pytest.param(turn, id=f"after {n} records") for n, turn in moments()]
EVERY_MOMENT_BUT_THE_LAST = EVERY_MOMENT[:-1]


def ended(turn: Turn, by: EndedBy) -> Turn:
    """The turn after it ended like this, by the policy of a client that said nothing."""
    turn = advance(turn, interrupted(by))
    if decide(NOBODY_SAID_ANYTHING, by, acted=turn.acted) == "discard":
        return advance(turn, ev.Ended(by=by, kept=False))
    return kept(advanced(turn, closing(turn, mint)), by=by)


def conversation() -> Snapshot:
    """A conversation with one turn in it."""
    before = Snapshot(session_id=mint(SessionId))
    return before.with_commit(commit_of(kept(complete()), previous=before.link))


# ── a request fails half-way; the retry sees the failed message twice ────────────────────────


@pytest.mark.parametrize("turn", EVERY_MOMENT)
def test_a_turn_that_fails_half_way_leaves_the_conversation_byte_identical(turn: Turn) -> None:
    snapshot = conversation()
    before = frozen(snapshot)

    dropped = advance(turn, ev.Ended(by="model_error", kept=False))

    assert frozen(snapshot) == before
    with pytest.raises(AssertionError, match="only a kept turn"):
        commit_of(dropped, previous=snapshot.link)


@pytest.mark.parametrize("turn", EVERY_MOMENT)
def test_the_retry_of_a_failed_request_finds_its_message_once(turn: Turn) -> None:
    snapshot = conversation()
    failed = ended(after_request(turn, snapshot), "model_error")
    if failed.ended is not None and failed.ended.kept:
        snapshot = snapshot.with_commit(commit_of(failed, previous=snapshot.link))
    retry = after_request(complete(), snapshot)
    snapshot = snapshot.with_commit(commit_of(kept(retry), previous=snapshot.link))

    asked_for = [each.id for each in snapshot.items if isinstance(each, UserMessage)]
    assert len(asked_for) == len(set(asked_for)) == len(snapshot.marks)


def after_request(turn: Turn, snapshot: Snapshot) -> Turn:
    """The same turn, begun on top of this snapshot."""
    fields = {"base": snapshot.version, "base_length": len(snapshot.items)}
    return replace(turn, request=replace(turn.request, **fields))


# ── the client goes away; half a turn is stored as if it had succeeded ───────────────────────


@pytest.mark.parametrize("turn", EVERY_MOMENT_BUT_THE_LAST)
def test_half_a_turn_cannot_be_stored_as_success(turn: Turn) -> None:
    """Success is a state that a turn comes to, never the absence of an error."""
    gone = advance(turn, interrupted("disconnected"))
    closed = advanced(gone, closing(gone, mint))
    for half in (turn, gone, closed):
        with pytest.raises(IllegalEvent):
            advance(half, ev.Ended(by="completed", kept=True))


@pytest.mark.parametrize("turn", EVERY_MOMENT)
def test_a_lost_client_s_turn_is_kept_only_if_it_has_acted_and_then_says_so(turn: Turn) -> None:
    end = ended(turn, "disconnected")
    assert end.ended == ev.Ended(by="disconnected", kept=turn.acted)
    if turn.acted:
        assert isinstance(committed_items(end)[-1], Interruption)


def test_a_client_that_said_how_it_will_come_back_finds_its_turn_finished() -> None:
    for acted in (False, True):
        assert decide(WILL_COME_BACK, "disconnected", acted=acted) == "finish"


# ── two requests write into each other's turn ────────────────────────────────────────────────


def test_two_turns_on_one_snapshot_never_see_each_other() -> None:
    snapshot = conversation()
    before = frozen(snapshot)
    mine, yours = (after_request(complete(text), snapshot) for text in ("mine", "yours"))

    heads = [
        snapshot.with_commit(commit_of(kept(each), previous=snapshot.link))
        for each in (mine, yours)
    ]

    assert frozen(snapshot) == before
    assert [_last_words(each) for each in heads] == ["mine", "yours"]
    with pytest.raises(AssertionError, match="on top of its base"):
        heads[0].with_commit(commit_of(kept(yours), previous=heads[0].link))


def _last_words(snapshot: Snapshot) -> str:
    last = snapshot.items[-1]
    assert isinstance(last, AssistantMessage)
    return text_of(last.content)


# ── the user presses stop; the turn is forgotten, or a call without a result corrupts it ─────


@pytest.mark.parametrize("turn", EVERY_MOMENT)
def test_stop_keeps_a_well_formed_turn_at_any_moment(turn: Turn) -> None:
    items = committed_items(ended(turn, "cancelled"))
    assert check_turn(items) == ()
    assert items[: len(turn.items)] == tuple(turn.items)


@pytest.mark.parametrize("turn", EVERY_MOMENT)
def test_stop_forgets_no_word_that_was_streamed(turn: Turn) -> None:
    streamed = "".join(
        item.text for branch in turn.branches if branch.draft for item in branch.draft.items
    )
    spoken = [
        text_of(each.content)
        for each in committed_items(ended(turn, "cancelled"))
        if isinstance(each, AssistantMessage)
    ]
    assert "".join(spoken).endswith(streamed)


def test_stop_with_calls_in_flight_says_of_each_what_is_known() -> None:
    told: list[dict[str, str]] = []
    for n, turn in moments():
        if n in (6, 7, 8, 9):
            told.append(_told_of_calls(committed_items(ended(turn, "cancelled"))))
    assert told == [
        {"look": NOT_RUN, "fly": NOT_RUN},
        {"look": UNKNOWN, "fly": NOT_RUN},
        {"look": UNKNOWN, "fly": UNKNOWN},
        {"look": UNKNOWN, "fly": "Booked."},
    ]


def _told_of_calls(items: tuple[Item, ...]) -> dict[str, str]:
    names = {each.id: each.name for each in items if isinstance(each, ToolCall)}
    return {
        names[each.call]: text_of(each.content) for each in items if isinstance(each, ToolResult)
    }


def test_a_result_that_comes_after_stop_still_counts() -> None:
    *_, (_, turn) = (each for each in moments() if each[0] == 8)
    turn = after(turn, interrupted("cancelled"), finished(FLY, "Booked, after all."))
    turn = kept(advanced(turn, closing(turn, mint)), by="cancelled")
    assert _told_of_calls(committed_items(turn)) == {"fly": "Booked, after all.", "look": UNKNOWN}


@pytest.mark.parametrize("turn", EVERY_MOMENT)
def test_after_stop_nothing_is_started_and_the_model_is_told(turn: Turn) -> None:
    stopped = advance(turn, interrupted("cancelled"))
    assert wanted(stopped) == (Close(),)
    note = committed_items(ended(turn, "cancelled"))[-1]
    assert isinstance(note, Interruption)
    assert "the user stopped it" in note_for_model(note)


# ── the answer is lost on its way; the retry runs the turn, and its tools, again ─────────────


@pytest.mark.parametrize("survived", range(1, len(JOURNAL) + 1))
@pytest.mark.parametrize("fine_ones_too", [True, False])
def test_a_resumed_turn_runs_no_tool_a_second_time(survived: int, fine_ones_too: bool) -> None:
    """Wherever the server went down: what has a result keeps it, what may have acted is not redone."""
    journal = [each for each in JOURNAL[:survived] if fine_ones_too or not ev.is_fine(each.event)]
    turn = _reread(journal)
    starts = Counter(_starts(each.event for each in journal))
    turn = advanced(turn, resuming(turn, mint, after="crash"))

    while turn.ended is None:
        happened = fulfilled(turn, wanted(turn)[0])
        starts += Counter(_starts(happened))
        turn = advanced(turn, happened)

    assert turn.ended == ev.Ended(by="completed", kept=True)
    assert check_turn(committed_items(turn)) == ()
    assert not starts or max(starts.values()) == 1


def _starts(happened: Iterator[ev.Event] | tuple[ev.Event, ...]) -> list[CallId]:
    return [each.call for each in happened if isinstance(each, ev.ToolStarted)]


def _reread(journal: list[Record]) -> Turn:
    told = fold(decode_records(encode_records(journal)))
    assert told.turn is not None
    assert told.damage is None
    return told.turn


def test_a_tool_that_is_safe_to_repeat_runs_again_under_the_same_key() -> None:
    *_, (_, turn) = (each for each in moments() if each[0] == 6)
    turn = after(turn, started(FLY, idempotent=True))
    turn = advanced(turn, resuming(turn, mint, after="crash"))
    assert [each.call.id for each in turn.root.pending if each.runnable] == [LOOK.id, FLY.id]


def test_a_turn_that_was_answered_before_the_crash_asks_no_model_again() -> None:
    turn = _reread(list(JOURNAL))
    resumed = advanced(turn, resuming(turn, mint, after="crash"))
    assert committed_items(played_out(resumed)) == tuple(turn.items)


# ── restart starts an empty conversation with status 200 ─────────────────────────────────────


@pytest.mark.parametrize("damaged", range(len(JOURNAL)))
def test_a_journal_that_cannot_be_read_is_damage_and_never_an_empty_turn(damaged: int) -> None:
    records: list[Record | Unreadable] = list(JOURNAL)
    records[damaged] = Unreadable(raw=b"?", why="it is damaged")
    told = fold(records)

    assert told.damage is not None
    assert told.next_n == damaged
    assert told.may_have_acted
    assert (told.turn is None) == (damaged == 0)


# ── two replicas share a database and interleave ─────────────────────────────────────────────


@pytest.mark.parametrize("turn", EVERY_MOMENT)
def test_a_turn_that_another_node_took_over_accepts_nothing_more(turn: Turn) -> None:
    end = ended(turn, "superseded")
    assert end.ended == ev.Ended(by="superseded", kept=False)
    assert wanted(end) == ()
    for event in LIFE:
        with pytest.raises(IllegalEvent, match="settled"):
            advance(end, event)
