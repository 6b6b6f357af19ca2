"""Finds the session that a request names, and makes the turn request from the new messages.

Nothing is final here: the transaction that begins the turn (T1) checks the key and the head again. So a cached key
or snapshot may be stale, and a key that is not cached may be taken for a new one; `begin` then answers `Moved` or
`Gone`, and the lookup is repeated.
"""

from __future__ import annotations

import msgspec

from holdfast import limits
from holdfast.core.attachments import set_aside
from holdfast.core.codec import Value
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.reconciliation import (
    WHY_UNDECIDED,
    ApprovalClosed,
    ApprovalsMissing,
    Fresh,
    NothingNew,
    Reconciled,
    ResultsMissing,
    Speaker,
    StillAsked,
    UnknownCall,
    reconcile,
    take_in,
)
from holdfast.core.history.resends import Arrival, Overtaken
from holdfast.core.items import HandOff, Interruption, Items, Opaque, Summary, Text
from holdfast.core.policy import resolve_policy
from holdfast.core.turns.events import TurnRequest
from holdfast.core.turns.unfinished_turns import NOTHING_SPENT
from holdfast.errors import (
    ApprovalUndecided,
    CannotContinue,
    SessionConflict,
    SessionGone,
    SessionMissing,
    TurnRejected,
)
from holdfast.ids import SessionId, SessionKey, Tenant, TurnId
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.cache import SnapshotCache
from holdfast.sessions.session_requests import Ask, Choose, Continuation, as_asked
from holdfast.store.outcomes import Anonymous, ById, ByKey, Target
from holdfast.store.store import Store


class ResolvedSession(Value):
    """The session that a request names, as far as this node knows."""

    target: Target
    expected: SessionId | None
    """The session that was found; None if there is none yet."""
    snapshot: Snapshot
    verified: bool
    """Read from the store just now, not from the cache."""


class NewTurn(Value):
    """The turn that a request is about to begin."""

    request: TurnRequest
    fresh: Fresh
    """The new messages, as they came out of the comparison with the history."""
    ignored: tuple[str, ...] = ()
    """The request's parameters that the agent ignores."""


class SessionLookup:
    """Finds sessions by key or id, in the cache where that is enough."""

    def __init__(self, store: Store, cache: SnapshotCache, ambient: Ambient) -> None:
        self._store = store
        self._cache = cache
        self._ambient = ambient

    def remembered(self, ask: Ask) -> ResolvedSession | None:
        """The session of this request from the cache alone; None if the key or the session is not cached."""
        name = ask.name
        if ask.line is not None:
            return None
        known = self._cache.meaning(ask.tenant, name) if isinstance(name, SessionKey) else name
        snapshot = None if known is None else self._cache.get(ask.tenant, known)
        if known is None or snapshot is None:
            return None
        target: Target = ById(session_id=known)
        if isinstance(name, SessionKey):
            target = ByKey(key=name, create=ask.create)
        return ResolvedSession(target=target, expected=known, snapshot=snapshot, verified=False)

    async def look(self, ask: Ask, *, verify: bool) -> ResolvedSession:
        """The session that this request names. With `verify`, it is read from the store, not from the cache.

        Raises SessionMissing and SessionGone.
        """
        if ask.line is not None:
            line = ask.line
            return ResolvedSession(
                target=line.target, expected=line.expected, snapshot=line.snapshot, verified=True
            )
        match ask.name:
            case None:
                fresh = self._ambient.mint(SessionId)
                return _nothing_yet(Anonymous(fresh=fresh), fresh)
            case SessionId():
                snapshot = await self.snapshot(ask.tenant, ask.name, verify=verify)
                target = ById(session_id=ask.name)
                return ResolvedSession(
                    target=target, expected=ask.name, snapshot=snapshot, verified=verify
                )
            case SessionKey():
                return await self._look_by_key(ask, ask.name, verify=verify)

    async def _look_by_key(self, ask: Ask, key: SessionKey, *, verify: bool) -> ResolvedSession:
        fresh = self._ambient.mint(SessionId)
        target = ByKey(key=key, fresh=fresh, create=ask.create)
        known = None if verify else self._cache.meaning(ask.tenant, key)
        if known is None and not verify and _may_be_first(ask):
            return _nothing_yet(target, fresh, verified=False)
        looked_up = known is None
        if known is None:
            row = await self._store.resolve(ask.tenant, key)
            if row is None:
                self._cache.forget(ask.tenant, key)
                if not ask.create:
                    raise SessionMissing("session key", key)
                return _nothing_yet(target, fresh)
            known = row.session_id
        snapshot = await self.snapshot(ask.tenant, known, verify=verify)
        if looked_up:
            # Only now: requests that arrive meanwhile still wait in the lane of the key, as this one did.
            self._cache.learn(ask.tenant, key, known)
        return ResolvedSession(target=target, expected=known, snapshot=snapshot, verified=verify)

    async def with_blobs(
        self, tenant: Tenant, seen: ResolvedSession, request: TurnRequest
    ) -> TurnRequest:
        """Store the blobs of a request, before the turn whose items name them begins. A session that does not exist yet
        has its id already; if the key turns out to lead to another session, the blobs are stored there, too."""
        items, large = set_aside(request.input)
        for data in large:
            await self._store.put_blob(tenant, seen.snapshot.session_id, data)
        return msgspec.structs.replace(request, input=items) if large else request

    async def snapshot(self, tenant: Tenant, session_id: SessionId, *, verify: bool) -> Snapshot:
        """A session at its head, or as it is cached. Raises SessionMissing and SessionGone."""
        known = self._cache.get(tenant, session_id)
        if known is not None and not verify:
            return known
        snapshot = await self._store.snapshot(tenant, session_id, known=known)
        if snapshot is None:
            self._cache.drop(tenant, session_id)
            row = await self._store.session(tenant, session_id)
            if row is not None and row.state == "deleted":
                raise SessionGone(session_id, why="deleted")
            raise SessionMissing("session", session_id)
        self._cache.put(tenant, snapshot)
        return snapshot


