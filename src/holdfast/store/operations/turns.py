"""T1 and T2: T1 makes an open turn of a request; T2 makes the turn the session's next version, or discards it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast import limits
from holdfast.core.history.branches import digests_of
from holdfast.core.history.conversation import Commit
from holdfast.core.items import EndedBy, path_text
from holdfast.core.turns.events import (
    NO_USAGE,
    Began,
    MemoryAdded,
    MemoryDeleted,
    StateSet,
    Usage,
)
from holdfast.core.turns.journal import encode_records, numbered
from holdfast.errors import SessionDamaged, StoreDamaged
from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.store import decisions, row_changes
from holdfast.store.first_words import opening_of
from holdfast.store.operations.finders import (
    CLAIMS_OF,
    SIGNALS_OF,
    TurnFacts,
    claim_of,
    queued_of,
    turn_of,
)
from holdfast.store.operations.lines import STAYS, name_after, new_line
from holdfast.store.operations.nodes import held
from holdfast.store.outcomes import (
    Anonymous,
    Attempt,
    Begin,
    BeginOutcome,
    ByKey,
    CommitOutcome,
    Committed,
    Fence,
    Known,
    Moved,
    NewLine,
    QueuedOpening,
    Settlement,
    Started,
    Target,
)
from holdfast.store.rows import (
    IdempotencyRow,
    ItemRow,
    JournalRow,
    KeyRow,
    MemoryRow,
    NodeRow,
    SessionRow,
    SignalRow,
    StateRow,
    TurnRow,
)
from holdfast.store.sql.tables import (
    CLAIMS,
    HORIZON,
    ITEMS,
    JOURNAL,
    KEYS,
    MEMORIES,
    NODES,
    SESSIONS,
    SIGNALS,
    STATE,
    TURN_CLAIMS,
    TURNS,
)
from holdfast.store.steps import (
    NOW,
    AsRead,
    Change,
    Delete,
    Facts,
    Finder,
    Moment,
    Operation,
    Update,
    change,
    field,
    find,
    get,
    has,
    holder,
    insert,
    last,
    look,
    one,
    write,
)
from holdfast.store.verification import proofs

CLAIM_KEEP_MS = int(limits.idempotency_keep_s * 1000)
"""How long an idempotency key is kept after its turn has ended."""

# ── finding out ──────────────────────────────────────────────────────────────────────────────


class BeginLook(Facts):
    """The rows that T1 always reads. A session key that names no session yet leads to the request's `fresh` id."""

    node: NodeRow | None = one(NODES, node_id=":node")
    key: KeyRow | None = one(KEYS, tenant=":tenant", key=":key")
    session: SessionRow | None = one(
        SESSIONS, tenant=":tenant", id=("key.session_id", ":session_id")
    )
    holder: NodeRow | None = holder("session.lease_node")
    has_begun: bool = has(TURNS, tenant=":tenant", turn_id=":turn_id")
    claim: IdempotencyRow | None = one(CLAIMS, tenant=":tenant", key=":claim")


class TargetLook(Facts):
    """The session that a target names, and the row of an idempotency key."""

    key: KeyRow | None = one(KEYS, tenant=":tenant", key=":key")
    session: SessionRow | None = one(
        SESSIONS, tenant=":tenant", id=("key.session_id", ":session_id")
    )
    claim: IdempotencyRow | None = one(CLAIMS, tenant=":tenant", key=":claim")


class RetryLook(Facts):
    """The turns that a request may be a retry of."""

    open_turn: TurnRow | None = one(TURNS, tenant=":tenant", turn_id=":open_turn")
    head_turn: TurnRow | None = one(TURNS, tenant=":tenant", session_id=":session_id", seq=":head")


EARLIER = Finder(
    TURNS,
    tenant=":tenant",
    session_id=":session_id",
    request_hash=":request_hash",
    order=("-seq",),
    over="seq",
    index="turn_by_seq",
)
UNFINISHED = Finder(
    TURNS,
    tenant=":tenant",
    request_hash=":request_hash",
    state="committed",
    order=("-turn_id",),
    unlike={"ended_by": "completed"},
    index="turn_unfinished",
)


