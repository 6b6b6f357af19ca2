"""The recorder of a turn that this node owns: it folds events into the turn, appends them to the journal, and publishes
them to the feed.

An event is folded at once, so that an illegal one is refused. Only the pieces of a text are folded later, when the turn
is next read: the first piece is checked, and if it is legal, so are the pieces that follow it directly. When an event
is published and when it is durable depends on the turn:

*Plain* turns publish events at once. Fine events are not stored; semantic ones are appended, several at a time, when
one of them has to be durable, or when the turn will go on for a while; the rest goes with the commit. So a turn of one
step and no tools costs two transactions: its begin and its commit.

*Replayable* turns publish an event only after the append that holds it is durable. While an append is under way, the
next events gather, without a timer. A token never costs a transaction of its own.

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
    """Folds, appends and publishes the events of one turn.

    `on_failure` is called once if the journal cannot be written any more: with Superseded, or with StoreUnavailable
    after `store_retry_s`. Nothing is recorded after that.
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
        """The first piece of a text that is not folded yet, if any; `_growth` are the pieces after it."""
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
        """The turn is about to end: pending records go with the last transaction."""

    @property
    def turn(self) -> Turn:
        """The turn after all recorded events."""
        if self._piece is not None:
            self._turn = grow(self._turn, self._piece, self._growth)
            self._piece, self._growth = None, []
        return self._turn

    async def record(self, *events: ev.Event) -> None:
        """Record events in one go; see `OpenTurn.record`."""
        if self.note(events):
            await self.flush()

    def note(self, events: tuple[ev.Event, ...]) -> bool:
        """Record events. True if they must be durable before the turn goes on: then the caller flushes."""
        if self._failure is not None:
            raise self._failure
        self._hold = False
        if self._replayable or len(events) != 1:
            return self._note_all(events)
        # One event of a plain turn: nearly always.
        event = events[0]
        if type(event) is ev.Grew:
            # A piece of a text: if the piece before it was legal, so is this one.
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
            return False  # published, not stored
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
        """Whether pending records must be durable before the turn goes on. If not, an append may start all the same."""
        if kinds & _URGENT:
            return True
        if self._pending and (self._replayable or (kinds & _STEPS and _goes_on(self.turn))):
            self._start_draining()
        return False

    def closing_records(self, events: tuple[ev.Event, ...]) -> tuple[Turn, tuple[Record, ...]]:
        """The turn and its unwritten records as they will be after these last events.

        Nothing is recorded yet: the last transaction writes the events, then `settled` records them.
        """
        turn = advance_all(self.turn, events)
        last = numbered(events, first=self._next_n, at_ms=self._now_ms())
        return turn, (*self._pending, *last)

    def settled(self, turn: Turn, tail: tuple[Record, ...]) -> None:
        """Record the last events, which are durable now, and publish the records that were not published yet."""
        shown = self.feed.next_n
        self._turn, self._piece, self._growth = turn, None, []
        self._pending = []
        self.feed.publish(*[record for record in tail if record.n >= shown])
        self._next_n = self.feed.next_n

    async def flush(self) -> None:
        """Wait until all recorded events are durable. Raises the error if they cannot be written."""
        self._hold = False
        while self._pending or self._drain is not None:
            self._start_draining()
            if self._drain is not None:
                await asyncio.shield(self._drain)
            self.check()

    async def wait_idle(self) -> None:
        """Wait for an append that is under way; pending records stay pending, to go with the last transaction.

        But a pending `Steered` is flushed, since only an append marks its signals as consumed: otherwise its messages
        would be delivered again.
        """
        if any(isinstance(each.event, ev.Steered) for each in self._pending):
            await self.flush()
        self._hold = True
        if self._drain is not None:
            await asyncio.shield(self._drain)
        self.check()

    def stop(self) -> None:
        """Stop writing: the turn has ended, or another node has it."""
        self._on_failure = _ignore
        if self._failure is not None:
            without_frames(self._failure)
        if self._drain is not None:
            self._drain.cancel()

    def refuse(self, why: Exception) -> None:
        """Record nothing more: later calls of `note` raise `why`."""
        self._failure = self._failure or why
        self.stop()

    def check(self) -> None:
        """Raise the error that keeps this turn from being recorded, if there is one."""
        if self._failure is not None:
            raise self._failure

    def _start_draining(self) -> None:
        if self._drain is None and self._pending:
            task = asyncio.create_task(self._append_pending(), name="holdfast-journal")
            if not task.done():  # an eager task may be done already
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


def _ignore(failure: BaseException) -> None:
    """The player has stopped already, so it need not be stopped."""


def _goes_on(turn: Turn) -> bool:
    """Whether the turn is not about to end: then a step is appended now, so that watchers on other nodes see it and a
    crash loses little."""
    return not turn.complete and turn.interrupted is None


_FINE: frozenset[type] = frozenset({ev.ItemOpened, ev.Grew})
_URGENT: frozenset[type] = frozenset({ev.ToolStarted, ev.Steered})
_STEPS: frozenset[type] = frozenset(
    {ev.Answered, ev.ToolFinished, ev.BranchOpened, ev.HandedOff, ev.Compacted}
)
