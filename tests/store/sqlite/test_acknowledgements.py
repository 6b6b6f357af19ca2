"""An acknowledgement waits for company, and yet nobody who asks after it overtakes it.

An SDK's own retry of a new request would otherwise be taken for a retry of the one before, if both say the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.ids import Minter, SessionKey
from holdfast.store.outcomes import Attempt, ByKey, Replay, Started
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.engine import engine
from tests.store.builders import ACME, Player

SAME = b"the same words"


@pytest.fixture
async def ada(
    tmp_path: Path, mint: Minter, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Player]:
    """A player on a store where what waits for company waits for as long as it takes."""
    monkeypatch.setattr(engine, "COMPANY_S", 3600.0)
    store = await SqliteStore.open(tmp_path / "holdfast.db")
    player = Player(store, mint)
    await player.renew()
    yield player
    await store.close()


@pytest.mark.parametrize("how", ["find_attempt", "begin"])
async def test_a_retry_does_not_overtake_an_acknowledgement(ada: Player, how: str) -> None:
    turn = await ada.play("trip", "Go on", request_hash=SAME)
    retry = await ada.ask("trip", "Go on", request_hash=SAME, client_attempt=1)
    noting = asyncio.create_task(ada.store.acknowledge(ACME, turn.turn_id))
    await asyncio.sleep(0)
    if how == "begin":
        assert isinstance(await ada.store.begin(retry), Started)
    else:
        assert await find(ada, retry.attempt) is None
    await noting


async def test_without_an_acknowledgement_a_retry_is_answered_again(ada: Player) -> None:
    turn = await ada.play("trip", "Go on", request_hash=SAME)
    found = await find(ada, Attempt(request_hash=SAME, client_attempt=1))
    assert isinstance(found, Replay) and found.turn_id == turn.turn_id


async def find(player: Player, attempt: Attempt) -> object:
    target = ByKey(key=SessionKey("trip"), fresh=await player.id_of("trip"))
    return await player.store.find_attempt(ACME, attempt, target)
