"""The store's decisions, as pure functions over the rows that an operation has read.

An operation reads rows, calls a function here, and writes the result. So every rule is written once for all
homes, and can be read without any SQL in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.history.conversation import Commit, Lineage, Segment, Snapshot
from holdfast.core.turns.events import TurnRequest
from holdfast.core.turns.unfinished_turns import links_after
from holdfast.errors import StoreError, Superseded
from holdfast.ids import NodeId, SessionId, SessionKey, TurnId, Version
from holdfast.store import outcomes
from holdfast.store.expiry import Horizon, looked
from holdfast.store.rows import (
    IdempotencyRow,
    KeyRow,
    NodeRow,
    SessionRow,
    SignalRow,
    Standing,
    TurnRow,
)
from holdfast.store.sql.tables import NODES, SESSIONS, TURNS
from holdfast.store.steps import Facts, holder, one

# ── nodes ────────────────────────────────────────────────────────────────────────────────────

Holder: TypeAlias = Literal["alive", "expired", "dead", "absent", "self"]
"""`expired`: the node's row has expired. `dead`: the node resigned, or its process is gone. `absent`: the turn was
handed over. `self`: the calling node."""


def renewed(row: NodeRow | None, fresh: NodeRow) -> NodeRow:
    """A node's row after a renewal; if the old row had expired, `since_ms` starts anew."""
    if row is None or row.expires_ms <= fresh.since_ms:
        return fresh
    return msgspec.structs.replace(fresh, since_ms=row.since_ms)


def is_live(row: NodeRow | None, now_ms: int) -> bool:
    return row is not None and row.expires_ms > now_ms


def judge_holder(
    session: SessionRow | None, row: NodeRow | None, *, asking: NodeId, now_ms: int
) -> Holder:
    """The state of the node that holds a session. `row` is that node's; None if it resigned or its process is dead."""
    if session is None or session.lease_node is None:
        return "absent"
    if session.lease_node == asking:
        return "self"
    # A node that resigned, or whose process is gone, is dead at once: no clock is needed.
    if row is None:
        return "dead"
    return "alive" if is_live(row, now_ms) else "expired"


# ── attempts ─────────────────────────────────────────────────────────────────────────────────


class Claim(Value):
    """The row of an idempotency key, its turn, and that turn's session."""

    row: IdempotencyRow
    turn: TurnRow | None
    session: SessionRow | None


def judge_claim(
    attempt: outcomes.Attempt, claim: Claim | None, *, meant: SessionId | None = None
) -> outcomes.Known | None:
    """The outcome that an idempotency key gives this request; None if the request may begin.

    A key counts for as long as its row exists. Only `prune` removes the row, and it does not trust every clock.
    `meant` is the session that the request's session key names now.
    """
    if claim is None:
        return None
    row, turn, session = claim.row, claim.turn, claim.session
    if row.request_hash != attempt.request_hash:
        return outcomes.Mismatch(turn_id=row.turn_id)
    if session is not None and session.state == "deleted":
        return outcomes.Gone(session_id=session.id, why="deleted")
    if turn is None:
        return None
    if row.state == "running":
        return outcomes.Joined(turn_id=turn.turn_id, session_id=turn.session_id, steer=row.steer)
    if row.state == "failed" and (turn.continues is None or row.steer is not None):
        return None
    ended_at, replay = turn.seq, outcomes.Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    if row.state == "failed" and turn.continues is not None:
        # An older server, without continuations, discarded it: its keys lead back all the same.
        ended_at = turn.base_head
        replay = outcomes.Replay(turn_id=turn.continues, session_id=turn.session_id)
    if session is None or session.unfinished != ended_at or meant not in (None, session.id):
        return replay
    return unfinished(session) or replay


def unfinished(session: SessionRow) -> outcomes.Unfinished | None:
    """The outcome for a retry if it may continue the session's head; else None."""
    if session.unfinished != session.head or not session.retries_left:
        return None
    return outcomes.Unfinished(
        session_id=session.id, version=session.head, retries_left=session.retries_left
    )


def looks_back(ask: outcomes.Begin, session: SessionRow) -> bool:
    """Whether T1 must read the turn that made the session's head, and the open turn."""
    retried = ask.attempt.client_attempt or ask.request.continues
    return bool(retried) or session.unfinished == session.head


