"""Everything that a store holds, as one value that can be compared, read through the protocol alone.

Two stores are the same if nobody can tell them apart by asking. So this asks everything: what a store may keep
apart from it (when a row was written to which page) does not matter, and what it does not show is not a fact.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from holdfast.core.codec import Value
from holdfast.core.history.conversation import Snapshot
from holdfast.ids import IdempotencyKey, NodeId, SessionId, Tenant, TurnId, Version
from holdfast.store.outcomes import Orphan, SessionDump, SessionFilter, SessionInfo
from holdfast.store.rows import (
    IdempotencyRow,
    JournalRow,
    KeyRow,
    MemoryRow,
    SessionRow,
    SignalRow,
    TurnRow,
)
from holdfast.store.store import Store

_PAGE = 100
_NOBODY = NodeId("node_" + "0" * 26)


class SessionState(Value):
    """All that can be read of one session."""

    session: SessionRow
    info: SessionInfo | None
    keys: tuple[KeyRow | None, ...]
    snapshots: tuple[Snapshot | None, ...]
    """At every version, oldest first."""
    dump: SessionDump | None
    turns: tuple[TurnRow, ...]
    journals: tuple[tuple[JournalRow, ...], ...]


class StoreState(Value):
    """All that can be read of a store."""

    sessions: tuple[SessionState, ...]
    listed: tuple[tuple[SessionId, ...], ...]
    memories: tuple[MemoryRow, ...]
    claims: tuple[IdempotencyRow | None, ...]
    signals: tuple[SignalRow, ...]
    orphans: tuple[Orphan, ...]


async def contents(
    store: Store,
    *,
    agents: Sequence[str] = ("butler",),
    claims: Sequence[str] = (),
    nodes: Sequence[NodeId] = (),
) -> StoreState:
    """The whole store. What cannot be listed is asked for by name: agents, idempotency keys, nodes."""
    tenants = await store.tenants()
    sessions = [
        await session_state(store, tenant, session_id)
        for tenant in tenants
        async for session_id in _session_ids(store, tenant)
    ]
    listed = [
        tuple([each async for each in _listed(store, tenant, where)])
        for tenant in tenants
        for where in (SessionFilter(), SessionFilter(anonymous=True))
    ]
    memories = [
        row for tenant in tenants for agent in agents for row in await store.memories(tenant, agent)
    ]
    keys = [(tenant, IdempotencyKey(name)) for tenant in tenants for name in claims]
    return StoreState(
        sessions=tuple(sessions),
        listed=tuple(listed),
        memories=tuple(memories),
        claims=tuple([await store.idempotency(tenant, key) for tenant, key in keys]),
        signals=tuple([row for node in nodes for row in await store.signals(node)]),
        orphans=await store.orphans(node=_NOBODY, limit=_PAGE),
    )


async def session_state(store: Store, tenant: Tenant, session_id: SessionId) -> SessionState:
    """One session, with everything that hangs on it."""
    session = await store.session(tenant, session_id)
    assert session is not None
    info = await store.info(tenant, session_id)
    turns = tuple([turn async for turn in _turns(store, tenant, session_id)])
    versions = [Version(number) for number in range(session.head + 1)]
    return SessionState(
        session=session,
        info=info,
        keys=tuple([await store.resolve(tenant, key) for key in info.keys] if info else ()),
        snapshots=tuple(
            [await store.snapshot(tenant, session_id, version=each) for each in versions]
        ),
        dump=await store.dump(tenant, session_id),
        turns=turns,
        journals=tuple([await store.journal(tenant, turn.turn_id) for turn in turns]),
    )


async def _session_ids(store: Store, tenant: Tenant) -> AsyncIterator[SessionId]:
    after: SessionId | None = None
    while found := await store.session_ids(tenant, after=after, limit=_PAGE):
        for session_id in found:
            yield session_id
        after = found[-1]


async def _listed(store: Store, tenant: Tenant, where: SessionFilter) -> AsyncIterator[SessionId]:
    cursor: str | None = None
    while True:
        page = await store.sessions(tenant, where=where, cursor=cursor, limit=_PAGE)
        for info in page.sessions:
            yield info.session.id
        if page.cursor is None:
            return
        cursor = page.cursor


async def _turns(store: Store, tenant: Tenant, session_id: SessionId) -> AsyncIterator[TurnRow]:
    before: TurnId | None = None
    while found := await store.turns(tenant, session_id, before=before, limit=_PAGE):
        for turn in found:
            yield turn
        before = found[-1].turn_id
