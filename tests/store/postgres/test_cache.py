"""What a process knows of the sessions that it wrote last: it saves reads, and changes no answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from holdfast import limits
from holdfast.core.history.conversation import Titled
from holdfast.core.items import UserMessage, plain_text
from holdfast.core.turns import events as ev
from holdfast.errors import Superseded
from holdfast.ids import IdempotencyKey, MessageId, SessionId, SessionKey, Version
from holdfast.store.outcomes import (
    BeginOutcome,
    Busy,
    ByKey,
    Committed,
    Gone,
    Joined,
    Moved,
    NotLive,
    Replay,
    Started,
    Unconsumed,
)
from holdfast.store.postgres.driver import STEPS, Run
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.pool import PooledConnection
from holdfast.store.postgres.queries import PostgresQuery
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sql.tables import SESSIONS
from holdfast.store.steps import get
from tests.store.builders import ACME, Player
from tests.store.postgres.conftest import Open


class Asked:
    """The names of the queries that were sent, by whoever, while it was looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        fetch = PooledConnection.fetch

        async def noting(
            link: PooledConnection, query: PostgresQuery, values: Any, *, timeout_s: float
        ) -> Any:
            self.names.append(query.name)
            return await fetch(link, query, values, timeout_s=timeout_s)

        monkeypatch.setattr(PooledConnection, "fetch", noting)

    def clear(self) -> None:
        self.names.clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


async def is_as_known(store: PostgresStore) -> None:
    """Whatever is known under a stamp that the session still has is what its row says."""

    async def work(db: Db) -> None:
        for known in store.driver.cache:
            run, session = Run(), known.session
            held = await STEPS.take(db, get(SESSIONS, session.tenant, session.id), run)
            if held is not None and run.stamps[held.tenant, held.id] == known.stamp:
                assert session == held

    await store.engine.run(work)


# ── what it saves ────────────────────────────────────────────────────────────────────────────


async def test_whoever_goes_on_with_a_session_begins_and_commits_by_one_statement_each(
    ada: Player, asked: Asked
) -> None:
    await ada.play("trip")
    ask = await ada.ask("trip", "And then?")
    asked.clear()
    started = await ada.store.begin(ask)
    assert isinstance(started, Started)
    assert asked.names == ["write"]
    turn = await ada.playing(ask, started)
    await turn.answer()
    commit, n, records = turn.kept()
    asked.clear()
    await ada.store.commit(turn.fence, commit, n=n, records=records)
    assert asked.names == ["write"]


async def test_what_is_known_is_what_the_row_says(
    postgres: PostgresStore, ada: Player, ben: Player
) -> None:
    await ada.play("new", "To Oslo")
    await is_as_known(postgres)
    open_turn = await ada.open("new", "And then?", replayable=True)
    await is_as_known(postgres)
    await open_turn.call("look")
    await is_as_known(postgres)
    await open_turn.answer(changes=(ev.StateSet(name="todo", value="pack"),))
    await open_turn.commit()
    await is_as_known(postgres)
    assert len([*postgres.driver.cache]) == 1
    await ada.play(None, "Nobody named this")
    await ada.discard("new")
    await ben.play("new", "Me too")
    await ada.play("new", "And I")
    fork = ada.mint(SessionId)
    await postgres.fork(ACME, await ada.id_of("new"), version=Version(1), fresh=fork)
    await ada.play(fork, "Otherwise")
    await ada.play(fork, changes=(ev.MemoryAdded(agent="butler", memory_id="m", text="Oslo"),))
    await is_as_known(postgres)
    assert len([*postgres.driver.cache]) == 3


async def test_what_is_known_has_a_bound(
    postgres: PostgresStore, ada: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "known_rows_max", 2)
    for name in ("one", "two", "three"):
        await ada.play(name)
    names = [known.key for known in postgres.driver.cache]
    assert names == ["two", "three"]
    await ada.play("one")


# ── what it does not change ──────────────────────────────────────────────────────────────────


async def annotated(other: Player) -> None:
    await other.store.annotate(ACME, await other.id_of("trip"), [(None, Titled(title="Oslo"))])


async def played(other: Player) -> None:
    await other.play("trip", "Me too")


async def opened(other: Player) -> None:
    await other.open("trip", "Me too")


async def reset(other: Player) -> None:
    await other.store.bind(ACME, SessionKey("trip"), fresh=other.mint(SessionId))


async def removed(other: Player) -> None:
    await other.store.remove(ACME, await other.id_of("trip"))