def settled(
    row: IdempotencyRow,
    settlement: outcomes.Settlement,
    signals: Iterable[SignalRow],
    *,
    expires_ms: int,
    back_to: TurnId | None = None,
) -> IdempotencyRow:
    """A key's row after its turn has ended. `signals` are the turn's: a steer that the turn never read has failed.

    `back_to` is the turn that a discarded continuation was to continue: the keys that it took over lead there again.
    """
    if back_to is not None and row.steer is None:
        return msgspec.structs.replace(row, turn_id=back_to, state="done", expires_ms=expires_ms)
    heard = row.steer is None or any(each.n == row.steer and each.consumed for each in signals)
    state = settlement if heard else "failed"
    return msgspec.structs.replace(row, state=state, expires_ms=expires_ms)


def may_be_recognised(attempt: outcomes.Attempt) -> bool:
    """Whether a request may be recognised as a retry without its key: a request with a key is new, unless the SDK's
    retry count says that it was sent before."""
    return attempt.key is None or attempt.client_attempt > 0


def recognised(
    attempt: outcomes.Attempt,
    session: SessionRow | None,
    *,
    open_turn: TurnRow | None,
    head_turn: TurnRow | None,
    earlier: TurnRow | None = None,
    queued: tuple[TurnRow, ...] = (),
    now_ms: int,
) -> outcomes.Joined | outcomes.Replay | outcomes.Unfinished | None:
    """The outcome for a retry that is recognised without a key; None if it is new, or if that is not certain."""
    if session is None or session.state == "deleted":
        return None
    for unended in (*([open_turn] if open_turn else ()), *queued):
        if attempt.client_attempt and _is_earlier_try(unended, attempt):
            return outcomes.Joined(turn_id=unended.turn_id, session_id=unended.session_id)
    is_head = head_turn is not None and head_turn.request_hash == attempt.request_hash
    kept = head_turn if is_head else earlier
    if kept is None or kept.acked:
        return None
    replay = outcomes.Replay(turn_id=kept.turn_id, session_id=kept.session_id)
    age_s = (now_ms - kept.ended_ms) / 1000
    if is_head and _is_same_again(attempt, session) and age_s <= limits.unfinished_retry_s:
        if open_turn is not None and open_turn.continues == kept.turn_id:
            return outcomes.Joined(turn_id=open_turn.turn_id, session_id=open_turn.session_id)
        return unfinished(session) or replay
    is_recent = age_s <= limits.recognised_retry_s
    return replay if is_recent and _is_earlier_try(kept, attempt) else None


def _is_same_again(attempt: outcomes.Attempt, session: SessionRow) -> bool:
    """Whether the head's request, sent again without a key, is a retry: not after a person has stopped the turn, and
    not if the caller has given no request hash."""
    is_retry = session.unfinished == session.head and session.retries_left is not None
    return is_retry and attempt.key is None and bool(attempt.request_hash)


def _is_earlier_try(turn: TurnRow, attempt: outcomes.Attempt) -> bool:
    same = turn.request_hash == attempt.request_hash
    return same and turn.client_attempt < attempt.client_attempt


# ── begin ────────────────────────────────────────────────────────────────────────────────────


class BeginFacts(Value):
    """The rows that T1 decides on."""

    now_ms: int
    node: NodeRow | None
    claim: Claim | None = None
    key: KeyRow | None = None
    session: SessionRow | None = None
    """The session that the target names now."""
    open_turn: TurnRow | None = None
    head_turn: TurnRow | None = None
    earlier: TurnRow | None = None
    """The last committed turn before the head that the same request began; read only if the SDK counts its retries."""
    queued: tuple[TurnRow, ...] = ()
    """The session's queued turns, the first one first; like the three fields before, read only where it matters."""
    holder: Holder = "absent"
    """The state of the node that holds the session's open turn."""
    horizon: Horizon | None = None
    """The clock as `prune` last saw it; read only if the request says when sessions expire."""
    own_turn: TurnRow | None = None
    """The turn with the id of this request, if this `Begin` is repeated."""
    own_session: SessionRow | None = None
    """The session of `own_turn`; the target may name another session by now."""