def find_attempt(
    tenant: Tenant, attempt: Attempt, target: Target | None = None
) -> Operation[Known | None]:
    """The outcome for a request that is known already; None if it is new. A plain read.

    It is known by its idempotency key, or, with a `target`, as a recognised retry of that session's turn. If the
    request's session key names another session by now, the outcome is not `Unfinished`.
    `begin` checks again; this is for callers whose further checks must not apply to a retry, such as `If-Match`.
    """
    name, session_id = decisions.named_by(target) if target else (None, None)
    try:
        found = yield from look(
            TargetLook, tenant=tenant, key=name, session_id=session_id, claim=attempt.key
        )
    except SessionDamaged as damage:
        raise _of_target(target, damage) from damage.__cause__
    claim = yield from claim_of(found.claim)
    meant = found.key.session_id if found.key else None
    known = decisions.judge_claim(attempt, claim, meant=meant)
    session = found.session
    if known is not None or session is None or not decisions.may_be_recognised(attempt):
        return known
    recent, earlier, queued = yield from _recent(session, attempt)
    return decisions.recognised(
        attempt,
        session,
        open_turn=recent.open_turn,
        head_turn=recent.head_turn,
        earlier=earlier,
        queued=queued,
        now_ms=recent.now_ms,
    )


def _recent(
    session: SessionRow, attempt: Attempt
) -> Operation[tuple[RetryLook, TurnRow | None, tuple[TurnRow, ...]]]:
    tenant, head = session.tenant, session.head
    recent = yield from look(
        RetryLook, tenant=tenant, session_id=session.id, open_turn=session.open_turn, head=head
    )
    if not attempt.client_attempt:
        return recent, None, ()
    earlier = yield from find(
        EARLIER,
        tenant=tenant,
        session_id=session.id,
        request_hash=attempt.request_hash,
        above=head - limits.recognised_versions,
        upto=head - 1,
        limit=1,
    )
    queued = yield from queued_of(session)
    return recent, earlier[0] if earlier else None, queued


def turn_unfinished(tenant: Tenant, request_hash: bytes) -> Operation[TurnRow | None]:
    """The last turn with this request hash that was committed without completing. `find_attempt` decides whether it
    can be continued."""
    rows = yield from find(UNFINISHED, tenant=tenant, request_hash=request_hash, limit=1)
    return rows[0] if rows else None


def begin_facts(ask: Begin) -> Operation[decisions.BeginFacts]:
    """The rows that T1 decides on: one look in the ordinary case. The rows that only a retry needs are read later,
    and are as valid then."""
    tenant, turn_id = ask.tenant, ask.request.turn_id
    key, session_id = decisions.named_by(ask.target)
    try:
        found = yield from look(
            BeginLook,
            tenant=tenant,
            node=ask.node,
            key=key,
            session_id=session_id,
            turn_id=turn_id,
            claim=ask.attempt.key,
        )
    except SessionDamaged as damage:
        raise _of_target(ask.target, damage) from damage.__cause__
    session, now_ms = found.session, found.now_ms
    facts = decisions.BeginFacts(
        now_ms=now_ms,
        node=found.node,
        claim=(yield from claim_of(found.claim)) if found.claim else None,
        key=found.key,
        session=session,
        holder=decisions.judge_holder(session, found.holder, asking=ask.node, now_ms=now_ms),
    )
    if session is not None and decisions.looks_back(ask, session):
        recent, earlier, queued = yield from _recent(session, ask.attempt)
        facts = msgspec.structs.replace(
            facts,
            open_turn=recent.open_turn,
            head_turn=recent.head_turn,
            earlier=earlier,
            queued=queued,
        )
    if ask.expire_after_ms is not None:
        facts = msgspec.structs.replace(facts, horizon=(yield from get(HORIZON, 1)))
    if found.has_begun:
        own = yield from look(TurnFacts, tenant=tenant, turn_id=turn_id)
        facts = msgspec.structs.replace(facts, own_turn=own.turn, own_session=own.session)
    return facts


