"""A node is told at once that there is something for it to read, and nothing is lost if it is not."""

from __future__ import annotations

import asyncio

import asyncpg

from holdfast.store.outcomes import HintSupport
from holdfast.store.postgres import hints
from holdfast.store.postgres.store import PostgresStore
from tests.store.builders import ACME, Player
from tests.store.postgres.conftest import LONG_MS, Open, random_mint

SOON_S = 30.0


class Woken:
    """Counts how often somebody was woken."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        async with asyncio.timeout(SOON_S):
            await self._event.wait()
        self._event.clear()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()


async def test_a_signal_wakes_the_node_that_it_is_for(ada: Player, ben: Player) -> None:
    assert isinstance(ada.store, PostgresStore) and isinstance(ada.store, HintSupport)
    woken, other = Woken(), Woken()
    ada.store.listen(ada.node, woken)
    await woken.wait()  # once, because it listens now
    ada.store.listen(ben.node, other)
    turn = await ada.open("trip")
    await ben.store.signal(ACME, turn.turn_id, kind="cancel")
    await woken.wait()
    assert [row.kind for row in await ada.store.signals(ada.node)] == ["cancel"]
    assert not other.is_set


async def test_a_connection_that_listens_is_made_again(ada: Player, ben: Player, url: str) -> None:
    assert isinstance(ada.store, PostgresStore)
    woken = Woken()
    ada.store.listen(ada.node, woken)
    await woken.wait()
    turn = await ada.open("trip")
    admin = await asyncpg.connect(url)
    await admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where datname = current_database() and query ilike 'listen %'"
    )
    await admin.close()
    await woken.wait()  # because something may have been said meanwhile
    await ben.store.signal(ACME, turn.turn_id, kind="cancel")
    await woken.wait()


async def test_without_anybody_who_listens_signals_are_found_by_looking(
    open_store: Open, ben: Player
) -> None:
    store = await open_store(listen="off")
    player = Player(store, random_mint())
    await player.renew(ttl_ms=LONG_MS)
    woken = Woken()
    store.listen(player.node, woken)
    turn = await player.open("trip")
    await ben.store.signal(ACME, turn.turn_id, kind="cancel")
    assert len(await store.signals(player.node)) == 1
    assert not woken.is_set


async def test_hints_that_wait_go_in_one_statement(ada: Player, ben: Player) -> None:
    assert isinstance(ben.store, PostgresStore)
    asked: list[list[str]] = []
    sent = hints.PostgresHints(ben.store.engine, listen=None)
    run = ben.store.engine.run

    async def counting(work: object, **more: object) -> object:
        asked.append(work.keywords["nodes"])  # type: ignore[attr-defined]
        return await run(work, **more)  # type: ignore[arg-type]

    ben.store.engine.run = counting  # type: ignore[method-assign,assignment]
    for player in (ada, ben, ada, ben):
        sent.tell(player.node)
    assert sent._sending is not None
    await sent._sending
    assert asked == [sorted([ada.node, ben.node])]