def judge_begin(ask: outcomes.Begin, facts: BeginFacts) -> outcomes.BeginOutcome:
    """T1's decision. On `Started`, the operation writes the turn."""
    session = facts.session
    if facts.own_turn is not None:
        return _repeated(ask, facts.own_turn, facts.own_session)
    known = _known(ask, facts)
    if known is not None and not _is_continued_by(ask, known):
        return known
    refusal = _refused(ask, facts)
    if refusal is not None:
        return refusal
    return outcomes.Started(
        fence=_first_fence(ask, session),
        created=session is None and not isinstance(ask.target, outcomes.NewLine),
        retry_of=failed_attempt(facts),
    )


def _is_continued_by(ask: outcomes.Begin, known: outcomes.Known) -> bool:
    """Whether this request is the continuation that `known` calls for."""
    is_unfinished = isinstance(known, outcomes.Unfinished) and known.session_id == ask.expected
    return is_unfinished and ask.request.continues is not None


def _known(ask: outcomes.Begin, facts: BeginFacts) -> outcomes.Known | None:
    meant = facts.session.id if facts.session and isinstance(ask.target, outcomes.ByKey) else None
    known = judge_claim(ask.attempt, facts.claim, meant=meant)
    if known is not None:
        return known
    return recognised(
        ask.attempt,
        facts.session,
        open_turn=facts.open_turn,
        head_turn=facts.head_turn,
        earlier=facts.earlier,
        queued=facts.queued,
        now_ms=facts.now_ms,
    )


def _refused(ask: outcomes.Begin, facts: BeginFacts) -> outcomes.BeginOutcome | None:
    session = facts.session
    if session is None:
        absent = _absent(ask, facts.key)
        if absent is not None:
            return absent
    else:
        in_the_way = _in_the_way(ask, session, facts)
        if in_the_way is not None:
            return in_the_way
    return None if is_live(facts.node, facts.now_ms) else outcomes.NotLive()


def _absent(ask: outcomes.Begin, key: KeyRow | None) -> outcomes.BeginOutcome | None:
    """The refusal if the target names no session; None if a new session may be made."""
    match ask.target:
        case outcomes.ById():
            return outcomes.Missing()
        case outcomes.ByKey(create=False):
            return outcomes.Missing()
        case outcomes.ByKey():
            assert key is None, "a key that exists means a session"
    if ask.expected is not None:
        # The request was reconciled against the session that its key named then; that session was deleted.
        return outcomes.Gone(session_id=ask.expected, why="deleted")
    forks = isinstance(ask.target, outcomes.NewLine)
    assert forks or ask.request.base == 0, "a new session has no history to go on from"
    return None


def _in_the_way(
    ask: outcomes.Begin, session: SessionRow, facts: BeginFacts
) -> outcomes.BeginOutcome | None:
    if session.state == "deleted":
        return outcomes.Gone(session_id=session.id, why="deleted")
    if ask.expire_after_ms is not None and not session.open_turn:
        idle_ms = looked(facts.horizon, facts.now_ms).age_ms(session.active_ms)
        if idle_ms > ask.expire_after_ms:
            return outcomes.Gone(session_id=session.id, why="expired")
    if session.id != ask.expected:
        return outcomes.Moved(session_id=session.id, head=session.head)
    continues, open_turn = ask.request.continues, facts.open_turn
    if session.open_turn is not None:
        if continues is not None and open_turn is not None and open_turn.continues == continues:
            return outcomes.Joined(turn_id=open_turn.turn_id, session_id=session.id)
        return _busy(session, session.open_turn, facts.holder)
    # The model's prompt depends on the annotations as much as on the history.
    if (session.head, session.meta_rev) != (ask.request.base, ask.request.base_rev):
        return outcomes.Moved(session_id=session.id, head=session.head)
    if continues is not None and not _can_continue(ask.request, session, facts.head_turn):
        return outcomes.Finished()
    return None


def _can_continue(request: TurnRequest, session: SessionRow, head_turn: TurnRow | None) -> bool:
    """Whether the session's head is the turn that the request continues, and has the retries left that it expects."""
    is_head = head_turn is not None and head_turn.turn_id == request.continues
    if not is_head or session.unfinished != session.head:
        return False
    return not request.links or request.links == links_after(session.retries_left)