def named(name: SessionKey | SessionId) -> Target:
    """The target of a session key or id, for a request that makes no session."""
    return ById(session_id=name) if isinstance(name, SessionId) else ByKey(key=name)


def _nothing_yet(target: Target, fresh: SessionId, *, verified: bool = True) -> ResolvedSession:
    return ResolvedSession(
        target=target, expected=None, snapshot=Snapshot(session_id=fresh), verified=verified
    )


def _may_be_first(ask: Ask) -> bool:
    """Whether a key that is not cached is taken to be new. T1 checks it anyway, and answers if it is not new: a read
    before T1 would make every first request of a conversation wait once more.

    False if the request contains an assistant's message, since the key is then more likely known; and false if it has
    blobs, which are stored before T1 and would be left behind.
    """
    return ask.create and all(
        each.role in ("user", "system") and all(type(part) is Text for part in each.content)
        for each in ask.messages
    )


def request_of(ask: Ask, snapshot: Snapshot, ambient: Ambient, choose: Choose) -> NewTurn:
    """The turn request for `ask` on top of this snapshot, for a request that has not waited. Raises what
    `request_after` raises."""
    taken = request_after(ask, snapshot, ambient, choose)
    assert not isinstance(taken, Overtaken), "nothing can have overtaken it"
    return taken


def request_after(
    ask: Ask,
    snapshot: Snapshot,
    ambient: Ambient,
    choose: Choose,
    *,
    since: Arrival | None = None,
    running: Items | None = None,
    has_read: bool = False,
) -> NewTurn | Overtaken:
    """The turn request for `ask` on top of this snapshot. The session may have moved while the request waited: `since`
    and `running` are passed to `reconcile`. `has_read` says whether the last answer was acknowledged.

    Raises SessionConflict if `if_match` names another version, TurnRejected if no message is new or
    results are missing, ApprovalUndecided if a message in a chat leaves a question open, CannotContinue if the turn to
    continue is not the head, and the errors of `choose`.
    """
    if ask.if_match is not None and ask.if_match != snapshot.version:
        raise SessionConflict(snapshot.session_id, expected=ask.if_match, found=snapshot.version)
    if ask.approvals or any(each.decisions for each in ask.messages[-1:]):
        _demand_in_time(snapshot, ambient.now_ms())
    new: Reconciled = Fresh(input=())
    if ask.continues is None:
        speaker = _speaker(ask, snapshot, ambient.now_ms(), has_read)
        new = _reconciled(ask, snapshot, ambient, since, running, speaker)
    if not isinstance(new, Fresh):
        if isinstance(new, Overtaken):
            return new
        raise _rejected(new, snapshot)
    continued = _continued(ask.continues, snapshot) if ask.continues else None
    agent = as_asked(ask, snapshot) if ask.verbatim else choose(ask, snapshot)
    policy = resolve_policy(*ask.policies, agent.policy, ask.policy, promised_return=ask.replayable)
    request = TurnRequest(
        turn_id=ambient.mint(TurnId),
        base=snapshot.version,
        base_rev=snapshot.notes.rev,
        base_length=len(snapshot.items),
        source_key=agent.source_key,
        source_name=agent.source_name,
        source_digest=agent.source_digest,
        agent=agent.agent,
        input=_noted(new.input, ask.note),
        carried=snapshot.waiting,
        approved=new.approved,
        instructions=ask.instructions,
        parameters=ask.parameters,
        client_tools=ask.client_tools,
        reads_only=ask.reads_only,
        limits=ask.limits.within(agent.limits).within(snapshot.notes.settings.limits),
        policy=policy,
        deadline_at_ms=ambient.now_ms() + round(ask.deadline_s * 1000),
        # A node that resumes the turn has to know which events watchers have seen, to set them aside.
        replayable=ask.replayable or policy.crash == "resume",
        hears=ask.hears and not ask.verbatim,
        continues=continued,
        links=ask.continues.links if ask.continues else 0,
        spent=ask.continues.spent if ask.continues else NOTHING_SPENT,
        chat_key=ask.chat_key,
        followed=ask.line.followed if ask.line else None,
    )
    return NewTurn(request=request, fresh=new, ignored=agent.ignored)


