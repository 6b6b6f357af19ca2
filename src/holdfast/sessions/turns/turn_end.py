"""The last transaction of an owned turn, and the decision which one it is.

    the turn is complete   →  commit
    it was interrupted     →  by its policy: keep (close it, commit), discard, or hand over

Watchers see the end only after it is durable. While the store is unavailable, the transaction is repeated, which
is safe for both; after `store_retry_s` the turn is left open for recovery to find.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from holdfast.core.codec import Value
from holdfast.core.history.conversation import Snapshot, commit_of
from holdfast.core.items import EndedBy
from holdfast.core.policy import Verdict
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import closing
from holdfast.core.turns.journal import Record, encode_records
from holdfast.core.turns.turn import Turn, advance
from holdfast.errors import Superseded
from holdfast.ids import Minter
from holdfast.sessions.session_requests import Ending
from holdfast.sessions.turns.recorder import Recorder
from holdfast.sessions.turns.store_retries import persistently
from holdfast.store.outcomes import Fence, Settlement, Unconsumed
from holdfast.store.rows import SignalRow
from holdfast.store.store import Store


class Settled(Value):
    """The turn has ended. `after` is the session after the turn, if it was kept."""

    ending: Ending
    after: Snapshot | None = None


class HandedOver(Value):
    """The turn stays open, for any node to take over."""


class NotYet(Value):
    """The turn has to go on: messages were steered into it that its player has not taken."""

    signals: tuple[SignalRow, ...]


Outcome: TypeAlias = Settled | HandedOver | NotYet

Judge: TypeAlias = Callable[[EndedBy], Verdict]
"""Decides what becomes of a turn that ended this way."""


async def settle(
    store: Store,
    fence: Fence,
    snapshot: Snapshot,
    recorder: Recorder,
    *,
    cause: ev.Interrupted | None,
    judge: Judge,
    mint: Minter,
) -> Outcome:
    """End a turn whose player has stopped. `cause` says why it did not complete; None if it did.

    Raises Superseded if another node has the turn by now, StoreUnavailable if the store stayed unavailable.
    """
    turn = recorder.turn
    by: EndedBy = cause.by if cause else "completed"
    if by in ("superseded", "deleted"):  # another node, or a delete, has ended it in the store
        raise Superseded(fence.turn_id, token=fence.token)
    verdict = judge(by)
    assert verdict != "finish", "a turn that is to be finished is not interrupted"
    if verdict == "resume":
        await recorder.flush()
        await persistently(lambda: store.release(fence))
        return HandedOver()
    last = last_events(turn, cause, kept=verdict == "keep", mint=mint)
    await recorder.wait_idle()
    ended, tail = recorder.closing_records(last)
    if verdict == "discard":
        return await _discard(store, fence, recorder, ended, tail, cause=cause)
    return await _commit(store, fence, snapshot, recorder, ended, tail)


def last_events(
    turn: Turn, cause: ev.Interrupted | None, *, kept: bool, mint: Minter
) -> tuple[ev.Event, ...]:
    """The events that bring a turn to its end: interrupted, made well formed if it is kept, ended."""
    happened: list[ev.Event] = []
    if cause is not None and turn.interrupted is None:
        happened.append(cause)
        turn = advance(turn, cause)
    if kept and turn.interrupted is not None:
        happened += closing(turn, mint)
    by: EndedBy = turn.interrupted.by if turn.interrupted else "completed"
    return (*happened, ev.Ended(by=by, kept=kept))


async def _commit(
    store: Store,
    fence: Fence,
    snapshot: Snapshot,
    recorder: Recorder,
    ended: Turn,
    tail: tuple[Record, ...],
) -> Settled | NotYet:
    commit = commit_of(ended, previous=snapshot.link)
    # The store keeps no journal of a turn that cannot be replayed or continued.
    kept = commit.keeps_journal(replayable=ended.request.replayable)
    records = encode_records(tail) if kept else b""
    outcome = await persistently(
        lambda: store.commit(fence, commit, n=tail[0].n, records=records, settlement="done")
    )
    if isinstance(outcome, Unconsumed):
        return NotYet(signals=outcome.signals)
    recorder.settled(ended, tail)
    return Settled(
        ending=Ending(
            turn_id=fence.turn_id,
            session_id=fence.session_id,
            kept=True,
            by=commit.ended_by,
            detail=commit.detail,
            version=outcome.version,
        ),
        after=snapshot.with_commit(commit),
    )


async def _discard(
    store: Store,
    fence: Fence,
    recorder: Recorder,
    ended: Turn,
    tail: tuple[Record, ...],
    *,
    cause: ev.Interrupted | None,
) -> Settled:
    assert cause is not None, "a completed turn is kept"
    detail = cause.told
    # A cancel is the answer that its client wanted; after any other failure the key may be used again.
    settlement: Settlement = "done" if cause.by == "cancelled" else "failed"
    row = await persistently(
        lambda: store.end(
            fence,
            ended_by=cause.by,
            detail=detail,
            n=tail[0].n,
            records=encode_records(tail),
            settlement=settlement,
            usage=ended.spent,
        )
    )
    if row.ended_by != cause.by:
        # A delete came first, and the records were not written.
        raise Superseded(fence.turn_id, token=fence.token)
    recorder.settled(ended, tail)
    return Settled(
        ending=Ending(
            turn_id=fence.turn_id,
            session_id=fence.session_id,
            kept=False,
            by=cause.by,
            detail=detail,
        )
    )
