"""The events of one turn, for whoever watches. Watchers are cursors over a shared log.

1. Publishing never waits: a slow watcher costs the turn nothing, and a token of a long turn no more than one of a short.
2. A watcher sees every event from where it began, in order, once, and then the end.
3. Watchers come late, leave early and know nothing of each other.

A watcher that is up to date may take what happens at once, in the turn's own task (`Take`), instead of being woken
for it: a token then costs one task and not two. It must not wait, so whoever cannot take it now is woken after all.

The log is bounded. What is older than the bound is in the journal (`older`), if that has every event. Otherwise it is
packed, in the journal's form and squeezed: some 13 bytes a token in place of 220, of which the turn holds the text
anyway. Every event stays what it was and keeps its number: clients come back with any number that they have seen, so
pieces of a text that were made one would show them something twice, or never.
"""

from __future__ import annotations

import asyncio
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import TypeAlias

from holdfast.core.codec import Decoder
from holdfast.core.turns.events import Grew
from holdfast.core.turns.journal import Record, encode_records

Older: TypeAlias = Callable[[int, int], AsyncIterator[Sequence[Record]]]
"""Reads the records with numbers from one up to before another, from the journal."""

Take: TypeAlias = Callable[[Sequence[Record]], bool]
"""Takes what happens the moment it does, without waiting. False if it cannot: then it has taken nothing."""

PACKED_TOGETHER = 1_000
"""How many events are packed at a time: enough to squeeze them well, and under a millisecond of the turn's time."""


EVENT_BYTES = 220
"""What an event weighs in memory."""


