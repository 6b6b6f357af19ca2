"""Turns that a dead node has left open in a line, for requests that wait for no turn.

Such a turn is over, though its row does not say so yet. A request that took its line for a busy one would go on in a
fork, and the line would stay behind without the answer. So the turn is ended first, unless it is resumed: then it is
played, and the line is as busy as any other.
"""

from __future__ import annotations

import asyncio

from holdfast import limits
from holdfast.core.turns.journal import decode_records, fold
from holdfast.ids import Tenant
from holdfast.sessions.admission.wait_budget import WaitBudget
from holdfast.sessions.turns.owner import Owner
from holdfast.sessions.turns.recovery import Recovery
from holdfast.store.outcomes import Busy
from holdfast.store.store import Store


class OrphanedTurns:
    """Ends turns that dead nodes have left, for requests that meet them."""

    def __init__(self, store: Store, owner: Owner, recovery: Recovery) -> None:
        self._store = store
        self._owner = owner
        self._recovery = recovery

    async def wait_ended(self, tenant: Tenant, busy: Busy, patience: WaitBudget) -> bool:
        """Whether a dead node has left this turn, and the turn has ended now, here or on another node."""
        if not busy.holder_alive:
            await self._recovery.recover(tenant, busy.session_id, busy.turn_id)
        while await self._is_to_end(tenant, busy):
            session = await self._store.session(tenant, busy.session_id)
            if session is None or session.open_turn != busy.turn_id:
                return True
            if not patience.left_s:
                return False
            live = self._owner.live.get(busy.turn_id)
            if live is not None and not live.done.done():
                await asyncio.wait({live.done}, timeout=patience.left_s)
            else:
                await self._owner.lease.wait_for_others(min(limits.busy_poll_s, patience.left_s))
        return False

    async def _is_to_end(self, tenant: Tenant, busy: Busy) -> bool:
        """Whether a turn was taken over from a dead node, or is being taken over here, and will not be played on."""
        row = await self._store.turn(tenant, busy.turn_id)
        if row is None or row.state != "open":
            return True
        if row.attempt == 1 and (busy.holder_alive or busy.turn_id not in self._owner.claimed):
            return False
        rows = await self._store.journal(tenant, busy.turn_id)
        turn = fold(record for each in rows for record in decode_records(each.records)).turn
        return turn is None or turn.request.policy.crash != "resume"
