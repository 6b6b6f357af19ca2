"""A turn's events as its watchers see them: all of them, in order, once, however they come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.ids import MessageId
from holdfast.sessions.turns.feed import Feed
from holdfast.sessions.turns.watch import paused
from tests.core.builders import mint

ITEM = mint(MessageId)
SOON_S, NEVER_S = 0.01, 3600.0


def records(first: int, count: int) -> list[Record]:
    return [
        Record(n=n, at_ms=0, event=ev.Grew(item=ITEM, text=f"{n} "))
        for n in range(first, first + count)
    ]


def text_of(batches: list[Sequence[Record]]) -> str:
    return "".join(
        each.event.text for some in batches for each in some if isinstance(each.event, ev.Grew)
    )


async def watched(feed: Feed, *, since: int = 0) -> list[Sequence[Record]]:
    return [some async for some in feed.watch(since)]


async def test_what_was_published_together_is_seen_together() -> None:
    feed = Feed(events_max=100)
    watching = asyncio.create_task(watched(feed))
    await asyncio.sleep(0)
    feed.publish(*records(0, 3))
    await asyncio.sleep(0)
    feed.publish(*records(3, 1))
    feed.publish(*records(4, 2))
    feed.end()
    assert [[each.n for each in some] for some in await watching] == [[0, 1, 2], [3, 4, 5]]


@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=12), since=st.integers(0, 20))
async def test_batches_of_any_size_are_seen_whole_and_in_order(
    sizes: list[int], since: int
) -> None:
    """Also by one who comes late, and where the log is too short for all of it."""
    feed = Feed(events_max=10)
    early = asyncio.create_task(watched(feed, since=since))
    n = 0
    for size in sizes:
        feed.publish(*records(n, size))
        n += size
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    feed.end()
    whole = text_of([records(0, n)])
    assert text_of(await early) == text_of([records(since, max(0, n - since))])
    assert text_of(await watched(feed)) == whole


async def test_silence_is_told_while_it_lasts_and_not_otherwise() -> None:
    feed = Feed(events_max=100)
    async with aclosing(feed.watch(quiet_s=SOON_S)) as batches:
        assert [await anext(batches), await anext(batches)] == [(), ()]
        feed.publish(*records(0, 1))
        assert len(await anext(batches)) == 1
        assert await anext(batches) == ()
        feed.end()
        assert await anext(batches, None) is None


async def test_whoever_talks_all_the_time_is_not_silent() -> None:
    feed = Feed(events_max=100)

    async def talk() -> None:
        for n in range(20):
            feed.publish(*records(n, 1))
            await asyncio.sleep(0)
        feed.end()

    talking = asyncio.create_task(talk())
    async with aclosing(feed.watch(quiet_s=NEVER_S)) as batches:
        assert [some async for some in batches if not some] == []
    await talking


async def test_the_same_for_a_turn_that_is_read_from_elsewhere() -> None:
    more = asyncio.Event()

    async def read() -> AsyncGenerator[Sequence[Record], None]:
        yield records(0, 2)
        await more.wait()
        yield records(2, 1)

    async with aclosing(paused(read(), SOON_S)) as batches:
        assert len(await anext(batches)) == 2
        assert await anext(batches) == ()
        more.set()
        seen = [some async for some in batches]
    assert [each.n for some in seen for each in some] == [2]


async def test_leaving_a_turn_that_is_read_from_elsewhere_leaves_nobody_reading() -> None:
    left = asyncio.Event()

    async def read() -> AsyncGenerator[Sequence[Record], None]:
        try:
            await asyncio.Event().wait()
            yield ()
        finally:
            left.set()

    async with aclosing(paused(read(), SOON_S)) as batches:
        assert await anext(batches) == ()
    assert left.is_set()


# ── taken at once ────────────────────────────────────────────────────────────────────────────


class Taker:
    """Takes what it is offered, as long as it is able to."""

    def __init__(self) -> None:
        self.able = True
        self.taken: list[Record] = []

    def __call__(self, some: Sequence[Record]) -> bool:
        if self.able:
            self.taken += some
        return self.able


async def test_what_is_taken_at_once_wakes_nobody_and_is_not_seen_again() -> None:
    feed, taker = Feed(events_max=100), Taker()
    feed.publish(*records(0, 2))
    async with aclosing(feed.watch(take=taker)) as batches:
        assert [each.n for each in await anext(batches)] == [
            0,
            1,
        ]  # before anybody could be offered them
        coming = asyncio.ensure_future(anext(batches, None))
        await asyncio.sleep(0)
        feed.publish(*records(2, 3))
        assert [each.n for each in taker.taken] == [2, 3, 4]
        await asyncio.sleep(0)
        assert not coming.done()
        taker.able = False
        feed.publish(*records(5, 1))
        feed.publish(*records(6, 1))  # it is awake by now, and offered nothing
        assert [each.n for each in await coming or ()] == [5, 6]
        feed.end()
        assert await anext(batches, None) is None


@given(
    sizes=st.lists(st.integers(1, 4), max_size=20),
    able=st.lists(st.booleans(), min_size=20, max_size=20),
    steps=st.lists(st.integers(0, 2), min_size=20, max_size=20),
)
async def test_taken_or_not_everything_is_seen_once_and_in_order(
    sizes: list[int], able: list[bool], steps: list[int]
) -> None:
    feed, taker = Feed(events_max=100), Taker()

    async def watch() -> None:
        async for some in feed.watch(take=taker):
            taker.taken += some

    watching = asyncio.create_task(watch())
    n = 0
    for size, taker.able, pause in zip(sizes, able, steps, strict=False):
        feed.publish(*records(n, size))
        n += size
        for _ in range(pause):
            await asyncio.sleep(0)
    feed.end()
    await watching
    assert [each.n for each in taker.taken] == list(range(n))


async def test_a_taker_that_breaks_ends_its_own_watch_and_nobody_elses() -> None:
    feed = Feed(events_max=100)

    def broken(_: Sequence[Record]) -> bool:
        raise RuntimeError("no paper")

    async def watch() -> list[Sequence[Record]]:
        return [some async for some in feed.watch(take=broken)]

    breaking, other = asyncio.create_task(watch()), asyncio.create_task(watched(feed))
    await asyncio.sleep(0)
    feed.publish(*records(0, 1))
    feed.publish(*records(1, 1))
    feed.end()
    with pytest.raises(RuntimeError, match="no paper"):
        await breaking
    assert text_of(await other) == "0 1 "
    assert feed.watchers == 0


async def test_a_watcher_that_takes_is_told_of_silence_only_when_nothing_comes() -> None:
    feed, taker = Feed(events_max=100), Taker()
    async with aclosing(feed.watch(quiet_s=SOON_S, take=taker)) as batches:
        coming = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0)
        feed.publish(*records(0, 1))
        assert await coming == ()
        assert [each.n for each in taker.taken] == [0]


async def test_one_that_leaves_is_offered_nothing_any_more() -> None:
    feed, taker = Feed(events_max=100), Taker()

    async def watch() -> None:
        async for _ in feed.watch(take=taker):
            pass

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    watching.cancel()
    feed.publish(*records(0, 1))
    await asyncio.gather(watching, return_exceptions=True)
    feed.publish(*records(1, 1))
    assert taker.taken == []


async def test_what_was_trimmed_is_read_from_the_journal() -> None:
    async def older(since: int, upto: int) -> AsyncIterator[Sequence[Record]]:
        for n in range(since, upto):
            yield records(n, 1)

    for size in (1, 7, 25):
        feed = Feed(events_max=10, older=older)
        for first in range(0, 50, size):
            feed.publish(*records(first, size))
        feed.end()
        seen = await watched(feed)
        assert [each.n for some in seen for each in some] == list(range(feed.next_n))
        assert len(seen[-1]) <= 10


async def test_nothing_is_published_if_nothing_happened() -> None:
    feed = Feed(events_max=10)
    feed.publish()
    feed.end()
    assert await watched(feed) == []
