"""What happens in a turn becomes a journal, and is shown. One recorder per turn that this node owns.

Every event is folded into the turn: at once, so that what cannot happen is refused; but the pieces of a text only when
somebody looks at the turn. The first of them is asked whether it may come, and nothing can be wrong with the second
that was not wrong with the first. When an event is shown and when it is durable depends on the turn:

*Plain* turns show events at once. Fine events are shown and forgotten; semantic ones are appended, several at
a time, when one of them has to be durable, or when the turn will go on for a while; what is left at the end
goes with the commit. A turn of one step and no tools so costs two transactions: its begin and its commit.

*Replayable* turns show an event only after the append that holds it is durable. Appends drain the queue: while
one is under way the next ones gather, without a timer. A token never costs a commit of its own.

A tool's start is durable before `record` returns, in both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record, encode_records, numbered
from holdfast.core.turns.turn import Turn, advance, advance_all, demand_growable, grow, same_text
from holdfast.errors import without_frames
from holdfast.sessions.turns.feed import Feed
from holdfast.sessions.turns.store_retries import persistently
from holdfast.store.outcomes import Fence
from holdfast.store.store import Store


class Recorder:
    """Folds, appends and shows the events of one turn.

    `on_failure` is told once if the journal cannot be written any more: by Superseded, or by a store
    that stayed away for too long. Nothing is recorded after that.
    """

    def __init__(
        self,
        store: Store,
        fence: Fence,
        turn: Turn,
        feed: Feed,
        *,
        now_ms: Callable[[], int],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._fence = fence
        self._turn = turn
        self._piece: ev.Grew | None = None
        """The piece of a text that is still to be folded, if there is one; and what has followed it there."""
        self._growth: list[str] = []
        self.feed = feed
        self._next_n = feed.next_n
        self._now_ms = now_ms
        self._on_failure = on_failure
        self._replayable = turn.request.replayable
        self._pending: list[Record] = []
        self._drain: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._hold = False
        """The end is near: what is pending goes with the last transaction."""

    @property
    def turn(self) -> Turn:
        """The turn after everything that was recorded."""
        if self._piece is not None:
            self._turn = grow(self._turn, self._piece, self._growth)
            self._piece, self._growth = None, []
        return self._turn

    async def record(self, *events: ev.Event) -> None:
        """Record that these happened, in one go; see `OpenTurn.record`."""
        if self.note(events):
            await self.flush()

    def note(self, events: tuple[ev.Event, ...]) -> bool:
        """Record that these happened. True if they have to be durable before anything else happens."""
        if self._failure is not None:
            raise self._failure
        self._hold = False
        if self._replayable or len(events) != 1:
            return self._note_all(events)
        # One event of a plain turn: what nearly all are.
        event = events[0]
        if type(event) is ev.Grew:
            # A piece of a text: nothing can be wrong with it that was not wrong with the one before it there.
            piece = self._piece
            if piece is not None and same_text(piece, event):
                self._growth.append(event.text)
            else:
                demand_growable(self.turn, event)
                self._piece = event
        else:
            self._turn = advance(self.turn, event)
        n = self._next_n
        self._next_n = n + 1
        record = Record(n=n, at_ms=self._now_ms(), event=event)
        self.feed.publish(record)
        kind = type(event)
        if kind in _FINE:
            return False  # shown, and that is all
        self._pending.append(record)
        return self._hurry({kind})

    def _note_all(self, events: tuple[ev.Event, ...]) -> bool:
        self._turn = advance_all(self.turn, events)
        records = numbered(events, first=self._next_n, at_ms=self._now_ms())
        self._next_n += len(records)
        kinds = set(map(type, events))
        if self._replayable:
            self._pending += records
        else:
            self.feed.publish(*records)
            if kinds <= _FINE:
                return False
            self._pending += (each for each in records if type(each.event) not in _FINE)
        return self._hurry(kinds)

    def _hurry(self, kinds: set[type]) -> bool:
        """Whether what is pending has to be durable first. If not, it may be worth an append all the same."""
        if kinds & _URGENT:
            return True
        if self._pending and (self._replayable or (kinds & _STEPS and _goes_on(self.turn))):
            self._start_draining()
        return False

    def closing_records(self, events: tuple[ev.Event, ...]) -> tuple[Turn, tuple[Record, ...]]:
        """What the turn and its unwritten records would be after these last events.

        Nothing is recorded: the events happen with the transaction that writes them (`settled`).
        """
        turn = advance_all(self.turn, events)
        last = numbered(events, first=self._next_n, at_ms=self._now_ms())
        return turn, (*self._pending, *last)

    def settled(self, turn: Turn, tail: tuple[Record, ...]) -> None:
        """The last events have happened: show what was not shown yet."""
        shown = self.feed.next_n
        self._turn, self._piece, self._growth = turn, None, []
        self._pending = []
        self.feed.publish(*[record for record in tail if record.n >= shown])
        self._next_n = self.feed.next_n

    async def flush(self) -> None:
        """Wait until everything recorded so far is durable. Raises what keeps it from being so."""
        self._hold = False
        while self._pending or self._drain is not None:
            self._start_draining()
            if self._drain is not None:
                await asyncio.shield(self._drain)
            self.check()

    async def wait_idle(self) -> None:
        """Wait for an append that is under way; what is pending stays pending, to go with the last transaction.

        But only an append consumes a signal. Words that were heard and not consumed would be said again.
        """
        if any(isinstance(each.event, ev.Steered) for each in self._pending):
            await self.flush()
        self._hold = True
        if self._drain is not None:
            await asyncio.shield(self._drain)
        self.check()

    def stop(self) -> None:
        """The turn is not ours any more: leave what is not written yet to whoever has it now."""
        self._on_failure = _told_nobody
        if self._failure is not None:
            without_frames(self._failure)
        if self._drain is not None:
            self._drain.cancel()

    def refuse(self, why: Exception) -> None:
        """Record nothing more: whoever tries is told why."""
        self._failure = self._failure or why
        self.stop()

    def check(self) -> None:
        """Raise what keeps this turn from being recorded, if anything does."""
        if self._failure is not None:
            raise self._failure

    def _start_draining(self) -> None:
        if self._drain is None and self._pending:
            task = asyncio.create_task(self._append_pending(), name="holdfast-journal")
            if not task.done():  # where tasks begin at once, it may be
                self._drain = task

    async def _append_pending(self) -> None:
        try:
            while self._pending and not self._hold:
                batch, self._pending = self._pending, []
                await self._append(batch)
                if self._replayable:
                    self.feed.publish(*batch)
        except BaseException as error:
            if self._failure is None:  # not refused already
                self._failure = without_frames(error)
                self._on_failure(error)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._drain = None

    async def _append(self, batch: list[Record]) -> None:
        heard = [
            n for each in batch if isinstance(each.event, ev.Steered) for n in each.event.signals
        ]
        records = encode_records(batch)
        await persistently(
            lambda: self._store.append(self._fence, n=batch[0].n, records=records, consumed=heard)
        )


def _told_nobody(failure: BaseException) -> None:
    """Nobody plays any more."""


def _goes_on(turn: Turn) -> bool:
    """Whether the turn is not about to end: then a step is worth an append now, so that watchers
    elsewhere see it and a crash loses little."""
    return not turn.complete and turn.interrupted is None


_FINE: frozenset[type] = frozenset({ev.ItemOpened, ev.Grew})
_URGENT: frozenset[type] = frozenset({ev.ToolStarted, ev.Steered})
_STEPS: frozenset[type] = frozenset(
    {ev.Answered, ev.ToolFinished, ev.BranchOpened, ev.HandedOff, ev.Compacted}
)