def _repeated(
    ask: outcomes.Begin, turn: TurnRow, session: SessionRow | None
) -> outcomes.Started | outcomes.Joined | outcomes.Replay:
    """The outcome for a `Begin` that has begun its turn already: the first answer was lost on its way to the caller."""
    if session is None or session.open_turn != turn.turn_id:
        return outcomes.Replay(turn_id=turn.turn_id, session_id=turn.session_id)
    if session.lease_nonce != ask.nonce:  # taken over since: another node has the fence
        return outcomes.Joined(turn_id=turn.turn_id, session_id=turn.session_id)
    # Only the request that made the session carries its id.
    created = (
        not isinstance(ask.target, outcomes.ById | outcomes.NewLine)
        and named_by(ask.target)[1] == session.id
    )
    return outcomes.Started(fence=fence_of(session), created=created, retry_of=turn.retry_of)


def _first_fence(
    ask: outcomes.Begin | outcomes.QueuedOpening, session: SessionRow | None
) -> outcomes.Fence:
    """The fence under which a turn begins; it makes its session if there is none."""
    if session is None:
        assert isinstance(ask, outcomes.Begin), "a turn waits for a session that is there"
        _, session_id = named_by(ask.target)
        assert session_id is not None, "a session that is expected is not made anew"
    else:
        session_id = session.id
    return outcomes.Fence(
        tenant=ask.tenant,
        session_id=session_id,
        turn_id=ask.request.turn_id,
        token=(session.lease_token if session else 0) + 1,
        nonce=ask.nonce,
    )


def _busy(session: SessionRow, open_turn: TurnId, holder: Holder) -> outcomes.Busy:
    alive = holder in ("alive", "self")
    return outcomes.Busy(session_id=session.id, turn_id=open_turn, holder_alive=alive)


def named_by(target: outcomes.Target) -> tuple[SessionKey | None, SessionId | None]:
    """The session key in a target, if it has one, and the session id to use if the key names no session; None if the
    request expects an existing session."""
    if isinstance(target, outcomes.ByKey):
        # If the request comes again late, a session with its `fresh` id exists already.
        return target.key, target.fresh
    return None, target.session_id if isinstance(target, outcomes.ById) else target.fresh


def fence_of(session: SessionRow) -> outcomes.Fence:
    """The fence under which this session's open turn is held now."""
    assert session.open_turn is not None
    return outcomes.Fence(
        tenant=session.tenant,
        session_id=session.id,
        turn_id=session.open_turn,
        token=session.lease_token,
        nonce=session.lease_nonce,
    )


# ── families ─────────────────────────────────────────────────────────────────────────────────

_STANDINGS: tuple[Standing, ...] = ("first", "streamed", "continued", "own")


def standing_of(base: Version, *, streamed: bool) -> Standing:
    """The claim that a turn gives its line to the family's name: a line of one turn never takes it from one that was
    continued."""
    if base:
        return "continued"
    return "streamed" if streamed else "first"


def takes_name(standing: Standing, held: Standing | None, *, held_by_empty: bool) -> bool:
    """Whether a line takes the name from another one: the one last continued has it, else the first streamed one, else
    the first. A line without a turn, whose first one was discarded, gives it to every other one."""
    return held_by_empty or standing == "continued" or is_firmer(standing, held)


def is_firmer(standing: Standing, held: Standing | None) -> bool:
    return _STANDINGS.index(standing) > _STANDINGS.index(held or "first")


def line_of_family(listed: Sequence[SessionId], keys: Iterable[KeyRow]) -> SessionId | None:
    """The listed line of a family that its name means; others are listed because of names of their own. None if the keys
    of these lines do not tell."""
    standings: dict[SessionId, set[Standing | None]] = {each: set() for each in listed}
    for key in keys:
        standings[key.session_id].add(key.standing)
    others = [each for each in listed if standings[each] != {"own"}]
    firm = [each for each in others if standings[each] - {None, "own"}]
    candidates = firm or others or listed
    return candidates[0] if len(candidates) == 1 else None


# ── waiting for a session ────────────────────────────────────────────────────────────────────


