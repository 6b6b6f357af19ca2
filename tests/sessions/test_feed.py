"""A turn's events as its watchers see them: all of them, in order, once, however they come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import events as ev
from holdfast.core.journal import Record
from holdfast.ids import MessageId
from holdfast.sessions.feed import Feed
from holdfast.sessions.watch import paused
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
