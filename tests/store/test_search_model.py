"""Search against a model of it: whatever happens to sessions, and whatever the index knows of it."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.core.history.conversation import Snapshot, Titled, Visibility, seen_by_people
from holdfast.core.items import AssistantMessage, Text, UserMessage
from holdfast.ids import Minter, SessionId, Version
from holdfast.store.memory_store import MemoryStore
from holdfast.store.outcomes import Query
from holdfast.store.search.matches import parse_query
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player

WORDS = ("oslo", "Öslo", "os", "bergen", "am", "meer")
said = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
which = st.integers(0, 7)
happenings = st.one_of(
    st.tuples(st.just("play"), which, said, said),
    st.tuples(st.just("play"), which, said, said),
    st.tuples(st.just("fork"), which, which),
    st.tuples(st.just("hide"), which, which, st.booleans()),
    st.tuples(st.just("title"), which, said),
    st.tuples(st.just("remove"), which),
    st.tuples(st.just("discard"), which, said),
    st.tuples(st.just("index"), st.sampled_from((1, 150, 100_000))),
    st.tuples(st.just("prune")),
)
typed = st.lists(
    st.one_of(
        st.sampled_from(WORDS),
        st.sampled_from(("o*", "os*", '"am meer"', '"oslo am"', "am-m*", '"os')),
    ),
    min_size=1,
    max_size=3,
).map(" ".join)


@given(
    st.lists(happenings, min_size=1, max_size=14),
    st.lists(typed, min_size=1, max_size=4),
    st.sampled_from((1, 3, 1000)),
)
def test_a_store_finds_what_the_model_finds(
    story: list[tuple[object, ...]], queries: list[str], hits_max: int
) -> None:
    """Also if the index names more places than anybody wants to look at."""

    async def play() -> None:
        clock = ManualClock()
        store = MemoryStore(now_ms=clock.now_ms)
        telling = Telling(store, clock)
        await telling.tell(story)
        for each in queries:
            await telling.look(parse_query(each))
        await store.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "search_hits_max", hits_max)
        asyncio.run(play())


class Telling:
    """One story on one store, and what its people see in the end."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        steps = count()
        mint = Minter(now_ms=lambda: 1_000_000, random_bits=lambda bits: next(steps) % (1 << bits))
        self.player = Player(store, mint, tenant=ACME)
        self.store = store
        self.sessions: list[SessionId] = []

    async def tell(self, story: list[tuple[object, ...]]) -> None:
        await self.player.renew()
        for name, *how in story:
            await getattr(self, f"_{name}")(*how)

    def _pick(self, n: int) -> SessionId | None:
        return self.sessions[n % len(self.sessions)] if self.sessions else None

    async def _play(self, n: int, said: str, answer: str) -> None:
        name = self._pick(n) if n % 3 else f"key-{n}"
        turn = await self.player.play(name or f"key-{n}", said or "…", answer or "…")
        if turn.session_id not in self.sessions:
            self.sessions.append(turn.session_id)

    async def _discard(self, n: int, said: str) -> None:
        session_id = self._pick(n)
        if session_id is not None:
            await self.player.discard(session_id, said or "…")

    async def _fork(self, n: int, version: int) -> None:
        session_id = self._pick(n)
        if session_id is not None:
            row = await self.store.session(ACME, session_id)
            assert row is not None
            fresh = self.player.mint(SessionId)
            await self.store.fork(
                ACME, session_id, version=Version(version % (row.head + 1)), fresh=fresh
            )
            self.sessions.append(fresh)

    async def _hide(self, n: int, position: int, shown: bool) -> None:
        session_id = self._pick(n)
        if session_id is not None:
            items = (await self.player.snapshot(session_id)).items
            if items:
                item = items[position % len(items)]
                assert isinstance(item, UserMessage | AssistantMessage)
                await self.store.annotate(
                    ACME, session_id, [(item.id, Visibility(to_people=shown))]
                )

    async def _title(self, n: int, title: str) -> None:
        session_id = self._pick(n)
        if session_id is not None:
            await self.store.annotate(ACME, session_id, [(None, Titled(title=title))])

    async def _remove(self, n: int) -> None:
        session_id = self._pick(n)
        if session_id is not None:
            await self.store.remove(ACME, session_id)
            self.sessions.remove(session_id)

    async def _index(self, bytes_max: int) -> None:
        await self.store.index(bytes_max=bytes_max)

    async def _prune(self) -> None:
        await self.store.prune(limit=3)

    async def look(self, query: Query) -> None:
        """A search finds what the model says."""
        found = await self.store.search(ACME, query, limit=100)
        assert found.cursor is None
        expected = set()
        for session_id in self.sessions:
            snapshot = await self.player.snapshot(session_id)
            info = await self.store.info(ACME, session_id)
            assert info is not None
            name = info.session.title or info.session.opening
            if snapshot.version and any(_has(query, text) for text in (name, *_read(snapshot))):
                expected.add(session_id)
        assert {match.info.session.id for match in found.matches} == expected
        places = [(each.info.session.active_ms, each.info.session.id) for each in found.matches]
        assert places == sorted(places, reverse=True)


def _read(snapshot: Snapshot) -> list[str]:
    """All that people read, by the simplest means."""
    return [
        part.text
        for item in seen_by_people(snapshot)
        if isinstance(item, UserMessage | AssistantMessage)
        for part in item.content
        if isinstance(part, Text)
    ]


def _has(query: Query, text: str) -> bool:
    """The model: these texts have no sign but spaces, and no accent but one."""
    words = text.lower().replace("ö", "o").replace("…", "").split()
    return all(
        any(
            words[at : at + len(phrase.words)] == list(phrase.words)
            or (
                phrase.prefix
                and words[at : at + len(phrase.words) - 1] == list(phrase.words[:-1])
                and words[at + len(phrase.words) - 1].startswith(phrase.words[-1])
            )
            for at in range(len(words) - len(phrase.words) + 1)
        )
        for phrase in query.phrases
    )
