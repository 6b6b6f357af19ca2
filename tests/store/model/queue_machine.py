"""Random operations, with turns that wait for their session among them. See `machine.py`."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.core.turns.events import Ended
from holdfast.core.turns.journal import encode_records, numbered
from holdfast.ids import Version
from holdfast.store.outcomes import ById, QueuedOpening, Started
from tests.store.model import checks
from tests.store.model.machine import (
    RECENT,
    Data,
    StoreMachine,
    a_tenant,
    data,
    pick,
    rarely,
)
from tests.store.model.things import Turn


class QueueMachine(StoreMachine):
    """What may happen to a store."""

    def waiting(self) -> list[Turn]:
        """The turns that wait; those that are next come first."""
        queues = [each.queue for each in self.sessions()]
        return [turn for queue in queues for turn in queue[:1]] + [
            turn for queue in queues for turn in queue[1:]
        ]

    def waited_for(self) -> list[Turn]:
        """Turns that somebody takes for waiting: they do, or have lately."""
        return [*self.waiting(), *self.turns()[-RECENT:]]

    @rule(data=data, behind=st.booleans(), ahead=st.booleans())
    def enqueue(self, data: Data, behind: bool, ahead: bool) -> None:
        tenant = a_tenant(data)
        busy = [each for each in self.sessions() if each.open is not None or each.queue]
        target = self.a_target(data, tenant)
        if busy and not rarely(data):
            session = pick(data, busy)
            tenant, target = session.tenant, ById(session_id=session.id)
        ask = msgspec.structs.replace(self.new_ask(data, tenant, target), ahead=ahead)
        meant = self.model.meant(tenant, target)
        self.write(
            tenant,
            "enqueue",
            ask,
            behind=behind,
            turn=ask.request.turn_id,
            session=meant.id if meant else None,
        )

    @precondition(lambda self: self.turns())
    @rule(data=data)
    def open_queued(self, data: Data) -> None:
        """Mostly the right one, on top of what is there."""
        turn = pick(data, self.waiting() or self.waited_for())
        if rarely(data):
            turn = pick(data, self.waited_for())
        head, tenant = turn.session.head, turn.session.tenant
        version = Version(data.draw(st.integers(0, 3))) if rarely(data) else head.version
        ask = QueuedOpening(
            tenant=a_tenant(data) if rarely(data) else tenant,
            session_id=pick(data, self.sessions()).id if rarely(data) else turn.session.id,
            node=self.a_node(data),
            nonce=f"opened at {self.clock.now_ms()}",
            request=msgspec.structs.replace(
                turn.request,
                base=version,
                base_rev=head.notes.rev,
                agent=data.draw(st.sampled_from(("butler", "clerk"))),
            ),
        )
        before = self.homes.each(lambda store: store.dump(tenant, turn.session.id))
        outcome = self.write(ask.tenant, "open_queued", ask, turn=turn.id, session=turn.session.id)
        if isinstance(outcome, Started) and turn.id not in self.before:
            self.before[turn.id] = {home: checks.kept(dump) for home, dump in before.items()}

    @precondition(lambda self: self.turns())
    @rule(data=data, settlement=st.sampled_from(("done", "failed")))
    def withdraw(self, data: Data, settlement: str) -> None:
        turn = pick(data, self.waited_for())
        tenant = a_tenant(data) if rarely(data) else turn.session.tenant
        ended = Ended(by="cancelled", kept=False)
        self.write(
            tenant,
            "withdraw",
            tenant,
            turn.id,
            ended_by="cancelled",
            detail="",
            records=b"" if rarely(data) else encode_records(numbered((ended,), first=1, at_ms=0)),
            settlement=settlement,
            turn=turn.id,
            session=turn.session.id,
        )

    @rule(limit=st.integers(1, 4))
    def look_who_waits(self, limit: int) -> None:
        self.do("queued", limit=limit)

    enqueue_once_more = enqueue
    open_once_more = open_queued