def judge_enqueue(
    ask: outcomes.Begin, facts: BeginFacts, *, behind: bool
) -> outcomes.EnqueueOutcome:
    """Whether a request waits for its session. On `Queued`, the operation writes the turn, unless it exists."""
    own, session = facts.own_turn, facts.session
    if own is not None:
        return _queued_before(own)
    known = _known(ask, facts)
    if known is not None:
        return known
    if session is None:
        absent = _absent(ask, facts.key)
        assert absent is None or isinstance(absent, outcomes.Gone | outcomes.Missing)
        return absent or outcomes.Free()
    if session.state == "deleted":
        return outcomes.Gone(session_id=session.id, why="deleted")
    if session.id != ask.expected:
        return outcomes.Moved(session_id=session.id, head=session.head)
    if session.open_turn is None and not facts.queued and not behind:
        return outcomes.Free()
    return outcomes.Queued(turn_id=ask.request.turn_id, session_id=session.id)


def _queued_before(turn: TurnRow) -> outcomes.Queued | outcomes.Joined | outcomes.Replay:
    if turn.state == "queued":
        return outcomes.Queued(turn_id=turn.turn_id, session_id=turn.session_id)
    answer = outcomes.Joined if turn.state == "open" else outcomes.Replay
    return answer(turn_id=turn.turn_id, session_id=turn.session_id)


def failed_attempt(facts: BeginFacts) -> TurnId | None:
    """The failed turn under the request's key whose finished steps may be reused; None if there is none.

    A turn that the request was steered into does not count: it answered another request.
    """
    claim = facts.claim
    if claim is None or claim.row.state != "failed" or claim.turn is None:
        return None
    return None if claim.row.steer is not None else claim.row.turn_id


class OpeningLook(Facts):
    """The rows that the opening of a queued turn is decided on."""

    node: NodeRow | None = one(NODES, node_id=":node")
    session: SessionRow | None = one(SESSIONS, tenant=":tenant", id=":session_id")
    holder: NodeRow | None = holder("session.lease_node")
    turn: TurnRow | None = one(TURNS, tenant=":tenant", turn_id=":turn_id")


def judge_open(
    ask: outcomes.QueuedOpening, found: OpeningLook, *, first: TurnId | None
) -> outcomes.OpenOutcome:
    """Whether a queued turn is opened; `first` is the first of its session's queued turns. On `Started`, the operation
    writes it, unless it is open already."""
    session, turn, request = found.session, found.turn, ask.request
    if session is None or turn is None or turn.session_id != session.id:
        return outcomes.NotNext()
    if session.open_turn is not None:
        if session.open_turn == turn.turn_id and session.lease_nonce == ask.nonce:
            return outcomes.Started(fence=fence_of(session), created=False, retry_of=turn.retry_of)
        held_by = judge_holder(session, found.holder, asking=ask.node, now_ms=found.now_ms)
        return _busy(session, session.open_turn, held_by)
    if turn.state != "queued" or first != turn.turn_id:
        return outcomes.NotNext()
    if (session.head, session.meta_rev) != (request.base, request.base_rev):
        return outcomes.Moved(session_id=session.id, head=session.head)
    if not is_live(found.node, found.now_ms):
        return outcomes.NotLive()
    return outcomes.Started(fence=_first_fence(ask, session), created=False, retry_of=turn.retry_of)


# ── writing under a fence ────────────────────────────────────────────────────────────────────


def is_held(session: SessionRow, fence: outcomes.Fence) -> bool:
    """Whether the session's open turn is held under this fence."""
    return session.open_turn is not None and fence_of(session) == fence


def demand_fence(fence: outcomes.Fence, session: SessionRow | None) -> SessionRow:
    """The session, if the fence is still valid. Raises Superseded if it is not."""
    if session is None or not is_held(session, fence):
        raise Superseded(fence.turn_id, token=fence.token)
    return session