def is_asked_in_chat(ask: Ask, snapshot: Snapshot) -> bool:
    """Whether the request comes from a chat in which calls of this session may be decided about."""
    return ask.chat_key is not None and bool(snapshot.waiting) and bool(snapshot.asked)


def _speaker(ask: Ask, snapshot: Snapshot, now_ms: int, has_read: bool) -> Speaker | None:
    """The person whose message may decide. After the time for a decision is over, a message closes the calls."""
    if ask.chat_key is None or not is_asked_in_chat(ask, snapshot) or _is_late(snapshot, now_ms):
        return None
    return Speaker(key=ask.chat_key, has_read=has_read)


def _continued(asked: Continuation, snapshot: Snapshot) -> TurnId:
    """The turn at the head, which the request continues. Raises CannotContinue if it cannot."""
    if asked.version > snapshot.version:
        raise CannotContinue(f"version {int(asked.version)}", "turn_not_head")
    turn_id = snapshot.marks[asked.version - 1].turn_id
    if asked.version != snapshot.version:
        raise CannotContinue(turn_id, "turn_not_head")
    if not snapshot.is_unfinished:
        raise CannotContinue(turn_id, "turn_complete")
    return turn_id


def _reconciled(
    ask: Ask,
    snapshot: Snapshot,
    ambient: Ambient,
    since: Arrival | None,
    running: Items | None,
    speaker: Speaker | None,
) -> Reconciled:
    if ask.verbatim:
        return take_in(snapshot, ask.messages, ambient.mint)
    line = ask.line
    found = reconcile(
        snapshot,
        ask.messages,
        ambient.mint,
        approvals=dict(ask.approvals) if ask.approvals else None,
        system_is_stored=ask.system_is_stored,
        since=since,
        running=running,
        speaker=speaker,
        known=line.known if line else None,
        needs_question=ask.needs_question and not (line and line.continues_answer),
    )
    if line is not None and line.diverged and isinstance(found, Fresh):
        return msgspec.structs.replace(found, diverged=True)
    return found


def _noted(items: Items, note: Opaque | None) -> Items:
    """The same items, the last one with the note. Without items the note is dropped."""
    if note is None or not items:
        return items
    last = items[-1]
    assert not isinstance(last, Interruption | HandOff | Summary), "no request brings these items"
    extras = (*last.extras[: limits.opaques_max - 1], note)
    return (*items[:-1], msgspec.structs.replace(last, extras=extras))


def _is_late(snapshot: Snapshot, now_ms: int) -> bool:
    asked_ms = snapshot.marks[-1].turn_id.minted_at_ms if snapshot.marks else now_ms
    return now_ms - asked_ms > limits.approval_s * 1000


def _demand_in_time(snapshot: Snapshot, now_ms: int) -> None:
    if _is_late(snapshot, now_ms):
        raise TurnRejected(
            "approval_expired",
            f"the call has waited for more than {limits.approval_s / 3600:g} hours; "
            "say what you want, and it will be asked for again",
        )


def _rejected(
    why: NothingNew | ResultsMissing | UnknownCall | ApprovalClosed | ApprovalsMissing | StillAsked,
    snapshot: Snapshot,
) -> TurnRejected | ApprovalUndecided:
    match why:
        case StillAsked(question=question, why=reason):
            return ApprovalUndecided(
                WHY_UNDECIDED[reason],
                session_id=snapshot.session_id,
                turn_id=question.turn_id,
                version=snapshot.version,
            )
        case ApprovalClosed(calls=calls):
            return TurnRejected(
                "approval_closed",
                f"{', '.join(calls)} does not wait for an approval in this conversation, or not any more; "
                "look at the conversation for what became of it. A fork, a rewind or an import cannot use an "
                "approval that was asked for before it: say what you want, and it will be asked for again",
                call_ids=tuple(map(str, calls)),
            )
        case ApprovalsMissing(calls=calls):
            return TurnRejected(
                "approvals_missing",
                f"{', '.join(calls)} waits for an approval too: decide on all of them at once, "
                "or say something instead",
                call_ids=tuple(map(str, calls)),
            )
        case NothingNew() if snapshot.is_unfinished:
            last = snapshot.marks[-1]
            return TurnRejected(
                "no_new_user_message",
                f"the request brings nothing new, and the last turn broke off ({last.ended_by}): continue it "
                f"(POST /api/turns/{last.turn_id}/continue), or add a user message with content",
            )
        case NothingNew():
            return TurnRejected(
                "no_new_user_message",
                "the request brings nothing new: add a user message with content, "
                "or results for the calls that wait for them",
            )
        case ResultsMissing(call_ids=missing):
            return TurnRejected(
                "tool_results_missing",
                f"results are missing for {', '.join(missing)}: send all of them, or a message instead",
                call_ids=missing,
            )
        case UnknownCall(call_id=call_id):
            return TurnRejected(
                "unknown_tool_call",
                f"No tool call found for function call output with call_id {call_id}.",
                call_ids=(call_id,),
            )
