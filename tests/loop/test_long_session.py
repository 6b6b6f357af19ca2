"""Hundreds of turns through a small window, while people annotate, fork and sum up beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest

from holdfast.agents.agent import Team
from holdfast.core.history.conversation import Flagged, Snapshot, Visibility, seen_by_people
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import AssistantMessage, Summary, UserMessage, plain_text, text_of
from holdfast.ids import SessionId, SessionKey, Tenant
from holdfast.loop.player import Player
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.store.memory_store import MemoryStore
from holdfast.store.outcomes import SummaryMoved
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from holdfast.store.verification.verification import Finding, verify
from tests.loop.test_compaction import Small, butler

ACME = Tenant("acme")
TURNS = {"memory": 500, "memory, for ever": 2_000, "sqlite": 150}


@pytest.fixture(
    params=["memory", pytest.param("memory, for ever", marks=pytest.mark.thorough), "sqlite"]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = (
        await SqliteStore.open(tmp_path / "holdfast.db")
        if request.param == "sqlite"
        else MemoryStore()
    )
    yield made
    await made.close()


async def say(sessions: Sessions, name: SessionKey | SessionId, text: str) -> None:
    messages = (Incoming(role="user", content=plain_text(text)),)
    watch = await sessions.submit(Ask(tenant=ACME, name=name, agent="butler", messages=messages))
    async with watch:
        assert (await watch.ended()).ok, text


def said_in(session: Snapshot) -> list[str]:
    return [text_of(each.content) for each in session.items if isinstance(each, UserMessage)]


class Bystanders:
    """People who do things to a session while somebody else speaks in it."""

    def __init__(self, sessions: Sessions, session_id: SessionId, seed: int) -> None:
        self._sessions = sessions
        self._id = session_id
        self._random = Random(seed)
        self.done = {"flag": 0, "hide": 0, "fork": 0, "compact": 0, "came late": 0}
        self.forks: list[SessionId] = []

    async def act(self) -> None:
        """One thing, whatever comes to mind."""
        session = await self._sessions.snapshot(ACME, self._id)
        assert session is not None
        what = self._random.choice(["flag", "hide", "fork", "compact"])
        await getattr(self, f"_{what}")(session)
        self.done[what] += 1

    async def _flag(self, session: Snapshot) -> None:
        item = self._anything(session)
        patch = Flagged(name="seen", value=str(self._random.randrange(9)))
        await self._sessions.operations.annotate(ACME, self._id, [(item.id, patch)])

    async def _hide(self, session: Snapshot) -> None:
        item, hidden = self._anything(session), self._random.random() < 0.5
        await self._sessions.operations.annotate(
            ACME, self._id, [(item.id, Visibility(to_model=hidden))]
        )

    async def _fork(self, session: Snapshot) -> None:
        version = self._random.choice(session.marks[-20:]).version
        row = await self._sessions.operations.fork(ACME, self._id, version)
        self.forks.append(row.id)
        for n in range(3):
            await say(self._sessions, row.id, f"apart {n} " + "y" * 200)

    async def _compact(self, session: Snapshot) -> None:
        mark = self._random.choice(session.marks[-20:])
        outcome = await self._sessions.operations.compact(
            ACME,
            self._id,
            f"Up to {mark.version} they spoke of facts.",
            covers_to=mark.end,
            summary_rev=session.notes.summary_rev,
        )
        self.done["came late"] += isinstance(outcome, SummaryMoved)

    def _anything(self, session: Snapshot) -> UserMessage | AssistantMessage:
        recent = session.items[-40:]
        said = [each for each in recent if isinstance(each, UserMessage | AssistantMessage)]
        return self._random.choice(said)


@pytest.mark.slow
async def test_a_long_session_keeps_working_through_dozens_of_summaries(
    store: Store, request: pytest.FixtureRequest
) -> None:
    home = request.node.callspec.params["store"]
    model = Small(window=2_500)  # it refuses what is too long, and what no provider would take
    team = Team({"butler": butler(model, window=2_500)}, entry="butler", digest="d1")

    async with Sessions(store, Player(lambda _: nullcontext(team))) as sessions:
        key = SessionKey("for-ever")
        await say(sessions, key, "fact 0")
        row = await store.resolve(ACME, key)
        assert row is not None
        people = Bystanders(sessions, row.session_id, seed=7)
        beside: set[asyncio.Task[None]] = set()
        for n in range(1, TURNS[home]):
            if n % 10 == 0:
                beside.add(asyncio.create_task(people.act()))
            await say(sessions, key, f"fact {n} " + "x" * 200)
        await asyncio.gather(*beside)
        session = await sessions.snapshot(ACME, row.session_id)
        assert session is not None
        forks = [await sessions.snapshot(ACME, each) for each in people.forks]

    # Nothing is lost, and nothing is there twice.
    assert [each.split()[1] for each in said_in(session)] == [str(n) for n in range(TURNS[home])]
    assert len(list(seen_by_people(session))) == len(session.items)
    for fork in forks:
        assert fork is not None
        *before, _, _, _ = said_in(fork)
        assert before == said_in(session)[: len(before)]
        assert [each.split()[:2] for each in said_in(fork)[-3:]] == [
            ["apart", str(n)] for n in range(3)
        ]
    # Everything happened, often.
    assert len([each for each in session.items if isinstance(each, Summary)]) > TURNS[home] // 100
    assert min(people.done[what] for what in ("flag", "hide", "fork", "compact")) > 0
    assert model.refusals == 0
    assert [each async for each in verify(store) if isinstance(each, Finding)] == []