class Feed:
    """One turn's log. `publish` in the turn's task, `watch` in anybody's."""

    def __init__(
        self,
        *,
        events_max: int,
        first_n: int = 0,
        older: Older | None = None,
        journal_has_all: bool = True,
    ) -> None:
        """`first_n` is the number of the first event that will be published: those of an earlier
        attempt at the turn are in its journal. So is what is published, unless not `journal_has_all`."""
        self._events_max = events_max
        self._older = older
        self._forgets = older is not None and journal_has_all
        self._packed: list[_Packed] = []
        """What came before the log, if no journal has it."""
        self._log: list[Record] = []
        self._next_n = first_n
        self._ended = False
        self.watchers = 0
        """How many are watching."""
        self._waiting: list[_Waiter] = []
        """Watchers that have seen everything, in the order in which they came to wait."""

    def publish(self, *records: Record) -> None:
        """Show these, in order, to everybody at once."""
        if not records:
            return
        assert not self._ended, "nothing happens after the end"
        log = self._log
        log += records
        self._next_n = records[-1].n + 1
        if len(log) > self._events_max:
            self._trim()
        if self._waiting:
            self._waiting = [each for each in self._waiting if each.takes(records)]

    def end(self) -> None:
        """Nothing more will be published. Ending again does nothing."""
        self._ended = True
        for waiter in self._waiting:
            waiter.wake()
        self._waiting = []

    @property
    def size_bytes(self) -> int:
        """About what it weighs, if its events are as short as tokens are."""
        packed = sum(len(each.raw) for each in self._packed) if self._packed else 0
        return EVENT_BYTES * len(self._log) + packed

    @property
    def text_chars(self) -> int:
        """How much text the events of its log bring."""
        return sum(len(each.event.text) for each in self._log if isinstance(each.event, Grew))

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def next_n(self) -> int:
        """The number after the last event that was published."""
        return self._next_n

    async def watch(
        self, since: int = 0, *, quiet_s: float | None = None, take: Take | None = None
    ) -> AsyncGenerator[Sequence[Record], None]:
        """Every event with a number of at least `since`, until the end: each time, all that there are.
        None at all each time that nothing has happened for `quiet_s`. What `take` takes is not among them;
        what it raises is raised here."""
        patience = WaitTimeout(quiet_s) if quiet_s is not None else None
        # Asked once, and not for every token: on 3.11 that is a system call.
        loop = asyncio.get_running_loop()
        self.watchers += 1
        try:
            while True:
                first = self._log[0].n if self._log else self._next_n
                if since < first:
                    async with aclosing(self._earlier(since, first)) as earlier:
                        async for records in earlier:
                            yield records
                    since = first
                    continue
                # A copy: the log may be trimmed while whoever watches is busy with what it got.
                news = self._log[self._place(since) :]
                if news:
                    since = news[-1].n + 1
                    yield news
                if since < self._next_n:
                    continue
                if self._ended:
                    return
                since = await self._wait(_Waiter(loop.create_future(), since, patience, take))
                if since == self._next_n and not self._ended:
                    yield ()
        finally:
            self.watchers -= 1
            if patience is not None:
                patience.end()

    def _place(self, since: int) -> int:
        """Where the first event with at least this number is in the log."""
        dense = len(self._log) - (self._next_n - since)  # nearly always: numbers have no gaps
        if 0 <= dense < len(self._log) and self._log[dense].n == since:
            return dense
        return bisect_left(self._log, since, key=_number)

    async def _wait(self, waiter: _Waiter) -> int:
        """Wait for something to happen, or for the end. The number up to which everything is seen then."""
        self._waiting.append(waiter)
        if waiter.patience is not None:
            waiter.patience.begin(waiter.woken)
        try:
            await waiter.woken
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        return waiter.since

    async def _earlier(self, since: int, first: int) -> AsyncGenerator[Sequence[Record], None]:
        """What is not in the log any more, or never was: the events from one number up to before another."""
        # A copy: what is packed in the meantime is still to come for whoever reads this.
        here = self._packed[bisect_right(self._packed, since, key=_end) :]
        upto = here[0].first if here else first
        if self._older is not None and since < upto:
            async for records in self._older(since, upto):
                yield records
        for packed in here:
            yield packed.records(since)

    def _trim(self) -> None:
        """Make room: what is oldest goes, to be read from the journal, or is packed if it is not there."""
        if self._forgets:
            del self._log[: -self._events_max // 2]
            return
        size = min(PACKED_TOGETHER, max(1, self._events_max // 2))
        done = 0
        while len(self._log) - done > self._events_max:
            self._packed.append(_Packed(self._log[done : done + size]))
            done += size
        del self._log[:done]


class _Packed:
    """Some events in a row, as few bytes."""

    __slots__ = ("end", "first", "raw")

    def __init__(self, records: list[Record]) -> None:
        self.first = records[0].n
        self.end = records[-1].n + 1
        """The number after the last of them."""
        self.raw = zlib.compress(encode_records(records), 1)

    def records(self, since: int) -> list[Record]:
        """Those with a number of at least `since`."""
        records = [_decoder.strict(line) for line in zlib.decompress(self.raw).split(b"\n")]
        return records[bisect_left(records, since, key=_number) :]


class _Waiter:
    """A watcher that has seen everything before `since`."""

    __slots__ = ("patience", "since", "take", "woken")

    def __init__(
        self,
        woken: asyncio.Future[None],
        since: int,
        patience: WaitTimeout | None,
        take: Take | None,
    ) -> None:
        self.woken = woken
        self.since = since
        self.patience = patience
        self.take = take

    def takes(self, records: Sequence[Record]) -> bool:
        """Whether it has taken these, and goes on waiting. If not, it is woken to look for itself."""
        if self.take is None or self.woken.done():
            self.wake()
            return False
        try:
            taken = self.take(records)
        except Exception as error:  # the watcher's trouble, not the turn's
            self.woken.set_exception(error)
            return False
        if not taken:
            self.wake()
            return False
        self.since = records[-1].n + 1
        if self.patience is not None:
            self.patience.begin(self.woken)
        return True

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class WaitTimeout:
    """Ends a wait that lasts too long.

    One timer for all the waits of a watcher: when it fires, it looks at when the present one began. So a
    token costs a look at the clock, and not a timer.
    """

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._since = self._loop.time()
        self._timer = self._loop.call_later(after_s, self._look)

    def begin(self, waiting: asyncio.Future[None]) -> None:
        """Somebody waits for this from now on."""
        self._waiting = waiting
        self._since = self._loop.time()

    def end(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        waiting = self._waiting if self._waiting and not self._waiting.done() else None
        due = (self._since if waiting else now) + self._after_s
        if waiting is not None and due <= now:
            waiting.set_result(None)
            due = now + self._after_s
        self._timer = self._loop.call_at(due, self._look)


def _number(record: Record) -> int:
    return record.n


def _end(packed: _Packed) -> int:
    return packed.end


_decoder: Decoder[Record] = Decoder(Record)
