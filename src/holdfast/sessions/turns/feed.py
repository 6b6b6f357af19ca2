"""The feed of one turn: its events for watchers, each of which is a cursor over a shared log.

1. Publishing never waits: a slow watcher costs the turn nothing, and a token costs the same in a long turn as in a
   short one.
2. A watcher sees every event from where it began, in order, once, and then the end.
3. Watchers may join late and leave early, and do not affect each other.

A watcher that is up to date may take new events in the turn's own task (`Take`), instead of being woken for them: a
token then runs one task and not two. Taking must not wait, so a watcher that cannot take events now is woken instead.

The log is bounded. Older events are read from the journal (`older`), if that has every event. Otherwise they are kept
compressed, in the journal's encoding: some 13 bytes a token in place of 220, not counting the text, which the turn
holds anyway. Events are never merged, and keep their numbers: a client may come back with any number that it has seen,
and merged pieces of a text would reach it twice, or never.
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
"""Reads the journal's records from the first number to before the second."""

Take: TypeAlias = Callable[[Sequence[Record]], bool]
"""Takes new records at once, without waiting. False if it cannot: then it has taken none of them."""

PACKED_TOGETHER = 1_000
"""How many events are compressed at a time: enough to compress well, in under a millisecond of the turn's time."""


EVENT_BYTES = 220
"""The size of an event in memory."""


class Feed:
    """The log of one turn. The turn's task publishes; any task may watch."""

    def __init__(
        self,
        *,
        events_max: int,
        first_n: int = 0,
        older: Older | None = None,
        journal_has_all: bool = True,
    ) -> None:
        """`first_n` is the number of the first event that will be published: the events of earlier attempts at the turn
        are in its journal. With `journal_has_all`, so are all published events."""
        self._events_max = events_max
        self._older = older
        self._forgets = older is not None and journal_has_all
        self._packed: list[_Packed] = []
        """Events from before the log, if the journal does not have them all."""
        self._log: list[Record] = []
        self._next_n = first_n
        self._ended = False
        self.watchers = 0
        """How many watchers there are."""
        self._waiting: list[_Waiter] = []
        """Watchers that have seen everything, in the order in which they came to wait."""

    def publish(self, *records: Record) -> None:
        """Append records, and give them to all watchers."""
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
        """End the feed: nothing more will be published. Ending again does nothing."""
        self._ended = True
        for waiter in self._waiting:
            waiter.wake()
        self._waiting = []

    @property
    def size_bytes(self) -> int:
        """About how much memory the feed takes, if its events are as short as tokens."""
        packed = sum(len(each.raw) for each in self._packed) if self._packed else 0
        return EVENT_BYTES * len(self._log) + packed

    @property
    def text_chars(self) -> int:
        """How many characters of text the events of the log hold."""
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
        """Batches of all events from number `since` on, until the end. An empty batch each time that nothing has
        happened for `quiet_s`. Events that `take` takes are not in the batches; an error that it raises is raised
        here."""
        patience = WaitTimeout(quiet_s) if quiet_s is not None else None
        # Once, and not for every token: on 3.11 this is a system call.
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
                # A copy: the log may be trimmed while the watcher is busy with this batch.
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
        """The index in the log of the first event with at least this number."""
        dense = len(self._log) - (self._next_n - since)  # nearly always: numbers have no gaps
        if 0 <= dense < len(self._log) and self._log[dense].n == since:
            return dense
        return bisect_left(self._log, since, key=_number)

    async def _wait(self, waiter: _Waiter) -> int:
        """Wait for an event, a timeout, or the end. Returns the number before which the watcher has seen everything."""
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
        """The events from `since` to before `first`, which are not in the log: from the journal, or from compressed
        batches."""
        # A copy: batches that are packed meanwhile are not part of this range.
        here = self._packed[bisect_right(self._packed, since, key=_end) :]
        upto = here[0].first if here else first
        if self._older is not None and since < upto:
            async for records in self._older(since, upto):
                yield records
        for packed in here:
            yield packed.records(since)

    def _trim(self) -> None:
        """Shorten the log: drop the oldest events if the journal has them, else compress them."""
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
    """A run of events, compressed."""

    __slots__ = ("end", "first", "raw")

    def __init__(self, records: list[Record]) -> None:
        self.first = records[0].n
        self.end = records[-1].n + 1
        """The number after the last of them."""
        self.raw = zlib.compress(encode_records(records), 1)

    def records(self, since: int) -> list[Record]:
        """The records with a number of at least `since`."""
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
        """Offer records to the watcher. True if it took them, and goes on waiting; otherwise it is woken to read the
        log."""
        if self.take is None or self.woken.done():
            self.wake()
            return False
        try:
            taken = self.take(records)
        except Exception as error:  # raised in the watcher's task, not in the turn's
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

    One timer serves all waits of a watcher: when it fires, it checks when the present wait began. So a token
    costs a look at the clock, and not a timer.
    """

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._since = self._loop.time()
        self._timer = self._loop.call_later(after_s, self._look)

    def begin(self, waiting: asyncio.Future[None]) -> None:
        """Time a new wait, from now on."""
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
