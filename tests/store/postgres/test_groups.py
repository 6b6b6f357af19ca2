"""Turns that begin and are committed at once share statements, and none of them notices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import asyncpg
import pytest

from holdfast.core.history.conversation import Titled
from holdfast.core.turns import events as ev
from holdfast.errors import StoreUnavailable
from holdfast.ids import Tenant
from holdfast.store.outcomes import (
    Begin,
    BeginOutcome,
    Committed,
    Joined,
    Moved,
    Started,
    Unconsumed,
)
from holdfast.store.postgres import groups
from holdfast.store.postgres.engine import Db, PostgresEngine
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.verification.verification import Finding, verify
from tests.store.builders import ACME, Player, Playing
from tests.store.postgres.conftest import LONG_MS, Open, random_mint

MANY = 12
OTHER = Tenant("other")


async def known_sessions(player: Player, count: int = MANY) -> list[str]:
    """Sessions that the player's process was the last to write."""
    names = [f"trip-{number}" for number in range(count)]
    for name in names:
        await player.play(name)
    return names


async def begin_all(player: Player, asks: list[Begin]) -> list[BeginOutcome]:
    return list(await asyncio.gather(*map(player.store.begin, asks)))


async def begun(player: Player, names: list[str], *, replayable: bool = False) -> list[Playing]:
    asks = [await player.ask(name, "And then?", replayable=replayable) for name in names]
    turns = []
    for ask, outcome in zip(asks, await begin_all(player, asks), strict=True):
        assert isinstance(outcome, Started), outcome
        turns.append(await player.playing(ask, outcome))
    return turns


async def is_sound(store: PostgresStore) -> None:
    assert [each async for each in verify(store) if isinstance(each, Finding)] == []


@pytest.mark.parametrize("replayable", [False, True])
async def test_turns_that_come_together_begin_and_are_committed_together(
    postgres: PostgresStore, ada: Player, replayable: bool
) -> None:
    names = await known_sessions(ada)
    before = postgres.driver.statements
    turns = await begun(ada, names, replayable=replayable)
    # Two go at once, each alone, and all the others in the next.
    assert postgres.driver.statements == before + 3
    for number, turn in enumerate(turns):
        for _ in range(number % 3):
            await turn.call("look")
        said = tuple(ev.StateSet(name=f"n{n}", value=str(number)) for n in range(number % 4))
        await turn.answer(f"Answer {number}", changes=said)
    before = postgres.driver.statements
    done = await asyncio.gather(*(turn.try_commit() for turn in turns))
    assert all(isinstance(each, Committed) and each.version == 2 for each in done)
    # Those that have set state and those that have not are written apart.
    assert postgres.driver.statements == before + 3 + 3
    for number, (name, turn) in enumerate(zip(names, turns, strict=True)):
        snapshot = await ada.snapshot(name)
        assert snapshot.items[-1] == turn.kept()[0].items[-1]
        assert dict(snapshot.state) == {f"n{n}": str(number) for n in range(number % 4)}
        row = await turn.row()
        assert (row.state, row.ended_by, row.seq) == ("committed", "completed", 2)
        assert bool(await postgres.journal(ACME, turn.turn_id)) is replayable
    await is_sound(postgres)
    # And what they have left is known: nothing has to be read for the next.
    assert len([*postgres.driver.cache]) == MANY


async def test_whoever_comes_too_late_is_told_and_the_others_begin(
    postgres: PostgresStore, ada: Player, ben: Player
) -> None:
    names = await known_sessions(ada)
    asks = [await ada.ask(name, "And then?") for name in names]
    moved = {5, 9}
    for number in moved:
        session_id = await ben.id_of(names[number])
        await ben.store.annotate(ACME, session_id, [(None, Titled(title="Oslo"))])
    outcomes = await begin_all(ada, asks)
    assert {n for n, each in enumerate(outcomes) if isinstance(each, Moved)} == moved
    assert {n for n, each in enumerate(outcomes) if isinstance(each, Started)} == {
        *range(MANY)
    } - moved
    await is_sound(postgres)


async def test_a_turn_that_was_spoken_to_is_not_committed_with_the_others(
    postgres: PostgresStore, ada: Player, ben: Player
) -> None:
    turns = await begun(ada, await known_sessions(ada))
    for turn in turns:
        await turn.answer()
    await ben.store.signal(ACME, turns[7].turn_id, kind="steer", payload=b"wait")
    done = await asyncio.gather(*(turn.try_commit() for turn in turns))
    assert isinstance(done.pop(7), Unconsumed)
    assert all(isinstance(each, Committed) for each in done)
    await is_sound(postgres)


async def test_one_that_breaks_the_statement_takes_nobody_along(
    postgres: PostgresStore, ada: Player, ben: Player
) -> None:
    """A turn id that is taken already breaks what it is in."""
    names = await known_sessions(ada)
    taken = await ben.open("elsewhere")
    asks = [await ada.ask(name, "And then?") for name in names]
    asks[6] = await ada.ask(names[6], "And then?", turn_id=taken.turn_id, nonce="mine")
    outcomes = await begin_all(ada, asks)
    assert isinstance(outcomes.pop(6), Joined)
    assert all(isinstance(each, Started) for each in outcomes)
    await is_sound(postgres)


