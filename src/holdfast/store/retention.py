"""What may go, and when. Pure; `prune` asks here and removes in small steps.

Every age is judged by `horizon.py`, and never by the clock alone: one that leaps removes nothing at once.

- A discarded turn stays readable for a week; then its row, journal and signals go.
- A committed turn's journal and signals, and idempotency rows, go a day after their end.
- An anonymous line goes a month after its last turn, as if somebody had removed it.
- Everything of a deleted session but its tombstone goes, once no live session reads it as its past; a turn that
  an idempotency key leads to stays as long as the key, so that a retry is told `Gone` and does not begin anew.
- A blob that no item names goes a week after it was put, or was last put: its turn was discarded, or never began.
- The row of a dead node goes after a day, if it holds nothing; blobs of a session that never came to be, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import limits
from holdfast.ids import SessionId, mint
from holdfast.store.horizon import Horizon
from holdfast.store.rows import IdempotencyRow, NodeRow, SessionRow, TurnRow


def discarded_may_go(turn: TurnRow, horizon: Horizon) -> bool:
    return turn.state == "discarded" and turn.ended_ms <= horizon.before_ms(limits.discarded_keep_s)


def journal_may_go(turn: TurnRow, horizon: Horizon) -> bool:
    ended = turn.state == "committed"
    return ended and turn.ended_ms <= horizon.before_ms(limits.idempotency_keep_s)


def claims_expired_ms(horizon: Horizon) -> int:
    """Idempotency rows that expire at this time or earlier have been kept for long enough."""
    return horizon.before_ms(limits.idempotency_keep_s) + int(limits.idempotency_keep_s * 1000)


def claim_may_go(row: IdempotencyRow, horizon: Horizon) -> bool:
    return row.state != "running" and row.expires_ms <= claims_expired_ms(horizon)


def line_may_go(session: SessionRow, horizon: Horizon) -> bool:
    idle = session.active_ms <= horizon.before_ms(limits.anonymous_keep_s)
    return session.anonymous and session.state == "live" and session.open_turn is None and idle


def node_may_go(node: NodeRow, horizon: Horizon) -> bool:
    """Whether a node's row says nothing any more, provided that it holds no open turn."""
    return node.expires_ms <= horizon.before_ms(limits.dead_node_keep_s)


def stray_blobs_before(horizon: Horizon) -> SessionId:
    """Blobs of a session with a smaller id that has no row were put there in vain: its turn never began."""
    since_ms = max(0, horizon.before_ms(limits.idempotency_keep_s))
    return mint(SessionId, at_ms=since_ms + 1, entropy=0)


def still_read(sessions: Iterable[SessionRow]) -> frozenset[SessionId]:
    """The sessions that some live one reads as its past."""
    live = (each for each in sessions if each.state == "live")
    return frozenset(segment.session_id for each in live for segment in each.lineage)
