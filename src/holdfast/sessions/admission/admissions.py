"""Admission of a request: it is recognised as a retry, steered, queued, or begins a turn.

The order of checks is part of the contract. A request that was sent before (found by its idempotency key, or as an
SDK's retry) joins its turn or is answered again before any other check, so that a retry is never blocked by its own
first attempt. Only then come the lane, `If-Match`, and whether a message is new; and the transaction that begins
the turn (T1) checks all of it again.
"""

from __future__ import annotations

import asyncio
from itertools import takewhile

import msgspec

from holdfast import limits
from holdfast.core.attachments import are_words
from holdfast.core.history.resends import Overtaken
from holdfast.core.ports import Play
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.core.turns.turn import begin
from holdfast.errors import (
    CannotContinue,
    HoldfastError,
    InDoubt,
    KeyReused,
    QueueFull,
    SessionGone,
    SessionMissing,
    StoreError,
    StoreUnavailable,
    Superseded,
)
from holdfast.ids import IdempotencyKey, SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.observe.tally import Tally
from holdfast.sessions.admission.continuations import retried_by
from holdfast.sessions.admission.families import Families
from holdfast.sessions.admission.followed_requests import FollowedRequests, LineMoved
from holdfast.sessions.admission.keyed_retries import retried
from holdfast.sessions.admission.lanes import Lane, LaneFull, LaneName, Lanes
from holdfast.sessions.admission.orphaned_turns import OrphanedTurns
from holdfast.sessions.admission.recognition import Recognition
from holdfast.sessions.admission.session_lookup import (
    NewTurn,
    ResolvedSession,
    SessionLookup,
    is_asked_in_chat,
    named,
    request_after,
)
from holdfast.sessions.admission.steered_messages import HeardMessage, SteeredMessages
from holdfast.sessions.admission.steered_requests import SteeredRequests
from holdfast.sessions.admission.wait_budget import WaitBudget, session_busy
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.cache import SnapshotCache
from holdfast.sessions.session_requests import Admission, Ask, Choose, base_of
from holdfast.sessions.turns.live_turn import LiveTurn
from holdfast.sessions.turns.owner import Owner
from holdfast.sessions.turns.received_answers import ReceivedAnswers
from holdfast.sessions.turns.recovery import Recovery
from holdfast.sessions.turns.store_retries import persistently
from holdfast.sessions.turns.turn_notes import note_admission, note_refusal, note_signal
from holdfast.sessions.turns.watch import Watch
from holdfast.store.outcomes import (
    Begin,
    BeginOutcome,
    Busy,
    ById,
    Finished,
    Free,
    Gone,
    Joined,
    Mismatch,
    Missing,
    Moved,
    NotLive,
    Queued,
    Replay,
    Started,
    Unfinished,
)
from holdfast.store.store import Store
from holdfast.wire.problems import Refused

QUEUE_RETRY_AFTER_S = 10.0
"""The `Retry-After` of a turn that cannot even be queued."""


