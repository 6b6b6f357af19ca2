"""Requests that continue an unfinished turn: a retry of its request, or a person's request to continue it.

Both are requests like any other that bring no message and name the version that they continue (`Ask.continues`). So
they wait in the same lanes and begin in the same transaction (T1), which begins one of them and joins the others to it.
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
    """The request that continues an unfinished turn, for a retry of that turn's request. The retry's `if_match` and
    `on_busy` were meant for its message, which is stored already, so they are dropped."""
    links = links_after(found.retries_left)
    assert links is not None, "a retry may continue it"
    before = await _played(store, ask.tenant, turn_id)
    row = await store.turn(ask.tenant, turn_id)
    is_own = row is not None and row.request_hash == ask.attempt.request_hash
    attempt = ask.attempt
    if not is_own:  # its attempts are not attempts of the request that began the turn
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
    """The request that continues a turn for a person: with the options of the turn's own request, as far as its journal
    is still there, and in the background. If `turn_id` is a continuation that was not kept, the turn that it was to
    continue is continued. Raises SessionMissing and CannotContinue."""
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
        reads_only=request.reads_only,
        limits=request.limits,
        # It is a background turn, and resumed after a crash, even if the turn before it was not.
        policy=msgspec.structs.replace(request.policy, disconnect=None, crash=None),
        attempt=attempt,
        background=True,
        continues=Continuation(version=Version(row.seq)),
    )


async def _played(store: Store, tenant: Tenant, turn_id: TurnId) -> Turn | None:
    """An unfinished turn, from its journal, which is kept for a day."""
    records = [each async for some in journaled(store, tenant, turn_id, 0) for each in some]
    return fold(records).turn


def _spent(turn: Turn) -> Spent:
    """How much of the limits of its next continuation a turn, and the turns that it continued, have used."""
    before = turn.request.spent
    return Spent(
        steps=before.steps + turn.root.steps,
        calls=before.calls + turn.calls,
        output_chars=before.output_chars + turn.output_chars,
        cost_micros=before.cost_micros + turn.usage.cost_micros,
    )
