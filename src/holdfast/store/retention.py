"""What may go, and when. Pure; `prune` asks here and removes in small steps.

- A discarded turn stays readable for a week; then its row, journal and signals go.
- A committed turn's journal and signals, and idempotency rows, go a day after their end.
- An anonymous line goes a month after its last turn, as if somebody had removed it.
- Everything of a deleted session but its tombstone goes, once no live session reads it as its past; a turn that
  an idempotency key leads to stays as long as the key, so that a retry is told `Gone` and does not begin anew.
- The row of a dead node goes after a day, if it holds nothing; blobs of a session that never came to be, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import limits
from holdfast.ids import SessionId
from holdfast.store.rows import IdempotencyRow, NodeRow, SessionRow, TurnRow


def before_ms(now_ms: int, keep_s: float) -> int:
    """What ended at this time or earlier has been kept for long enough."""
    return now_ms - int(keep_s * 1000)


def discarded_may_go(turn: TurnRow, *, now_ms: int) -> bool:
    return turn.state == "discarded" and turn.ended_ms <= before_ms(now_ms, limits.discarded_keep_s)


def journal_may_go(turn: TurnRow, *, now_ms: int) -> bool:
    ended = turn.state == "committed"
    return ended and turn.ended_ms <= before_ms(now_ms, limits.idempotency_keep_s)


def claim_may_go(row: IdempotencyRow, *, now_ms: int) -> bool:
    return row.state != "running" and row.expires_ms <= now_ms


def line_may_go(session: SessionRow, *, now_ms: int) -> bool:
    idle = session.active_ms <= before_ms(now_ms, limits.anonymous_keep_s)
    return session.anonymous and session.state == "live" and session.open_turn is None and idle


def node_may_go(node: NodeRow, *, now_ms: int) -> bool:
    """Whether a node's row says nothing any more, provided that it holds no open turn."""
    return node.expires_ms <= before_ms(now_ms, limits.dead_node_keep_s)


def stray_blobs_may_go(session_id: SessionId, *, now_ms: int) -> bool:
    """Whether blobs of a session that has no row were put there in vain: its turn never began."""
    return session_id.minted_at_ms <= before_ms(now_ms, limits.idempotency_keep_s)


def still_read(sessions: Iterable[SessionRow]) -> frozenset[SessionId]:
    """The sessions that some live one reads as its past."""
    live = (each for each in sessions if each.state == "live")
    return frozenset(segment.session_id for each in live for segment in each.lineage)