def _of_target(target: Target | None, damage: SessionDamaged) -> StoreDamaged:
    """What damage that a request meets means: a conversation that it would make has an id that nobody knows yet."""
    if isinstance(target, Anonymous | NewLine):
        return StoreDamaged("what a new conversation needs", damage.why, in_pages=damage.in_pages)
    return damage


# ── begin ────────────────────────────────────────────────────────────────────────────────────


def begin(ask: Begin) -> Operation[BeginOutcome]:
    """T1. Claim the idempotency key, find or make the session, open the turn, write record 0.

    Checks, in this order: the idempotency row; a recognised retry (`client_attempt` ≥ 1, the same
    request hash, begun by an earlier attempt, and either open or queued, or the last one that was kept, ended
    within `recognised_retry_s` and not acknowledged; or, without a key, the same request hash as the unfinished
    head, ended within `unfinished_retry_s` and not acknowledged); the session; an open turn; the head; this node.
    A `Begin` whose own turn is open already (the same turn id) gives `Started` again.

    A request that `continues` a turn needs that turn at the head, unfinished (else `Finished`), and takes over the
    keys that lead to it. While another continuation of that turn is open, the request is `Joined` to it. A
    continuation that a retry began (`links` ≥ 1) uses up one of the session's `retries_left`, however it ends. If it
    is discarded, the keys that it took over lead back to the turn that it was to continue.
    """
    facts = yield from begin_facts(ask)
    outcome = decisions.judge_begin(ask, facts)
    if not isinstance(outcome, Started) or facts.own_turn is not None:
        return outcome
    session, fence, now_ms = facts.session, outcome.fence, facts.now_ms
    changes: list[Change] = []
    as_read = claim_as_read(facts.claim) if facts.claim else ()
    on: tuple[SessionRow, ...] = (session,) if session else ()
    family = session.family if session else None
    if session is not None:
        if family is None and row_changes.is_followed(ask):
            family = session.id
        changes.append(_begun(session, ask, fence, family))
    elif isinstance(ask.target, NewLine):
        line = yield from new_line(ask, ask.target, fence)
        if isinstance(line, Moved):
            return line
        family, on = line.row.family, line.on
        changes += line.changes
        as_read += line.as_read
    else:
        made = row_changes.new_session(ask, fence, now_ms=now_ms)
        family = made.family
        changes += _new_session(ask, made)
    turn = row_changes.new_turn(
        ask,
        fence.session_id,
        "open",
        retry_of=outcome.retry_of,
        began_ms=now_ms,
        lease_token=fence.token,
        continued=facts.head_turn if ask.request.continues is not None else None,
        family=family,
    )
    request = first_record(ask, token=fence.token, now_ms=now_ms)
    changes += (insert(TURNS, turn), insert(JOURNAL, request))
    if ask.request.continues is not None:
        moved = yield from _moved_keys(ask)
        as_read += tuple(map(_leads_there, moved))
        changes += (_led_to(turn.turn_id, row) for row in moved)
    if ask.attempt.key is not None:
        changes += claimed(ask.attempt, facts.claim, turn.tenant, turn.turn_id)
    yield from write(*changes, on=on, live=ask.node, as_read=as_read)
    return outcome


def _begun(session: SessionRow, ask: Begin, fence: Fence, family: SessionId | None) -> Update:
    """The change that begins a turn on a session. A retry that continues its head uses up one of `retries_left`."""
    more: dict[str, object] = {}
    if ask.request.links:
        assert session.retries_left, "T1 lets no other retry continue it"
        more["retries_left"] = session.retries_left - 1
    if family != session.family:
        more |= change(SESSIONS, session, family=family).columns
    return held(session, fence, ask.node, **more)


def _new_session(ask: Begin, made: SessionRow) -> Iterator[Change]:
    yield insert(SESSIONS, made)
    if isinstance(ask.target, ByKey):
        key = KeyRow(tenant=ask.tenant, key=ask.target.key, session_id=made.id)
        yield insert(KEYS, key)


