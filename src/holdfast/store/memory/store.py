"""The memory home: the `Store` protocol over dictionaries. For tests, and for the simulation, whose main home it is.

Everything happens at one moment, since nothing in here waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast import limits
from holdfast.errors import StoreClosed
from holdfast.ids import NodeId, SessionId, Tenant, TurnId
from holdfast.store import base, decisions
from holdfast.store.home import Home
from holdfast.store.memory import reading, search, upkeep
from holdfast.store.memory.tables import Tables
from holdfast.store.rows import MemoryRow, SignalRow, TurnRow
from holdfast.store.steps import Start
from holdfast.store.tables import GRANTS, MEMORIES, SESSIONS, Table

T = TypeVar("T")


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryStore(Home):
    """Conversations in this process, for as long as it lives."""

    def __init__(self, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._now_ms = now_ms
        self._tables: Tables | None = Tables(now_ms=now_ms)

    @property
    def tables(self) -> Tables:
        """The rows themselves. Tests that need damage reach for them; nobody else should."""
        if self._tables is None:
            raise StoreClosed("this store was closed; open another one")
        return self._tables

    async def _write(self, start: Start[T]) -> T:
        return self.tables.run(start())

    async def _read(self, start: Start[T], *, one_moment: bool = False) -> T:
        return self.tables.run(start())

    # nodes and turns

    async def orphans(self, *, node: NodeId, limit: int) -> tuple[base.Orphan, ...]:
        now_ms = self._now_ms()
        found = (
            base.Orphan(
                tenant=session.tenant,
                session_id=session.id,
                turn_id=turn.turn_id,
                holder=session.lease_node,
            )
            for session, turn in self.tables.held()
            if self.tables.holder_of(session, asking=node, now_ms=now_ms) != "alive"
        )
        return tuple(found)[:limit]

    async def queued(self, *, limit: int) -> tuple[base.Waiting, ...]:
        sessions = self.tables.sessions.by_key
        found = (
            (
                turn.tenant,
                turn.session_id,
                turn.turn_id,
                sessions[turn.tenant, turn.session_id].open_turn is None,
            )
            for turn in self.tables.queued()[:limit]
        )
        return tuple(decisions.in_order(found))

    async def signals(self, node: NodeId) -> tuple[SignalRow, ...]:
        found = (
            each
            for session, turn in self.tables.held()
            if session.lease_node == node
            for each in self.tables.signals_of(session.tenant, turn.turn_id)
            if not each.consumed
        )
        return tuple(
            sorted(found, key=lambda each: (each.at_ms, each.tenant, each.turn_id, each.n))
        )

    # reading

    async def turns(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        before: TurnId | None = None,
        limit: int = 100,
    ) -> tuple[TurnRow, ...]:
        return reading.own_turns(self.tables, tenant, session_id, before=before, limit=limit)

    async def sessions(
        self,
        tenant: Tenant,
        *,
        where: base.SessionFilter = base.EVERYTHING,
        cursor: str | None = None,
        limit: int = limits.page_size_default,
    ) -> base.Page:
        return reading.page(self.tables, tenant, where=where, cursor=cursor, limit=limit)

    async def search(
        self,
        tenant: Tenant,
        query: base.Query,
        *,
        where: base.SessionFilter = base.EVERYTHING,
        cursor: str | None = None,
        limit: int = limits.page_size_default,
    ) -> base.Results:
        return await search.search(
            self.tables, tenant, query, where=where, cursor=cursor, limit=limit
        )

    async def tenants(self) -> tuple[Tenant, ...]:
        tables: tuple[Table[Any], ...] = (SESSIONS, MEMORIES, GRANTS)
        return tuple(sorted({key[0] for each in tables for key in self.tables.of(each).by_key}))

    async def all_memories(
        self, tenant: Tenant, *, after: MemoryRow | None, limit: int
    ) -> tuple[MemoryRow, ...]:
        return reading.all_memories(self.tables, tenant, after=after, limit=limit)

    async def stats(self) -> base.StoreStats:
        return reading.stats(self.tables)

    # upkeep

    async def index(self, *, bytes_max: int = limits.index_step_bytes_max) -> base.Indexed:
        return search.index(self.tables)

    async def prune(
        self, *, limit: int = limits.prune_batch_max, trust_clock: bool = False
    ) -> base.Pruned:
        return upkeep.prune(
            self.tables, limit=limit, now_ms=self._now_ms(), trust_clock=trust_clock
        )

    @property
    def queue_length(self) -> int:
        return 0

    async def close(self) -> None:
        self._tables = None