async def test_nobody_waits_for_a_session_that_somebody_else_is_writing_to(
    url: str, ada: Player
) -> None:
    """Whoever is held up is held up alone, also if there are as many as statements may be on their way."""
    names = await known_sessions(ada)
    asks = [await ada.ask(name, "And then?") for name in names]
    locked = [await ada.id_of(name) for name in (names[0], names[8], names[9])]
    held = await asyncpg.connect(url)
    try:
        async with held.transaction():
            lock = "select from holdfast.session where id = any ($1) for update"
            await held.execute(lock, locked)
            begins = [asyncio.create_task(ada.store.begin(ask)) for ask in asks]
            wait = [begins.pop(at) for at in (9, 8, 0)]
            assert all(isinstance(each, Started) for each in await asyncio.gather(*begins))
            await ada.play("elsewhere")
            await ada.play("elsewhere", "And there?")
            assert not any(each.done() for each in wait)
        assert all(isinstance(each, Started) for each in await asyncio.gather(*wait))
    finally:
        await held.close()


async def test_whoever_has_waited_too_long_is_told_and_nothing_was_sent(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(pool_size="1")
    player = Player(store, random_mint())
    await player.renew(ttl_ms=LONG_MS)
    names = await known_sessions(player, 4)
    asks = [await player.ask(name, "And then?") for name in names]
    link = await store.engine.pool.take(until=float("inf"))  # the only one
    with monkeypatch.context() as impatient:
        impatient.setattr(store.engine, "timeout_s", 0.05)
        outcomes = await asyncio.gather(*map(store.begin, asks), return_exceptions=True)
    assert all(isinstance(each, StoreUnavailable) for each in outcomes)
    store.engine.pool.give(link)
    for ask in asks:
        assert await store.turn(ACME, ask.request.turn_id) is None
    assert all(isinstance(each, Started) for each in await begin_all(player, asks))


async def test_whoever_stops_waiting_before_it_is_sent_has_asked_for_nothing(ada: Player) -> None:
    names = await known_sessions(ada)
    asks = [await ada.ask(name, "And then?") for name in names]
    begins = [asyncio.create_task(ada.store.begin(ask)) for ask in asks]
    await asyncio.sleep(0)  # two are on their way now, the others wait
    given_up = begins.pop(4)
    given_up.cancel()
    await asyncio.gather(*begins)
    assert given_up.cancelled()
    assert await ada.store.turn(ACME, asks[4].request.turn_id) is None


async def test_a_statement_has_a_bound_in_number_and_in_bytes(
    postgres: PostgresStore, ada: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = await known_sessions(ada)
    monkeypatch.setattr(groups, "GROUP_MAX", 5)
    before = postgres.driver.statements
    turns = await begun(ada, names)
    assert postgres.driver.statements == before + 2 + 2  # two alone, five, five
    for turn in turns:
        await turn.answer()
    monkeypatch.setattr(groups, "GROUP_BYTES_MAX", 1)
    before = postgres.driver.statements
    done = await asyncio.gather(*(turn.try_commit() for turn in turns))
    assert all(isinstance(each, Committed) for each in done)
    assert postgres.driver.statements == before + MANY
    await is_sound(postgres)


async def test_tenants_that_share_a_statement_share_nothing_else(
    postgres: PostgresStore, ada: Player
) -> None:
    players = (ada, Player(postgres, ada.mint, tenant=OTHER, node=ada.node))
    for each in players:
        await known_sessions(each, 4)
    asks = [
        await each.ask(f"trip-{number}", f"{each.tenant} asks")
        for number in range(4)
        for each in players
    ]
    assert all(isinstance(each, Started) for each in await begin_all(ada, asks))
    for ask in asks:
        turn_id = ask.request.turn_id
        (stranger,) = {ACME, OTHER} - {ask.tenant}
        assert await postgres.turn(ask.tenant, turn_id) is not None
        assert await postgres.turn(stranger, turn_id) is None
        assert await postgres.journal(stranger, turn_id) == ()
    await is_sound(postgres)


async def test_a_statement_has_the_time_of_the_youngest_call_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the oldest one's, an overloaded database would fail calls that have just come: their retries would keep it
    overloaded."""
    sent: list[tuple[list[str], float]] = []
    answer = asyncio.Event()

    class Slow:
        timeout_s = 10.0

        async def run(self, work: object, *, timeout_s: float) -> list[bool]:
            group = asked[len(sent)]
            sent.append((group, timeout_s))
            await answer.wait()
            return [True] * len(group)

    async def nothing(db: Db, group: Sequence[str]) -> list[bool | None]:
        raise AssertionError("`Slow` runs nothing")

    asked = [["first"], ["old", "young"]]
    loop = asyncio.get_running_loop()
    calls = groups.StatementGroup[str, bool](
        cast("PostgresEngine", Slow()), write=nothing, key=str, size=len, at_once=1
    )
    now = [loop.time()]
    monkeypatch.setattr(loop, "time", lambda: now[0], raising=False)
    tasks = [asyncio.create_task(calls.ask("first"))]
    await asyncio.sleep(0)
    for name in asked[1]:
        tasks.append(asyncio.create_task(calls.ask(name)))
        await asyncio.sleep(0)
        now[0] += 4
    answer.set()
    assert all(await asyncio.gather(*tasks))
    group, timeout_s = sent[1]
    assert group == ["old", "young"]
    assert timeout_s == pytest.approx(6.0)