def first_record(ask: Begin | QueuedOpening, *, token: int, now_ms: int) -> JournalRow:
    """The first row of a turn's journal: the request as it was decided."""
    records = encode_records(numbered((Began(request=ask.request),), first=0, at_ms=now_ms))
    return journal_row(ask.tenant, ask.request.turn_id, 0, token, records)


def journal_row(tenant: Tenant, turn_id: TurnId, n: int, token: int, records: bytes) -> JournalRow:
    return JournalRow(tenant=tenant, turn_id=turn_id, n=n, token=token, records=records)


def _moved_keys(ask: Begin) -> Operation[list[IdempotencyRow]]:
    """The keys that lead to the continued turn, and are to lead to its continuation. Keys of steered requests are among
    them: their messages are part of the turn."""
    rows = yield from find(CLAIMS_OF, tenant=ask.tenant, turn_id=ask.request.continues)
    return [row for row in rows if row.state == "done" and row.key != ask.attempt.key]


def _led_to(turn_id: TurnId, row: IdempotencyRow, steer: int | None = None) -> Update:
    """The change after which a key leads to another, open turn: its own, unless a signal has steered it in."""
    return change(CLAIMS, row, turn_id=turn_id, state="running", expires_ms=0, steer=steer)


def claimed(
    attempt: Attempt | None,
    claim: decisions.Claim | None,
    tenant: Tenant,
    turn_id: TurnId,
    *,
    steer: int | None = None,
) -> list[Change]:
    """The change after which the request's key, if it has one, leads to this turn; `steer` is the number of the signal
    that steered the request into the turn.

    It replaces what the key led to before.
    """
    if attempt is None or attempt.key is None:
        return []
    if claim is not None:
        return [_led_to(turn_id, claim.row, steer)]
    row = IdempotencyRow(
        tenant=tenant,
        key=attempt.key,
        request_hash=attempt.request_hash,
        turn_id=turn_id,
        state="running",
        steer=steer,
    )
    return [insert(CLAIMS, row)]


def claim_as_read(claim: decisions.Claim | None) -> tuple[AsRead, ...]:
    """The condition that a key that was read still leads to the same turn."""
    return () if claim is None else (_leads_there(claim.row),)


def _leads_there(row: IdempotencyRow) -> AsRead:
    return AsRead(CLAIMS, row, ("turn_id", "state"))


# ── append ───────────────────────────────────────────────────────────────────────────────────


class AppendLook(Facts):
    """The rows that an append reads: the first number of the journal's last row, and the records under its own."""

    session: SessionRow | None = one(SESSIONS, tenant=":tenant", id=":session_id")
    last_n: int | None = last(JOURNAL, "n", tenant=":tenant", turn_id=":turn_id")
    same_n: bytes | None = field(JOURNAL, "records", tenant=":tenant", turn_id=":turn_id", n=":n")


def append(
    fence: Fence, *, n: int, records: bytes, consumed: Sequence[int] = ()
) -> Operation[None]:
    """Add records to the turn's journal, from number `n` on, and consume these steer signals.

    Raises Superseded under an old fence. The same append again changes nothing.
    """
    found = yield from _appending(fence, n)
    session = decisions.demand_fence(fence, found.session)
    changes = _appended(fence, found, n=n, records=records)
    changes += (
        Update(SIGNALS, (fence.tenant, fence.turn_id, each), {"consumed": True})
        for each in consumed
    )
    if changes:
        yield from write(*changes, on=(session,))


def _appending(fence: Fence, n: int) -> Operation[AppendLook]:
    return look(
        AppendLook,
        tenant=fence.tenant,
        turn_id=fence.turn_id,
        session_id=fence.session_id,
        n=n,
    )


def _appended(fence: Fence, found: AppendLook, *, n: int, records: bytes) -> list[Change]:
    is_new = decisions.judge_append(
        n, records, last_n=_first_number(found.last_n), same_n=found.same_n
    )
    if not is_new:
        return []
    return [insert(JOURNAL, journal_row(fence.tenant, fence.turn_id, n, fence.token, records))]


