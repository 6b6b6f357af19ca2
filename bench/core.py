"""What a turn costs the core, on a short conversation and on a long one.

Agent servers tend to get slower with every message, because each request copies, compares or hashes the
whole history. Here a turn should cost what it adds. Each thing is done to a conversation of 10 items and to
one of 10,000, in turns, in one run; the last column is how much more the long one costs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import count
from statistics import median
from time import perf_counter_ns
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from holdfast.core.history.conversation import Snapshot, commit_of, seen_by_model
from holdfast.core.history.reconciliation import Incoming, reconcile
from holdfast.core.items import AssistantMessage, Text, UserMessage
from holdfast.core.turns.events import Answered, Began, Ended, StepStarted, TurnRequest
from holdfast.core.turns.turn import Turn, advance, begin
from holdfast.ids import MessageId, Minter, SessionId, TurnId

SHORT, LONG = 10, 10_000
ROUNDS = 2_000

_ticks = count(1_750_000_000_000)
mint = Minter(now_ms=lambda: next(_ticks), random_bits=lambda bits: 0)

# ── what is measured ─────────────────────────────────────────────────────────────────────────


def append_a_turn(talk: Talk) -> None:
    """Encode, hash and append a turn of two items."""
    commit = commit_of(talk.turn, previous=talk.session.link)
    talk.session = talk.session.with_commit(commit)


NEWS = (Incoming(role="user", content=(Text(text="And the weather?"),)),)


def reconcile_one_message(talk: Talk) -> None:
    """Find out that the one message of a request is new."""
    reconcile(talk.session, NEWS, mint)


def continue_the_view(talk: Talk) -> None:
    """What the model has not seen yet: the last turn."""
    list(seen_by_model(talk.session, since=len(talk.session.items) - 2))


def take_the_view_anew(talk: Talk) -> None:
    """What the model sees from the beginning on."""
    list(seen_by_model(talk.session))


def measurements() -> Iterator[Measured]:
    short, long = Talk(SHORT), Talk(LONG)
    yield side_by_side("append a turn", append_a_turn, short, long)
    yield side_by_side("reconcile one new message", reconcile_one_message, short, long)
    yield side_by_side("continue the model's view", continue_the_view, short, long)
    yield side_by_side("take the model's view anew", take_the_view_anew, short, long, rounds=100)


# ── on what, and how ─────────────────────────────────────────────────────────────────────────


class Talk:
    """A conversation of about this many items, and a turn that has just ended on top of it."""

    def __init__(self, length: int) -> None:
        self._length = length
        self.session = conversation(length)
        self.turn = finished_turn(self.session)

    def prepare(self) -> None:
        """Make the next turn ready. A short conversation that was appended to does not stay short."""
        if len(self.session.items) > self._length * 1.5:
            self.session = conversation(self._length)
        self.turn = finished_turn(self.session)


def conversation(length: int) -> Snapshot:
    session = Snapshot(session_id=mint(SessionId))
    while len(session.items) < length:
        session = session.with_commit(commit_of(finished_turn(session), previous=session.link))
    return session


def finished_turn(session: Snapshot) -> Turn:
    question = UserMessage(id=mint(MessageId), content=(Text(text="How is Oslo these days?"),))
    answer = AssistantMessage(id=mint(MessageId), content=(Text(text="Cold, and bright. " * 20),))
    request = TurnRequest(turn_id=mint(TurnId), base=session.version, input=(question,))
    turn = begin(Began(request=request))
    for event in (StepStarted(), Answered(items=(answer,)), Ended(by="completed", kept=True)):
        turn = advance(turn, event)
    return turn


class Measured(NamedTuple):
    """What one thing cost, in microseconds, in the middle and at the edge."""

    name: str
    short_us: float
    long_us: float
    long_p99_us: float

    @property
    def growth(self) -> float:
        return self.long_us / self.short_us


def side_by_side(
    name: str, deed: Callable[[Talk], None], short: Talk, long: Talk, *, rounds: int = ROUNDS
) -> Measured:
    """Do it to one and to the other, in turns, so that a busy machine slows both."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for talk, times_us in zip((short, long), spent, strict=True):
            talk.prepare()
            began = perf_counter_ns()
            deed(talk)
            times_us.append((perf_counter_ns() - began) / 1000)
    edge = sorted(spent[1])[int(rounds * 0.99)]
    return Measured(name, median(spent[0]), median(spent[1]), edge)


def main() -> None:
    gc.disable()  # a collection looks at everything alive, and would be charged to whoever runs then
    table = Table("what", f"{SHORT} items", f"{LONG:,} items", "99th percentile", "growth")
    for each in measurements():
        table.add_row(
            each.name,
            f"{each.short_us:,.1f} µs",
            f"{each.long_us:,.1f} µs",
            f"{each.long_p99_us:,.1f} µs",
            f"{each.growth:,.2f}×",
        )
    console = Console()
    console.print(table)
    console.print(
        "Growth is the median cost on the long conversation over that on the short one: 1.00× is flat.\n"
        "Only taking the view anew has to look at every item; it is here for comparison."
    )


if __name__ == "__main__":
    main()
