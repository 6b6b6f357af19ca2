"""How many statements a turn takes. Each costs more than what it finds or writes, so none comes in unnoticed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from apsw import Connection, Cursor

from holdfast.ids import Minter
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import ManualClock
from tests.store.builders import Player


class Statements:
    """What the writer executes, without the transactions around it."""

    def __init__(self) -> None:
        self._noted: list[str] = []

    def watch(self, db: Connection) -> None:
        db.exec_trace = self._note

    def taken(self) -> list[str]:
        """The first words of the statements since the last time."""
        noted, self._noted = self._noted, []
        return noted

    def _note(self, cursor: Cursor, sql: str, bindings: object) -> bool:
        verb, *rest = sql.lower().replace("(", " ").split()
        if verb not in ("begin", "commit"):
            at = {"insert": 1, "delete": 1, "update": 0}.get(verb)
            self._noted.append(verb if at is None else f"{verb} {rest[at]}")
        return True


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "holdfast.db", now_ms=clock.now_ms)
    yield opened
    await opened.close()


@pytest.fixture
async def player(store: SqliteStore, mint: Minter) -> Player:
    made = Player(store, mint)
    await made.renew()
    await made.play("trip")
    return made


@pytest.fixture
async def statements(store: SqliteStore, player: Player) -> Statements:
    made = Statements()
    await store.engine.write(made.watch)
    return made


async def test_a_turn_takes_a_query_and_its_rows_each_time_it_writes(
    player: Player, statements: Statements
) -> None:
    turn = await player.open("trip", "And the weather?")
    assert statements.taken() == ["select", "update session", "insert turn", "insert journal"]

    await turn.answer("Rain")
    assert statements.taken() == ["select", "insert journal"]

    await turn.commit()
    assert statements.taken() == [
        "select",
        "update session",
        "update turn",
        "insert item",
        "insert item",
        "delete journal",
    ]


async def test_a_turn_with_a_key_takes_one_more_to_begin_and_one_to_end(
    player: Player, statements: Statements
) -> None:
    """Its key is claimed; in the end all keys that lead to it are settled at once. Its journal stays."""
    turn = await player.open("trip", "And the weather?", key="k1", replayable=True)
    assert statements.taken() == [
        "select",
        "update session",
        "insert turn",
        "insert journal",
        "insert idempotency",
    ]
    await turn.answer("Rain")
    statements.taken()

    await turn.commit()
    assert statements.taken() == [
        "select",
        "update session",
        "update turn",
        "insert item",
        "insert item",
        "insert journal",
        "update idempotency",
    ]


async def test_a_turn_that_waits_takes_two_queries_and_its_rows_and_costs_no_other_turn_anything(
    player: Player, statements: Statements
) -> None:
    running = await player.open("trip", "And the weather?")
    began = statements.taken()
    queued = await player.wait("trip", "Later")
    assert statements.taken() == [*["select"] * 2, "insert turn", "insert journal"]

    await running.end()
    statements.taken()
    turn = await player.open("trip", "At the door")
    assert statements.taken() == began
    await turn.end()
    statements.taken()

    await player.open_queued(queued.turn_id)
    written = [each for each in statements.taken() if each != "select"]
    assert written == ["update session", "update turn", "update journal"]
