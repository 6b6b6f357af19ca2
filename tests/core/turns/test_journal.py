"""The record of a turn as bytes, and back."""

from __future__ import annotations

import pytest

from holdfast.core.codec import Unreadable, encode
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import (
    FoldedJournal,
    Record,
    decode_records,
    encode_records,
    fold,
    numbered,
)
from holdfast.core.turns.turn import begin
from tests.core.builders import (
    after,
    answered,
    asked,
    call,
    finished,
    interrupted,
    request,
    said,
    started,
)

FLY = call("fly")
HAPPENED: tuple[ev.Event, ...] = (
    ev.Began(request=request()),
    asked(),
    answered(FLY, finish="tool_calls"),
    started(FLY),
    finished(FLY, "line one\nline two"),
    asked(),
    answered(said("Done.")),
)
RECORDS = numbered(HAPPENED, first=0, at_ms=5)


def folded(*records: Record | Unreadable) -> FoldedJournal:
    return fold(records)


# ── bytes ────────────────────────────────────────────────────────────────────────────────────


def test_a_row_holds_one_line_per_record_and_reads_back_the_same() -> None:
    row = encode_records(RECORDS)
    assert row.count(b"\n") == len(RECORDS) - 1
    assert decode_records(row) == RECORDS


def test_an_empty_row_holds_nothing() -> None:
    assert encode_records([]) == b""
    assert decode_records(b"") == ()


def test_one_damaged_line_leaves_its_neighbours_readable() -> None:
    lines = encode_records(RECORDS).split(b"\n")
    lines[2] = lines[2][:-5]
    decoded = decode_records(b"\n".join(lines))

    assert isinstance(decoded[2], Unreadable)
    assert decoded[2].raw == lines[2]
    assert decoded[:2] + decoded[3:] == RECORDS[:2] + RECORDS[3:]


def test_an_event_from_the_future_is_unreadable_and_a_field_from_the_future_is_not() -> None:
    """An older node must not fold what it does not understand; a field it does not know may wait."""
    event = b'{"n":0,"at_ms":0,"event":{"type":"teleported"}}'
    field = b'{"n":0,"at_ms":0,"event":{"type":"step_started","mood":"good"},"node":"x"}'
    unknown, known = decode_records(event + b"\n" + field)

    assert isinstance(unknown, Unreadable)
    assert known == Record(n=0, at_ms=0, event=ev.StepStarted())


def test_records_are_numbered_in_order() -> None:
    assert [(each.n, each.at_ms) for each in numbered(HAPPENED[:2], first=7, at_ms=9)] == [
        (7, 9),
        (8, 9),
    ]


# ── folding ──────────────────────────────────────────────────────────────────────────────────


def test_folding_gives_the_turn_that_advancing_gave() -> None:
    began = HAPPENED[0]
    assert isinstance(began, ev.Began)
    assert folded(*RECORDS) == FoldedJournal(
        turn=after(begin(began), *HAPPENED[1:]), next_n=len(RECORDS)
    )


def test_an_empty_journal_tells_of_no_turn() -> None:
    assert folded() == FoldedJournal(turn=None, next_n=0)
    assert not folded().may_have_acted


def test_gaps_are_where_fine_events_were_left_out() -> None:
    spread = [Record(n=each.n * 3, at_ms=0, event=each.event) for each in RECORDS]
    assert folded(*spread).turn == folded(*RECORDS).turn
    assert folded(*spread).next_n == 3 * (len(RECORDS) - 1) + 1


def test_damage_stops_the_fold_there_and_what_came_before_stands() -> None:
    damaged = Unreadable(raw=b"?", why="it is damaged")
    tale = folded(*RECORDS[:3], damaged, *RECORDS[4:])

    assert tale == FoldedJournal(turn=folded(*RECORDS[:3]).turn, next_n=3, damage=damaged)


def numbered_from(n: int, event: ev.Event) -> Record:
    return Record(n=n, at_ms=0, event=event)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (RECORDS[1], "record 1 comes after 2"),
        (numbered_from(3, HAPPENED[0]), "a journal begins with its request, once"),
        (numbered_from(3, started(call("unheard-of"))), "is not pending"),
    ],
)
def test_a_record_that_cannot_be_next_is_damage(record: Record, why: str) -> None:
    tale = folded(*RECORDS[:3], record)

    assert tale.turn == folded(*RECORDS[:3]).turn
    assert tale.next_n == 3
    assert tale.damage is not None
    assert tale.damage.raw == encode(record)
    assert why in tale.damage.why


def test_a_journal_without_its_request_tells_of_no_turn() -> None:
    tale = folded(*RECORDS[1:])
    assert tale.turn is None
    assert tale.next_n == 0
    assert tale.damage is not None


@pytest.mark.parametrize(
    ("records", "may_have_acted"),
    [
        (RECORDS[:3], False),
        (RECORDS[:4], True),
        ((*RECORDS[:3], Unreadable(raw=b"?", why="it is damaged")), True),
        ((numbered_from(0, interrupted()),), True),
    ],
)
def test_a_turn_that_cannot_be_read_is_treated_as_if_it_had_acted(
    records: tuple[Record | Unreadable, ...], may_have_acted: bool
) -> None:
    assert folded(*records).may_have_acted is may_have_acted
