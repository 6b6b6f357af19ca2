"""The journal of a turn: its events as numbered records, encoded and decoded.

A row of the store's journal holds many records, one JSON line each, and never merges two: every record
keeps its number. Folding the records from 0 on gives the turn.

A record that does not decode stops the fold: the records before it count, the records after it do not, since
their meaning depends on it. Such a turn is not resumed; since it may have acted, it is treated as if it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.codec import Decoder, Unreadable, Value, encode
from holdfast.core.turns import events as ev
from holdfast.core.turns.turn import Turn, advance, begin
from holdfast.errors import IllegalEvent


class Record(Value):
    """One event, with its number in the turn's journal and the store's time."""

    n: int
    at_ms: int
    event: ev.Event


class FoldedJournal(Value):
    """The fold of a journal. `turn` is None if not even the request can be read."""

    turn: Turn | None
    next_n: int
    """The number of the first record that is not in `turn`."""
    damage: Unreadable | None = None

    @property
    def may_have_acted(self) -> bool:
        return self.damage is not None or (self.turn is not None and self.turn.acted)


_decoder: Decoder[Record] = Decoder(Record)


def encode_records(records: Iterable[Record]) -> bytes:
    """One row's worth of records: a JSON line each."""
    return b"\n".join(map(encode, records))


def decode_records(row: bytes) -> tuple[Record | Unreadable, ...]:
    """The records of one row; a damaged record does not affect the others."""
    return tuple(_decoder.lenient(line) for line in row.split(b"\n")) if row else ()


def fold(records: Iterable[Record | Unreadable]) -> FoldedJournal:
    """The turn that these records give, as far as they can be read."""
    turn: Turn | None = None
    next_n = 0
    for record in records:
        damage = record if isinstance(record, Unreadable) else _misfit(record, turn, next_n)
        if damage is not None:
            return FoldedJournal(turn=turn, next_n=next_n, damage=damage)
        assert isinstance(record, Record)
        event = record.event
        try:
            turn = begin(event) if isinstance(event, ev.Began) else advance(_begun(turn), event)
        except IllegalEvent as error:
            return FoldedJournal(
                turn=turn, next_n=next_n, damage=Unreadable(raw=encode(record), why=str(error))
            )
        next_n = record.n + 1
    return FoldedJournal(turn=turn, next_n=next_n)


def _begun(turn: Turn | None) -> Turn:
    assert turn is not None, "_misfit lets nothing through before record 0"
    return turn


def _misfit(record: Record, turn: Turn | None, next_n: int) -> Unreadable | None:
    """Why this record cannot come next, if so. Numbers may have gaps where fine events were left out, but never step
    back; record 0, and no other, is the request."""
    if record.n < next_n:
        return Unreadable(raw=encode(record), why=f"record {record.n} comes after {next_n - 1}")
    if isinstance(record.event, ev.Began) != (turn is None) or (turn is None and record.n):
        return Unreadable(raw=encode(record), why="a journal begins with its request, once")
    return None


def numbered(happened: Sequence[ev.Event], *, first: int, at_ms: int) -> tuple[Record, ...]:
    """Events as records, numbered from `first`."""
    if len(happened) == 1:  # nearly always, and this runs for every token
        return (Record(n=first, at_ms=at_ms, event=happened[0]),)
    return tuple(
        [Record(n=n, at_ms=at_ms, event=event) for n, event in enumerate(happened, start=first)]
    )
