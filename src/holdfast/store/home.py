"""The part of every home that is one text: each method runs an operation on the home's driver."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

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
from holdfast.store.granting import ANY_GRANT, GrantFilter
from holdfast.store.operations import (
    access,
    arrivals,
    finders,
    nodes,
    queue,
    reading,
    sessions,
    signals,
    sweeps,
    turns,
)
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
from holdfast.store.steps import Start

T = TypeVar("T")


class Home:
    """A store whose operations are run by a driver."""

    async def _write(self, start: Start[T]) -> T:
        """Run an operation; durable when this returns."""
        raise NotImplementedError

    async def _read(self, start: Start[T], *, one_moment: bool = False) -> T:
        """Run an operation that writes nothing. `one_moment`: all its steps see what the first one saw."""
        raise NotImplementedError

    def _is_held(self, slot: int) -> bool:
        """Whether the process of a slot lives; see `sqlite/locks.py`."""
        return True

    # nodes

    async def renew(self, node: NodeId, *, ttl_ms: int) -> NodeRow:
        return await self._write(partial(nodes.renew, node, ttl_ms=ttl_ms))

    async def resign(self, node: NodeId) -> None:
        await self._write(partial(nodes.resign, node))

    async def nodes(self) -> tuple[NodeRow, ...]:
        return await self._read(nodes.nodes)

    # turns

    async def find_attempt(
        self, tenant: Tenant, attempt: base.Attempt, target: base.Target | None = None
    ) -> base.Known | None:
        return await self._read(partial(turns.find_attempt, tenant, attempt, target))

    async def begin(self, ask: base.Begin) -> base.BeginOutcome:
        return await self._write(partial(turns.begin, ask))

    async def append(
        self, fence: base.Fence, *, n: int, records: bytes, consumed: Sequence[int] = ()
    ) -> None:
        await self._write(partial(turns.append, fence, n=n, records=records, consumed=consumed))

    async def commit(
        self,
        fence: base.Fence,
        commit: Commit,
        *,
        n: int,
        records: bytes,
        settlement: base.Settlement = "done",
    ) -> base.CommitOutcome:
        return await self._write(
            partial(turns.commit, fence, commit, n=n, records=records, settlement=settlement)
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
        return await self._write(
            partial(
                turns.end,
                fence,
                ended_by=ended_by,
                detail=detail,
                n=n,
                records=records,
                settlement=settlement,
            )
        )

    async def release(self, fence: base.Fence) -> None:
        await self._write(partial(nodes.release, fence))

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
        return await self._write(
            partial(
                nodes.takeover,
                tenant,
                session_id,
                node=node,
                nonce=nonce,
                turn_id=turn_id,
                ignored_cancel=ignored_cancel,
            )
        )

    async def acknowledge(self, tenant: Tenant, turn_id: TurnId) -> None:
        await self._write(partial(turns.acknowledge, tenant, turn_id))

    async def turn(self, tenant: Tenant, turn_id: TurnId) -> TurnRow | None:
        return await self._read(partial(finders.turn_of, tenant, turn_id))

    async def turn_unfinished(self, tenant: Tenant, request_hash: bytes) -> TurnRow | None:
        return await self._read(partial(turns.turn_unfinished, tenant, request_hash))

    async def idempotency(self, tenant: Tenant, key: IdempotencyKey) -> IdempotencyRow | None:
        return await self._read(partial(finders.claim_under, tenant, key))

    async def orphans(self, *, node: NodeId, limit: int) -> tuple[base.Orphan, ...]:
        return await self._read(partial(sweeps.orphans, node, limit=limit, is_held=self._is_held))

    # turns that wait for their session

    async def queued(self, *, limit: int) -> tuple[base.Waiting, ...]:
        return await self._read(partial(sweeps.queued, limit=limit))

    async def enqueue(self, ask: base.Begin, *, behind: bool = False) -> base.EnqueueOutcome:
        return await self._write(partial(queue.enqueue, ask, behind=behind))

    async def open_queued(self, ask: base.Opening) -> base.OpenOutcome:
        return await self._write(partial(queue.open_queued, ask))

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
        return await self._write(
            partial(
                queue.withdraw,
                tenant,
                turn_id,
                ended_by=ended_by,
                detail=detail,
                records=records,
                settlement=settlement,
            )
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
        after: int | None,
    ) -> signals.Said:
        """`signal`, and which node is to hear it."""
        return await self._write(
            partial(
                signals.signal,
                tenant,
                turn_id,
                kind=kind,
                payload=payload,
                attempt=attempt,
                after=after,
            )
        )

    async def signals(self, node: NodeId) -> tuple[SignalRow, ...]:
        return await self._read(partial(sweeps.signals, node))

    async def find_signal(self, tenant: Tenant, turn_id: TurnId, n: int) -> SignalRow | None:
        return await self._read(partial(signals.find_signal, tenant, turn_id, n))

    # sessions

    async def resolve(self, tenant: Tenant, key: SessionKey) -> KeyRow | None:
        return await self._read(partial(finders.key_named, tenant, key))

    async def session(self, tenant: Tenant, session_id: SessionId) -> SessionRow | None:
        return await self._read(partial(finders.session_of, tenant, session_id))

    async def info(self, tenant: Tenant, session_id: SessionId) -> base.SessionInfo | None:
        return await self._read(partial(reading.info, tenant, session_id), one_moment=True)

    async def snapshot(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        version: Version | None = None,
        known: Snapshot | None = None,
    ) -> Snapshot | None:
        found = await self._read(
            partial(reading.snapshot, tenant, session_id, version=version, known=known)
        )
        return None if found is None else extended(found)

    async def journal(
        self, tenant: Tenant, turn_id: TurnId, *, since: int = 0
    ) -> tuple[JournalRow, ...]:
        return await self._read(partial(reading.journal, tenant, turn_id, since=since))

    async def dump(self, tenant: Tenant, session_id: SessionId) -> base.SessionDump | None:
        return await self._read(partial(reading.dump, tenant, session_id), one_moment=True)

    async def session_ids(
        self, tenant: Tenant, *, after: SessionId | None, limit: int
    ) -> tuple[SessionId, ...]:
        return await self._read(partial(reading.session_ids, tenant, after=after, limit=limit))

    async def forks(
        self, tenant: Tenant, session_id: SessionId, *, limit: int
    ) -> tuple[SessionId, ...]:
        return await self._read(partial(reading.forks, tenant, session_id, limit=limit))

    async def restore(self, tenant: Tenant, dump: base.SessionDump) -> base.RestoreOutcome:
        return await self._write(partial(arrivals.restore, tenant, dump))

    async def annotate(
        self,
        tenant: Tenant,
        session_id: SessionId,
        patches: Sequence[tuple[ItemId | None, Patch]],
        *,
        summary_rev: int | None = None,
    ) -> base.AnnotateOutcome:
        return await self._write(
            partial(sessions.annotate, tenant, session_id, patches, summary_rev=summary_rev)
        )

    async def bind(
        self, tenant: Tenant, key: SessionKey, *, fresh: SessionId, version: Version | None = None
    ) -> SessionRow:
        return await self._write(partial(sessions.bind, tenant, key, fresh=fresh, version=version))

    async def fork(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        version: Version,
        fresh: SessionId,
        anonymous: bool = False,
    ) -> SessionRow:
        return await self._write(
            partial(
                sessions.fork,
                tenant,
                session_id,
                version=version,
                fresh=fresh,
                anonymous=anonymous,
            )
        )

    async def remove(self, tenant: Tenant, session_id: SessionId) -> SessionRow:
        return await self._write(partial(sessions.remove, tenant, session_id))

    async def put_blob(self, tenant: Tenant, session_id: SessionId, data: bytes) -> str:
        return await self._write(partial(sessions.put_blob, tenant, session_id, data))

    async def blob(self, tenant: Tenant, session_id: SessionId, digest: str) -> bytes | None:
        return await self._read(partial(reading.blob, tenant, session_id, digest))

    # memories

    async def memories(self, tenant: Tenant, agent: str) -> tuple[MemoryRow, ...]:
        return await self._read(partial(reading.memories, tenant, agent))

    async def restore_memories(self, tenant: Tenant, rows: Sequence[MemoryRow]) -> int:
        return await self._write(partial(arrivals.restore_memories, tenant, rows))

    # keys and approvals

    async def put_api_key(self, row: ApiKeyRow) -> bool:
        return await self._write(partial(access.put_api_key, row))

    async def api_key(self, key_id: KeyId) -> ApiKeyRow | None:
        return await self._read(partial(access.api_key, key_id))

    async def api_keys(
        self, tenant: Tenant | None = None, *, after: KeyId | None = None, limit: int
    ) -> tuple[ApiKeyRow, ...]:
        return await self._read(partial(access.api_keys, tenant, after=after, limit=limit))

    async def revoke_api_key(self, key_id: KeyId) -> ApiKeyRow | None:
        return await self._write(partial(access.revoke_api_key, key_id))

    async def put_seal_key(self, row: SealKeyRow) -> None:
        await self._write(partial(access.put_seal_key, row))

    async def seal_keys(self) -> tuple[SealKeyRow, ...]:
        return await self._read(access.seal_keys)

    async def remove_seal_key(self, key_id: KeyId) -> None:
        await self._write(partial(access.remove_seal_key, key_id))

    async def put_grant(self, row: GrantRow) -> bool:
        return await self._write(partial(access.put_grant, row))

    async def grants(
        self,
        tenant: Tenant,
        where: GrantFilter = ANY_GRANT,
        *,
        after: GrantId | None = None,
        limit: int,
    ) -> tuple[GrantRow, ...]:
        return await self._read(partial(access.grants, tenant, where, after=after, limit=limit))

    async def revoke_grant(self, tenant: Tenant, grant_id: GrantId) -> GrantRow | None:
        return await self._write(partial(access.revoke_grant, tenant, grant_id))
