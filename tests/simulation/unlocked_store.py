"""A home in which other operations happen between the steps of one, as they do on PostgreSQL.

It is PostgreSQL's store with its driver, its cache of sessions and its groups of statements, in virtual time: only where
a statement would go to the server, a step is taken on tables in memory. Each step happens at one moment and takes a while
to get there, so a later step may see what an earlier one did not. What is written is conditional, as a statement of
`store/postgres/compiler.py` is; `tests/store/postgres` shows that those statements do the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, TypeVar, cast

import apsw

from holdfast.ids import NodeId
from holdfast.store.memory_store import MemoryStore
from holdfast.store.operations.signals import SignalResult
from holdfast.store.postgres.cache import FIRST_STAMP
from holdfast.store.postgres.compiler import Stamps, asked_for
from holdfast.store.postgres.driver import PostgresDriver, Proposed, Run, Steps
from holdfast.store.postgres.engine import Db, PostgresEngine
from holdfast.store.postgres.faults import StaleRead
from holdfast.store.postgres.pool import Pool
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.rows import NodeRow, SessionRow, Tombstone
from holdfast.store.sql.tables import KEYS, NODES, SESSIONS
from holdfast.store.steps import (
    Delete,
    FindStep,
    Insert,
    LookStep,
    One,
    Operation,
    PauseStep,
    Start,
    Step,
    WriteStep,
    get,
)

T = TypeVar("T")

TIMEOUT_S = 30.0

PACE_S = (0.0, 0.0, 0.0, 0.001, 0.005, 0.05)
"""How long a step takes to get there: most next to no time, and some so long that whole turns pass."""


class SharedTables:
    """What all nodes share: tables, and the stamps of the sessions in them."""

    def __init__(self, now_ms: Callable[[], int], rng: Random, pace_s: tuple[float, ...]) -> None:
        self.now_ms = now_ms
        self.rng = rng
        self.pace_s = pace_s
        self.home = MemoryStore(now_ms=now_ms)
        self.stamps: Stamps = {}

    def run(self, operation: Operation[T]) -> T:
        return self.home.run(operation)

    def is_as_read(self, step: WriteStep, stamps: Stamps) -> bool:
        """Whether the conditions of a write hold."""
        places = [(each.tenant, each.id) for each in step.on]
        if any(self.stamps.get(place) != stamps[place] for place in places):
            return False
        if step.live is not None:
            node = self.run(get(NODES, step.live))
            if node is None or node.expires_ms <= self.now_ms():
                return False
        for each in step.as_read:
            row = self.run(get(each.table, *each.table.key_of(each.row)))
            if row is None or any(getattr(row, n) != getattr(each.row, n) for n in each.columns):
                return False
        return True

    def write(self, *steps: WriteStep) -> None:
        """All of these, or nothing. Raises StaleRead if a row is there that was to be absent."""
        db = self.home.db
        db.execute("begin")
        try:
            for step in steps:
                self.run(_only(step))
        except apsw.ConstraintError as error:
            db.execute("rollback")
            if "UNIQUE" not in str(error):
                raise
            raise StaleRead from error
        db.execute("commit")
        for step in steps:
            self._move_stamps(step)

    def _move_stamps(self, step: WriteStep) -> None:
        for each in step.on:
            self.stamps[each.tenant, each.id] += 1
        for change in step.changes:
            if isinstance(change, Insert) and change.table is SESSIONS:
                for row in change.rows:
                    self.stamps.setdefault((row.tenant, row.id), FIRST_STAMP)
            elif isinstance(change, Delete) and change.table.name == SESSIONS.name:
                self.stamps.pop(cast("Any", change.key), None)


def _only(step: Step) -> Operation[Any]:
    return (yield step)


class UnlockedSteps(Steps):
    """Takes steps on shared tables, each at a moment of its own."""

    def __init__(self, tables: SharedTables) -> None:
        super().__init__()
        self._tables = tables

    async def _take_step(self, db: Db, step: Step, run: Run) -> object:
        if isinstance(step, PauseStep):
            return None
        await self._get_there()
        if isinstance(step, WriteStep):
            return self._write_alone(db, step, run)
        found = self._tables.run(_only(step))
        for session in _sessions_in(step, found):
            run.note_read(session, self._tables.stamps[session.tenant, session.id])
        if isinstance(step, LookStep):
            names = [name for name, part in step.look.parts.items() if part.table is KEYS]
            for key in filter(None, (getattr(found, name) for name in names)):
                run.key = key.key
        return found

    async def _get_there(self) -> None:
        await asyncio.sleep(self._tables.rng.choice(self._tables.pace_s))

    def _write_alone(self, db: Db, step: WriteStep, run: Run) -> int:
        db.wrote = True
        asked_for(step, run.stamps)  # which fails for a session that was not read
        if not self._tables.is_as_read(step, run.stamps):
            raise StaleRead
        self._tables.write(step)
        now_ms = self._tables.now_ms()
        if run.written is not None:
            run.written(db, step, run, now_ms)
        return now_ms

    async def write_group(self, db: Db, group: Sequence[Proposed]) -> dict[int, int]:
        await self._get_there()
        db.wrote = True
        ready = {
            n: step
            for n, (_, step, known) in enumerate(group, 1)
            if self._tables.is_as_read(
                step, {(known.session.tenant, known.session.id): known.stamp}
            )
        }
        try:
            self._tables.write(*ready.values())
        except StaleRead:
            return {}
        return dict.fromkeys(ready, self._tables.now_ms())


def _sessions_in(step: Step, found: Any) -> Iterator[SessionRow | Tombstone]:
    """The sessions that a step has read with their stamps."""
    if isinstance(step, FindStep) and step.finder.table is SESSIONS:
        yield from found
    elif isinstance(step, LookStep):
        for name, part in step.look.parts.items():
            if isinstance(part, One) and part.table.name == SESSIONS.name:
                session = getattr(found, name)
                if session is not None:
                    yield session


class _NoPool:
    """There is always a connection, and none breaks: what can befall a call is the weather's business (`faults.py`)."""

    dropped = 0
    waiting = 0

    async def take(self, *, until: float) -> None: ...

    def give(self, link: None) -> None: ...

    def drop(self, link: None) -> None: ...

    async def close(self, *, timeout_s: float) -> None: ...


class UnlockedStore(PostgresStore):
    """One node's connection to the tables that all share."""

    def __init__(self, tables: SharedTables) -> None:
        engine = PostgresEngine(
            cast("Pool", _NoPool()),
            timeout_s=TIMEOUT_S,
            clock=tables.now_ms,
            jitter=tables.rng.random,
        )
        super().__init__(engine)
        self._tables = tables
        self.driver = PostgresDriver(engine, UnlockedSteps(tables))

    async def _read(self, start: Start[T], *, one_moment: bool = False) -> T:
        if one_moment:
            return await self._tables.home._read(start)
        return await super()._read(start)

    async def nodes(self) -> tuple[NodeRow, ...]:
        return await self._tables.home.nodes()

    def _hint(self, said: SignalResult) -> None:
        """A hint may be lost: nodes look by themselves."""

    def listen(self, node: NodeId, wake: Callable[[], None]) -> None: ...
