"""What can happen to turns: begin, append, commit, end, takeover, signals. See `model.py` for the rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from holdfast import limits
from holdfast.core.history.conversation import Commit
from holdfast.core.items import EndedBy
from holdfast.core.turns.events import Began, MemoryAdded, MemoryDeleted, TurnRequest
from holdfast.core.turns.journal import encode_records, numbered
from holdfast.errors import SessionMissing, StoreError, Superseded
from holdfast.ids import NodeId, SessionId, SessionKey, Tenant, TurnId
from holdfast.store import outcomes
from holdfast.store.rows import (
    KeyRow,
    MemoryRow,
    NodeRow,
    SignalKind,
    SignalRow,
    TurnRow,
    TurnState,
)
from tests.store.model.things import Claim, Entry, Rows, Session, Turn

HOUR_MS = 3_600_000


class Turns:
    """The half of the model that a turn meets. `now_ms` is set from outside."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.looked_ms = now_ms
        self.used_ms = 0
        self.leaps: list[tuple[int, int, int]] = []
        """From when to when each was, and after how much use it counts."""
        self.nodes: dict[NodeId, NodeRow] = {}
        self.of: dict[Tenant, Rows] = defaultdict(Rows)

    # time

    def look(self) -> None:
        """The store looks at its clock: a step of more than an hour counts after a day of use, to the full hour."""
        step_ms = self.now_ms - self.looked_ms
        if step_ms > HOUR_MS:
            counts_ms = self.used_ms + 24 * HOUR_MS
            counts_ms -= counts_ms % HOUR_MS
            begin = self.looked_ms
            if self.leaps and self.leaps[-1][2] == counts_ms:
                former = self.leaps.pop()
                begin -= former[1] - former[0]
            self.leaps.append((begin, self.now_ms, counts_ms))
        else:
            self.used_ms += step_ms
        self.looked_ms = self.now_ms

    def age_ms(self, since_ms: int) -> int:
        """How much time has passed since, but for leaps since then that do not count yet."""
        step_ms = self.now_ms - self.looked_ms
        used_ms = self.used_ms + (step_ms if step_ms <= HOUR_MS else 0)
        gaps = [(begin, end) for begin, end, counts_ms in self.leaps if counts_ms > used_ms]
        if step_ms > HOUR_MS:
            gaps.append((self.looked_ms, self.now_ms))
        skipped = sum(end - max(begin, since_ms) for begin, end in gaps if since_ms < end)
        return self.now_ms - since_ms - skipped

    # nodes

    def renew(self, node: NodeId, *, ttl_ms: int) -> NodeRow:
        since_ms = self.nodes[node].since_ms if self.is_live(node) else self.now_ms
        expires_ms = self.now_ms + ttl_ms
        row = NodeRow(node_id=node, ttl_ms=ttl_ms, since_ms=since_ms, expires_ms=expires_ms)
        self.nodes[node] = row
        return row

    def resign(self, node: NodeId) -> None:
        self.nodes.pop(node, None)

    def is_live(self, node: NodeId) -> bool:
        return node in self.nodes and self.nodes[node].expires_ms > self.now_ms

    def is_held(self, turn: Turn, *, asking: NodeId) -> bool:
        """Whether somebody plays this turn, or may: whoever asks knows about itself."""
        return turn.node is not None and (turn.node == asking or self.is_live(turn.node))

    # begin

    def find_attempt(
        self, tenant: Tenant, attempt: outcomes.Attempt, target: outcomes.Target | None = None
    ) -> outcomes.Known | None:
        session = self.meant(tenant, target) if target else None
        named = session if isinstance(target, outcomes.ByKey) else None
        return self.claimed(tenant, attempt, named=named) or self.recognised(attempt, session)

    def claimed(
        self, tenant: Tenant, attempt: outcomes.Attempt, *, named: Session | None = None
    ) -> outcomes.Known | None:
        claim = self.claim(tenant, attempt)
        if claim is None:
            return None
        turn = claim.turn
        if claim.request_hash != attempt.request_hash:
            return outcomes.Mismatch(turn_id=turn.id)
        if turn.session.deleted:
            return outcomes.Gone(session_id=turn.session.id, why="deleted")
        if claim.state == "running":
            return join(turn, steer=claim.steer)
        if claim.state == "failed":
            return None
        if turn.commit is None or named not in (None, turn.session):
            return replay(turn)
        return self.goes_on(turn) or replay(turn)

    def goes_on(self, turn: Turn) -> outcomes.Unfinished | None:
        """Whether a retry may continue this turn: it is its session's head, and some retries are left."""
        session = turn.session
        left, version = session.retries_left, session.head.version
        at_head = turn.commit is not None and turn.commit.version == version == session.unfinished
        if not at_head or not left:
            return None
        return outcomes.Unfinished(session_id=session.id, version=version, retries_left=left)

    def turn_unfinished(self, tenant: Tenant, request_hash: bytes) -> TurnRow | None:
        found = [
            turn
            for turn in self.of[tenant].turns.values()
            if turn.state == "committed"
            and turn.ended_by != "completed"
            and turn.known.request_hash == request_hash
        ]
        return max(found, key=lambda turn: turn.id).row if found else None

    def claim(self, tenant: Tenant, attempt: outcomes.Attempt) -> Claim | None:
        return self.of[tenant].claims.get(attempt.key) if attempt.key else None

    def begin(self, ask: outcomes.Begin) -> outcomes.BeginOutcome:
        rows, request = self.of[ask.tenant], ask.request
        again = rows.turns.get(request.turn_id)
        if again is not None:
            if again.state != "open":
                return replay(again)
            if again.nonce != ask.nonce:
                return join(again)
            return outcomes.Started(
                fence=again.fence, created=again.created, retry_of=again.retry_of
            )
        session = self.meant(ask.tenant, ask.target)
        known = self.find_attempt(ask.tenant, ask.attempt, ask.target)
        if isinstance(known, outcomes.Unfinished) and request.continues is not None:
            known = None if known.session_id == ask.expected else known
        refusal = (
            known
            or (self.absent(ask) if session is None else self.in_the_way(ask, session))
            or (None if self.is_live(ask.node) else outcomes.NotLive())
        )
        return refusal or self.open(ask, session)

    def meant(self, tenant: Tenant, target: outcomes.Target) -> Session | None:
        rows = self.of[tenant]
        match target:
            case outcomes.NewLine():
                return None
            case outcomes.ByKey(key=key) if key in rows.keys:
                return rows.sessions[rows.keys[key].session_id]
            case outcomes.ById(session_id=session_id):
                return rows.sessions.get(session_id)
            case outcomes.ByKey(fresh=fresh) | outcomes.Anonymous(fresh=fresh):
                # Only if this request comes again, late.
                return None if fresh is None else rows.sessions.get(fresh)

    def recognised(
        self, attempt: outcomes.Attempt, session: Session | None
    ) -> outcomes.Joined | outcomes.Replay | outcomes.Unfinished | None:
        """A retry without a key, where that is certain. What was deleted is answered by nobody."""
        if session is None or session.deleted:
            return None
        for unended in (*([session.open] if session.open else ()), *session.queue):
            if _earlier_try(unended, attempt):
                return join(unended)
        last = next(self.committed(session), None)
        if last is not None and self.is_said_again(attempt, last):
            following = session.open
            if following is not None and following.request.continues == last.id:
                return join(following)
            return self.goes_on(last) or replay(last)
        said = (each for each in self.committed(session) if _is_same(each, attempt))
        known = next(said, None)
        recent_ms = self.now_ms - limits.recognised_retry_s * 1000
        if known is None or known.acked or known.ended_ms < recent_ms:
            return None
        return replay(known) if _earlier_try(known, attempt) else None

    def is_said_again(self, attempt: outcomes.Attempt, last: Turn) -> bool:
        """The request of a turn that broke off, not on purpose and not long ago, and nobody has its answer."""
        session = last.session
        broke_off = last.commit is not None and last.commit.version == session.unfinished
        return (
            broke_off
            and session.head.version == session.unfinished
            and session.retries_left is not None
            and not last.acked
            and attempt.key is None
            and attempt.request_hash == last.known.request_hash
            and last.ended_ms >= self.now_ms - limits.unfinished_retry_s * 1000
        )

    def committed(self, session: Session) -> Iterator[Turn]:
        """The session's own committed turns, the last one first."""
        for each in reversed(session.story):
            if each.owner == session.id and isinstance(each.what, Commit):
                yield self.of[session.tenant].turns[each.what.turn_id]

    def absent(self, ask: outcomes.Begin) -> outcomes.BeginOutcome | None:
        match ask.target:
            case outcomes.ById() | outcomes.ByKey(create=False):
                return outcomes.Missing()
        return outcomes.Gone(session_id=ask.expected, why="deleted") if ask.expected else None

    def in_the_way(self, ask: outcomes.Begin, session: Session) -> outcomes.BeginOutcome | None:
        now, idle_ms = session.head, self.age_ms(session.active_ms)
        head = now.version
        if session.deleted:
            return outcomes.Gone(session_id=session.id, why="deleted")
        if session.open is None and idle_ms > (ask.expire_after_ms or idle_ms):
            return outcomes.Gone(session_id=session.id, why="expired")
        if session.id != ask.expected:
            return outcomes.Moved(session_id=session.id, head=head)
        continues = ask.request.continues
        if session.open is not None and continues is not None:
            if session.open.request.continues == continues:
                return join(session.open)
        if session.open is not None:
            alive = self.is_held(session.open, asking=ask.node)
            return outcomes.Busy(session_id=session.id, turn_id=session.open.id, holder_alive=alive)
        if (head, now.notes.rev) != (ask.request.base, ask.request.base_rev):
            return outcomes.Moved(session_id=session.id, head=head)
        if continues is not None and not self.may_continue(ask.request, session):
            return outcomes.Finished()
        return None

    def may_continue(self, request: TurnRequest, session: Session) -> bool:
        last = next(self.committed(session), None)
        if last is None or last.id != request.continues:
            return False
        if session.unfinished != session.head.version:
            return False
        left = session.retries_left
        by_retry = bool(left) and request.links == limits.continuations_max + 1 - (left or 0)
        return request.links == 0 or by_retry

    def open(self, ask: outcomes.Begin, session: Session | None) -> outcomes.Started:
        rows, created = self.of[ask.tenant], session is None
        failed = self.claim(ask.tenant, ask.attempt)
        if failed is not None and failed.state != "failed":
            failed = None
        if session is None:
            assert not isinstance(ask.target, outcomes.ById) and ask.target.fresh is not None
            session = self.new_session(ask.tenant, ask.target.fresh)
            session.anonymous = isinstance(ask.target, outcomes.Anonymous)
            if isinstance(ask.target, outcomes.ByKey):
                self.name(session, ask.target.key)
        session.token += 1
        known, before = ask.attempt, None
        if ask.request.continues is not None:
            before = rows.turns[ask.request.continues]
            count = max(before.known.client_attempt, known.client_attempt)
            known = outcomes.Attempt(request_hash=before.known.request_hash, client_attempt=count)
        if ask.request.links:
            session.retries_left = (session.retries_left or 0) - 1
        turn = session.open = rows.turns[ask.request.turn_id] = Turn(
            ask=ask,
            known=known,
            session=session,
            created=created,
            retry_of=failed.turn.id if failed and failed.steer is None else None,
            began_ms=self.now_ms,
            token=session.token,
            nonce=ask.nonce,
            node=ask.node,
            replayable=ask.request.replayable,
        )
        first = numbered((Began(request=ask.request),), first=0, at_ms=self.now_ms)
        turn.wrote(0, encode_records(first), token=turn.token)
        for claim in rows.claims.values():
            if claim.turn is before and claim.state == "done":
                claim.turn, claim.state, claim.expires_ms = turn, "running", 0
                claim.steer = None
        self.claim_key(turn)
        return outcomes.Started(fence=turn.fence, created=created, retry_of=turn.retry_of)

    def claim_key(self, turn: Turn) -> None:
        attempt = turn.ask.attempt
        if attempt.key is not None:
            claims = self.of[turn.session.tenant].claims
            claims[attempt.key] = Claim(attempt.key, attempt.request_hash, turn)

    def new_session(self, tenant: Tenant, session_id: SessionId) -> Session:
        made = Session(tenant, session_id, created_ms=self.now_ms, active_ms=self.now_ms)
        self.of[tenant].sessions[session_id] = made
        return made

    def name(self, session: Session, key: SessionKey) -> None:
        keys = self.of[session.tenant].keys
        generation = keys[key].generation + 1 if key in keys else 1
        keys[key] = KeyRow(
            tenant=session.tenant, key=key, session_id=session.id, generation=generation
        )

    # writing under a fence

    def held(self, fence: outcomes.Fence) -> Turn:
        session = self.of[fence.tenant].sessions.get(fence.session_id)
        if session is None or session.open is None or session.open.fence != fence:
            raise Superseded(fence.turn_id, token=fence.token)
        return session.open

    def append(
        self, fence: outcomes.Fence, *, n: int, records: bytes, consumed: Sequence[int] = ()
    ) -> None:
        turn = self.held(fence)
        self.write(turn, n, records)
        turn.signals = [
            msgspec.structs.replace(each, consumed=each.consumed or each.n in consumed)
            for each in turn.signals
        ]

    def write(self, turn: Turn, n: int, records: bytes) -> None:
        if not records or any((each.n, each.records) == (n, records) for each in turn.journal):
            return
        if turn.journal and n <= turn.journal[-1].n:
            raise StoreError("a journal is appended to, never changed")
        turn.wrote(n, records, token=turn.token)

    def commit(
        self,
        fence: outcomes.Fence,
        commit: Commit,
        *,
        n: int,
        records: bytes,
        settlement: outcomes.Settlement = "done",
    ) -> outcomes.CommitOutcome:
        known = self.of[fence.tenant].turns.get(fence.turn_id)
        if known is not None and known.commit is not None and known.token == fence.token:
            if known.commit.link == commit.link:
                return outcomes.Committed(version=known.commit.version, at_ms=known.ended_ms)
        turn = self.held(fence)
        session, head = turn.session, turn.session.head
        if commit.version != head.version + 1:
            raise Superseded(fence.turn_id, token=fence.token)
        # One that broke off, or waits for its client, plays no further step in which it could listen; one that does
        # not hear plays none in any case.
        listens = commit.hears and commit.ended_by == "completed" and not commit.waiting
        if turn.steers and listens:
            return outcomes.Unconsumed(signals=tuple(turn.steers))
        if n <= turn.journal[-1].n:
            raise StoreError("the turn has gone on since this commit was made")
        turn.replayable |= commit.ended_by != "completed"
        if turn.replayable:
            self.write(turn, n, records)
        else:
            turn.journal.clear()
        self.remember(session.tenant, commit)
        turn.commit, turn.start, turn.rev = commit, len(head.items), head.notes.rev
        session.story.append(Entry(session.id, commit))
        session.active_ms = self.now_ms
        session.unfinished = None if commit.ended_by == "completed" else commit.version
        session.retries_left, turn.links = commit.retries_left, commit.links
        self.close(turn, "committed", commit.ended_by, commit.detail, settlement)
        return outcomes.Committed(version=commit.version, at_ms=self.now_ms)

    def remember(self, tenant: Tenant, commit: Commit) -> None:
        memories = self.of[tenant].memories
        for each in commit.changes:
            if isinstance(each, MemoryAdded):
                row = MemoryRow(
                    tenant=tenant,
                    agent=each.agent,
                    memory_id=each.memory_id,
                    text=each.text,
                    turn_id=commit.turn_id,
                    at_ms=self.now_ms,
                )
                memories.setdefault((each.agent, each.memory_id), row)
            elif isinstance(each, MemoryDeleted):
                memories.pop((each.agent, each.memory_id), None)

    def end(
        self,
        fence: outcomes.Fence,
        *,
        ended_by: EndedBy,
        detail: str,
        n: int,
        records: bytes,
        settlement: outcomes.Settlement,
    ) -> TurnRow:
        known = self.of[fence.tenant].turns.get(fence.turn_id)
        if known is not None and known.state == "discarded" and known.token == fence.token:
            return known.row
        turn = self.held(fence)
        self.write(turn, n, records)
        self.close(turn, "discarded", ended_by, detail, settlement)
        return turn.row

    def close(
        self, turn: Turn, state: TurnState, by: EndedBy, detail: str, settled: outcomes.Settlement
    ) -> None:
        turn.state, turn.ended_by, turn.detail, turn.ended_ms = state, by, detail, self.now_ms
        if turn.session.open is turn:
            turn.session.open = None
        if turn in turn.session.queue:
            turn.session.queue.remove(turn)
        rows, before = self.of[turn.session.tenant], turn.request.continues
        for claim in rows.claims.values():
            if claim.turn is turn and claim.state == "running":
                claim.state = settled if claim.was_heard else "failed"
                # What was said to a continuation is lost with it; what led to it leads back to what it was to continue.
                if before and state == "discarded" and by != "deleted" and claim.steer is None:
                    claim.turn, claim.state = rows.turns[before], "done"
                claim.expires_ms = self.now_ms + int(limits.idempotency_keep_s * 1000)

    # holders

    def release(self, fence: outcomes.Fence) -> None:
        self.held(fence).node = None

    def takeover(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        node: NodeId,
        nonce: str,
        ignored_cancel: bool = False,
    ) -> outcomes.TakeoverOutcome:
        session = self.of[tenant].sessions.get(session_id)
        turn = session.open if session else None
        if session is None or turn is None:
            return outcomes.NothingOpen()
        if not self.is_live(node):
            return outcomes.NotEligible()
        holder, mine = turn.node, self.nodes[node]
        if holder not in (None, node):
            assert holder is not None
            if self.is_live(holder):
                if not (ignored_cancel and self.ignores_cancel(turn)):
                    return outcomes.HolderAlive(turn_id=turn.id, node=holder)
            else:
                # By the clock alone: whoever judges must have been there for a whole TTL itself.
                if holder in self.nodes and self.now_ms - mine.since_ms < mine.ttl_ms:
                    return outcomes.NotEligible()
                turn.attempt += 1
        session.token += 1
        turn.token, turn.nonce, turn.node = session.token, nonce, node
        return outcomes.Taken(fence=turn.fence, turn=turn.row)

    def ignores_cancel(self, turn: Turn) -> bool:
        asked = [each.at_ms for each in turn.signals if each.kind != "steer" and not each.consumed]
        return bool(asked) and self.now_ms - min(asked) >= limits.cancel_grace_s * 1000

    def orphans(self, *, node: NodeId, limit: int) -> tuple[outcomes.Orphan, ...]:
        found = (
            outcomes.Orphan(
                tenant=turn.session.tenant,
                session_id=turn.session.id,
                turn_id=turn.id,
                holder=turn.node,
            )
            for turn in self.open_turns()
            if turn.node is None or turn.node == node or not self.is_live(turn.node)
        )
        return tuple(found)[:limit]

    def open_turns(self) -> list[Turn]:
        busy = [
            session.open
            for rows in self.of.values()
            for session in rows.sessions.values()
            if session.open is not None
        ]
        return sorted(busy, key=lambda each: each.id)

    def acknowledge(self, tenant: Tenant, turn_id: TurnId) -> None:
        if turn_id in self.of[tenant].turns:
            self.of[tenant].turns[turn_id].acked = True

    # signals

    def signal(
        self,
        tenant: Tenant,
        turn_id: TurnId,
        *,
        kind: SignalKind,
        payload: bytes = b"",
        attempt: outcomes.Attempt | None = None,
    ) -> outcomes.SignalOutcome:
        turn = self.of[tenant].turns.get(turn_id)
        if turn is None:
            raise SessionMissing("turn", turn_id)
        known = self.claimed(tenant, attempt) if attempt else None
        if known is not None:
            return known
        if turn.state != "open":
            return outcomes.TooLate(turn=turn.row)
        n = len(turn.signals) + 1
        row = SignalRow(
            tenant=tenant, turn_id=turn_id, n=n, kind=kind, payload=payload, at_ms=self.now_ms
        )
        turn.signals.append(row)
        if attempt is not None and attempt.key is not None:
            claim = Claim(attempt.key, attempt.request_hash, turn, steer=n)
            self.of[tenant].claims[attempt.key] = claim
        return outcomes.Signalled(n=n)

    def signals(self, node: NodeId) -> tuple[SignalRow, ...]:
        waiting = [
            each
            for turn in self.open_turns()
            if turn.node == node
            for each in turn.signals
            if not each.consumed
        ]
        by_age = sorted(waiting, key=lambda each: (each.at_ms, each.tenant, each.turn_id, each.n))
        return tuple(by_age)


def join(turn: Turn, *, steer: int | None = None) -> outcomes.Joined:
    return outcomes.Joined(turn_id=turn.id, session_id=turn.session.id, steer=steer)


def replay(turn: Turn) -> outcomes.Replay:
    return outcomes.Replay(turn_id=turn.id, session_id=turn.session.id)


def _earlier_try(turn: Turn, attempt: outcomes.Attempt) -> bool:
    return _is_same(turn, attempt) and turn.known.client_attempt < attempt.client_attempt


def _is_same(turn: Turn, attempt: outcomes.Attempt) -> bool:
    return turn.known.request_hash == attempt.request_hash
