"""The SQLite home: the `Store` protocol over one file.

Everything here is wiring. What a method does is a function of a connection in `begin.py`, `turns.py`, `leases.py`,
`operations.py`, `reading.py` or `upkeep.py`; what it decides is in `store/decisions.py`; how it becomes durable is the
engine's business. The clock is read when the work runs, not when it was asked for: a job may have waited.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from apsw import Connection

from holdfast import limits
from holdfast.core.conversation import Commit, Patch, Snapshot
from holdfast.core.items import EndedBy
from holdfast.ids import (
    GrantId,
    IdempotencyKey,
    ItemId,
    KeyId,
    NodeId,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
)
from holdfast.store import base
from holdfast.store.assemble import extended
from holdfast.store.effort import Effort
from holdfast.store.granting import ANY_GRANT, GrantFilter
from holdfast.store.migrations import Migrated
from holdfast.store.rows import (
    ApiKeyRow,
    GrantRow,
    IdempotencyRow,
    JournalRow,
    KeyRow,
    MemoryRow,
    NodeRow,
    SealKeyRow,
    SessionRow,
    SignalKind,
    SignalRow,
    TurnRow,
)
from holdfast.store.sqlite import (
    begin,
    inspection,
    leases,
    operations,
    queue,
    reading,
    search,
    signalling,
    tables,
    turns,
    upkeep,
)
from holdfast.store.sqlite.engine import Engine
from holdfast.store.sqlite.migrate import load_migrations, migrate
from holdfast.store.verify import Report


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class SqliteStore:
    """Conversations in one SQLite file, for any number of processes of one machine."""

    def __init__(
        self,
        engine: Engine,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        migrated: Migrated | None = None,
    ) -> None:
        self.engine = engine
        self.migrated = migrated
        """What opening did to the tables."""
        self._now_ms = now_ms

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        engine: Callable[[str | Path], Engine] = Engine.open,
    ) -> Self:
        """Open a store, make it if there is none, and bring its tables up to date.

        Raises StoreUnusable, with the way out, if the file cannot be one.
        """
        opened = engine(path)
        try:
            migrated = await opened.write(partial(migrate, migrations=load_migrations()))
        except BaseException:
            await opened.close()
            raise
        return cls(opened, now_ms=now_ms, migrated=migrated)

    # nodes

    async def renew(self, node: NodeId, *, ttl_ms: int) -> NodeRow:
        row = await self.engine.write(
            lambda db: leases.renew(db, node, ttl_ms=ttl_ms, now_ms=self._now_ms())
        )
        self.engine.liveness.hold_nowait(row.slot)
        return row

    async def resign(self, node: NodeId) -> None:
        row = await self.engine.write(lambda db: _resign(db, node))
        if row is not None:
            self.engine.liveness.release(row.slot)

    # turns

    async def find_attempt(
        self, tenant: Tenant, attempt: base.Attempt, target: base.Target | None = None
    ) -> base.Known | None:
        # Whether an answer has arrived is noted in passing. A read could come before that note.
        ask = self.engine.write if attempt.client_attempt else self.engine.read
        return await ask(
            lambda db: begin.find_attempt(db, tenant, attempt, target, now_ms=self._now_ms())
        )

    async def begin(self, ask: base.Begin) -> base.BeginOutcome:
        return await self.engine.write(
            lambda db: begin.begin(
                db, ask, is_held=self.engine.liveness.is_held, now_ms=self._now_ms()
            )
        )

    async def append(
        self, fence: base.Fence, *, n: int, records: bytes, consumed: Sequence[int] = ()
    ) -> None:
        await self.engine.write(
            lambda db: turns.append(db, fence, n=n, records=records, consumed=consumed)
        )

    async def commit(
        self,
        fence: base.Fence,
        commit: Commit,
        *,
        n: int,
        records: bytes,
        settlement: base.Settlement = "done",
    ) -> base.CommitOutcome:
        return await self.engine.write(
            lambda db: turns.commit(
                db,
                fence,
                commit,
                n=n,
                records=records,
                settlement=settlement,
                now_ms=self._now_ms(),
            )
        )

    async def end(
        self,
        fence: base.Fence,
        *,
        ended_by: EndedBy,
        detail: str,
        n: int,
        records: bytes,
        settlement: base.Settlement,
    ) -> TurnRow:
        return await self.engine.write(
            lambda db: turns.end(
                db,
                fence,
                ended_by=ended_by,
                detail=detail,
                n=n,
                records=records,
                settlement=settlement,
                now_ms=self._now_ms(),
            )
        )

    async def release(self, fence: base.Fence) -> None:
        await self.engine.write(lambda db: leases.release(db, fence))

    async def takeover(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        node: NodeId,
        nonce: str,
        turn_id: TurnId | None = None,
        ignored_cancel: bool = False,
    ) -> base.TakeoverOutcome:
        return await self.engine.write(
            lambda db: leases.takeover(
                db,
                tenant,
                session_id,
                node=node,
                nonce=nonce,
                turn_id=turn_id,
                ignored_cancel=ignored_cancel,
                is_held=self.engine.liveness.is_held,
                now_ms=self._now_ms(),
            )
        )

    async def orphans(self, *, node: NodeId, limit: int) -> tuple[base.Orphan, ...]:
        return await self.engine.read(
            lambda db: leases.orphans(
                db,
                node=node,
                limit=limit,
                is_held=self.engine.liveness.is_held,
                now_ms=self._now_ms(),
            )
        )

    # turns that wait for their session

    async def enqueue(self, ask: base.Begin, *, behind: bool = False) -> base.EnqueueOutcome:
        return await self.engine.write(
            lambda db: queue.enqueue(
                db, ask, behind=behind, is_held=self.engine.liveness.is_held, now_ms=self._now_ms()
            )
        )

    async def queued(self, *, limit: int) -> tuple[base.Waiting, ...]:
        return await self.engine.read(lambda db: queue.queued(db, limit=limit))

    async def open_queued(self, ask: base.Opening) -> base.OpenOutcome:
        return await self.engine.write(
            lambda db: queue.open_queued(
                db, ask, is_held=self.engine.liveness.is_held, now_ms=self._now_ms()
            )
        )

    async def withdraw(
        self,
        tenant: Tenant,
        turn_id: TurnId,
        *,
        ended_by: EndedBy,
        detail: str,
        records: bytes,
        settlement: base.Settlement,
    ) -> TurnRow:
        return await self.engine.write(
            lambda db: queue.withdraw(
                db,
                tenant,
                turn_id,
                ended_by=ended_by,
                detail=detail,
                records=records,
                settlement=settlement,
                now_ms=self._now_ms(),
            )
        )

    async def acknowledge(self, tenant: Tenant, turn_id: TurnId) -> None:
        await self.engine.write_along(
            lambda db: tables.run(db, "acknowledge_turn", tenant=tenant, turn_id=turn_id)
        )

    # signals

    async def signal(
        self,
        tenant: Tenant,
        turn_id: TurnId,
        *,
        kind: SignalKind,
        payload: bytes = b"",
        attempt: base.Attempt | None = None,
        after: int | None = None,
    ) -> base.SignalOutcome:
        said = await self.say(
            tenant, turn_id, kind=kind, payload=payload, attempt=attempt, after=after
        )
        return said.outcome

    async def say(
        self,
        tenant: Tenant,
        turn_id: TurnId,
        *,
        kind: SignalKind,
        payload: bytes,
        attempt: base.Attempt | None,
        after: int | None = None,
    ) -> signalling.Said:
        """`signal`, and who is to hear it."""
        return await self.engine.write(
            lambda db: signalling.signal(
                db,
                tenant,
                turn_id,
                kind=kind,
                payload=payload,
                attempt=attempt,
                after=after,
                now_ms=self._now_ms(),
            )
        )

    async def signals(self, node: NodeId) -> tuple[SignalRow, ...]:
        return await self.engine.read(
            lambda db: tables.signal_rows.all(db, "node_signals", node=node)
        )

    async def find_signal(self, tenant: Tenant, turn_id: TurnId, n: int) -> SignalRow | None:
        return await self.engine.read(
            lambda db: tables.signal_rows.one(db, "signal", tenant=tenant, turn_id=turn_id, n=n)
        )

    # operations on sessions

    async def annotate(
        self,
        tenant: Tenant,
        session_id: SessionId,
        patches: Sequence[tuple[ItemId | None, Patch]],
        *,
        summary_rev: int | None = None,
    ) -> base.AnnotateOutcome:
        return await self.engine.write(
            lambda db: operations.annotate(
                db, tenant, session_id, patches, summary_rev=summary_rev, now_ms=self._now_ms()
            )
        )

    async def bind(
        self, tenant: Tenant, key: SessionKey, *, fresh: SessionId, version: Version | None = None
    ) -> SessionRow:
        return await self.engine.write(
            lambda db: operations.bind(
                db, tenant, key, fresh=fresh, version=version, now_ms=self._now_ms()
            )
        )

    async def fork(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        version: Version,
        fresh: SessionId,
        anonymous: bool = False,
    ) -> SessionRow:
        return await self.engine.write(
            lambda db: operations.fork(
                db,
                tenant,
                session_id,
                version=version,
                fresh=fresh,
                now_ms=self._now_ms(),
                anonymous=anonymous,
            )
        )

    async def remove(self, tenant: Tenant, session_id: SessionId) -> SessionRow:
        return await self.engine.write(
            lambda db: operations.remove(db, tenant, session_id, now_ms=self._now_ms())
        )

    async def restore(self, tenant: Tenant, dump: base.SessionDump) -> base.RestoreOutcome:
        return await self.engine.write(lambda db: operations.restore(db, tenant, dump))

    async def put_blob(self, tenant: Tenant, session_id: SessionId, data: bytes) -> str:
        return await self.engine.write(lambda db: operations.put_blob(db, tenant, session_id, data))

    # reading

    async def resolve(self, tenant: Tenant, key: SessionKey) -> KeyRow | None:
        return await self.engine.read(
            lambda db: tables.key_rows.one(db, "key", tenant=tenant, key=key)
        )

    async def session(self, tenant: Tenant, session_id: SessionId) -> SessionRow | None:
        return await self.engine.read(lambda db: turns.find_session(db, tenant, session_id))

    async def info(self, tenant: Tenant, session_id: SessionId) -> base.SessionInfo | None:
        def work(db: Connection) -> base.SessionInfo | None:
            session = turns.find_session(db, tenant, session_id)
            return reading.info(db, session) if session else None

        return await self.engine.read(work)

    async def snapshot(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        version: Version | None = None,
        known: Snapshot | None = None,
    ) -> Snapshot | None:
        found = await self.engine.read(
            lambda db: reading.snapshot(db, tenant, session_id, version=version, known=known)
        )
        return None if found is None else extended(found)

    async def turn(self, tenant: Tenant, turn_id: TurnId) -> TurnRow | None:
        return await self.engine.read(lambda db: turns.find_turn(db, tenant, turn_id))

    async def turn_unfinished(self, tenant: Tenant, request_hash: bytes) -> TurnRow | None:
        return await self.engine.read(lambda db: turns.turn_unfinished(db, tenant, request_hash))

    async def turns(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        before: TurnId | None = None,
        limit: int = 100,
    ) -> tuple[TurnRow, ...]:
        return await self.engine.read(
            lambda db: reading.own_turns(db, tenant, session_id, before=before, limit=limit)
        )

    async def journal(
        self, tenant: Tenant, turn_id: TurnId, *, since: int = 0
    ) -> tuple[JournalRow, ...]:
        return await self.engine.read(lambda db: reading.journal(db, tenant, turn_id, since=since))

    async def idempotency(self, tenant: Tenant, key: IdempotencyKey) -> IdempotencyRow | None:
        return await self.engine.read(
            lambda db: tables.idempotency_rows.one(db, "idempotency", tenant=tenant, key=key)
        )

    async def memories(self, tenant: Tenant, agent: str) -> tuple[MemoryRow, ...]:
        return await self.engine.read(
            lambda db: tables.memory_rows.all(db, "memories", tenant=tenant, agent=agent)
        )

    async def blob(self, tenant: Tenant, session_id: SessionId, digest: str) -> bytes | None:
        return await self.engine.read(lambda db: reading.blob(db, tenant, session_id, digest))

    async def sessions(
        self,
        tenant: Tenant,
        *,
        where: base.SessionFilter = base.EVERYTHING,
        cursor: str | None = None,
        limit: int = limits.page_size_default,
    ) -> base.Page:
        return await self.engine.read(
            lambda db: reading.page(db, tenant, where=where, cursor=cursor, limit=limit)
        )

    async def search(
        self,
        tenant: Tenant,
        query: base.Query,
        *,
        where: base.SessionFilter = base.EVERYTHING,
        cursor: str | None = None,
        limit: int = limits.page_size_default,
    ) -> base.Results:
        effort = Effort()
        try:
            return await self.engine.read(
                lambda db: search.search(
                    db, tenant, query, where=where, cursor=cursor, limit=limit, effort=effort
                )
            )
        finally:
            effort.given_up = True

    async def dump(self, tenant: Tenant, session_id: SessionId) -> base.SessionDump | None:
        return await self.engine.read(lambda db: reading.dump(db, tenant, session_id))

    async def tenants(self) -> tuple[Tenant, ...]:
        return await self.engine.read(reading.tenants)

    async def session_ids(
        self, tenant: Tenant, *, after: SessionId | None, limit: int
    ) -> tuple[SessionId, ...]:
        return await self.engine.read(
            lambda db: reading.session_ids(db, tenant, after=after, limit=limit)
        )

    async def forks(
        self, tenant: Tenant, session_id: SessionId, *, limit: int
    ) -> tuple[SessionId, ...]:
        return await self.engine.read(lambda db: reading.forks(db, tenant, session_id, limit=limit))

    async def nodes(self) -> tuple[NodeRow, ...]:
        return await self.engine.read(lambda db: tables.node_rows.all(db, "nodes"))

    async def all_memories(
        self, tenant: Tenant, *, after: MemoryRow | None, limit: int
    ) -> tuple[MemoryRow, ...]:
        return await self.engine.read(
            lambda db: reading.all_memories(db, tenant, after=after, limit=limit)
        )

    async def restore_memories(self, tenant: Tenant, rows: Sequence[MemoryRow]) -> int:
        return await self.engine.write(lambda db: operations.restore_memories(db, tenant, rows))

    async def stats(self) -> base.StoreStats:
        size_bytes = self.engine.path.stat().st_size
        return await self.engine.read(lambda db: reading.stats(db, size_bytes=size_bytes))

    # API keys

    async def put_api_key(self, row: ApiKeyRow) -> bool:
        def work(db: Connection) -> bool:
            tables.api_key_rows.put(db, "put_api_key", row)
            return db.changes() > 0

        return await self.engine.write(work)

    async def api_key(self, key_id: KeyId) -> ApiKeyRow | None:
        return await self.engine.read(
            lambda db: tables.api_key_rows.one(db, "api_key", key_id=key_id)
        )

    async def api_keys(
        self, tenant: Tenant | None = None, *, after: KeyId | None = None, limit: int
    ) -> tuple[ApiKeyRow, ...]:
        return await self.engine.read(
            lambda db: tables.api_key_rows.all(
                db, "api_keys", tenant=tenant, after=after or "", limit=limit
            )
        )

    async def revoke_api_key(self, key_id: KeyId) -> ApiKeyRow | None:
        def work(db: Connection) -> ApiKeyRow | None:
            tables.run(db, "revoke_api_key", key_id=key_id, now_ms=self._now_ms())
            return tables.api_key_rows.one(db, "api_key", key_id=key_id)

        return await self.engine.write(work)

    # keys that seal

    async def put_seal_key(self, row: SealKeyRow) -> None:
        await self.engine.write(lambda db: tables.seal_key_rows.put(db, "put_seal_key", row))

    async def seal_keys(self) -> tuple[SealKeyRow, ...]:
        return await self.engine.read(lambda db: tables.seal_key_rows.all(db, "seal_keys"))

    async def remove_seal_key(self, key_id: KeyId) -> None:
        await self.engine.write(lambda db: tables.run(db, "remove_seal_key", key_id=key_id))

    # remembered approvals

    async def put_grant(self, row: GrantRow) -> bool:
        def work(db: Connection) -> bool:
            tables.grant_rows.put(db, "put_grant", row)
            return db.changes() > 0

        return await self.engine.write(work)

    async def grants(
        self,
        tenant: Tenant,
        where: GrantFilter = ANY_GRANT,
        *,
        after: GrantId | None = None,
        limit: int,
    ) -> tuple[GrantRow, ...]:
        return await self.engine.read(
            lambda db: tables.grant_rows.all(
                db,
                "grants",
                tenant=tenant,
                source_key=where.source_key,
                agent=where.agent,
                live=where.live,
                after=after or "",
                limit=limit,
            )
        )

    async def revoke_grant(self, tenant: Tenant, grant_id: GrantId) -> GrantRow | None:
        def work(db: Connection) -> GrantRow | None:
            tables.run(db, "revoke_grant", tenant=tenant, grant_id=grant_id, now_ms=self._now_ms())
            return tables.grant_rows.one(db, "grant", tenant=tenant, grant_id=grant_id)

        return await self.engine.write(work)

    # upkeep

    def inspect(self) -> AsyncIterator[Report]:
        """What `verify` can check about the file itself; see `inspection.py`."""
        return inspection.inspect(self.engine)

    async def index(self, *, bytes_max: int = limits.index_step_bytes_max) -> base.Indexed:
        # Words are made of texts while reading, so that the writer only writes them.
        plan = await self.engine.read(lambda db: search.plan_step(db, bytes_max=bytes_max))
        if plan.steps:
            await self.engine.write(lambda db: search.take_step(db, plan))
        return base.Indexed(sessions=len(plan.steps), more=plan.more)

    async def prune(
        self, *, limit: int = limits.prune_batch_max, trust_clock: bool = False
    ) -> base.Pruned:
        return await self.engine.write(
            lambda db: upkeep.prune(db, limit=limit, now_ms=self._now_ms(), trust_clock=trust_clock)
        )

    @property
    def queue_length(self) -> int:
        return self.engine.stats.queue_length

    async def close(self) -> None:
        await self.engine.close()


def _resign(db: Connection, node: NodeId) -> NodeRow | None:
    row = tables.node_rows.one(db, "node", node_id=node)
    tables.run(db, "drop_node", node_id=node)
    return row