def judge_commit(
    fence: outcomes.Fence,
    commit: Commit,
    *,
    session: SessionRow | None,
    turn: TurnRow | None,
    steers: tuple[SignalRow, ...],
    n: int,
    last_n: int,
) -> outcomes.Committed | outcomes.Unconsumed | None:
    """T2's outcome if it writes nothing; None if the operation is to write the commit. Raises Superseded.

    `n` is the number of the commit's first record, `last_n` the first number of the journal's last row.
    """
    # The token must be the same: a node that took the turn over may have committed the very same items,
    # but that was another commit, with another journal.
    again = turn is not None and turn.lease_token == fence.token and turn.link == commit.link
    if turn is not None and turn.state == "committed" and again:
        assert turn.seq is not None
        return outcomes.Committed(version=turn.seq, at_ms=turn.ended_ms)
    session = demand_fence(fence, session)
    if session.head.next != commit.version:
        raise Superseded(fence.turn_id, token=fence.token)
    # A turn that broke off, or that waits for its client, reads no messages any more, and some turns never
    # could; a message that was steered into it begins the next turn.
    if steers and commit.hears and commit.ended_by == "completed" and not commit.waiting:
        return outcomes.Unconsumed(signals=steers)
    if n <= last_n:
        # The caller gave this commit up for lost, and the turn has gone on since: it no longer holds the
        # whole turn.
        raise StoreError(f"the journal has come past record {n}, so this commit comes too late")
    return None


def judge_append(n: int, records: bytes, *, last_n: int, same_n: bytes | None) -> bool:
    """Whether to write these records; False if the journal has them already.

    `last_n` is the first number of the journal's last row, `same_n` the records of the row with number `n`, if any.
    """
    if not records or same_n == records:
        return False
    if same_n is not None or n <= last_n:
        raise StoreError(f"the journal has come past record {n}, with other words: a bug of ours")
    return True


def judge_end(
    fence: outcomes.Fence, *, session: SessionRow | None, turn: TurnRow | None
) -> TurnRow | None:
    """The turn's row if this fence has ended it already; None if the operation is to end it. Raises Superseded."""
    if turn is not None and turn.state == "discarded" and turn.lease_token == fence.token:
        return turn
    demand_fence(fence, session)
    return None


# ── signals ──────────────────────────────────────────────────────────────────────────────────


def judge_signal(
    turn: TurnRow,
    session: SessionRow | None,
    *,
    last_n: int,
    attempt: outcomes.Attempt | None = None,
    claim: Claim | None = None,
    after: int | None = None,
) -> outcomes.SignalOutcome:
    """Whether a turn can still read a signal. `last_n` is the number of its last signal, 0 before the first; `after` is
    the last number that the caller knows.

    `claim` belongs to the key of this `attempt`. On `Signalled`, the operation writes the signal and claims the key.
    """
    known = judge_claim(attempt, claim) if attempt is not None else None
    if known is not None:
        return known
    if session is None or session.open_turn != turn.turn_id:
        return outcomes.TooLate(turn=turn)
    if after is not None and after != last_n:
        return outcomes.ToldMore(n=last_n)
    return outcomes.Signalled(n=last_n + 1)


def waiting_steers(signals: Iterable[SignalRow]) -> tuple[SignalRow, ...]:
    """The steered messages that the turn has not read yet."""
    return tuple(each for each in signals if each.kind == "steer" and not each.consumed)


def cancel_since(signals: Iterable[SignalRow]) -> int | None:
    """The time of the oldest unread cancel or interrupt; None if there is none."""
    asked = (each.at_ms for each in signals if each.kind != "steer" and not each.consumed)
    return min(asked, default=None)


# ── takeover ─────────────────────────────────────────────────────────────────────────────────


class TakeoverLook(Facts):
    """The rows that a takeover is decided on."""

    node: NodeRow | None = one(NODES, node_id=":node")
    session: SessionRow | None = one(SESSIONS, tenant=":tenant", id=":session_id")
    holder: NodeRow | None = holder("session.lease_node")
    turn: TurnRow | None = one(TURNS, tenant="session.tenant", turn_id="session.open_turn")


