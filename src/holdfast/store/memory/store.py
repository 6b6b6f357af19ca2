"""The memory home: the `Store` protocol over dictionaries.

Every method is atomic because none of them waits in the middle, and none writes before it has decided.
Nothing outlives the object. It is the stand-in that fast tests and simulations use in place of a database; the
contract suite and the model test are why that is allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from holdfast import limits
from holdfast.core.conversation import Commit, Patch, Snapshot
from holdfast.core.items import EndedBy
from holdfast.errors import StoreClosed
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
from holdfast.store.granting import ANY_GRANT, GrantFilter
from holdfast.store.memory import operations, queue, reading, search, turns, upkeep
from holdfast.store.memory.tables import Tables
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


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryStore:
    """Conversations in this process, for as long as it lives."""

    def __init__(self, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._now_ms = now_ms
        self._tables: Tables | None = Tables(now_ms=now_ms())

    @property
    def tables(self) -> Tables:
        """The rows themselves. Tests that need damage reach for them; nobody else should."""
        if self._tables is None:
            raise StoreClosed("this store was closed; open another one")
        return self._tables

    # nodes

    async def renew(self, node: NodeId, *, ttl_ms: int) -> NodeRow:
        return turns.renew(self.tables, node, ttl_ms=ttl_ms, now_ms=self._now_ms())

    async def resign(self, node: NodeId) -> None:
        self.tables.nodes.pop(node, None)

    # turns

    async def find_attempt(
        self, tenant: Tenant, attempt: base.Attempt, target: base.Target | None = None
    ) -> base.Known | None:
        return turns.find_attempt(self.tables, tenant, attempt, target, now_ms=self._now_ms())

    async def begin(self, ask: base.Begin) -> base.BeginOutcome:
        return turns.begin(self.tables, ask, now_ms=self._now_ms())

    async def append(
        self, fence: base.Fence, *, n: int, records: bytes, consumed: Sequence[int] = ()
    ) -> None:
        turns.append(self.tables, fence, n=n, records=records, consumed=consumed)

    async def commit(
        self,
        fence: base.Fence,
        commit: Commit,
        *,
        n: int,
        records: bytes,
        settlement: base.Settlement = "done",
    ) -> base.CommitOutcome:
        return turns.commit(
            self.tables,
            fence,
            commit,
            n=n,
            records=records,
            settlement=settlement,
            now_ms=self._now_ms(),
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
        return turns.end(
            self.tables,
            fence,
            ended_by=ended_by,
            detail=detail,
            n=n,
            records=records,
            settlement=settlement,
            now_ms=self._now_ms(),
        )

    async def release(self, fence: base.Fence) -> None:
        turns.release(self.tables, fence)

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
        return turns.takeover(
            self.tables,
            tenant,
            session_id,
            node=node,
            nonce=nonce,
            turn_id=turn_id,
            ignored_cancel=ignored_cancel,
            now_ms=self._now_ms(),
        )

    async def orphans(self, *, node: NodeId, limit: int) -> tuple[base.Orphan, ...]:
        return turns.orphans(self.tables, node=node, limit=limit, now_ms=self._now_ms())

    # turns that wait for their session

    async def enqueue(self, ask: base.Begin, *, behind: bool = False) -> base.EnqueueOutcome:
        return queue.enqueue(self.tables, ask, behind=behind, now_ms=self._now_ms())

    async def queued(self, *, limit: int) -> tuple[base.Waiting, ...]:
        return queue.queued(self.tables, limit=limit)

    async def open_queued(self, ask: base.Opening) -> base.OpenOutcome:
        return queue.open_queued(self.tables, ask, now_ms=self._now_ms())

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
        return queue.withdraw(
            self.tables,
            tenant,
            turn_id,
            ended_by=ended_by,
            detail=detail,
            records=records,
            settlement=settlement,
            now_ms=self._now_ms(),
        )

    async def acknowledge(self, tenant: Tenant, turn_id: TurnId) -> None:
        turns.acknowledge(self.tables, tenant, turn_id)

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
        return turns.signal(
            self.tables,
            tenant,
            turn_id,
            kind=kind,
            payload=payload,
            attempt=attempt,
            after=after,
            now_ms=self._now_ms(),
        )

    async def signals(self, node: NodeId) -> tuple[SignalRow, ...]:
        return turns.signals(self.tables, node)

    async def find_signal(self, tenant: Tenant, turn_id: TurnId, n: int) -> SignalRow | None:
        waiting = self.tables.signals.get((tenant, turn_id), ())
        return next((row for row in waiting if row.n == n), None)

    # operations on sessions

    async def annotate(
        self,
        tenant: Tenant,
        session_id: SessionId,
        patches: Sequence[tuple[ItemId | None, Patch]],
        *,
        summary_rev: int | None = None,
    ) -> base.AnnotateOutcome:
        return operations.annotate(
            self.tables,
            tenant,
            session_id,
            patches,
            summary_rev=summary_rev,
            now_ms=self._now_ms(),
        )

    async def bind(
        self, tenant: Tenant, key: SessionKey, *, fresh: SessionId, version: Version | None = None
    ) -> SessionRow:
        return operations.bind(
            self.tables, tenant, key, fresh=fresh, version=version, now_ms=self._now_ms()
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
        return operations.fork(
            self.tables,
            tenant,
            session_id,
            version=version,
            fresh=fresh,
            now_ms=self._now_ms(),
            anonymous=anonymous,
        )

    async def remove(self, tenant: Tenant, session_id: SessionId) -> SessionRow:
        return operations.remove(self.tables, tenant, session_id, now_ms=self._now_ms())

    async def restore(self, tenant: Tenant, dump: base.SessionDump) -> base.RestoreOutcome:
        return operations.restore(self.tables, tenant, dump)

    async def put_blob(self, tenant: Tenant, session_id: SessionId, data: bytes) -> str:
        return operations.put_blob(self.tables, tenant, session_id, data)

    # reading

    async def resolve(self, tenant: Tenant, key: SessionKey) -> KeyRow | None:
        return self.tables.keys.get((tenant, key))

    async def session(self, tenant: Tenant, session_id: SessionId) -> SessionRow | None:
        return self.tables.sessions.get((tenant, session_id))

    async def info(self, tenant: Tenant, session_id: SessionId) -> base.SessionInfo | None:
        session = self.tables.sessions.get((tenant, session_id))
        return reading.info(self.tables, session) if session else None

    async def snapshot(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        version: Version | None = None,
        known: Snapshot | None = None,
    ) -> Snapshot | None:
        return reading.snapshot(self.tables, tenant, session_id, version=version, known=known)

    async def turn(self, tenant: Tenant, turn_id: TurnId) -> TurnRow | None:
        return self.tables.find_turn(tenant, turn_id)

    async def turn_unfinished(self, tenant: Tenant, request_hash: bytes) -> TurnRow | None:
        return turns.turn_unfinished(self.tables, tenant, request_hash)

    async def turns(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        before: TurnId | None = None,
        limit: int = 100,
    ) -> tuple[TurnRow, ...]:
        return reading.own_turns(self.tables, tenant, session_id, before=before, limit=limit)

    async def journal(
        self, tenant: Tenant, turn_id: TurnId, *, since: int = 0
    ) -> tuple[JournalRow, ...]:
        return reading.journal(self.tables, tenant, turn_id, since=since)

    async def idempotency(self, tenant: Tenant, key: IdempotencyKey) -> IdempotencyRow | None:
        return self.tables.claims.get((tenant, key))

    async def memories(self, tenant: Tenant, agent: str) -> tuple[MemoryRow, ...]:
        found = self.tables.memories.get((tenant, agent), {}).values()
        return tuple(sorted(found, key=lambda row: (row.at_ms, row.memory_id)))

    async def blob(self, tenant: Tenant, session_id: SessionId, digest: str) -> bytes | None:
        return reading.blob(self.tables, tenant, session_id, digest)

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

    async def dump(self, tenant: Tenant, session_id: SessionId) -> base.SessionDump | None:
        return reading.dump(self.tables, tenant, session_id)

    async def tenants(self) -> tuple[Tenant, ...]:
        rows = (self.tables.sessions, self.tables.memories, self.tables.grants)
        return tuple(sorted({tenant for each in rows for tenant, _ in each}))

    async def session_ids(
        self, tenant: Tenant, *, after: SessionId | None, limit: int
    ) -> tuple[SessionId, ...]:
        return reading.session_ids(self.tables, tenant, after=after, limit=limit)

    async def forks(
        self, tenant: Tenant, session_id: SessionId, *, limit: int
    ) -> tuple[SessionId, ...]:
        return reading.forks(self.tables, tenant, session_id, limit=limit)

    async def nodes(self) -> tuple[NodeRow, ...]:
        return tuple(row for _, row in sorted(self.tables.nodes.items()))

    async def all_memories(
        self, tenant: Tenant, *, after: MemoryRow | None, limit: int
    ) -> tuple[MemoryRow, ...]:
        return reading.all_memories(self.tables, tenant, after=after, limit=limit)

    async def restore_memories(self, tenant: Tenant, rows: Sequence[MemoryRow]) -> int:
        return operations.restore_memories(self.tables, tenant, rows)

    async def stats(self) -> base.StoreStats:
        return reading.stats(self.tables)

    # API keys

    async def put_api_key(self, row: ApiKeyRow) -> bool:
        fresh = row.key_id not in self.tables.api_keys
        self.tables.api_keys.setdefault(row.key_id, row)
        return fresh

    async def api_key(self, key_id: KeyId) -> ApiKeyRow | None:
        return self.tables.api_keys.get(key_id)

    async def api_keys(
        self, tenant: Tenant | None = None, *, after: KeyId | None = None, limit: int
    ) -> tuple[ApiKeyRow, ...]:
        return reading.api_keys(self.tables, tenant, after=after, limit=limit)

    async def revoke_api_key(self, key_id: KeyId) -> ApiKeyRow | None:
        return operations.revoke_api_key(self.tables, key_id, now_ms=self._now_ms())

    # keys that seal

    async def put_seal_key(self, row: SealKeyRow) -> None:
        self.tables.seal_keys.setdefault(row.key_id, row)

    async def seal_keys(self) -> tuple[SealKeyRow, ...]:
        return tuple(row for _, row in sorted(self.tables.seal_keys.items()))

    async def remove_seal_key(self, key_id: KeyId) -> None:
        self.tables.seal_keys.pop(key_id, None)

    # remembered approvals

    async def put_grant(self, row: GrantRow) -> bool:
        name = (row.tenant, row.grant_id)
        fresh = name not in self.tables.grants
        self.tables.grants.setdefault(name, row)
        return fresh

    async def grants(
        self,
        tenant: Tenant,
        where: GrantFilter = ANY_GRANT,
        *,
        after: GrantId | None = None,
        limit: int,
    ) -> tuple[GrantRow, ...]:
        return reading.grants(self.tables, tenant, where, after=after, limit=limit)

    async def revoke_grant(self, tenant: Tenant, grant_id: GrantId) -> GrantRow | None:
        return operations.revoke_grant(self.tables, tenant, grant_id, now_ms=self._now_ms())

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
