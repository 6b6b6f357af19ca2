"""All rows of a memory store, by what identifies them. Bytes are kept as bytes, like on a disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

from holdfast.ids import (
    GrantId,
    IdempotencyKey,
    KeyId,
    NodeId,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
)
from holdfast.store import decisions
from holdfast.store.horizon import Horizon
from holdfast.store.rows import (
    AnnotationRow,
    ApiKeyRow,
    GrantRow,
    IdempotencyRow,
    ItemRow,
    JournalRow,
    KeyRow,
    MemoryRow,
    NodeRow,
    SealKeyRow,
    SessionRow,
    SignalRow,
    StateRow,
    TurnRow,
)

OfSession: TypeAlias = tuple[Tenant, SessionId]
OfTurn: TypeAlias = tuple[Tenant, TurnId]


class Tables:
    """Rows, and how to find them. Knows no rule: those are in `decisions.py` and `shaping.py`."""

    def __init__(self, *, now_ms: int) -> None:
        self.horizon = Horizon(seen_ms=now_ms)
        self.nodes: dict[NodeId, NodeRow] = {}
        self.sessions: dict[OfSession, SessionRow] = {}
        self.keys: dict[tuple[Tenant, SessionKey], KeyRow] = {}
        self.turns: dict[OfTurn, TurnRow] = {}
        self._queued: dict[OfTurn, TurnRow] = {}
        """Those of them that wait for their sessions."""
        self.versions: dict[OfSession, dict[Version, TurnId]] = defaultdict(dict)
        """Which of a session's own turns made which version."""
        self.journals: dict[OfTurn, list[JournalRow]] = defaultdict(list)
        self.signals: dict[OfTurn, list[SignalRow]] = defaultdict(list)
        self.items: dict[OfSession, list[ItemRow]] = defaultdict(list)
        """A session's own: the first one's position is the length of its past."""
        self.state: dict[OfSession, list[StateRow]] = defaultdict(list)
        self.annotations: dict[OfSession, list[AnnotationRow]] = defaultdict(list)
        self.blobs: dict[OfSession, dict[str, bytes]] = defaultdict(dict)
        self.blobs_noticed: dict[tuple[Tenant, SessionId, str], int] = {}
        """Since when retention knows of a blob; 0 if an item names it."""
        self.memories: dict[tuple[Tenant, str], dict[str, MemoryRow]] = defaultdict(dict)
        self.claims: dict[tuple[Tenant, IdempotencyKey], IdempotencyRow] = {}

        self.api_keys: dict[KeyId, ApiKeyRow] = {}
        self.seal_keys: dict[KeyId, SealKeyRow] = {}
        self.grants: dict[tuple[Tenant, GrantId], GrantRow] = {}

    def put_session(self, row: SessionRow) -> None:
        self.sessions[row.tenant, row.id] = row

    def put_turn(self, row: TurnRow) -> None:
        self.turns[row.tenant, row.turn_id] = row
        if row.state == "queued":
            self._queued[row.tenant, row.turn_id] = row
        else:
            self._queued.pop((row.tenant, row.turn_id), None)
        if row.seq is not None:
            self.versions[row.tenant, row.session_id][row.seq] = row.turn_id

    def find_turn(self, tenant: Tenant, turn_id: TurnId | None) -> TurnRow | None:
        return None if turn_id is None else self.turns.get((tenant, turn_id))

    def turn_at(self, tenant: Tenant, session_id: SessionId, version: Version) -> TurnRow | None:
        """The turn that made a version of this very session."""
        made = self.versions.get((tenant, session_id), {})
        return self.find_turn(tenant, made.get(version))

    def turns_of(self, tenant: Tenant, session_id: SessionId) -> list[TurnRow]:
        """A session's own turns, by id."""
        found = (each for each in self.turns.values() if each.tenant == tenant)
        return sorted(
            (each for each in found if each.session_id == session_id),
            key=lambda each: each.turn_id,
        )

    def queued(self) -> list[TurnRow]:
        """The turns that wait for their sessions, in the order in which they came."""
        return sorted(self._queued.values(), key=lambda each: (each.began_ms, each.turn_id))

    def queued_of(self, tenant: Tenant, session_id: SessionId) -> tuple[TurnRow, ...]:
        if not self._queued:
            return ()
        mine = (each for each in self.queued() if each.tenant == tenant)
        return tuple(each for each in mine if each.session_id == session_id)

    def keys_of(self, session: SessionRow) -> list[KeyRow]:
        """The keys that mean a session, sorted."""
        found = (each for each in self.keys.values() if each.session_id == session.id)
        return sorted(
            (each for each in found if each.tenant == session.tenant), key=lambda each: each.key
        )

    def claims_of(self, turn: TurnRow) -> list[IdempotencyRow]:
        """The idempotency rows that lead to a turn."""
        found = (each for each in self.claims.values() if each.tenant == turn.tenant)
        return [each for each in found if each.turn_id == turn.turn_id]

    def held(self) -> Iterator[tuple[SessionRow, TurnRow]]:
        """Open turns with their sessions, the oldest first."""
        busy = (each for each in self.sessions.values() if each.open_turn is not None)
        for session in sorted(busy, key=lambda each: (each.open_turn, each.tenant)):
            turn = self.find_turn(session.tenant, session.open_turn)
            assert turn is not None, "an open turn has its row"
            yield session, turn

    def holder_of(self, session: SessionRow, *, asking: NodeId, now_ms: int) -> decisions.Holder:
        node = session.lease_node
        row = None if node is None else self.nodes.get(node)
        return decisions.judge_holder(node, row, asking=asking, now_ms=now_ms)