def judge_takeover(
    found: TakeoverLook,
    holder: Holder,
    *,
    nonce: str,
    turn_id: TurnId | None,
    cancel_since_ms: int | None = None,
) -> outcomes.TakeoverOutcome:
    """Whether a node takes an open turn over; `cancel_since_ms` is the time of the oldest cancel that the turn has not
    read, if that overrules a live holder. On `Taken`, the operation writes its fence, node and attempt."""
    session, turn, node = found.session, found.turn, found.node
    if session is None or session.open_turn is None or turn is None:
        return outcomes.NothingOpen()
    if turn_id is not None and turn_id != session.open_turn:
        return outcomes.NothingOpen()
    if node is None or not is_live(node, found.now_ms):
        return outcomes.NotEligible()
    if holder == "alive":
        grace_ms = limits.cancel_grace_s * 1000
        if cancel_since_ms is None or found.now_ms - cancel_since_ms < grace_ms:
            assert session.lease_node is not None
            return outcomes.HolderAlive(turn_id=turn.turn_id, node=session.lease_node)
    elif holder == "expired" and found.now_ms - node.since_ms < node.ttl_ms:
        # After an outage of the store every node looks expired. A node that has just come back itself
        # waits for one TTL, so that no node takes all turns from live nodes.
        return outcomes.NotEligible()
    crashed = holder in ("expired", "dead")
    fence = msgspec.structs.replace(fence_of(session), token=session.lease_token + 1, nonce=nonce)
    return outcomes.Taken(
        fence=fence,
        turn=msgspec.structs.replace(
            turn, lease_token=fence.token, attempt=turn.attempt + (1 if crashed else 0)
        ),
    )


# ── forks ────────────────────────────────────────────────────────────────────────────────────


class ForkPoint(Value):
    """A version of a session, and which session holds it: the session itself, or one in its lineage."""

    holder: SessionId
    version: Version
    depth: int
    """How many segments of the session's lineage come before the holder."""
    rev: int | None
    """The annotation revision at that version; None if it must be read from the next turn, which is `holder`'s own."""


def fork_point(session: SessionRow, version: Version) -> ForkPoint | None:
    """Which session holds a version. None if the session has no such version yet.

    A version belongs with the annotations that were made while it was the head. The session's row has their
    revision for the head; for an earlier version, the next turn has it. So the session that made the next
    version holds this one.
    """
    own = len(session.lineage)
    if version > session.head:
        return None
    if version == session.head:
        return ForkPoint(holder=session.id, version=version, depth=own, rev=session.meta_rev)
    for depth, segment in enumerate(session.lineage):
        if version < segment.upto_version:
            return ForkPoint(holder=segment.session_id, version=version, depth=depth, rev=None)
    return ForkPoint(holder=session.id, version=version, depth=own, rev=None)


def lineage_at(session: SessionRow, point: ForkPoint, *, length: int, rev: int) -> Lineage:
    """The flat lineage of a session that is forked at this point."""
    here = Segment(
        session_id=point.holder, upto_pos=length, upto_version=point.version, upto_rev=rev
    )
    return (*session.lineage[: point.depth], here)


def owner_of(session: SessionRow, version: Version) -> SessionId:
    """The session whose own turn made this version: the first in the lineage that reaches it."""
    for segment in session.lineage:
        if version <= segment.upto_version:
            return segment.session_id
    return session.id


class Stretch(Value):
    """The part of a history that one session holds: everything after `from_*`, up to `upto_*`."""

    session_id: SessionId
    from_pos: int
    from_version: Version
    from_rev: int
    upto_pos: int
    upto_version: Version
    upto_rev: int


def stretches(lineage: Lineage) -> tuple[Stretch, ...]:
    """A lineage as the ranges to read from each session, oldest first; empty ones left out."""
    found: list[Stretch] = []
    pos, version, rev = 0, Version(0), 0
    for each in lineage:
        stretch = Stretch(
            session_id=each.session_id,
            from_pos=pos,
            from_version=version,
            from_rev=rev,
            upto_pos=each.upto_pos,
            upto_version=each.upto_version,
            upto_rev=each.upto_rev,
        )
        if (pos, version, rev) != (each.upto_pos, each.upto_version, each.upto_rev):
            found.append(stretch)
        pos, version, rev = each.upto_pos, each.upto_version, each.upto_rev
    return tuple(found)


def after(known: Snapshot, past: tuple[Stretch, ...]) -> tuple[Stretch, ...]:
    """The parts of these stretches that come after a snapshot that the caller has already."""
    newer = (
        msgspec.structs.replace(
            each,
            from_pos=max(each.from_pos, len(known.items)),
            from_version=max(each.from_version, known.version),
            from_rev=max(each.from_rev, known.notes.rev),
        )
        for each in past
    )
    return tuple(
        each
        for each in newer
        if each.from_version < each.upto_version or each.from_rev < each.upto_rev
    )