def _first_number(last_n: int | None) -> int:
    return -1 if last_n is None else last_n


# ── commit ───────────────────────────────────────────────────────────────────────────────────


class EndLook(Facts):
    """The rows that T2 reads."""

    session: SessionRow | None = one(SESSIONS, tenant=":tenant", id=":session_id")
    replayable: bool | None = field(TURNS, "replayable", tenant=":tenant", turn_id=":turn_id")
    last_n: int | None = last(JOURNAL, "n", tenant=":tenant", turn_id=":turn_id")
    is_told: bool = has(SIGNALS, tenant=":tenant", turn_id=":turn_id", consumed=False)
    """The turn has signals that it has not read."""
    is_claimed: bool = has(CLAIMS, tenant=":tenant", turn_id=":turn_id")


def commit(
    fence: Fence, made: Commit, *, n: int, records: bytes, settlement: Settlement = "done"
) -> Operation[CommitOutcome]:
    """T2. Put the turn into the history: items, state, memories, link, idempotency; close the turn.

    Every key that leads to the turn is settled: its own, and those of requests that were steered into it.

    Raises Superseded under an old fence, or if the session has moved past the turn's base.
    The outcome is `Unconsumed`, and nothing changes, if a steered message waits and the turn can still read
    it: a turn that broke off, or that waits for its client, cannot. Committing the same turn again
    under the same token returns the same version, also after it was closed.

    `n` comes after everything in the journal (else StoreError): a node that commits has to know all
    that happened. `records` are the journal's last ones. The journal is kept only for a replayable turn, and for a
    turn that did not complete: no client asks for the events of any other turn, and its items hold everything.
    """
    tenant, turn_id = fence.tenant, fence.turn_id
    found = yield from look(EndLook, tenant=tenant, turn_id=turn_id, session_id=fence.session_id)
    session = found.session
    # An open turn has not been committed before; of any other turn we must know how it ended.
    is_open = session is not None and session.open_turn == turn_id
    turn = None if is_open else (yield from turn_of(tenant, turn_id))
    steers: tuple[SignalRow, ...] = ()
    if found.is_told:
        told = yield from find(SIGNALS_OF, tenant=tenant, turn_id=turn_id)
        steers = decisions.waiting_steers(told)
    outcome = decisions.judge_commit(
        fence,
        made,
        session=session,
        turn=turn,
        steers=steers,
        n=n,
        last_n=_first_number(found.last_n),
    )
    if outcome is not None:
        return outcome
    assert session is not None, "judge_commit lets only held turns through"
    assert found.replayable is not None, "an open turn has a row"
    keeps = made.keeps_journal(replayable=bool(found.replayable))
    moved = STAYS if session.family is None else (yield from name_after(session, made))
    changes: list[Change] = [
        _committed(session, made, moved.columns),
        _ended(fence, session, made, keeps=keeps),
        *moved.changes,
    ]
    changes += _content(session, made)
    if not keeps:  # no client will ask for this turn's events
        changes.append(Delete(JOURNAL, (tenant, turn_id)))
    elif records:
        changes.append(insert(JOURNAL, journal_row(tenant, turn_id, n, fence.token, records)))
    if found.is_claimed and found.is_told:
        changes += yield from settled(tenant, turn_id, settlement, expires_ms=_CLAIMS_EXPIRE)
    elif found.is_claimed:  # it has read every steered message: all its keys become the same
        to = {"state": settlement, "expires_ms": _CLAIMS_EXPIRE}
        changes.append(Update(TURN_CLAIMS, (tenant, turn_id), to))
    at_ms = yield from write(*changes, on=(session, *moved.on), as_read=moved.as_read)
    return Committed(version=made.version, at_ms=at_ms)


_CLAIMS_EXPIRE = Moment(CLAIM_KEEP_MS)


