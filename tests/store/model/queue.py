"""What can happen to turns that wait for their session. See `model.py` for the rules."""

from __future__ import annotations

import msgspec

from holdfast.core.items import EndedBy
from holdfast.core.turns.events import Began, TurnRequest
from holdfast.core.turns.journal import encode_records, numbered
from holdfast.errors import SessionMissing
from holdfast.ids import Tenant, TurnId
from holdfast.store import outcomes
from holdfast.store.rows import TurnRow
from tests.store.model.things import Session, Turn
from tests.store.model.turns import Turns, join, replay


class Queue(Turns):
    """The part of the model that a turn meets which has to wait."""

    def enqueue(self, ask: outcomes.Begin, *, behind: bool = False) -> outcomes.EnqueueOutcome:
        again = self.of[ask.tenant].turns.get(ask.request.turn_id)
        if again is not None:
            if again.state == "queued":
                return _queued(again)
            return join(again) if again.state == "open" else replay(again)
        known = self.find_attempt(ask.tenant, ask.attempt, ask.target)
        if known is not None:
            return known
        session = self.meant(ask.tenant, ask.target)
        if session is None:
            absent = self.absent(ask)
            assert absent is None or isinstance(absent, outcomes.Gone | outcomes.Missing)
            return absent or outcomes.Free()
        if session.deleted:
            return outcomes.Gone(session_id=session.id, why="deleted")
        if session.id != ask.expected:
            return outcomes.Moved(session_id=session.id, head=session.head.version)
        if not (session.open or session.queue or behind):
            return outcomes.Free()
        failed = self.claim(ask.tenant, ask.attempt)
        turn = Turn(
            ask=ask,
            known=ask.attempt,
            session=session,
            created=False,
            retry_of=failed.turn.id if failed and failed.steer is None else None,
            began_ms=self._came_ms(session, ahead=ask.ahead),
            token=0,
            nonce="",
            node=None,
            state="queued",
            replayable=ask.request.replayable,
        )
        self.of[ask.tenant].turns[turn.id] = turn
        session.queue.insert(0 if ask.ahead else len(session.queue), turn)
        self._write_request(turn, ask.request, token=0)
        self.claim_key(turn)
        return _queued(turn)

    def _came_ms(self, session: Session, *, ahead: bool) -> int:
        came = [each.began_ms for each in session.queue]
        return min(came) - 1 if came and ahead else max([self.now_ms, *(ms + 1 for ms in came)])

    def _write_request(self, turn: Turn, request: TurnRequest, *, token: int) -> None:
        first = numbered((Began(request=request),), first=0, at_ms=self.now_ms)
        turn.wrote(0, encode_records(first), token=token)

    def queued(self, *, limit: int) -> tuple[outcomes.WaitingTurn, ...]:
        waiting = [
            turn
            for rows in self.of.values()
            for session in rows.sessions.values()
            for turn in session.queue
        ]
        waiting.sort(key=lambda turn: (turn.began_ms, turn.id))
        return tuple(
            outcomes.WaitingTurn(
                tenant=turn.session.tenant,
                session_id=turn.session.id,
                turn_id=turn.id,
                ready=turn.session.open is None and turn.session.queue[0] is turn,
            )
            for turn in waiting[:limit]
        )

    def open_queued(self, ask: outcomes.QueuedOpening) -> outcomes.OpenOutcome:
        rows, request = self.of[ask.tenant], ask.request
        session, turn = rows.sessions.get(ask.session_id), rows.turns.get(request.turn_id)
        if session is None or turn is None or turn.session is not session:
            return outcomes.NotNext()
        holder = session.open
        if holder is not None and not (holder is turn and turn.nonce == ask.nonce):
            alive = self.is_held(holder, asking=ask.node)
            return outcomes.Busy(session_id=session.id, turn_id=holder.id, holder_alive=alive)
        if holder is None:
            if session.queue[:1] != [turn]:
                return outcomes.NotNext()
            head = session.head
            if (head.version, head.notes.rev) != (request.base, request.base_rev):
                return outcomes.Moved(session_id=session.id, head=head.version)
            if not self.is_live(ask.node):
                return outcomes.NotLive()
            session.open = session.queue.pop(0)
            session.token += 1
            turn.ask = msgspec.structs.replace(turn.ask, request=request)
            turn.state, turn.began_ms = "open", self.now_ms
            turn.token, turn.nonce, turn.node = session.token, ask.nonce, ask.node
            turn.journal.clear()
            self._write_request(turn, request, token=turn.token)
        return outcomes.Started(fence=turn.fence, created=False, retry_of=turn.retry_of)

    def withdraw(
        self,
        tenant: Tenant,
        turn_id: TurnId,
        *,
        ended_by: EndedBy,
        detail: str,
        records: bytes,
        settlement: outcomes.Settlement,
    ) -> TurnRow:
        turn = self.of[tenant].turns.get(turn_id)
        if turn is None:
            raise SessionMissing("turn", turn_id)
        if turn.state == "queued":
            if records:
                turn.wrote(1, records, token=0)
            self.close(turn, "discarded", ended_by, detail, settlement)
        return turn.row


def _queued(turn: Turn) -> outcomes.Queued:
    return outcomes.Queued(turn_id=turn.id, session_id=turn.session.id)