@pytest.mark.parametrize(
    ("happens", "expected"),
    [(annotated, Moved), (played, Moved), (opened, Busy), (reset, Moved), (removed, Gone)],
)
async def test_a_turn_begins_on_what_is_there_and_not_on_what_was_known(
    ada: Player,
    ben: Player,
    open_store: Open,
    happens: Callable[[Player], Awaitable[None]],
    expected: type[BeginOutcome],
) -> None:
    await ada.play("trip")
    ask = await ada.ask("trip", "And then?")
    await happens(ben)
    outcome = await ada.store.begin(ask)
    assert isinstance(outcome, expected)
    # A process that knows nothing says the same.
    assert outcome == await (await open_store()).begin(ask)


async def test_a_key_that_means_another_session_leads_there(ada: Player) -> None:
    await ada.play("trip")
    other = await ada.play("work")
    ask = await ada.ask("trip", "And then?")
    target = ByKey(key=SessionKey("work"), fresh=ada.mint(SessionId))
    outcome = await ada.store.begin(msgspec.structs.replace(ask, target=target))
    assert outcome == Moved(session_id=other.session_id, head=Version(1))


async def test_a_node_that_is_not_live_begins_nothing_though_it_knows_the_session(
    ada: Player,
) -> None:
    await ada.play("trip")
    await ada.store.resign(ada.node)
    assert isinstance(await ada.begin("trip", "And then?"), NotLive)


async def test_a_request_that_has_begun_already_is_known_again(ada: Player) -> None:
    await ada.play("trip")
    ask = await ada.ask("trip", "And then?")
    started = await ada.store.begin(ask)
    assert isinstance(started, Started)
    assert await ada.store.begin(ask) == started
    turn = await ada.playing(ask, started)
    await turn.answer()
    await turn.commit()
    assert isinstance(await ada.store.begin(ask), Replay)


async def test_an_idempotency_key_is_looked_up_though_the_session_is_known(ada: Player) -> None:
    await ada.play("trip")
    first = await ada.ask("trip", "And then?", key="once", request_hash=b"same")
    assert isinstance(await ada.store.begin(first), Started)
    again = await ada.ask("trip", "And then?", key="once", request_hash=b"same")
    assert isinstance(await ada.store.begin(again), Joined)
    assert (await ada.store.idempotency(ACME, IdempotencyKey("once"))) is not None


async def test_a_turn_that_was_spoken_to_hears_it_before_it_is_committed(
    ada: Player, ben: Player
) -> None:
    turn = await ada.open("trip")
    await turn.answer()
    await ben.store.signal(ACME, turn.turn_id, kind="steer", payload=b"wait")
    assert isinstance(await turn.try_commit(), Unconsumed)
    heard = UserMessage(id=ada.mint(MessageId), content=plain_text("wait"))
    await turn.record(ev.Steered(items=(heard,), signals=(1,)), consumed=[1])
    await turn.answer()
    assert isinstance(await turn.try_commit(), Committed)


async def test_a_turn_that_goes_on_after_it_was_spoken_to_has_not_heard_it(
    ada: Player, ben: Player
) -> None:
    """Our own append moves the stamp as well, and says nothing about what others have written before it."""
    turn = await ada.open("trip")
    await ben.store.signal(ACME, turn.turn_id, kind="steer", payload=b"wait")
    await turn.answer()
    assert isinstance(await turn.try_commit(), Unconsumed)


async def test_a_turn_whose_session_was_deleted_is_not_committed(ada: Player, ben: Player) -> None:
    turn = await ada.open("trip")
    await turn.answer()
    await removed(ben)
    with pytest.raises(Superseded):
        await turn.try_commit()


async def test_a_commit_that_comes_again_is_the_same_commit(ada: Player) -> None:
    turn = await ada.open("trip")
    await turn.answer()
    first = await turn.commit()
    assert await turn.commit() == first
    await ada.play("trip", "And then?")
    assert await turn.commit() == first


async def test_a_connection_that_breaks_ends_what_is_known(
    postgres: PostgresStore, ada: Player, asked: Asked
) -> None:
    """There may be another database behind the next one, where the same stamp means something else."""
    await ada.play("trip")
    ask = await ada.ask("trip", "And then?")
    link = await postgres.engine.pool.take(until=float("inf"))
    postgres.engine.pool.drop(link)
    asked.clear()
    assert isinstance(await ada.store.begin(ask), Started)
    assert asked.names == ["look", "write"]
