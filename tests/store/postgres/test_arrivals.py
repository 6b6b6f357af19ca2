"""A fork that is restored while something happens to what it goes on from."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.ids import SessionId, Version
from holdfast.store.memory_store import MemoryStore
from holdfast.store.operations.arrivals import restore
from holdfast.store.outcomes import Restored, RestoreOutcome, RestoreRefused, SessionDump
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.steps import Operation, WriteStep
from tests.postgres import execute
from tests.store.builders import ACME, Player
from tests.store.postgres.conftest import random_mint


@pytest.fixture
async def fork(postgres: PostgresStore) -> SessionDump:
    """A fork from elsewhere, whose parent is here already."""
    elsewhere = Player(MemoryStore(), random_mint())
    await elsewhere.renew()
    await elsewhere.play("trip")
    parent = await elsewhere.id_of("trip")
    fresh = elsewhere.mint(SessionId)
    await elsewhere.store.fork(ACME, parent, version=Version(1), fresh=fresh)
    dumps = [await elsewhere.store.dump(ACME, each) for each in (parent, fresh)]
    assert dumps[0] is not None and dumps[1] is not None
    assert await postgres.restore(ACME, dumps[0]) == Restored(fresh=True)
    return dumps[1]


class Arrival:
    """Restores a session; right before it is written for the first time, a statement of another process comes."""

    def __init__(self, store: PostgresStore, url: str) -> None:
        self.tries = 0
        self._store = store
        self._url = url

    async def restore(self, dump: SessionDump, *, meanwhile: str) -> RestoreOutcome:
        return await self._store.driver.run(lambda: self._steps(dump, meanwhile))

    def _steps(self, dump: SessionDump, meanwhile: str) -> Operation[RestoreOutcome]:
        operation = restore(ACME, dump)
        came: object = None
        try:
            while True:
                step = operation.send(came)
                if isinstance(step, WriteStep):
                    self.tries += 1
                    if self.tries == 1:
                        self._execute(meanwhile)
                came = yield step
        except StopIteration as end:
            done: RestoreOutcome = end.value
            return done

    def _execute(self, statement: str) -> None:
        """On a connection, and in a loop, of its own: an operation does not wait between its steps."""
        work = threading.Thread(target=lambda: asyncio.run(execute(self._url, statement)))
        work.start()
        work.join(timeout=60)


async def test_a_parent_that_is_deleted_meanwhile_is_looked_at_again(
    postgres: PostgresStore, url: str, fork: SessionDump
) -> None:
    """It is a past all the same, for as long as its turns are there."""
    arrival = Arrival(postgres, url)
    outcome = await arrival.restore(fork, meanwhile="update holdfast.session set state = 'deleted'")
    assert outcome == Restored(fresh=True)
    assert arrival.tries == 2


async def test_a_fork_whose_past_goes_meanwhile_is_refused(
    postgres: PostgresStore, url: str, fork: SessionDump
) -> None:
    arrival = Arrival(postgres, url)
    outcome = await arrival.restore(fork, meanwhile="delete from holdfast.turn")
    assert isinstance(outcome, RestoreRefused), outcome
    assert await postgres.session(ACME, fork.session.id) is None
