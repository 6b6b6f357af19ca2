"""The PostgreSQL home: a store in one database that any number of processes share.

Everything here is wiring. What a method does is an operation; when it is run again is the engine's business. The clock
is the database's, read together with what is decided on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from holdfast.errors import StoreUnusable
from holdfast.ids import NodeId, Tenant, TurnId
from holdfast.observe.supervisor import TaskSupervisor
from holdfast.store import outcomes
from holdfast.store.operations import nodes
from holdfast.store.operations.signals import SignalResult
from holdfast.store.postgres.acknowledgements import Acknowledgements
from holdfast.store.postgres.address import DatabaseAddress
from holdfast.store.postgres.condition import examine
from holdfast.store.postgres.driver import PostgresDriver
from holdfast.store.postgres.engine import ONE_MOMENT, Clock, Db, PostgresEngine, database_clock
from holdfast.store.postgres.hints import PostgresHints
from holdfast.store.postgres.loop_engines import LoopEngines
from holdfast.store.postgres.migration import load_migrations, migrate, step_of
from holdfast.store.rows import NodeRow
from holdfast.store.sql.migrations import Migrated, missing
from holdfast.store.steps import Start
from holdfast.store.store import Store

T = TypeVar("T")

MIGRATION_S = 600.0
"""How long bringing the tables up to date may take, and waiting for another process that does it."""


class PostgresStore(Store):
    """Conversations in one PostgreSQL database."""

    examine = staticmethod(examine)

    def __init__(
        self,
        engine: PostgresEngine,
        *,
        migrated: Migrated | None = None,
        listen: str | None = None,
        supervisor: TaskSupervisor | None = None,
    ) -> None:
        self.engine = engine
        self.migrated = migrated
        """What opening did to the tables."""
        self.driver = PostgresDriver(engine)
        self._acknowledgements = Acknowledgements()
        self._visits = LoopEngines(engine)
        self._hints = PostgresHints(engine, listen=listen, supervisor=supervisor)

    @classmethod
    async def open(
        cls,
        address: DatabaseAddress,
        *,
        clock: Clock = database_clock,
        supervisor: TaskSupervisor | None = None,
    ) -> PostgresStore:
        """Open a store, make its tables if there are none, and bring them up to date.

        Raises StoreUnusable, with the way out, if the database cannot be one, and StoreUnavailable if it does
        not answer.
        """
        engine = PostgresEngine.at(address, clock=clock)
        try:
            await engine.run(step_of)  # whether there is a database is not to take long
            migrated = await engine.run(
                partial(migrate, migrations=load_migrations()), timeout_s=MIGRATION_S
            )
        except BaseException:
            await engine.close()
            raise
        return cls(engine, migrated=migrated, listen=address.listen, supervisor=supervisor)

    @classmethod
    async def open_existing(cls, address: DatabaseAddress) -> PostgresStore:
        """Open a store that is there, and up to date; nothing is made or migrated. Raises StoreUnusable."""
        engine = PostgresEngine.at(address)
        try:
            step = await engine.run(step_of)
            newest = load_migrations()
            if step == 0:
                raise StoreUnusable(
                    f"there is no store in {address.shown}; `holdfast db migrate` makes one"
                )
            if missing(step, newest):
                raise StoreUnusable(
                    f"the tables of {address.shown} are at step {step} of {newest[-1].number}; "
                    "run pg_dump, then `holdfast db migrate`"
                )
        except BaseException:
            await engine.close()
            raise
        return cls(engine)

    async def _write(self, start: Start[T], *, once: bool = False) -> T:
        return await self.driver.run(start, once=once)

    async def _read(self, start: Start[T], *, one_moment: bool = False) -> T:
        async def work(db: Db) -> T:
            if not one_moment:
                return await self.driver.steps.take(db, start())
            async with db.transaction(ONE_MOMENT):
                return await self.driver.steps.take(db, start())

        return await self.engine.run(work)

    # nodes and turns

    async def renew(self, node: NodeId, *, ttl_ms: int) -> NodeRow:
        renew = partial(nodes.renew, node, ttl_ms=ttl_ms)
        return await self.driver.run(renew, engine=self._visits.engine())

    async def find_attempt(
        self, tenant: Tenant, attempt: outcomes.Attempt, target: outcomes.Target | None = None
    ) -> outcomes.Known | None:
        if attempt.client_attempt:
            await self._acknowledgements.wait_arrived()
        return await super().find_attempt(tenant, attempt, target)

    async def begin(self, ask: outcomes.Begin) -> outcomes.BeginOutcome:
        if ask.attempt.client_attempt:
            await self._acknowledgements.wait_arrived()
        return await super().begin(ask)

    async def enqueue(
        self, ask: outcomes.Begin, *, behind: bool = False
    ) -> outcomes.EnqueueOutcome:
        if ask.attempt.client_attempt:
            await self._acknowledgements.wait_arrived()
        return await super().enqueue(ask, behind=behind)

    async def acknowledge(self, tenant: Tenant, turn_id: TurnId) -> None:
        with self._acknowledgements.one():
            await super().acknowledge(tenant, turn_id)

    # signals

    def _hint(self, said: SignalResult) -> None:
        if said.holder is not None:
            self._hints.tell(said.holder)

    def listen(self, node: NodeId, wake: Callable[[], None]) -> None:
        self._hints.listen(node, wake)

    # upkeep

    @property
    def queue_length(self) -> int:
        return self.engine.pool.waiting

    async def close(self) -> None:
        await self.driver.close()
        await self._hints.close()
        await self.engine.close()