class Admissions:
    """Admits requests to the sessions of one node."""

    def __init__(
        self,
        store: Store,
        cache: SnapshotCache,
        lanes: Lanes,
        owner: Owner,
        recovery: Recovery,
        ambient: Ambient,
        choose: Choose,
        tally: Tally,
        received: ReceivedAnswers,
    ) -> None:
        self._store = store
        self._received = received
        self._cache = cache
        self._lanes = lanes
        self._owner = owner
        self._recovery = recovery
        self._ambient = ambient
        self._choose = choose
        self._tally = tally
        self._resolver = SessionLookup(store, cache, ambient)
        self._followed = FollowedRequests(
            Families(store, self._resolver, ambient, choose),
            OrphanedTurns(store, owner, recovery),
            lanes,
            admit=self._admit,
            submit=self._submit,
            attach=self._attach,
            continuing=self._continuing,
        )
        self._steering = SteeredMessages(store, owner, self._resolver, ambient, choose)
        self.steered = SteeredRequests()
        self._recognition = Recognition(store, self.steered, ambient)
        # Requests with one idempotency key are admitted one after the other, so that the second
        # finds what the first has begun instead of queueing behind it.
        self._claims = Lanes(waiting_max=limits.retries_waiting_max)
        # Requests for one session are looked up, and queued in the store, one after the other too: they reach its lane
        # in the order in which they arrived, however long the store takes for one of them.
        self._arrivals = Lanes(waiting_max=limits.retries_waiting_max)

    async def submit(self, ask: Ask, play: Play) -> Watch:
        """Begin a turn for this request, or find the turn that it has begun before."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        try:
            seen = self._resolver.remembered(ask)
            patience = self._patience(ask, seen)
            if ask.attempt.key is None:
                watch = await self._submit(ask, play, patience, seen)
            else:
                watch = await self._submit_claimed(ask, ask.attempt.key, play, patience)
        except HoldfastError as error:
            note_refusal(ask, error, clock() - began_s)
            raise
        note_admission(self._tally, ask, watch.admission, clock() - began_s)
        return watch

    async def submit_again(self, ask: Ask, play: Play) -> Watch | None:
        """The turn that the same request has begun before in an anonymous session, if any."""
        tenant, attempt = ask.tenant, ask.attempt
        if attempt.key is not None:
            found = await self._store.find_attempt(tenant, attempt)
        else:
            row = await self._store.turn_unfinished(tenant, attempt.request_hash)
            target = ById(session_id=row.session_id) if row else None
            found = await self._store.find_attempt(tenant, attempt, target) if target else None
        if found is None:
            return None
        if not isinstance(found, Unfinished):
            return await self._attach(ask, found)
        goes_on = await self._continuing(ask, found)
        if goes_on.continues is None:
            return None
        only = msgspec.structs.replace(goes_on.continues, instead=None)
        try:
            return await self.submit(msgspec.structs.replace(goes_on, continues=only), play)
        except CannotContinue:
            return None  # another request has moved the session on meanwhile

    def _patience(self, ask: Ask, seen: ResolvedSession | None) -> WaitBudget:
        """The wait budget of a request that arrives now."""
        lane = None
        if self._lanes and ask.name is not None:
            lane = self._lanes.find(self._lane_name(ask))
        return WaitBudget(ask, self._ambient.now_ms(), lane, seen)

    async def _submit_claimed(
        self, ask: Ask, key: IdempotencyKey, play: Play, patience: WaitBudget
    ) -> Watch:
        try:
            claim = await self._claims.enter((ask.tenant, key))
        except LaneFull:
            raise session_busy(ask, None) from None
        try:
            return await self._submit(ask, play, patience, None)
        finally:
            self._claims.leave(claim)

    async def _submit(
        self, ask: Ask, play: Play, patience: WaitBudget, seen: ResolvedSession | None
    ) -> Watch:
        if ask.history is not None and isinstance(ask.name, SessionKey):
            return await self._followed.submit(ask, play, patience)
        looks = self._may_be_known(ask, seen)
        if looks or ask.continues is not None or ask.may_queue:
            known = await self._find_known(ask, patience, looks=looks)
            if isinstance(known, Watch):
                return known
            ask, seen = known, None
        return await self._admit(ask, play, patience, seen)

    async def _admit(
        self, ask: Ask, play: Play, patience: WaitBudget, seen: ResolvedSession | None
    ) -> Watch:
        """Begin a turn, or wait until that is possible; after a wait, `seen` is looked up again. Raises CannotContinue
        if there is nothing to continue."""
        if ask.on_busy == "steer":
            steered, seen = await self._steer_holder(ask, patience), None
            if steered is not None:
                return steered
        lane = self._lanes.enter_free(self._lane_name(ask))
        if lane is None:
            lane, seen = await self._enter_lane(ask, patience), None
            patience.came_at = patience.came_at or lane.came_at
        try:
            watch = await self._begin(ask, play, lane, patience, seen)
        except BaseException:
            self._lanes.leave(lane)
            raise
        if watch.live is None or watch.admission.how != "began":
            # A turn that has begun leaves its lane when it ends; here the request has found another turn, or is queued.
            self._lanes.leave(lane)
        return watch

    def _may_be_known(self, ask: Ask, seen: ResolvedSession | None) -> bool:
        """Whether a request may have begun a turn before: it has a key, is an SDK's retry, or the cached head of its
        session is unfinished. Any other request is not looked up, unless a request before it is being looked up."""
        attempt = ask.attempt
        if attempt.key or attempt.client_attempt:
            return True
        if seen is not None and seen.snapshot.is_unfinished:
            return True
        return bool(self._arrivals) and self._arrivals.is_held(self._lane_name(ask))

    async def _find_known(self, ask: Ask, patience: WaitBudget, *, looks: bool) -> Watch | Ask:
        """A watch of the turn that this request has begun before, or that is queued for it now. Else the request that
        is to begin a turn: it may continue an unfinished one."""
        known = await self._find_in_order(ask, patience, looks=looks)
        if isinstance(known, Ask | Watch):
            return known
        found = None if known is None else await self._attach(ask, known)
        if found is None and ask.continues is not None:
            found = await self._find_continuation(ask)
        return found or ask

    async def _find_in_order(
        self, ask: Ask, patience: WaitBudget, *, looks: bool
    ) -> Watch | Ask | Joined | Replay | Mismatch | Gone | None:
        """With `looks`, the turn that this request has begun before; requests for one session are looked up in the
        order in which they arrived. If there is none and the session is busy, the request may be queued in the
        store."""
        try:
            arrival = await self._arrivals.enter(self._lane_name(ask))
        except LaneFull:
            raise session_busy(ask, None) from None
        try:
            found = None
            if looks:
                target = None if ask.name is None else named(ask.name)
                seen = self._resolver.remembered(ask)
                found = await self._recognition.find(ask, target, seen.snapshot if seen else None)
            if isinstance(found, Unfinished):
                return await self._continuing(ask, found)
            if found is not None or not ask.may_queue:
                return found
            name = self._lane_name(ask)
            patience.bound = patience.bound or self._lanes.session(name)
            behind = self._lanes.is_held(name)
            return await self._queue(ask, patience, behind=behind)
        finally:
            self._arrivals.leave(arrival)

    async def _find_continuation(self, ask: Ask) -> Watch | None:
        """The open turn that already continues the turn that this request wants to continue, if any."""
        assert isinstance(ask.name, SessionId) and ask.continues is not None
        session = await self._store.session(ask.tenant, ask.name)
        if session is None or session.open_turn is None or session.head != ask.continues.version:
            return None
        row = await self._store.turn(ask.tenant, session.open_turn)
        if row is None or row.continues is None:
            return None
        return await self._watch(ask, row.turn_id, how="joined")

    async def _continuing(self, ask: Ask, found: Unfinished) -> Ask:
        """The request that continues an unfinished turn, for its retry; the retry as it is if the session has moved
        on."""
        snapshot = await self._resolver.snapshot(ask.tenant, found.session_id, verify=True)
        if snapshot.version != found.version:
            return ask
        return await retried_by(ask, found, snapshot.marks[-1].turn_id, self._store)

    def _has_to_wait(self, ask: Ask) -> bool:
        """Whether a background turn must be queued: there is no room for it here, or others are queued already."""
        return ask.queues and (self._owner.others_wait or not self._owner.has_room_for(ask.tenant))

    async def _give_way(self, ask: Ask, seen: ResolvedSession, patience: WaitBudget) -> Busy | None:
        """Let turns that were queued before the request arrived begin first. Returns the open turn, for the request to
        wait for; None if no such turn is queued.

        A busy session may be free when T1 checks it: turns queued by then are still ahead of this request. A
        continuation has the place of the turn that it continues: ahead of all turns that were queued behind that one.
        """
        if ask.on_busy == "interrupt" or ask.continues is not None or seen.expected is None:
            return None
        session_id = seen.expected
        while await self._recovery.open_earlier(ask.tenant, session_id, than_ms=patience.came_ms):
            session = await self._store.session(ask.tenant, session_id)
            if session is not None and session.open_turn is not None:
                # A turn that no node holds waits for room, and is taken over; sweeps handle dead nodes.
                held = session.lease_node is not None
                return Busy(session_id=session_id, turn_id=session.open_turn, holder_alive=held)
            patience.demand(ask, None)
            await self._owner.lease.wait_for_others(min(limits.busy_poll_s, patience.left_s))
        return None

    async def _demand_room(self, ask: Ask) -> None:
        """Raise QueueFull if too many turns are queued already."""
        full = await self._fullness(ask)
        if full is not None:
            try:
                raise full
            finally:
                del full

    async def _fullness(self, ask: Ask) -> QueueFull | None:
        """The QueueFull error if too many turns are queued already; else None."""
        waiting = await self._recovery.waiting()
        yours, all_of_them = waiting[ask.tenant], waiting.total()
        if yours >= limits.background_queued_tenant_max:
            return QueueFull(yours, yours=True, retry_after_s=QUEUE_RETRY_AFTER_S)
        most, least = limits.background_queued_max, limits.background_queued_tenant_least
        if all_of_them >= most and yours >= min(least, most):
            return QueueFull(all_of_them, yours=False, retry_after_s=QUEUE_RETRY_AFTER_S)
        return None

    def _taken(
        self, ask: Ask, seen: ResolvedSession, patience: WaitBudget, *, has_read: bool = False
    ) -> NewTurn | Overtaken:
        since = patience.since(seen.snapshot)
        return request_after(
            ask, seen.snapshot, self._ambient, self._choose, since=since, has_read=has_read
        )

    async def _answered_by(self, ask: Ask, overtaken: Overtaken) -> Watch:
        assert overtaken.turn_id is not None, "the request was not compared with an open turn"
        return await self._watch(ask, overtaken.turn_id, how="replayed")

    # ── waiting for the session ──

    async def _queue(self, ask: Ask, patience: WaitBudget, *, behind: bool) -> Watch | None:
        """Queue a request in the store if its session is busy, or if turns are queued for it; else None: it may begin.

        `behind`: another request of this node waits for the session already, and is not to be overtaken.
        """
        while True:
            seen = await self._resolver.look(ask, verify=True)
            await self._demand_not_deleted(ask, patience, seen.expected)
            if seen.expected is None or await self._known_in(ask, seen) is not None:
                return None
            taken = self._taken(ask, seen, patience)
            if isinstance(taken, Overtaken):
                return await self._answered_by(ask, taken)
            request = msgspec.structs.replace(taken.request, came_ms=patience.came_ms)
            self._owner.demand_open()
            full = await self._fullness(ask)
            if full is not None:
                if behind or await self._is_wanted(ask.tenant, seen.expected):
                    try:
                        raise full
                    finally:
                        del full
                return None
            request = await self._resolver.with_blobs(ask.tenant, seen, request)
            try:
                outcome = await self._store.enqueue(
                    self._ask_store(ask, seen, request), behind=behind
                )
            except StoreUnavailable as error:
                _raise_in_doubt(ask, request.turn_id, error)
                raise
            match outcome:
                case Queued():
                    return await self._queued(ask, outcome, taken)
                case Free() | Unfinished():
                    return None
                case Moved():
                    continue
                case Missing():
                    raise SessionMissing("session", str(ask.name))
                case Joined() | Replay() | Mismatch() | Gone():
                    return await self._attach(ask, outcome)

    async def _is_wanted(self, tenant: Tenant, session_id: SessionId) -> bool:
        """Whether a session is busy, or turns are queued for it."""
        if (tenant, session_id) in self._owner.waited_for:
            return True
        row = await self._store.session(tenant, session_id)
        return row is not None and row.open_turn is not None

    async def _queued(self, ask: Ask, queued: Queued, new: NewTurn) -> Watch:
        self._owner.waited_for.add((ask.tenant, queued.session_id))
        try:
            await self._hurry(ask, queued)
        except (StoreUnavailable, SessionMissing):
            pass  # it is durable, or gone with its session: a sweep of this or another node opens it
        admission = Admission(
            turn_id=queued.turn_id,
            session_id=queued.session_id,
            base=None,
            how="queued",
            diverged=new.fresh.diverged,
            input=new.fresh.input,
            ignored=new.ignored,
        )
        return Watch(self._store, self._owner.lease, ask.tenant, admission, None)

    async def _hurry(self, ask: Ask, queued: Queued) -> None:
        """Make a queued turn begin as soon as possible: wake the sweep, or interrupt the open turn."""
        row = await self._store.session(ask.tenant, queued.session_id)
        open_turn = row.open_turn if row else None
        if open_turn is None:
            self._owner.room.set()  # the session is free meanwhile, or about to be taken by a request of this node
        elif ask.on_busy == "interrupt":
            await self._interrupt(ask.tenant, open_turn)

    # ── the lane ──

    async def _enter_lane(self, ask: Ask, patience: WaitBudget) -> Lane:
        name = self._lane_name(ask)
        if ask.on_busy in ("reject", "interrupt"):
            # A request that waits takes its place first: during this look, a later request could take it.
            await self._demand_not_deleted(ask, patience, self._lanes.session(name))
        if self._lanes.is_held(name) and ask.may_queue:
            # The request in the lane is still making the session: this one is queued in the store as soon as it can be.
            name = (ask.tenant, self._ambient.mint(SessionId))
        if not self._lanes.is_held(name):
            return await self._lanes.enter(name)
        if ask.on_busy == "reject":
            raise session_busy(ask, self._lanes.holder(name))
        first = ask.on_busy == "interrupt"
        if first:
            self._interrupt_here(self._lanes.holder(name))
            awaited = self._lanes.awaited(name)
            if awaited is not None:  # the holder of the lane would wait until that turn ends
                await self._store.signal(ask.tenant, awaited, kind="interrupt")
                note_signal(ask.tenant, awaited, "interrupt")
        try:
            async with asyncio.timeout(patience.left_s):
                return await self._lanes.enter(name, first=first)
        except (TimeoutError, LaneFull):
            raise session_busy(ask, self._lanes.holder(name)) from None

    def _lane_name(self, ask: Ask) -> LaneName:
        """The name of a session's lane: its id, or its key while this node does not know the id."""
        if ask.name is None:
            return (ask.tenant, self._ambient.mint(SessionId))
        if isinstance(ask.name, SessionId):
            return (ask.tenant, ask.name)
        return (ask.tenant, self._cache.meaning(ask.tenant, ask.name) or ask.name)

    async def _interrupt(self, tenant: Tenant, turn_id: TurnId) -> None:
        """Interrupt a turn, whichever node plays it."""
        await self._store.signal(tenant, turn_id, kind="interrupt")
        note_signal(tenant, turn_id, "interrupt")
        self._interrupt_here(turn_id)

    def _interrupt_here(self, turn_id: TurnId | None) -> None:
        live = self._owner.live.get(turn_id) if turn_id else None
        if live is not None:
            live.interrupt("cancelled", "a newer request took its place")

    # ── T1 ──

    async def _begin(
        self,
        ask: Ask,
        play: Play,
        lane: Lane,
        patience: WaitBudget,
        remembered: ResolvedSession | None,
    ) -> Watch:
        """Run T1 until its outcome is final. `remembered` is the cached session, if the request has not waited."""
        verify = False
        if lane.session is not None:
            await self._demand_not_deleted(ask, patience, lane.session)
            patience.bound = lane.session
        while True:
            try:
                seen, remembered = remembered, None
                if seen is None:
                    seen = None if verify else self._resolver.remembered(ask)
                    seen = seen or await self._resolver.look(ask, verify=verify)
                    if seen.expected is not None:
                        # Later requests may name the session by its id: they wait behind this request.
                        self._lanes.alias((ask.tenant, seen.expected), lane)
                    known = await self._known_in(ask, seen)
                    if isinstance(known, Unfinished):
                        ask, verify = await self._continuing(ask, known), True
                        continue
                    if known is not None:
                        return known
                has_read = False
                if is_asked_in_chat(ask, seen.snapshot):
                    asked_in = seen.snapshot.marks[-1].turn_id
                    has_read = await self._received.is_noted(ask.tenant, asked_in, by=ask.attempt)
                taken = self._taken(ask, seen, patience, has_read=has_read)
            except StoreError:
                raise
            except (HoldfastError, Refused) as error:
                if verify:
                    instead = await self._instead(ask)
                    if instead is None or not isinstance(error, CannotContinue):
                        raise
                    if isinstance(instead, Watch):
                        return instead
                    ask = instead
                verify = True  # the cache may be stale: read the store before refusing
                continue
            await self._demand_not_deleted(ask, patience, seen.expected)
            if isinstance(taken, Overtaken):
                return await self._answered_by(ask, taken)
            request = taken.request
            if self._has_to_wait(ask):
                await self._demand_room(ask)
            outcome: BeginOutcome | None = None
            if (ask.tenant, seen.expected) in self._owner.waited_for:
                outcome = await self._give_way(ask, seen, patience)
            if outcome is None:
                if not are_words(request.input):
                    request = await self._resolver.with_blobs(ask.tenant, seen, request)
                with self._owner.beginning(ask.tenant, request.turn_id):
                    outcome = await self._ask_begin(ask, seen, request)
                    if isinstance(outcome, Started):
                        return await self._started(ask, seen, request, taken, outcome, play, lane)
            match outcome:
                case Gone(session_id=gone) if not seen.verified and gone != patience.bound:
                    verify = True
                case Joined() | Replay() | Mismatch() | Gone():
                    known = await self._attach(ask, outcome)
                    if known is not None:
                        return known
                    verify = True
                case Unfinished():
                    ask, verify = await self._continuing(ask, outcome), True
                case Finished():
                    instead = await self._instead(ask)
                    if instead is None:
                        raise CannotContinue(str(request.continues), "turn_complete")
                    if isinstance(instead, Watch):
                        return instead
                    ask, verify = instead, True
                case Missing():
                    raise SessionMissing("session", str(ask.name))
                case Moved():
                    verify = True
                case NotLive():
                    await self._owner.lease.renew()
                    patience.demand(ask, None)
                case Busy(session_id=session_id) if ask.may_queue:
                    patience.bound = session_id
                    queued = await self._queue(ask, patience, behind=False)
                    if queued is not None:
                        return queued
                    verify = True
                case Busy(session_id=session_id, turn_id=turn_id):
                    patience.bound = lane.session = session_id
                    lane.awaited = turn_id
                    await self._note_base(ask, lane, patience, turn_id)
                    steered = await self._wait_for_release(ask, outcome, patience)
                    lane.awaited = lane.base = None
                    if steered is not None:
                        return steered
                    verify = True

    async def _ask_begin(
        self, ask: Ask, seen: ResolvedSession, request: ev.TurnRequest
    ) -> BeginOutcome:
        try:
            outcome = await self._store.begin(self._ask_store(ask, seen, request))
            if ask.line is not None and isinstance(outcome, Busy | Moved | Gone | Missing):
                raise LineMoved(outcome)
            return outcome
        except StoreUnavailable as error:
            if request.policy.crash == "resume":  # else no node would play the turn
                _raise_in_doubt(ask, request.turn_id, error)
            raise

    async def _known_in(self, ask: Ask, seen: ResolvedSession) -> Watch | Unfinished | None:
        """The turn that a request is a retry of, if the head broke off or an SDK marks the request as a retry."""
        counts = ask.attempt.client_attempt > 0 and ask.attempt.key is None
        if ask.continues is not None or not (seen.snapshot.is_unfinished or counts):
            return None
        found = await self._recognition.find(ask, seen.target, seen.snapshot)
        if found is None or isinstance(found, Unfinished):
            return found
        return await self._attach(ask, found)

    async def _instead(self, ask: Ask) -> Watch | Ask | None:
        """For a retry that has nothing left to continue: a watch of the completed continuation, if another request has
        made one; else the request as it was sent, which keeps its place in the lane. None if `ask` is no retry.
        """
        continues = ask.continues
        if continues is None or continues.instead is None:
            return None
        assert isinstance(ask.name, SessionId), "a retry names the session that it was found in"
        snapshot = await self._resolver.snapshot(ask.tenant, ask.name, verify=True)
        last = None
        for mark in takewhile(lambda each: each.continues, snapshot.marks.since(continues.version)):
            last = mark
        if last is None or last.ended_by != "completed":
            return continues.instead
        return await self._watch(ask, last.turn_id, how="replayed")

    async def _demand_not_deleted(
        self, ask: Ask, patience: WaitBudget, found: SessionId | None
    ) -> None:
        """Raise SessionGone if the session that a request has waited for was deleted, and its key leads to another
        session now, or to none. After a reset, the request goes to the key's new session: that is what a reset is
        for."""
        bound = patience.bound
        if bound is None or bound == found:
            return
        row = await self._store.session(ask.tenant, bound)
        if row is None or row.state == "deleted":
            raise SessionGone(bound, why="deleted")

    def _ask_store(self, ask: Ask, seen: ResolvedSession, request: ev.TurnRequest) -> Begin:
        expire_s = ask.expire_after_s
        return Begin(
            tenant=ask.tenant,
            node=self._owner.lease.node,
            nonce=self._ambient.nonce(),
            target=seen.target,
            expected=seen.expected,
            request=request,
            attempt=ask.attempt,
            expire_after_ms=None if expire_s is None else round(expire_s * 1000),
            ahead=ask.on_busy == "interrupt",
        )

    async def _started(
        self,
        ask: Ask,
        seen: ResolvedSession,
        request: ev.TurnRequest,
        new: NewTurn,
        started: Started,
        play: Play,
        lane: Lane,
    ) -> Watch:
        fence = started.fence
        if seen.expected is None:
            self._learn(ask, fence.session_id)
            self._lanes.alias((ask.tenant, fence.session_id), lane)
        live: LiveTurn | None = None
        if self._has_to_wait(ask):
            # The turn is durable; the first node that has room takes it over, and so begins it.
            try:
                await persistently(lambda: self._store.release(fence))
            except (StoreUnavailable, Superseded):
                # It is durable, and no node plays it: a sweep of this node finds it.
                self._owner.doubt(ask.tenant, fence.turn_id)
            self._owner.others_wait = True
            self._owner.look_for_waiting(ask.tenant)
        else:
            lane.turn, lane.session = fence.turn_id, fence.session_id
            lane.stand_on((fence.session_id, request.base))
            began = ev.Began(request=request)
            live = self._owner.take_on(
                fence,
                seen.snapshot,
                begin(began),
                retried(self._store, fence, started.retry_of, play),
                shown=(Record(n=0, at_ms=self._ambient.now_ms(), event=began),),
                lane=lane,
                background=ask.background,
            )
        admission = Admission(
            turn_id=fence.turn_id,
            session_id=fence.session_id,
            base=request.base,
            created=started.created,
            diverged=new.fresh.diverged,
            input=request.input,
            ignored=new.ignored,
            continues=request.continues,
            is_own=ask.continues is None or ask.continues.is_own,
        )
        return Watch(self._store, self._owner.lease, ask.tenant, admission, live)

    def _learn(self, ask: Ask, session_id: SessionId) -> None:
        if ask.name is not None and not isinstance(ask.name, SessionId):
            self._cache.learn(ask.tenant, ask.name, session_id)

    # ── turns that exist already ──

    async def _attach(self, ask: Ask, found: Joined | Replay | Mismatch | Gone) -> Watch | None:
        """A watch of the turn that this request has begun before. None if its message was steered into a turn that has
        ended without taking it: then its key is free, and the request begins a turn of its own."""
        match found:
            case Mismatch(turn_id=turn_id):
                raise KeyReused(str(ask.attempt.key), turn_id=turn_id)
            case Gone(session_id=session_id, why=why):
                raise SessionGone(session_id, why=why)
            case Joined(turn_id=turn_id, steer=steer):
                if steer is not None and not await self._steering.is_heard(
                    ask.tenant, turn_id, steer
                ):
                    return None
                return await self._watch(ask, turn_id, how="joined")
            case Replay(turn_id=turn_id):
                return await self._watch(ask, turn_id, how="replayed")

    async def _watch(self, ask: Ask, turn_id: TurnId, *, how: str) -> Watch:
        row = await self._store.turn(ask.tenant, turn_id)
        if row is None:
            raise SessionMissing("turn", turn_id)
        admission = Admission(
            turn_id=turn_id,
            session_id=row.session_id,
            base=base_of(row),
            created=base_of(row) == Version(0) and how != "steered",
            how=how,  # type: ignore[arg-type]
            continues=row.continues,
            is_own=how != "steered" and row.request_hash == ask.attempt.request_hash,
            request_hash=ask.attempt.request_hash,
        )
        return Watch(
            self._store, self._owner.lease, ask.tenant, admission, self._owner.find(turn_id)
        )

    # ── a busy session ──

    async def _wait_for_release(self, ask: Ask, busy: Busy, patience: WaitBudget) -> Watch | None:
        """Wait until the open turn has ended, as the request's `on_busy` says. Returns a watch of that turn if the
        request was steered into it."""
        if not busy.holder_alive:
            await self._recovery.recover(ask.tenant, busy.session_id, busy.turn_id)
        elif ask.on_busy == "reject":
            raise session_busy(ask, busy.turn_id)
        elif ask.on_busy == "interrupt" and patience.once():
            await self._interrupt(ask.tenant, busy.turn_id)
        elif ask.on_busy == "steer":
            steered = await self._steer(ask, busy.turn_id, patience)
            if steered is not None:
                return steered
        while True:
            session = await self._store.session(ask.tenant, busy.session_id)
            if session is None or session.open_turn != busy.turn_id:
                return None
            live = self._owner.live.get(busy.turn_id)
            patience.demand(ask, busy.turn_id)
            if live is not None and not live.done.done():
                await asyncio.wait({live.done}, timeout=patience.left_s)
                continue
            await self._owner.lease.wait_for_others(min(limits.busy_poll_s, patience.left_s))
            if not busy.holder_alive:
                return None  # run T1 again: it decides whether the turn may be taken over by now

    async def _note_base(self, ask: Ask, lane: Lane, patience: WaitBudget, turn_id: TurnId) -> None:
        """Note the version that the open turn began from: this request, and those behind it in the lane, arrived at
        it."""
        row = await self._store.turn(ask.tenant, turn_id)
        if row is not None and row.state == "open":
            lane.stand_on((row.session_id, row.base_head))
            patience.came_at = patience.came_at or (row.session_id, row.base_head)

    # ── steering ──

    async def _steer_holder(self, ask: Ask, patience: WaitBudget) -> Watch | None:
        turn_id = self._lanes.holder(self._lane_name(ask))
        live = self._owner.live.get(turn_id) if turn_id else None
        if live is None:
            return None
        await self._demand_not_deleted(ask, patience, live.fence.session_id)
        patience.came_at = patience.came_at or (live.fence.session_id, live.turn.request.base)
        return await self._steer(ask, live.fence.turn_id, patience)

    async def _steer(self, ask: Ask, turn_id: TurnId, patience: WaitBudget) -> Watch | None:
        """Steer the message into the open turn. None if it is too late: then the request begins the next turn."""
        outcome = await self._steering.steer(ask, turn_id, patience.since, self._known_in)
        if isinstance(outcome, Watch):
            return outcome
        if isinstance(outcome, HeardMessage):
            return await persistently(lambda: self._watch(ask, turn_id, how="steered"))
        return None if outcome is None else await self._attach(ask, outcome)


def _raise_in_doubt(ask: Ask, turn_id: TurnId, error: StoreUnavailable) -> None:
    """Raise InDoubt if the store's reply was lost and the request has no key: the turn may be stored, and would be
    played without its client, so that a retry would be played a second time."""
    if error.in_doubt and ask.attempt.key is None:
        raise InDoubt(
            f"{error}. It is not known whether the turn {turn_id} is there; if it is, it is played: look before "
            "you send this again"
        ) from error
