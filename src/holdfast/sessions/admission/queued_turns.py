"""Turns that wait in the store for their session: opened when it is free, by any node that has room.

The store says which one is next, and lets nobody overtake. What such a turn begins from is decided when it is opened
(`core/history/rebase.py`), by the node that opens it; from then on it is a turn like any other. One that was cancelled, or
has run out of time, or that the session has left behind, ends where it waits: it has done nothing, so there is
nothing to keep, whatever its policy says.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from functools import partial

from holdfast import limits
from holdfast.core.history.rebase import StaleRequest, rebased
from holdfast.core.ports import Play
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record, decode_records, encode_records, numbered
from holdfast.core.turns.turn import begin
from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.observe.events import event
from holdfast.observe.tally import Tally
from holdfast.sessions.admission.keyed_retries import retried
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.turns.owner import Owner
from holdfast.sessions.turns.sweep_errors import SweepErrors
from holdfast.sessions.turns.turn_notes import note_withdrawal
from holdfast.store.outcomes import Moved, NotLive, QueuedOpening, Settlement, Started, WaitingTurn
from holdfast.store.rows import TurnRow
from holdfast.store.store import Store

NOT_OPENED = "turn.not_opened"
"""Told of a turn that could not be opened, and is left to the next sweep."""

OPENINGS_MAX = 3
"""How often a turn is tried to be opened before the next sweep: its session may be moving on all the time."""


class Queue:
    """The turns that wait for a session, as one node sees them."""

    def __init__(
        self, store: Store, owner: Owner, play: Play, ambient: Ambient, tally: Tally
    ) -> None:
        self._store = store
        self._owner = owner
        self._play = play
        self._ambient = ambient
        self._tally = tally
        self._deadlines: dict[TurnId, int] = {}
        """Until when those that wait may, as far as we have read their requests."""
        self._opening: dict[TurnId, asyncio.Lock] = {}

    @property
    def seen(self) -> int:
        """How many waited when we looked last."""
        return len(self._deadlines)

    async def counted(self) -> Counter[Tenant]:
        """How many wait, of each tenant."""
        return Counter(each.tenant for each in await self._look())

    async def _look(self) -> tuple[WaitingTurn, ...]:
        # Several nodes may each have let in the last one.
        return await self._store.queued(limit=2 * limits.background_queued_max)

    async def ready(self) -> tuple[WaitingTurn, ...]:
        """The queued turns whose session is free, in the order in which they came. Ends turns that have run out of time.

        A turn whose session a request of this node wants is left out: the request gives way to it by itself
        (`open_earlier`), if the turn came first.
        """
        before = frozenset(self._owner.waited_for)
        waiting = await self._look()
        # Who has come to wait while we looked stays: not to miss the end of what they wait for.
        self._owner.waited_for -= before
        self._owner.waited_for.update((each.tenant, each.session_id) for each in waiting)
        late = await self._end_late(waiting, SweepErrors(NOT_OPENED))
        return tuple(
            each
            for each in waiting
            if each.ready
            and each.turn_id not in late
            and not self._owner.is_wanted(each.tenant, each.session_id)
        )

    async def open_earlier(self, tenant: Tenant, session_id: SessionId, *, than_ms: int) -> bool:
        """Open the turn that a session is free for, if turns wait that came before this time. Whether such turns wait.

        Room does not matter: a request waits for the session now, which came later. The first turn may end where it
        waits, and so may the turns behind it: each is tried as often as any other.
        """
        apart, tried = SweepErrors(NOT_OPENED), Counter[TurnId]()
        while True:
            waiting = [each for each in await self._look() if each.session_id == session_id]
            if not waiting:
                self._owner.waited_for.discard((tenant, session_id))
            if not any(each.turn_id.minted_at_ms <= than_ms for each in waiting):
                return False
            first = waiting[0]
            if not first.ready or tried[first.turn_id] == OPENINGS_MAX:
                return True
            tried[first.turn_id] += 1
            if await apart.see_to(first, partial(self.open, first)):
                return True

    async def withdraw(
        self, tenant: Tenant, turn_id: TurnId, cause: ev.Interrupted, *, settlement: Settlement
    ) -> TurnRow:
        """End a turn where it waits; the turn as it is then, also if it does not wait any more."""
        row = await self._store.withdraw(
            tenant,
            turn_id,
            ended_by=cause.by,
            detail=cause.told,
            records=last_words(cause, at_ms=self._ambient.now_ms()),
            settlement=settlement,
        )
        if row.state == "discarded":
            note_withdrawal(self._tally, row)
        return row

    # ── opening ──

    async def open(self, waiting: WaitingTurn) -> bool:
        """Open a turn on top of what its session is now. Whether it has become ours. A turn that is being opened here
        already is waited for."""
        opening = self._opening.setdefault(waiting.turn_id, asyncio.Lock())
        try:
            async with opening:
                return await self._open(waiting)
        finally:
            if not opening.locked():
                self._opening.pop(waiting.turn_id, None)

    async def _open(self, waiting: WaitingTurn) -> bool:
        if waiting.turn_id in self._owner.claimed:
            return False
        request = await self._request(waiting)
        if request is None:
            broken = ev.Interrupted(by="crash", detail="its journal cannot be read")
            return await self._fail(waiting, broken)
        for _ in range(OPENINGS_MAX):
            with self._owner.beginning(waiting.turn_id):
                outcome = await self._open_on_head(waiting, request)
            if isinstance(outcome, bool):
                return outcome
        return False

    async def _open_on_head(self, waiting: WaitingTurn, asked: ev.TurnRequest) -> bool | Moved:
        """Whether the turn is ours now; `Moved` if its session has come further while we looked."""
        head = await self._store.snapshot(waiting.tenant, waiting.session_id)
        if head is None:
            return False  # deleted, and the turn with it
        request = rebased(asked, head, self._ambient.mint)
        if isinstance(request, StaleRequest):
            cause = ev.Interrupted(by="superseded", detail=request.why, code=request.code)
            return await self._fail(waiting, cause)
        opening = QueuedOpening(
            tenant=waiting.tenant,
            session_id=waiting.session_id,
            node=self._owner.lease.node,
            nonce=self._ambient.nonce(),
            request=request,
        )
        outcome = await self._store.open_queued(opening)
        if isinstance(outcome, NotLive):
            await self._owner.lease.renew()
        if not isinstance(outcome, Started):
            return outcome if isinstance(outcome, Moved) else False
        began = ev.Began(request=request)
        fence = outcome.fence
        event("turn.opened", turn=fence.turn_id, session=fence.session_id, base=request.base)
        self._owner.take_on(
            fence,
            head,
            begin(began),
            retried(self._store, fence, outcome.retry_of, self._play),
            shown=(Record(n=0, at_ms=self._ambient.now_ms(), event=began),),
            background=True,
        )
        return True

    async def _request(self, waiting: WaitingTurn) -> ev.TurnRequest | None:
        rows = await self._store.journal(waiting.tenant, waiting.turn_id)
        for record in decode_records(rows[0].records) if rows else ():
            if isinstance(record, Record) and isinstance(record.event, ev.Began):
                return record.event.request
        return None

    # ── ends ──

    async def _end_late(self, waiting: Iterable[WaitingTurn], apart: SweepErrors) -> set[TurnId]:
        """End those that have run out of time, ready or not."""
        known, self._deadlines = self._deadlines, {}
        return {
            each.turn_id
            for each in waiting
            if await apart.see_to(each, partial(self._end_if_late, each, known.get(each.turn_id)))
        }

    async def _end_if_late(self, waiting: WaitingTurn, until_ms: int | None) -> bool:
        if until_ms is None:
            request = await self._request(waiting)
            until_ms = request.deadline_at_ms if request else 0
        self._deadlines[waiting.turn_id] = until_ms
        late = 0 < until_ms <= self._ambient.now_ms()
        if late:
            await self._fail(waiting, ev.Interrupted(by="deadline"))
        return late

    async def _fail(self, waiting: WaitingTurn, cause: ev.Interrupted) -> bool:
        """It may be tried again under its key. False: it was not opened."""
        await self.withdraw(waiting.tenant, waiting.turn_id, cause, settlement="failed")
        return False


def last_words(cause: ev.Interrupted, *, at_ms: int) -> bytes:
    """The records after the request of a turn that ends where it waits."""
    ended = ev.Ended(by=cause.by, kept=False)
    return encode_records(numbered((cause, ended), first=1, at_ms=at_ms))