def _committed(session: SessionRow, made: Commit, more: Mapping[str, object]) -> Update:
    """The change that gives a session its next version. The first commit also writes its source, agent and opening."""
    columns: dict[str, object] = {
        **more,
        "head": made.version,
        "length": session.length + len(made.encoded),
        "link": made.link,
        "agent": made.agent,
        "active_ms": NOW,
        "open_turn": None,
        "lease_node": None,
        "unfinished": made.unfinished,
        "retries_left": made.retries_left,
    }
    if not (session.source_key and session.entry_agent and session.opening):
        source_key = session.source_key or made.source_key
        entry_agent = session.entry_agent or made.entry_agent
        opening = session.opening or opening_of(made.items)
        columns |= {"source_key": source_key, "entry_agent": entry_agent, "opening": opening}
        source_name = session.source_name if session.source_key else made.source_name or None
        if source_name is not None:
            columns["source_name"] = source_name
        if source_key and entry_agent and opening:
            known = (source_key, entry_agent, opening, source_name)
            columns["agent_proof"] = proofs.agent_proof(*known)
    return Update(SESSIONS, (session.tenant, session.id), columns)


def _ended(fence: Fence, session: SessionRow, made: Commit, *, keeps: bool) -> Update:
    """The change of the turn's row when it is committed."""
    end = session.length + len(made.encoded)
    columns: dict[str, object] = {
        "state": "committed",
        "seq": made.version,
        "ended_by": made.ended_by,
        "detail": made.detail,
        "agent": made.agent,
        "start": session.length,
        "end": end,
        "rev": session.meta_rev,
        "changes": made.changes,
        "link": made.link,
        "usage": made.usage,
        "ended_ms": NOW,
        "links": made.links,
        "replayable": keeps,
    }
    digests: tuple[bytes | None, ...] = ()
    if session.family is not None:
        is_whole = made.ended_by == "completed"
        found = digests_of(made.items, made.waiting, made.followed, whole=is_whole)
        digests = (found.answer, found.prefix, found.answer_id)
        columns |= zip(("answer", "prefix", "answer_id"), digests, strict=True)
    columns["end_proof"] = proofs.end_proof(
        "committed",
        made.ended_by,
        made.detail,
        fence.token,
        made.agent,
        session.length,
        end,
        session.meta_rev,
        made.links,
        made.usage,
        digests,
    )
    return Update(TURNS, (fence.tenant, fence.turn_id), columns)


def _content(session: SessionRow, made: Commit) -> Iterator[Change]:
    """The changes that store items, state and memories."""
    tenant, session_id = session.tenant, session.id
    rows = [
        ItemRow(
            tenant=tenant,
            session_id=session_id,
            pos=pos,
            turn_id=made.turn_id,
            path=path_text(item.path),
            body=body,
        )
        for pos, (item, body) in enumerate(
            zip(made.items, made.encoded, strict=True), session.length
        )
    ]
    yield insert(ITEMS, *rows)
    if not made.changes:
        return
    # The last change of each name counts, as in `changed_state`.
    values = {each.name: each.value for each in made.changes if isinstance(each, StateSet)}
    for name, value in values.items():
        row = StateRow(
            tenant=tenant, session_id=session_id, name=name, seq=made.version, value=value
        )
        yield insert(STATE, row)
    # The last change counts here as well: no row is written twice.
    memories = {
        (each.agent, each.memory_id): each
        for each in made.changes
        if isinstance(each, MemoryAdded | MemoryDeleted)
    }
    for each in memories.values():
        yield _remembered(tenant, made.turn_id, each)


def _remembered(tenant: Tenant, turn_id: TurnId, said: MemoryAdded | MemoryDeleted) -> Change:
    if isinstance(said, MemoryDeleted):
        return Delete(MEMORIES, (tenant, said.agent, said.memory_id))
    row = MemoryRow(
        tenant=tenant,
        agent=said.agent,
        memory_id=said.memory_id,
        text=said.text,
        turn_id=turn_id,
        at_ms=NOW,
    )
    return insert(MEMORIES, row, if_absent=True)


