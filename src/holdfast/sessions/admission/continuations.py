"""Unfinished turns are continued: by a retry of their request, or because a person asks for it.

Both are requests like any other, which bring no message and name the version that they go on from (`Ask.continues`). So
they wait in the same lanes and begin by the same T1, which lets one of them through and joins the others to it.
"""

from __future__ import annotations

import msgspec

from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import fold
from holdfast.core.turns.turn import Turn
from holdfast.core.turns.unfinished_turns import Spent, links_after
from holdfast.errors import CannotContinue, SessionMissing
from holdfast.ids import SessionId, Tenant, TurnId, Version
from holdfast.sessions.session_requests import Ask, Continuation
from holdfast.sessions.turns.watch import journaled
from holdfast.store.outcomes import Attempt, Unfinished
from holdfast.store.store import Store


async def retried_by(ask: Ask, found: Unfinished, turn_id: TurnId, store: Store) -> Ask:
    """A request that turned out to be the retry of an unfinished turn: it goes on with that turn, and with nothing
    else. Which version it wants and whom it interrupts was said for the message, which is there."""
    links = links_after(found.retries_left)
    assert links is not None, "a retry may continue it"
    before = await _played(store, ask.tenant, turn_id)
    row = await store.turn(ask.tenant, turn_id)
    is_own = row is not None and row.request_hash == ask.attempt.request_hash
    attempt = ask.attempt
    if not is_own:  # its count is of another request than the one that the turn is known by
        attempt = msgspec.structs.replace(attempt, client_attempt=0)
    return msgspec.structs.replace(
        ask,
        name=found.session_id,
        messages=(),
        approvals=(),
        on_busy="wait" if ask.on_busy in ("steer", "interrupt") else ask.on_busy,
        if_match=None,
        attempt=attempt,
        continues=Continuation(
            version=found.version,
            links=links,
            spent=_spent(before) if before else Spent(),
            is_own=is_own,
            instead=ask,
        ),
    )


async def asked_for(store: Store, tenant: Tenant, turn_id: TurnId, attempt: Attempt) -> Ask:
    """The request of a person who wants a turn continued: as its own was, as far as that is still known, and in the
    background. A continuation that came to nothing stands for the turn that it was to continue. Raises SessionMissing and
    CannotContinue."""
    row = await store.turn(tenant, turn_id)
    if row is not None and row.seq is None and row.continues is not None:
        turn_id = row.continues
        row = await store.turn(tenant, turn_id)
    if row is None:
        raise SessionMissing("turn", turn_id)
    if row.seq is None:
        raise CannotContinue(turn_id, "turn_not_kept")
    before = await _played(store, tenant, turn_id)
    request = before.request if before else ev.TurnRequest(turn_id=turn_id)
    return Ask(
        tenant=tenant,
        name=SessionId(row.session_id),
        instructions=request.instructions,
        parameters=request.parameters,
        client_tools=request.client_tools,
        limits=request.limits,
        # Nobody waits for it, and it is taken up again after a crash, whatever was said of the one before.
        policy=msgspec.structs.replace(request.policy, disconnect=None, crash=None),
        attempt=attempt,
        background=True,
        continues=Continuation(version=Version(row.seq)),
    )


async def _played(store: Store, tenant: Tenant, turn_id: TurnId) -> Turn | None:
    """An unfinished turn as its journal tells it, which is kept for a day."""
    records = [each async for some in journaled(store, tenant, turn_id, 0) for each in some]
    return fold(records).turn


def _spent(turn: Turn) -> Spent:
    """What a turn, and the turns that it continued, have used of the bounds of the next continuation."""
    before = turn.request.spent
    return Spent(
        steps=before.steps + turn.root.steps,
        calls=before.calls + turn.calls,
        output_chars=before.output_chars + turn.output_chars,
        cost_micros=before.cost_micros + turn.usage.cost_micros,
    )
