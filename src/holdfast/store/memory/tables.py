"""All rows of a memory store. Bytes are kept as bytes, like on a disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.ids import NodeId, SessionId, Tenant, TurnId
from holdfast.store import decisions
from holdfast.store.horizon import Horizon
from holdfast.store.memory.driver import Driver, Rows
from holdfast.store.rows import (
    AnnotationRow,
    BlobRow,
    IdempotencyRow,
    ItemRow,
    JournalRow,
    KeyRow,
    MemoryRow,
    NodeRow,
    SessionRow,
    SignalRow,
    StateRow,
    TurnRow,
)
from holdfast.store.tables import (
    ANNOTATIONS,
    BLOBS,
    CLAIMS,
    HORIZON,
    ITEMS,
    JOURNAL,
    KEYS,
    MEMORIES,
    NODES,
    SESSIONS,
    SIGNALS,
    STATE,
    TURNS,
)

OF_SESSION = ("tenant", "session_id")
OF_TURN = ("tenant", "turn_id")


class Tables(Driver):
    """Rows, and how plain reads find them."""

    def __init__(self, *, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self.nodes: Rows[NodeRow] = self.of(NODES)
        self.sessions: Rows[SessionRow] = self.of(SESSIONS)
        self.keys: Rows[KeyRow] = self.of(KEYS)
        self.turns: Rows[TurnRow] = self.of(TURNS)
        self.claims: Rows[IdempotencyRow] = self.of(CLAIMS)
        self.signals: Rows[SignalRow] = self.of(SIGNALS)
        self.journals: Rows[JournalRow] = self.of(JOURNAL)
        self.items: Rows[ItemRow] = self.of(ITEMS)
        self.state: Rows[StateRow] = self.of(STATE)
        self.annotations: Rows[AnnotationRow] = self.of(ANNOTATIONS)
        self.blobs: Rows[BlobRow] = self.of(BLOBS)
        self.memories: Rows[MemoryRow] = self.of(MEMORIES)
        self.of(HORIZON).put(Horizon(seen_ms=now_ms()))

    @property
    def horizon(self) -> Horizon:
        return self.of(HORIZON).by_key[()]

    def find_turn(self, tenant: Tenant, turn_id: TurnId | None) -> TurnRow | None:
        return self.turns.by_key.get((tenant, turn_id))

    def turns_of(self, tenant: Tenant, session_id: SessionId) -> list[TurnRow]:
        """A session's own turns, by id."""
        found = self.turns.where(OF_SESSION, (tenant, session_id))
        return sorted(found, key=lambda each: each.turn_id)

    def queued(self) -> list[TurnRow]:
        """The turns that wait for their sessions, in the order in which they came."""
        found = self.turns.where(("state",), ("queued",))
        return sorted(found, key=lambda each: (each.began_ms, each.turn_id))

    def keys_of(self, session: SessionRow) -> list[KeyRow]:
        """The keys that mean a session, sorted."""
        found = self.keys.where(OF_SESSION, (session.tenant, session.id))
        return sorted(found, key=lambda each: each.key)

    def claims_of(self, turn: TurnRow) -> list[IdempotencyRow]:
        """The idempotency rows that lead to a turn."""
        return list(self.claims.where(OF_TURN, (turn.tenant, turn.turn_id)))

    def journal_of(self, tenant: Tenant, turn_id: TurnId) -> list[JournalRow]:
        return list(self.journals.where(OF_TURN, (tenant, turn_id)))

    def signals_of(self, tenant: Tenant, turn_id: TurnId) -> list[SignalRow]:
        return list(self.signals.where(OF_TURN, (tenant, turn_id)))

    def rows_of(self, rows: Rows[Any], tenant: Tenant, session_id: SessionId) -> list[Any]:
        """A session's own rows, in the order in which they came."""
        return list(rows.where(OF_SESSION, (tenant, session_id)))

    def held(self) -> Iterator[tuple[SessionRow, TurnRow]]:
        """Open turns with their sessions, the oldest first."""
        busy = (each for each in self.sessions.by_key.values() if each.open_turn is not None)
        for session in sorted(busy, key=lambda each: (each.open_turn, each.tenant)):
            turn = self.find_turn(session.tenant, session.open_turn)
            assert turn is not None, "an open turn has its row"
            yield session, turn

    def holder_of(self, session: SessionRow, *, asking: NodeId, now_ms: int) -> decisions.Holder:
        row = self.nodes.by_key.get((session.lease_node,))
        return decisions.judge_holder(session.lease_node, row, asking=asking, now_ms=now_ms)