def settled(
    tenant: Tenant,
    turn_id: TurnId,
    settlement: Settlement,
    *,
    expires_ms: int,
    back_to: TurnId | None = None,
) -> Operation[list[Change]]:
    """The changes of the idempotency keys that lead to a turn when it ends."""
    rows = yield from find(CLAIMS_OF, tenant=tenant, turn_id=turn_id)
    running = [row for row in rows if row.state == "running"]
    is_told = any(row.steer is not None for row in running)
    told = (yield from find(SIGNALS_OF, tenant=tenant, turn_id=turn_id)) if is_told else ()
    changes: list[Change] = []
    for row in running:
        after = decisions.settled(row, settlement, told, expires_ms=expires_ms, back_to=back_to)
        columns: dict[str, object] = {"state": after.state, "expires_ms": expires_ms}
        if after.turn_id != row.turn_id:  # written only if it differs: the column has an index
            columns["turn_id"] = after.turn_id
        changes.append(change(CLAIMS, row, **columns))
    return changes


# ── end ──────────────────────────────────────────────────────────────────────────────────────


def end(
    fence: Fence,
    *,
    ended_by: EndedBy,
    detail: str,
    n: int,
    records: bytes,
    settlement: Settlement,
    usage: Usage = NO_USAGE,
) -> Operation[TurnRow]:
    """Discard the turn: everything but its own row and journal is as if it had not been.

    Raises Superseded under an old fence. Ending it again returns the same row.
    """
    found = yield from _appending(fence, n)
    # Read after the session: so it shows an end of ours that was written meanwhile.
    turn = yield from turn_of(fence.tenant, fence.turn_id)
    session = found.session
    ended = decisions.judge_end(fence, session=session, turn=turn)
    if ended is not None:
        return ended
    assert session is not None and turn is not None, "judge_end lets only held turns through"
    changes = _appended(fence, found, n=n, records=records)
    changes.append(change(SESSIONS, session, open_turn=None, lease_node=None))
    row, more = yield from discarded(
        turn,
        ended_by=ended_by,
        detail=detail,
        settlement=settlement,
        now_ms=found.now_ms,
        usage=usage,
    )
    yield from write(*changes, *more, on=(session,))
    return row


def discarded(
    turn: TurnRow,
    *,
    ended_by: EndedBy,
    detail: str,
    settlement: Settlement,
    now_ms: int,
    usage: Usage = NO_USAGE,
) -> Operation[tuple[TurnRow, list[Change]]]:
    """The row of an open or queued turn after it was discarded, and the changes to write."""
    to: dict[str, object] = {
        "state": "discarded",
        "ended_by": ended_by,
        "detail": detail,
        "ended_ms": now_ms,
        "usage": usage,
    }
    changes = yield from settled(
        turn.tenant,
        turn.turn_id,
        settlement,
        expires_ms=now_ms + CLAIM_KEEP_MS,
        back_to=None if ended_by == "deleted" else turn.continues,
    )
    return msgspec.structs.replace(turn, **to), [change(TURNS, turn, **to), *changes]


def acknowledge(tenant: Tenant, turn_id: TurnId) -> Operation[None]:
    """Note that the client was sent the whole answer. Absent turns are ignored."""
    yield from write(Update(TURNS, (tenant, turn_id), {"acked": True}))


# ── stray turns ──────────────────────────────────────────────────────────────────────────────


def end_stray(tenant: Tenant, turn_id: TurnId) -> Operation[TurnRow | None]:
    """Discard an open turn that its session does not name; its keys have failed. Returns its row; None, and nothing is
    changed, if it has ended or its session names it.

    No operation leaves such a turn; a server with a mistake has made it, or damage. A retry that joined it would wait
    for ever, so sweeps end it.
    """
    found = yield from look(TurnFacts, tenant=tenant, turn_id=turn_id)
    turn, session = found.turn, found.session
    if turn is None or turn.state != "open":
        return None
    if session is not None and session.open_turn == turn_id:
        return None
    row, changes = yield from discarded(
        turn,
        ended_by="crash",
        detail="its session went on without it",
        settlement="failed",
        now_ms=found.now_ms,
    )
    on = (session,) if session is not None else ()
    yield from write(*changes, on=on, as_read=(AsRead(TURNS, turn, ("state",)),))
    return row
