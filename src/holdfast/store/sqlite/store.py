"""The SQLite home: a store in one file.

It only connects operations, which do the work, to the engine, which makes it durable. The clock is read when the work
runs, not when the caller asked for it: a job may have waited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import ClassVar, Self, TypeVar
from weakref import WeakKeyDictionary

from apsw import Connection

from holdfast.errors import StoreDamaged, StoreError
from holdfast.ids import NodeId, Tenant, TurnId
from holdfast.store import outcomes
from holdfast.store.operations import turns
from holdfast.store.rows import NodeRow
from holdfast.store.sql.migrations import Migrated, missing
from holdfast.store.sqlite import inspection
from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.sqlite.migration import load_migrations, migrate, step_of
from holdfast.store.sqlite.pages.index_repair import IndexRepair
from holdfast.store.sqlite.pages.survey import UNREADABLE, survey
from holdfast.store.steps import Start
from holdfast.store.store import Store, by_write
from holdfast.store.verification.findings import USELESS_TO_GO_ON, Finding, Report

T = TypeVar("T")


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class SqliteStore(Store):
    """Conversations in one SQLite file, for any number of processes of one machine."""

    repairs: ClassVar[bool] = False
    """Whether leaves of indexes are written anew where they are damaged: a command that only looks writes nothing."""

    def __init__(
        self,
        engine: SqliteEngine,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        migrated: Migrated | None = None,
    ) -> None:
        self.engine = engine
        self.migrated = migrated
        """The migration that opening made."""
        self._now_ms = now_ms
        self._repair = IndexRepair(engine.path)
        self._repairing = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]()
        """Many requests may wait for a repair, and the threads that all share are few: one request of a loop waits in a
        thread. A server has a loop of its own for the renewals of its lease."""

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        engine: Callable[[str | Path], SqliteEngine] = SqliteEngine.open,
    ) -> Self:
        """Open a store; make it if there is none, and migrate its tables.

        Raises StoreUnusable, with the way out, if the file cannot be a store.
        """
        opened = engine(path)
        try:
            migrations = load_migrations()
            step = await opened.read(step_of)
            if missing(step, migrations):
                migrated = await opened.write(partial(migrate, migrations=migrations))
            else:
                migrated = Migrated(before=step, after=step)
        except BaseException:
            await opened.close()
            raise
        return cls(opened, now_ms=now_ms, migrated=migrated)

    # They return the engine's coroutine: to await it here would cost as much as a step of an operation.

    def _write(self, start: Start[T], *, once: bool = False) -> Coroutine[None, None, T]:
        return self.engine.write(self._work(start))

    def _read(self, start: Start[T], *, one_moment: bool = False) -> Coroutine[None, None, T]:
        return self.engine.read(self._work(start))

    async def _meet(self, damage: StoreDamaged, *, writing: bool = False) -> bool:
        """Repair damaged indexes, if this process may. If there is nothing to repair, make the store read-only if pages
        that all writes need are damaged, or if that cannot be found out."""
        await super()._meet(damage)
        if not damage.in_pages or self.read_only is not None:
            return False
        if await self._repair_indexes():
            return True
        if self._is_to_survey(writing=writing):
            try:
                self._protect(await self.engine.read(partial(survey, writing=writing)))
            except StoreDamaged as unread:  # not even a connection can be opened
                self._protect(f"{UNREADABLE} ({unread.why})")
            except StoreError:
                pass  # the next damage that is met is worth another look
        return False

    async def _repair_indexes(self) -> bool:
        if not self.repairs or self.read_only is not None:
            return False
        async with self._repairing.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            return await asyncio.to_thread(self._repair.run)

    def _met_beside(self, db: Connection, damage: StoreDamaged) -> None:
        """The same for a page that a read has done without, in that reader's thread. It repairs nothing: a write does
        that cannot do without."""
        self.damages.note(damage)
        if self._is_to_survey(writing=False):
            self._protect(survey(db))

    def _is_to_survey(self, *, writing: bool) -> bool:
        protection = self.engine.protection
        return protection.reason is None and protection.is_to_survey(writing=writing)

    def _protect(self, shared: str | None) -> None:
        if shared is not None:
            self.engine.protection.protect(shared)

    @property
    def read_only(self) -> str | None:
        return self.engine.protection.reason

    @property
    def unreadable(self) -> bool:
        return (self.read_only or "").startswith(UNREADABLE)

    async def declare_sound(self) -> None:
        self.engine.protection.lift()

    def _work(self, start: Start[T]) -> Callable[[Connection], T]:
        return lambda db: DRIVER.run(
            db, start(), now_ms=self._now_ms(), is_held=self._is_held, met=self._met_beside
        )

    def _is_held(self, slot: int) -> bool:
        return self.engine.liveness.is_held(slot)

    # nodes and turns

    async def renew(self, node: NodeId, *, ttl_ms: int) -> NodeRow:
        row = await super().renew(node, ttl_ms=ttl_ms)
        self.engine.liveness.hold_nowait(row.slot)
        return row

    async def resign(self, node: NodeId) -> None:
        row = await self._resigned(node)
        if row is not None:
            self.engine.liveness.release(row.slot)

    async def find_attempt(
        self, tenant: Tenant, attempt: outcomes.Attempt, target: outcomes.Target | None = None
    ) -> outcomes.Known | None:
        # An acknowledgement is written along with later writes. A plain read could come before it.
        find = self._find_attempt if attempt.client_attempt else super().find_attempt
        return await find(tenant, attempt, target)

    _find_attempt = by_write(turns.find_attempt)

    async def acknowledge(self, tenant: Tenant, turn_id: TurnId) -> None:
        await self.engine.write_along(self._work(partial(turns.acknowledge, tenant, turn_id)))

    # upkeep

    async def inspect(self) -> AsyncIterator[Report]:
        broken = False
        async for report in inspection.inspect(self.engine):
            yield report
            broken |= isinstance(report, Finding) and report.violation.code in USELESS_TO_GO_ON
        if not broken:
            async for report in super().inspect():
                yield report

    @property
    def queue_length(self) -> int:
        return self.engine.queue_length

    async def close(self) -> None:
        await self.engine.close()
