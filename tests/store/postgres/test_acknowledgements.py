"""An acknowledgement that is on its way counts: whoever asks after it was sent does not overtake it.

The server does not wait until it is durable, and the next request of that client may come over another connection of
the pool. Were it to come first, an SDK's own retry of a new request would be taken for a retry of the one before,
if both say the same ("go on"), and get its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from holdfast.ids import SessionKey, TurnId
from holdfast.store.outcomes import Attempt, ByKey, Replay, Started
from tests.store.builders import ACME, Player

SAME = b"the same words"


@asynccontextmanager
async def delayed(url: str, turn_id: TurnId) -> AsyncIterator[None]:
    """Nobody can write a turn's row in here."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(
                "select 1 from holdfast.turn where turn_id = $1 for update", turn_id
            )
            yield
    finally:
        await connection.close()


async def wait_for_a_lock(url: str) -> None:
    """Until some statement waits for a row."""
    connection = await asyncpg.connect(url)
    try:
        while True:
            if await connection.fetchval(
                "select count(*) from pg_locks l join pg_stat_activity a using (pid) "
                "where not l.granted and a.datname = current_database()"
            ):
                return
            await asyncio.sleep(0.005)
    finally:
        await connection.close()


@pytest.mark.parametrize("how", ["find_attempt", "begin"])
async def test_a_retry_does_not_overtake_an_acknowledgement(
    ada: Player, url: str, how: str
) -> None:
    turn = await ada.play("trip", "Go on", request_hash=SAME)
    retry = await ada.ask("trip", "Go on", request_hash=SAME, client_attempt=1)
    async with delayed(url, turn.turn_id):
        noting = asyncio.create_task(ada.store.acknowledge(ACME, turn.turn_id))
        await wait_for_a_lock(url)
        asked = ada.store.begin(retry) if how == "begin" else find(ada, retry.attempt)
        asking = asyncio.create_task(asked)
        await asyncio.wait({asking}, timeout=0.2)
        assert not asking.done(), f"it came first, and found {asking.result()}"
    await noting
    found = await asking
    assert isinstance(found, Started) if how == "begin" else found is None


async def test_who_is_no_retry_waits_for_nobody(ada: Player, url: str) -> None:
    turn = await ada.play("trip", "Go on", request_hash=SAME)
    async with delayed(url, turn.turn_id):
        noting = asyncio.create_task(ada.store.acknowledge(ACME, turn.turn_id))
        await wait_for_a_lock(url)
        assert isinstance(await ada.begin("trip", "Go on", request_hash=SAME), Started)
    await noting


async def test_without_an_acknowledgement_a_retry_is_answered_again(ada: Player) -> None:
    turn = await ada.play("trip", "Go on", request_hash=SAME)
    found = await find(ada, Attempt(request_hash=SAME, client_attempt=1))
    assert isinstance(found, Replay) and found.turn_id == turn.turn_id


async def find(player: Player, attempt: Attempt) -> object:
    target = ByKey(key=SessionKey("trip"), fresh=await player.id_of("trip"))
    return await player.store.find_attempt(ACME, attempt, target)
