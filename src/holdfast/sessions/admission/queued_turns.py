"""Turns that are queued in the store for their session: any node that has room opens them when the session is free.

The store decides which turn is next, and no request overtakes it. The node that opens a turn decides which version it
begins from (`core/history/rebase.py`); from then on it is a turn like any other. A queued turn that was cancelled, has
passed its deadline, or whose request has become stale, ends in the queue: it has done nothing, so nothing is kept,
even if its policy is `keep`.
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
"""The event for a turn that could not be opened, and is left to the next sweep."""

OPENINGS_MAX = 3
"""How often opening a turn is tried before the next sweep: its session may be moving on all the time."""


class Queue:
    """The turns that are queued for a session, as one node sees them."""

    def __init__(
        self, store: Store, owner: Owner, play: Play, ambient: Ambient, tally: Tally
    ) -> None:
        self._store = store
        self._owner = owner
        self._play = play
        self._ambient = ambient
        self._tally = tally
        self._deadlines: dict[TurnId, int] = {}
        """The deadlines of queued turns whose requests this node has read."""
        self._opening: dict[TurnId, asyncio.Lock] = {}

    @property
    def seen(self) -> int:
        """How many turns were queued when this node last looked."""
        return len(self._deadlines)

    async def counted(self) -> Counter[Tenant]:
        """How many turns of each tenant are queued."""
        return Counter(each.tenant for each in await self._look())

    async def _look(self) -> tuple[WaitingTurn, ...]:
        # Several nodes may each have queued the last turn that fits.
        return await self._store.queued(limit=2 * limits.background_queued_max)

    async def ready(self) -> tuple[WaitingTurn, ...]:
        """The queued turns whose session is free, the oldest first. Ends turns that have passed their deadline.

        A turn whose session a request of this node wants is left out: the request gives way to it by itself
        (`open_earlier`), if the turn came first.
        """
        before = frozenset(self._owner.waited_for)
        waiting = await self._look()
        # Sessions that were added during the read stay, so that the end of their open turn is not missed.
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
        """Open the session's first queued turn, if turns are queued since before `than_ms` and the session is free.
        Returns whether such turns are queued.

        Room does not matter here: a later request is waiting for the session. The first turn may end in the queue, and
        so may the turns behind it: each is tried at most `OPENINGS_MAX` times.
        """
        errors, tried = SweepErrors(NOT_OPENED), Counter[TurnId]()
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
            if await errors.attempt(first, partial(self.open, first)):
                return True

    async def withdraw(
        self, tenant: Tenant, turn_id: TurnId, cause: ev.Interrupted, *, settlement: Settlement
    ) -> TurnRow:
        """End a turn in the queue. Returns its row, also if it is not queued any more."""
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
        """Open a turn at its session's head. Returns whether this node plays it now. Waits for another task of this
        node that is opening the same turn."""
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
            with self._owner.beginning(waiting.tenant, waiting.turn_id):
                outcome = await self._open_on_head(waiting, request)
            if isinstance(outcome, bool):
                return outcome
        return False

    async def _open_on_head(self, waiting: WaitingTurn, asked: ev.TurnRequest) -> bool | Moved:
        """Whether this node plays the turn now; `Moved` if its session has moved on meanwhile."""
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

    async def _end_late(self, waiting: Iterable[WaitingTurn], errors: SweepErrors) -> set[TurnId]:
        """End the turns that have passed their deadline, ready or not. Returns their ids."""
        known, self._deadlines = self._deadlines, {}
        return {
            each.turn_id
            for each in waiting
            if await errors.attempt(each, partial(self._end_if_late, each, known.get(each.turn_id)))
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
        """End a turn in the queue so that its key may be used again. Returns False: the turn was not opened."""
        await self.withdraw(waiting.tenant, waiting.turn_id, cause, settlement="failed")
        return False


def last_words(cause: ev.Interrupted, *, at_ms: int) -> bytes:
    """The records after the request of a turn that ends in the queue."""
    ended = ev.Ended(by=cause.by, kept=False)
    return encode_records(numbered((cause, ended), first=1, at_ms=at_ms))
