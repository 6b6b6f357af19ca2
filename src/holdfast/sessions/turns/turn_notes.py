"""Counters and log events about turns."""

from __future__ import annotations

from holdfast.errors import HoldfastError
from holdfast.ids import Tenant, TurnId
from holdfast.observe.events import event, is_listening
from holdfast.observe.spans import kind_of
from holdfast.observe.tally import Tally
from holdfast.sessions.session_requests import Admission, Ask
from holdfast.sessions.turns.live_turn import LiveTurn, Lost
from holdfast.store.rows import SignalKind, TurnRow


def note_admission(tally: Tally, ask: Ask, admission: Admission, waited_s: float) -> None:
    """Note that a request was admitted."""
    how: str = admission.how
    if how in ("joined", "replayed") and ask.attempt.key is None:
        how = "recognised"  # an SDK's retry without an idempotency key
    tally.admitting.add(waited_s)
    _note(tally, ask, admission, how, waited_ms=round(waited_s * 1000))


def note_refusal(ask: Ask, error: HoldfastError, waited_s: float) -> None:
    """Note that a request was refused."""
    event(
        "turn.refused",
        tenant=ask.tenant,
        code=kind_of(error),
        waited_ms=round(waited_s * 1000),
    )


def note_signal(tenant: Tenant, turn_id: TurnId, kind: SignalKind) -> None:
    """Note that another request has sent a signal to a turn."""
    event("turn.signalled", turn=turn_id, tenant=tenant, kind=kind)


def note_stateless(tally: Tally, ask: Ask, admission: Admission) -> None:
    """Note a stateless request: it never waits for a session."""
    _note(tally, ask, admission, "stateless")


def _note(tally: Tally, ask: Ask, admission: Admission, how: str, *, waited_ms: int = 0) -> None:
    tally.admissions[how] += 1
    if not is_listening():
        return
    event(
        f"turn.{how}",
        turn=admission.turn_id,
        session=admission.session_id,
        tenant=ask.tenant,
        base=admission.base,
        waited_ms=waited_ms,
    )


def note_end(tally: Tally, live: LiveTurn) -> None:
    """Note that a turn that was played here has ended, or that this node has lost it."""
    now_s = live.loop.time()
    outcome, usage = live.done.result(), live.turn.spent
    tally.turning.add(now_s - live.began_s)
    if isinstance(outcome, Lost):
        by, fate = "superseded", "lost"
    else:
        by, fate = outcome.by, "committed" if outcome.kept else "discarded"
        if live.settling_s is not None:
            tally.settling.add(now_s - live.settling_s)
    tally.turns[by, fate] += 1
    tally.agent_turns.add(live.turn.agent, by)
    tokens = tally.tokens
    tokens["input"] += usage.input_tokens
    tokens["cached"] += usage.cached_tokens
    tokens["output"] += usage.output_tokens
    tokens["reasoning"] += usage.reasoning_tokens
    tokens["estimated"] += usage.estimated_tokens
    tally.cost_micros += usage.cost_micros
    if not is_listening():
        return
    event(
        "turn.ended",
        turn=live.fence.turn_id,
        session=live.fence.session_id,
        tenant=live.fence.tenant,
        by=by,
        fate=fate,
        ms=round((now_s - live.began_s) * 1000),
    )


def note_withdrawal(tally: Tally, row: TurnRow) -> None:
    """Note that a queued turn has ended before it was opened."""
    assert row.ended_by is not None
    tally.turns[row.ended_by, "discarded"] += 1
    event(
        "turn.ended",
        turn=row.turn_id,
        session=row.session_id,
        tenant=row.tenant,
        by=row.ended_by,
        fate="discarded",
        ms=row.ended_ms - row.began_ms,
    )
