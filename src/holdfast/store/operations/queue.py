"""Queued turns: turns that wait for their session. Every operation that adds, opens or withdraws one also writes the
session's row."""

from __future__ import annotations

import msgspec

from holdfast.core.items import EndedBy
from holdfast.errors import SessionMissing
from holdfast.ids import Tenant, TurnId
from holdfast.store import decisions, outcomes, row_changes
from holdfast.store.operations.finders import TurnFacts, queued_of
from holdfast.store.operations.nodes import held
from holdfast.store.operations.turns import (
    begin_facts,
    claim_as_read,
    claimed,
    discarded,
    first_record,
    journal_row,
)
from holdfast.store.rows import TurnRow
from holdfast.store.sql.tables import JOURNAL, TURNS
from holdfast.store.steps import Operation, change, insert, look, write


def enqueue(ask: outcomes.Begin, *, behind: bool = False) -> Operation[outcomes.EnqueueOutcome]:
    """Queue a request whose session is busy, or has queued turns: claim the idempotency key, write the turn as queued,
    and record 0. The turn does not hold the session, and the head may move on.

    It makes the checks of `begin` on the request, but not those on the head and the node. The outcome is `Free` if
    the session is not busy and has no queued turn, or does not exist yet; with `behind`, only in the last case.
    An `enqueue` whose own turn is queued already (the same turn id) gives `Queued` again.
    """
    facts = yield from begin_facts(ask)
    session = facts.session
    if session is not None:
        facts = msgspec.structs.replace(facts, queued=(yield from queued_of(session)))
    outcome = decisions.judge_enqueue(ask, facts, behind=behind)
    if not isinstance(outcome, outcomes.Queued) or facts.own_turn is not None:
        return outcome
    assert session is not None, "a turn waits for a session that is there"
    turn = row_changes.new_turn(
        ask,
        session.id,
        "queued",
        retry_of=decisions.failed_attempt(facts),
        began_ms=row_changes.place_in_queue(ask, facts.queued, facts.now_ms),
    )
    yield from write(
        insert(TURNS, turn),
        insert(JOURNAL, first_record(ask, token=0, now_ms=facts.now_ms)),
        *claimed(ask.attempt, facts.claim, turn.tenant, turn.turn_id),
        on=(session,),
        as_read=claim_as_read(facts.claim),
    )
    return outcome


def open_queued(ask: outcomes.QueuedOpening) -> Operation[outcomes.OpenOutcome]:
    """Open a queued turn on top of its session's head, and hold it: from then on it is like any other open turn.

    Only the first of a session's queued turns can be opened. The same `QueuedOpening` again gives `Started` again.
    """
    turn_id = ask.request.turn_id
    given = {
        "tenant": ask.tenant,
        "session_id": ask.session_id,
        "turn_id": turn_id,
        "node": ask.node,
    }
    found = yield from look(decisions.OpeningLook, **given)
    waiting = (yield from queued_of(found.session, limit=1)) if found.session else ()
    if not waiting or waiting[0].turn_id != turn_id:  # it may have been opened since
        found = yield from look(decisions.OpeningLook, **given)
    session, turn, now_ms = found.session, found.turn, found.now_ms
    outcome = decisions.judge_open(ask, found, first=waiting[0].turn_id if waiting else None)
    if not isinstance(outcome, outcomes.Started) or turn is None or turn.state != "queued":
        return outcome
    assert session is not None
    fence = outcome.fence
    request = first_record(ask, token=fence.token, now_ms=now_ms)
    queued = msgspec.structs.replace(request, token=0)
    yield from write(
        held(session, fence, ask.node),
        change(
            TURNS,
            turn,
            state="open",
            base_head=ask.request.base,
            lease_token=fence.token,
            agent=ask.request.agent,
            source_digest=ask.request.source_digest,
            began_ms=now_ms,
        ),
        change(JOURNAL, queued, token=request.token, records=request.records),
        on=(session,),
        live=ask.node,
    )
    return outcome


def withdraw(
    tenant: Tenant,
    turn_id: TurnId,
    *,
    ended_by: EndedBy,
    detail: str,
    records: bytes,
    settlement: outcomes.Settlement,
) -> Operation[TurnRow]:
    """Discard a queued turn and return its row; `records` are its journal's records after the request.

    A turn that is not queued (any more) is left as it is. Raises SessionMissing if there is no such turn.
    """
    found = yield from look(TurnFacts, tenant=tenant, turn_id=turn_id)
    turn, session = found.turn, found.session
    if turn is None:
        raise SessionMissing("turn", turn_id)
    if turn.state != "queued":
        return turn
    assert session is not None, "a turn waits for a session that is there"
    row, changes = yield from discarded(
        turn, ended_by=ended_by, detail=detail, settlement=settlement, now_ms=found.now_ms
    )
    if records:
        changes.append(insert(JOURNAL, journal_row(tenant, turn_id, 1, 0, records)))
    yield from write(*changes, on=(session,))
    return row
