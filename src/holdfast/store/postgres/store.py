"""The PostgreSQL home: the `Store` protocol over one database that any number of processes share.

Everything here is wiring. What a method does is work on the database in `turns.py`, `operations.py`, `reading.py`
or `upkeep.py`; what it decides is in `store/decisions.py`; when work is run again is the engine's business.
The clock is the database's, read together with what is decided on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from holdfast import limits
from holdfast.core.conversation import Commit, Patch, Snapshot
from holdfast.core.items import EndedBy
from holdfast.errors import StoreUnusable
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
from holdfast.observe.supervisor import TaskSupervisor
from holdfast.store import base
from holdfast.store.granting import ANY_GRANT, GrantFilter
from holdfast.store.migrations import Migrated, missing
from holdfast.store.postgres import (
    begin,
    inspection,
    operations,
    queue,
    reading,
    search,
    tables,
    turns,
    upkeep,
)
from holdfast.store.postgres.acknowledging import Acknowledging
from holdfast.store.postgres.address import Address
from holdfast.store.postgres.appends import Append, gathered_appends
from holdfast.store.postgres.begin import gathered_begins
from holdfast.store.postgres.commit import Asked, gathered_commits
from holdfast.store.postgres.commit import commit as commit_alone
from holdfast.store.postgres.commit import propose as propose_commit
from holdfast.store.postgres.engine import Clock, Engine, database_clock
from holdfast.store.postgres.hints import Hints
from holdfast.store.postgres.migrate import load_migrations, migrate, step_of
from holdfast.store.postgres.recall import Recall
from holdfast.store.postgres.visits import Visits
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
from holdfast.store.verify import Report

MIGRATION_S = 600.0
"""How long bringing the tables up to date may take, and waiting for somebody else who does."""


class PostgresStore:
    """Conversations in one PostgreSQL database."""

    def __init__(
        self,
        engine: Engine,
        *,
        migrated: Migrated | None = None,
        listen: str | None = None,
        supervisor: TaskSupervisor | None = None,
    ) -> None:
        self.engine = engine
        self.migrated = migrated
        """What opening did to the tables."""
        self.recall = Recall(era=lambda: engine.pool.dropped)
        self.appends = gathered_appends(engine, self.recall)
        self.begins = gathered_begins(engine, self.recall)
        self.commits = gathered_commits(engine, self.recall)
        self._acknowledging = Acknowledging()
        self._visits = Visits(engine)
        self._hints = Hints(engine, listen=listen, supervisor=supervisor)

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        clock: Clock = database_clock,
        supervisor: TaskSupervisor | None = None,
    ) -> PostgresStore:
        """Open a store, make its tables if there are none, and bring them up to date.

        Raises StoreUnusable, with the way out, if the database cannot be one, and StoreUnavailable if it does
        not answer.
        """
        engine = Engine.at(address, clock=clock)
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
    async def open_existing(cls, address: Address) -> PostgresStore:
        """Open a store that is there, and up to date; nothing is made or migrated. Raises StoreUnusable."""
        engine = Engine.at(address)
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

    # nodes

    async def renew(self, node: NodeId, *, ttl_ms: int) -> NodeRow:
        (row,) = await self._visits.engine().run(
            lambda db: db.write("renew_node", node_id=node, ttl_ms=ttl_ms)
        )
        return tables.nodes.made(row)

    async def resign(self, node: NodeId) -> None:
        await self.engine.run(lambda db: db.write("drop_node", node_id=node))

    # turns

    async def find_attempt(
        self, tenant: Tenant, attempt: base.Attempt, target: base.Target | None = None
    ) -> base.Known | None:
        if attempt.client_attempt:
            await self._acknowledging.wait_arrived()
        return await self.engine.run(lambda db: begin.find_attempt(db, tenant, attempt, target))

    async def begin(self, ask: base.Begin) -> base.BeginOutcome:
        if ask.attempt.client_attempt:
            await self._acknowledging.wait_arrived()
        proposed = begin.propose(ask, self.engine, self.recall)
        if proposed is not None:
            return await self.begins.ask(proposed)
        return await self.engine.run(lambda db: begin.begin(db, ask, self.recall))

    async def append(
        self, fence: base.Fence, *, n: int, records: bytes, consumed: Sequence[int] = ()
    ) -> None:
        if records and not consumed:
            await self.appends.ask(Append(fence=fence, n=n, records=records))
            return
        await self.engine.run(
            lambda db: turns.append(db, fence, self.recall, n=n, records=records, consumed=consumed)
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
        asked = Asked(fence=fence, made=commit, n=n, records=records, settlement=settlement)
        known = self.recall.take(fence.tenant, fence.session_id)
        proposed = propose_commit(asked, known)
        if proposed is not None:
            return await self.commits.ask(proposed)
        key = known.key if known else None
        return await self.engine.run(lambda db: commit_alone(db, asked, self.recall, key=key))

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
        return await self.engine.run(
            lambda db: turns.end(
                db,
                fence,
                ended_by=ended_by,
                detail=detail,
                n=n,
                records=records,
                settlement=settlement,
            )
        )

    async def release(self, fence: base.Fence) -> None:
        await self.engine.run(lambda db: turns.release(db, fence))

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
        return await self.engine.run(
            lambda db: turns.takeover(
                db,
                tenant,
                session_id,
                node=node,
                nonce=nonce,
                turn_id=turn_id,
                ignored_cancel=ignored_cancel,
            )
        )

    async def orphans(self, *, node: NodeId, limit: int) -> tuple[base.Orphan, ...]:
        return await self.engine.run(lambda db: turns.orphans(db, node=node, limit=limit))

    # turns that wait for their session

    async def enqueue(self, ask: base.Begin, *, behind: bool = False) -> base.EnqueueOutcome:
        if ask.attempt.client_attempt:
            await self._acknowledging.wait_arrived()
        return await self.engine.run(lambda db: queue.enqueue(db, ask, behind=behind))

    async def queued(self, *, limit: int) -> tuple[base.Waiting, ...]:
        return await self.engine.run(lambda db: queue.queued(db, limit=limit))

    async def open_queued(self, ask: base.Opening) -> base.OpenOutcome:
        return await self.engine.run(lambda db: queue.open_queued(db, ask))

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
        return await self.engine.run(
            lambda db: queue.withdraw(
                db,
                tenant,
                turn_id,
                ended_by=ended_by,
                detail=detail,
                records=records,
                settlement=settlement,
            )
        )

    async def acknowledge(self, tenant: Tenant, turn_id: TurnId) -> None:
        with self._acknowledging.one():
            await self.engine.run(
                lambda db: db.write("acknowledge_turn", tenant=tenant, turn_id=turn_id)
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
        # A message that is steered in twice would be heard twice, unless its key tells; who is told twice to stop
        # stops once.
        is_keyed = attempt is not None and attempt.key is not None
        said = await self.engine.run(
            lambda db: turns.signal(
                db, tenant, turn_id, kind=kind, payload=payload, attempt=attempt, after=after
            ),
            once=kind == "steer" and not is_keyed,
        )
        if said.holder is not None:
            self._hints.tell(said.holder)
        return said.outcome

    def listen(self, node: NodeId, wake: Callable[[], None]) -> None:
        self._hints.listen(node, wake)

    async def signals(self, node: NodeId) -> tuple[SignalRow, ...]:
        return await self.engine.run(lambda db: db.all(tables.signals, "node_signals", node=node))

    async def find_signal(self, tenant: Tenant, turn_id: TurnId, n: int) -> SignalRow | None:
        return await self.engine.run(
            lambda db: db.one(tables.signals, "signal", tenant=tenant, turn_id=turn_id, n=n)
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
        return await self.engine.run(
            lambda db: operations.annotate(
                db, tenant, session_id, patches, summary_rev=summary_rev
            ),
            once=True,
        )

    async def bind(
        self, tenant: Tenant, key: SessionKey, *, fresh: SessionId, version: Version | None = None
    ) -> SessionRow:
        return await self.engine.run(
            lambda db: operations.bind(db, tenant, key, fresh=fresh, version=version)
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
        return await self.engine.run(
            lambda db: operations.fork(
                db, tenant, session_id, version=version, fresh=fresh, anonymous=anonymous
            )
        )

    async def remove(self, tenant: Tenant, session_id: SessionId) -> SessionRow:
        return await self.engine.run(lambda db: operations.remove(db, tenant, session_id))

    async def restore(self, tenant: Tenant, dump: base.SessionDump) -> base.RestoreOutcome:
        return await self.engine.run(lambda db: operations.restore(db, tenant, dump))

    async def put_blob(self, tenant: Tenant, session_id: SessionId, data: bytes) -> str:
        return await self.engine.run(lambda db: operations.put_blob(db, tenant, session_id, data))

    # reading

    async def resolve(self, tenant: Tenant, key: SessionKey) -> KeyRow | None:
        return await self.engine.run(lambda db: db.one(tables.keys, "key", tenant=tenant, key=key))

    async def session(self, tenant: Tenant, session_id: SessionId) -> SessionRow | None:
        return await self.engine.run(lambda db: turns.find_session(db, tenant, session_id))

    async def info(self, tenant: Tenant, session_id: SessionId) -> base.SessionInfo | None:
        return await self.engine.run(lambda db: reading.info(db, tenant, session_id))

    async def snapshot(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        version: Version | None = None,
        known: Snapshot | None = None,
    ) -> Snapshot | None:
        return await self.engine.run(
            lambda db: reading.snapshot(db, tenant, session_id, version=version, known=known)
        )

    async def turn(self, tenant: Tenant, turn_id: TurnId) -> TurnRow | None:
        return await self.engine.run(lambda db: turns.find_turn(db, tenant, turn_id))

    async def turn_unfinished(self, tenant: Tenant, request_hash: bytes) -> TurnRow | None:
        return await self.engine.run(lambda db: turns.turn_unfinished(db, tenant, request_hash))

    async def turns(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        before: TurnId | None = None,
        limit: int = 100,
    ) -> tuple[TurnRow, ...]:
        return await self.engine.run(
            lambda db: reading.own_turns(db, tenant, session_id, before=before, limit=limit)
        )

    async def journal(
        self, tenant: Tenant, turn_id: TurnId, *, since: int = 0
    ) -> tuple[JournalRow, ...]:
        return await self.engine.run(
            lambda db: db.all(
                tables.journal, "journal", tenant=tenant, turn_id=turn_id, since=since
            )
        )

    async def idempotency(self, tenant: Tenant, key: IdempotencyKey) -> IdempotencyRow | None:
        return await self.engine.run(
            lambda db: db.one(tables.claims, "idempotency", tenant=tenant, key=key)
        )

    async def memories(self, tenant: Tenant, agent: str) -> tuple[MemoryRow, ...]:
        return await self.engine.run(
            lambda db: db.all(tables.memories, "memories", tenant=tenant, agent=tables.utf8(agent))
        )

    async def blob(self, tenant: Tenant, session_id: SessionId, digest: str) -> bytes | None:
        return await self.engine.run(lambda db: reading.blob(db, tenant, session_id, digest))

    async def sessions(
        self,
        tenant: Tenant,
        *,
        where: base.SessionFilter = base.EVERYTHING,
        cursor: str | None = None,
        limit: int = limits.page_size_default,
    ) -> base.Page:
        return await self.engine.run(
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
        return await self.engine.run(
            lambda db: search.search(db, tenant, query, where=where, cursor=cursor, limit=limit)
        )

    async def dump(self, tenant: Tenant, session_id: SessionId) -> base.SessionDump | None:
        return await self.engine.run(lambda db: reading.dump(db, tenant, session_id))

    async def tenants(self) -> tuple[Tenant, ...]:
        return await self.engine.run(reading.tenants)

    async def session_ids(
        self, tenant: Tenant, *, after: SessionId | None, limit: int
    ) -> tuple[SessionId, ...]:
        return await self.engine.run(
            lambda db: reading.session_ids(db, tenant, after=after, limit=limit)
        )

    async def forks(
        self, tenant: Tenant, session_id: SessionId, *, limit: int
    ) -> tuple[SessionId, ...]:
        return await self.engine.run(lambda db: reading.forks(db, tenant, session_id, limit=limit))

    async def nodes(self) -> tuple[NodeRow, ...]:
        return await self.engine.run(lambda db: db.all(tables.nodes, "nodes"))

    async def all_memories(
        self, tenant: Tenant, *, after: MemoryRow | None, limit: int
    ) -> tuple[MemoryRow, ...]:
        return await self.engine.run(
            lambda db: reading.all_memories(db, tenant, after=after, limit=limit)
        )

    async def restore_memories(self, tenant: Tenant, rows: Sequence[MemoryRow]) -> int:
        return await self.engine.run(lambda db: operations.restore_memories(db, tenant, rows))

    async def stats(self) -> base.StoreStats:
        return await self.engine.run(reading.stats)

    # API keys

    async def put_api_key(self, row: ApiKeyRow) -> bool:
        bound = tables.api_keys.bound(row)
        return bool(await self.engine.run(lambda db: db.write("put_api_key", **bound)))

    async def api_key(self, key_id: KeyId) -> ApiKeyRow | None:
        return await self.engine.run(lambda db: db.one(tables.api_keys, "api_key", key_id=key_id))

    async def api_keys(
        self, tenant: Tenant | None = None, *, after: KeyId | None = None, limit: int
    ) -> tuple[ApiKeyRow, ...]:
        return await self.engine.run(
            lambda db: db.all(
                tables.api_keys, "api_keys", tenant=tenant, after=after or "", limit=limit
            )
        )

    async def revoke_api_key(self, key_id: KeyId) -> ApiKeyRow | None:
        rows = await self.engine.run(lambda db: db.write("revoke_api_key", key_id=key_id))
        return tables.api_keys.made(rows[0]) if rows else None

    # keys that seal

    async def put_seal_key(self, row: SealKeyRow) -> None:
        bound = tables.seal_keys.bound(row)
        await self.engine.run(lambda db: db.write("put_seal_key", **bound))

    async def seal_keys(self) -> tuple[SealKeyRow, ...]:
        return await self.engine.run(lambda db: db.all(tables.seal_keys, "seal_keys"))

    async def remove_seal_key(self, key_id: KeyId) -> None:
        await self.engine.run(lambda db: db.write("remove_seal_key", key_id=key_id))

    # remembered approvals

    async def put_grant(self, row: GrantRow) -> bool:
        bound = tables.grants.bound(row)
        return bool(await self.engine.run(lambda db: db.write("put_grant", **bound)))

    async def grants(
        self,
        tenant: Tenant,
        where: GrantFilter = ANY_GRANT,
        *,
        after: GrantId | None = None,
        limit: int,
    ) -> tuple[GrantRow, ...]:
        return await self.engine.run(
            lambda db: db.all(
                tables.grants,
                "grants",
                tenant=tenant,
                source_key=None if where.source_key is None else tables.utf8(where.source_key),
                agent=None if where.agent is None else tables.utf8(where.agent),
                live=where.live,
                after=after or "",
                limit=limit,
            )
        )

    async def revoke_grant(self, tenant: Tenant, grant_id: GrantId) -> GrantRow | None:
        rows = await self.engine.run(
            lambda db: db.write("revoke_grant", tenant=tenant, grant_id=grant_id)
        )
        return tables.grants.made(rows[0]) if rows else None

    # upkeep

    def inspect(self) -> AsyncIterator[Report]:
        """What `verify` can check about the tables themselves; see `inspection.py`."""
        return inspection.inspect(self.engine)

    async def index(self, *, bytes_max: int = limits.index_step_bytes_max) -> base.Indexed:
        return await self.engine.run(lambda db: search.index(db, bytes_max=bytes_max))

    async def prune(
        self, *, limit: int = limits.prune_batch_max, trust_clock: bool = False
    ) -> base.Pruned:
        return await self.engine.run(
            lambda db: upkeep.prune(db, limit=limit, trust_clock=trust_clock)
        )

    @property
    def queue_length(self) -> int:
        return self.engine.pool.waiting

    async def close(self) -> None:
        for gathering in (self.begins, self.appends, self.commits):
            await gathering.close()
        await self._hints.close()
        await self.engine.close()
