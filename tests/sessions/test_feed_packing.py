"""What a feed keeps of a long turn: not much at hand, and all of it for whoever comes late or reads slowly."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record, encode_records, numbered
from holdfast.ids import ItemId, MessageId
from holdfast.sessions.turns.feed import Feed
from tests.core.builders import mint

ITEMS: tuple[ItemId, ...] = (mint(MessageId), mint(MessageId), mint(MessageId))


def published(feed: Feed, *events: ev.Event) -> tuple[Record, ...]:
    """Publish these together; what they became."""
    records = numbered(events, first=feed.next_n, at_ms=0)
    feed.publish(*records)
    return records


def words(count: int, *, speakers: int = 1) -> list[ev.Event]:
    """So many pieces, of items that take turns."""
    return [ev.Grew(item=ITEMS[n % speakers], text=f"{n} ") for n in range(count)]


async def seen_by(watcher: AsyncGenerator[Sequence[Record], None]) -> list[Record]:
    """Everything that somebody sees from now on, to the end."""
    return [each async for some in watcher for each in some]


def text_of(item: ItemId, records: Sequence[Record]) -> str:
    pieces = (each.event for each in records)
    return "".join(each.text for each in pieces if isinstance(each, ev.Grew) and each.item == item)


async def test_a_slow_watcher_is_not_shown_again_what_it_has_seen() -> None:
    """It has read up to the middle of what is put together while it is busy."""
    feed = Feed(events_max=100)
    events = words(105)
    whole = published(feed, *events[:10])
    async with aclosing(feed.watch()) as slow:
        seen = list(await anext(slow))
        for each in events[10:]:
            whole += published(feed, each)
        feed.end()
        seen += await seen_by(slow)
    assert text_of(ITEMS[0], seen) == text_of(ITEMS[0], whole)


async def test_a_client_can_come_back_with_any_number_that_it_was_shown() -> None:
    """It read what others of the turn said in the meantime, and left in the middle of that."""
    feed = Feed(events_max=20)
    for each in words(100, speakers=2):
        published(feed, each)
    feed.end()
    whole = await seen_by(feed.watch())
    for left_after in range(len(whole)):
        again = await seen_by(feed.watch(whole[left_after].n + 1))
        for item in ITEMS[:2]:
            both = text_of(item, whole[: left_after + 1]) + text_of(item, again)
            assert both == text_of(item, whole)


@pytest.mark.parametrize("speakers", [1, 2, 3])
async def test_little_is_at_hand_and_nothing_is_packed_twice(
    speakers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where agents speak side by side. A token of a long turn costs what one of a short turn does."""
    packed: list[int] = []

    def counted(records: list[Record]) -> bytes:
        packed.extend(each.n for each in records)
        return encode_records(records)

    monkeypatch.setattr("holdfast.sessions.turns.feed.encode_records", counted)
    feed = Feed(events_max=100)
    for n, each in enumerate(words(1_000, speakers=speakers)):
        published(feed, each)
        assert len(feed._log) <= 100
        assert packed == list(range(len(packed)))
        assert len(packed) + len(feed._log) == n + 1
    feed.end()
    assert [each.event for each in await seen_by(feed.watch())] == words(1_000, speakers=speakers)


async def test_the_bound_holds_where_nothing_is_text() -> None:
    feed = Feed(events_max=10)
    whole: tuple[Record, ...] = ()
    for n in range(100):
        whole += published(feed, ev.StepStarted(model=f"{n}"))
        assert len(feed._log) <= 10
    feed.end()
    assert await seen_by(feed.watch()) == list(whole)


async def test_the_bound_holds_for_more_at_once_than_it_allows() -> None:
    feed = Feed(events_max=10)
    whole = published(feed, *words(95))
    assert len(feed._log) <= 10
    feed.end()
    assert await seen_by(feed.watch()) == list(whole)


async def test_what_is_packed_takes_little_more_than_its_text() -> None:
    feed = Feed(events_max=50_000)
    for each in words(60_000, speakers=2):
        published(feed, each)
    assert sum(len(each.raw) for each in feed._packed) < 20 * 10_000


# ── at any moment ────────────────────────────────────────────────────────────────────────────


class Comes(NamedTuple):
    """Somebody begins to watch, from this number on."""

    since: int


class Reads(NamedTuple):
    """One of those who watch takes what there is."""

    which: int


class Watcher:
    def __init__(self, feed: Feed, since: int) -> None:
        self.since = since
        self.batches = feed.watch(since)
        self.seen: list[Record] = []


event = st.one_of(
    st.builds(ev.Grew, item=st.sampled_from(ITEMS), text=st.text(), refusal=st.booleans()),
    st.builds(ev.ItemOpened, item=st.sampled_from(ITEMS), kind=st.just("message")),
    st.builds(ev.StepStarted, model=st.text()),
)
step = st.one_of(
    st.lists(event, min_size=1, max_size=8),
    st.builds(Comes, st.integers(0, 60)),
    st.builds(Reads, st.integers(0, 5)),
)


@given(events_max=st.integers(1, 12), steps=st.lists(step, max_size=30))
async def test_whenever_they_come_and_read_all_see_every_event_once_and_in_order(
    events_max: int, steps: list[list[ev.Event] | Comes | Reads]
) -> None:
    """And so every item's text as it is, and what happened between its pieces where it happened."""
    feed, whole = Feed(events_max=events_max), list[Record]()
    watchers = [Watcher(feed, 0)]
    async with AsyncExitStack() as leaving:
        for each in steps:
            if isinstance(each, Comes):
                watchers.append(Watcher(feed, min(each.since, feed.next_n)))
            elif isinstance(each, Reads):
                one = watchers[each.which % len(watchers)]
                leaving.push_async_callback(one.batches.aclose)
                if one.since + len(one.seen) < feed.next_n:
                    one.seen += await anext(one.batches)
            else:
                whole += published(feed, *each)
            assert len(feed._log) <= events_max
        feed.end()
        for one in watchers:
            assert [*one.seen, *await seen_by(one.batches)] == whole[one.since :]


@given(st.lists(st.integers(1, 30), max_size=8), st.integers(0, 40))
async def test_before_what_is_packed_comes_what_an_earlier_attempt_has_written(
    sizes: list[int], since: int
) -> None:
    """A plain turn's journal has no tokens: those of this attempt are nowhere but here."""
    earlier = numbered(words(20), first=0, at_ms=0)
    asked: list[int] = []

    async def older(since: int, upto: int) -> AsyncIterator[Sequence[Record]]:
        asked.append(upto)
        yield earlier[since:upto]

    feed = Feed(events_max=10, first_n=20, older=older, journal_has_all=False)
    whole = list(earlier)
    for size in sizes:
        whole += published(feed, *words(size))
    feed.end()
    assert await seen_by(feed.watch(since)) == whole[since:]
    assert set(asked) <= {20}
