"""Recovery of turns that a dead node has left open: any node ends or resumes them, by their policy.

The takeover comes first: it raises the fencing token, so the old holder's writes are refused from then on, and
counts the attempt before it starts. Only then is the journal read and folded, by the same functions that played
the turn. The state of the turn decides:

    it was interrupted already            →  it ends with that cause
    a cancel was waiting, or time is up   →  it ends with that cause
    handed over before its first step     →  it begins: it was waiting for a node with room
    the policy is resume, attempts left   →  it goes on, on this node
    otherwise                             →  the policy for crashes; a turn whose journal cannot be read to its end
                                             may have acted, so as much of it as can be read is kept
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from functools import partial
from zlib import crc32

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.items import EndedBy
from holdfast.core.policy import Policy, Verdict, decide
from holdfast.core.ports import OpenTurn, Play
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import resuming
from holdfast.core.turns.journal import FoldedJournal, Record, decode_records, fold
from holdfast.core.turns.turn import Turn
from holdfast.errors import StorageFull, StoreDamaged, StoreReadOnly, StoreUnavailable, Superseded
from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.observe.events import event
from holdfast.observe.tally import Tally
from holdfast.sessions.admission.keyed_retries import retried
from holdfast.sessions.admission.queued_turns import NOT_OPENED, Queue
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.turns.live_turn import LiveTurn
from holdfast.sessions.turns.owner import Owner, wait_for_hint
from holdfast.sessions.turns.sweep_errors import SweepErrors
from holdfast.sessions.turns.sweep_rota import SweepRota
from holdfast.store.outcomes import Orphan, Taken, WaitingTurn
from holdfast.store.rows import JournalRow, TurnRow
from holdfast.store.store import Store

ORPHANS_MAX = 100
"""How many turns of dead nodes a sweep looks at. The next sweep finds the rest."""

SIDE_BY_SIDE_MAX = 8
"""How many turns are taken over at a time: each takes several store calls, and clients need the store, too."""

# ── the decision ─────────────────────────────────────────────────────────────────────────────


class Plan(Value):
    """What to do with a turn that was taken over."""

    resume: bool
    cause: ev.Interrupted | None
    """Why the turn ends; None if it is resumed."""


def plan(
    turn: Turn,
    row: TurnRow,
    *,
    damaged: bool,
    cancelled: bool,
    now_ms: int,
    handed_over: bool = False,
    breaks: int = 0,
    unstored: StoreUnavailable | StoreDamaged | None = None,
) -> Plan:
    """Decide whether a turn without a holder is resumed; `handed_over` if its holder released it on purpose. `breaks`
    is how often an unexpected error has stopped it on this node; `unstored` is why the store did not accept its end
    here."""
    deadline_ms = turn.request.deadline_at_ms
    if turn.interrupted is not None:
        return Plan(resume=False, cause=turn.interrupted)
    if cancelled:
        return Plan(resume=False, cause=ev.Interrupted(by="cancelled"))
    if deadline_ms and deadline_ms <= now_ms:
        return Plan(resume=False, cause=ev.Interrupted(by="deadline"))
    if damaged:
        detail = "its journal cannot be read to the end"
        return Plan(resume=False, cause=ev.Interrupted(by="crash", detail=detail))
    if handed_over and turn.untouched:
        return Plan(resume=True, cause=None)
    if turn.request.policy.crash != "resume":
        return Plan(resume=False, cause=_crash(unstored))
    crashes = row.attempt - 1 + breaks
    if crashes >= limits.crash_attempts_max:
        detail = f"given up after {crashes} crashes"
        return Plan(resume=False, cause=ev.Interrupted(by="crash", detail=detail))
    return Plan(resume=True, cause=None)


def _crash(unstored: StoreUnavailable | StoreDamaged | None) -> ev.Interrupted:
    """The cause for a turn that its holder could not end: the node is gone, or the store did not take the end."""
    if unstored is None:
        return ev.Interrupted(by="crash")
    is_told = isinstance(unstored, StorageFull | StoreReadOnly | StoreDamaged)
    code = unstored.code if is_told else StoreUnavailable.code
    return ev.Interrupted(by="crash", detail=str(unstored), code=code)


def judge_recovered(policy: Policy, *, acted: bool, by: EndedBy) -> Verdict:
    """What becomes of a turn that is not resumed: a policy of `resume` counts as `auto`."""
    if policy.crash == "resume" and by == "crash":
        policy = msgspec.structs.replace(policy, crash="auto")
    return decide(policy, by, acted=acted)


# ── recovery ─────────────────────────────────────────────────────────────────────────────────


class Recovery:
    """Finds the turns that dead nodes have left open, and ends or resumes them."""

    def __init__(
        self,
        store: Store,
        owner: Owner,
        queue: Queue,
        play: Play,
        ambient: Ambient,
        tally: Tally,
    ) -> None:
        self._store = store
        self._owner = owner
        self._queue = queue
        self._play = play
        self._ambient = ambient
        self._tally = tally
        self._side_by_side = asyncio.Semaphore(SIDE_BY_SIDE_MAX)
        self._rota = SweepRota(chance=lambda: int(ambient.nonce(), 16) / 2**64)

    async def sweep_and_wait(self) -> None:
        """Sweep, count the living nodes if that is due, and wait for the next round: a round for the supervisor."""
        now_s = asyncio.get_running_loop().time()
        await self.sweep(everywhere=self._rota.is_due(now_s) or self._owner.can_relieve_others)
        if self._rota.is_count_due(now_s):
            nodes, now_ms = await self._store.nodes(), self._ambient.now_ms()
            self._rota.note_count(now_s, sum(each.expires_ms > now_ms for each in nodes))
        await wait_for_hint(self._owner.room, at_most_s=limits.sweep_s)

    async def find_losses(self) -> None:
        """Wait, and then do the part of a sweep that a node still does while it shuts down: it takes nothing over, but
        stops playing the turns that it has lost. A round for the supervisor."""
        await asyncio.sleep(limits.sweep_s)
        playing = self._owner.playing
        orphans, complete = await self._look(everywhere=not self._rota.rests)
        if complete:
            self._notice_losses(playing, orphans)

    async def sweep(self, *, everywhere: bool = True) -> int:
        """Take over turns without a live holder, end stray ones, and open queued turns whose session is free. Returns how
        many of all these.
        Turns that were handed over, and queued ones, wait until this or another node has room.
        Not `everywhere`: of the open turns, look only at those that this node may hold.

        Raises StoreUnavailable if the store cannot be reached. A turn that cannot be recovered or opened is logged, and
        left to the next sweep.
        """
        errors = SweepErrors("turn.not_recovered")
        playing = self._owner.playing
        if everywhere:
            # Before the read: a turn that has to wait meanwhile sets it again.
            self._owner.others_wait = False
        orphans, complete = await self._look(everywhere=everywhere)
        if complete:
            self._notice_losses(playing, orphans)
        shared_out = self._from_our_place(orphans)
        held = (each for each in shared_out if not _is_handed_over(each))
        taken = await self._recover_side_by_side(held, errors)
        if everywhere:
            self._rota.note_sweep(asyncio.get_running_loop().time(), taken=taken)
        handed_over = filter(_is_handed_over, orphans)
        return taken + await self._make_room_for(handed_over, await self._queue.ready(), errors)

    async def _make_room_for(
        self, handed_over: Iterable[Orphan], ready: Iterable[WaitingTurn], errors: SweepErrors
    ) -> int:
        """Begin turns that wait for a node with room, and queued turns whose session is free, the oldest first."""
        opened, not_opened = 0, SweepErrors(NOT_OPENED)
        waiting: list[Orphan | WaitingTurn] = [*handed_over, *ready]
        for each in sorted(waiting, key=lambda turn: turn.turn_id):
            if not self._owner.has_room_for(each.tenant):
                self._owner.others_wait = True
            elif isinstance(each, WaitingTurn):
                opened += await not_opened.attempt(each, partial(self._queue.open, each))
            else:
                opened += await errors.attempt(each, partial(self._recover, each))
        return opened

    async def open_earlier(self, tenant: Tenant, session_id: SessionId, *, than_ms: int) -> bool:
        """Open the first turn that is queued for this session since before `than_ms`. Returns whether there is one."""
        return await self._queue.open_earlier(tenant, session_id, than_ms=than_ms)

    async def _recover_side_by_side(self, orphans: Iterable[Orphan], errors: SweepErrors) -> int:
        """Recover several turns at once: a dead node may leave many, and most of the time goes to waiting for the
        store."""
        recoveries = (self._recover_in_turn(each, errors) for each in orphans)
        found = await asyncio.gather(*recoveries, return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                try:
                    raise each
                finally:
                    del each, found
        return sum(each is True for each in found)

    async def _recover_in_turn(self, orphan: Orphan, errors: SweepErrors) -> bool:
        async with self._side_by_side:
            return await errors.attempt(orphan, partial(self._recover, orphan))

    async def _recover(self, orphan: Orphan) -> bool:
        if orphan.is_stray:
            ended = await self._store.end_stray(orphan.tenant, orphan.turn_id)
            if ended is not None:
                event("turn.stray", turn=orphan.turn_id, session=orphan.session_id)
            return ended is not None
        return await self.recover(
            orphan.tenant,
            orphan.session_id,
            orphan.turn_id,
            handed_over=orphan.holder is None,
        )

    def _from_our_place(self, orphans: tuple[Orphan, ...]) -> tuple[Orphan, ...]:
        """The orphans in an order of this node's own: all nodes read the same list, and so share it out."""
        place = crc32(self._owner.lease.node.encode()) % len(orphans) if orphans else 0
        return (*orphans[place:], *orphans[:place])

    async def waiting(self) -> Counter[Tenant]:
        """How many turns of each tenant wait for a node with room, or for their session."""
        orphans, _ = await self._look(everywhere=True)
        let_go = Counter(each.tenant for each in filter(_is_handed_over, orphans))
        return let_go + await self._queue.counted()

    async def _look(self, *, everywhere: bool) -> tuple[tuple[Orphan, ...], bool]:
        """The open turns without a live holder, and those of this node; and whether these are all. Not `everywhere`: among
        the turns that this node may hold."""
        node = self._owner.lease.node
        own = None if everywhere else self._owner.perhaps_held
        if own is not None:
            if not own:
                return (), True
            return await self._store.orphans(node=node, limit=len(own), among=own), True
        # Neither this node's own turns nor waiting ones may crowd out those that a dead node has left.
        limit = ORPHANS_MAX + limits.background_queued_max + len(self._owner.claimed)
        orphans = await self._store.orphans(node=node, limit=limit)
        return orphans, len(orphans) < limit

    def _notice_losses(self, playing: tuple[LiveTurn, ...], orphans: tuple[Orphan, ...]) -> None:
        """Stop playing turns that the store does not list as this node's. A player that records nothing for a while
        would not find out by itself, and would block its lane. A player that does not stop is abandoned."""
        held = {each.turn_id for each in orphans if each.holder == self._owner.lease.node}
        for gone in self._owner.breaks.keys() - held:
            del self._owner.breaks[gone]
        for gone in self._owner.unstored.keys() - held:
            del self._owner.unstored[gone]
        self._owner.forget_doubts(held)
        for live in playing:
            if live.fence.turn_id in held:
                continue
            if live.lost:
                self._owner.abandon(live)
            else:
                live.lose()

    async def recover(
        self,
        tenant: Tenant,
        session_id: SessionId,
        turn_id: TurnId,
        *,
        ignored_cancel: bool = False,
        handed_over: bool | None = None,
    ) -> bool:
        """Take over this open turn, if that is allowed, and end or resume it. Returns whether it was taken over.

        A turn that is claimed here already is left alone, unless it ignores a cancel: the store lets a node take over
        from itself, so two tasks of this node could take it from each other. `handed_over` is whether no node holds the
        turn; None: not known to the caller.
        """
        if handed_over is None:
            session = await self._store.session(tenant, session_id)
            handed_over = session is not None and session.lease_node is None
        if turn_id in self._owner.claimed and not ignored_cancel:
            return False
        try:
            with self._owner.claiming(tenant, turn_id):
                outcome = await self._store.takeover(
                    tenant,
                    session_id,
                    node=self._owner.lease.node,
                    nonce=self._ambient.nonce(),
                    turn_id=turn_id,
                    ignored_cancel=ignored_cancel,
                )
                if not isinstance(outcome, Taken):
                    return False
                self._tally.takeovers += 1
                event(
                    "turn.taken_over",
                    turn=turn_id,
                    session=session_id,
                    attempt=outcome.turn.attempt,
                )
                await self._go_on(outcome, cancelled=ignored_cancel, handed_over=handed_over)
                return True
        except Superseded:
            return False  # another node has taken it over, or a client has deleted it, meanwhile

    async def _go_on(self, taken: Taken, *, cancelled: bool, handed_over: bool) -> None:
        fence, row = taken.fence, taken.turn
        rows = await self._store.journal(fence.tenant, fence.turn_id)
        folded = fold(record for each in rows for record in decode_records(each.records))
        snapshot = await self._store.snapshot(fence.tenant, fence.session_id, version=row.base_head)
        if folded.turn is None or snapshot is None:
            await self._end_unreadable(taken, rows)
            return
        if folded.turn.ended is not None:
            # This node was slow: another one has taken the turn over from it, and ended it.
            raise Superseded(fence.turn_id, token=fence.token)
        cancelled = cancelled or await self._is_cancelled(taken)
        here = self._owner.live.get(fence.turn_id)
        if here is not None and here.fence.token > fence.token:
            # This task was slow: another task of this node has taken over the turn, since it ignored its cancel.
            raise Superseded(fence.turn_id, token=fence.token)
        left = self._owner.unstored.get(fence.turn_id)
        decided = plan(
            folded.turn,
            row,
            damaged=folded.damage is not None,
            cancelled=cancelled,
            now_ms=self._ambient.now_ms(),
            handed_over=handed_over,
            breaks=self._owner.breaks[fence.turn_id],
            unstored=left.unstored if left is not None else None,
        )
        resumes = decided.resume and not (handed_over and folded.turn.untouched)
        play = retried(self._store, fence, row.retry_of, self._play)
        live = self._owner.take_on(
            fence,
            snapshot,
            folded.turn,
            partial(_resumed, play, folded.turn.attempt) if resumes else play,
            first_n=_next_n(folded, rows),
            judge=None
            if decided.resume
            else partial(_judge, folded.turn.request.policy, folded.may_have_acted),
            background=handed_over,
        )
        if decided.cause is not None:
            live.interrupt(decided.cause.by, decided.cause.detail, decided.cause.code)

    async def _is_cancelled(self, taken: Taken) -> bool:
        waiting = await self._store.signals(self._owner.lease.node)
        return any(
            each.turn_id == taken.turn.turn_id and each.kind in ("cancel", "interrupt")
            for each in waiting
        )

    async def _end_unreadable(self, taken: Taken, rows: tuple[JournalRow, ...]) -> None:
        """End a turn whose request cannot be read: nothing of it can be kept, and its session is free again."""
        await self._store.end(
            taken.fence,
            ended_by="crash",
            detail="its journal cannot be read",
            n=_after(rows),
            records=b"",
            settlement="failed",
        )


def _is_handed_over(orphan: Orphan) -> bool:
    return orphan.holder is None and not orphan.is_stray


async def _resumed(play: Play, attempt: int, turn: OpenTurn) -> None:
    """Begin the attempt after `attempt`, unless it has begun already, and play on."""
    if turn.turn.attempt == attempt:
        await turn.record(*resuming(turn.turn, turn.mint, after="crash"))
    await play(turn)


def _judge(policy: Policy, acted: bool, by: EndedBy) -> Verdict:
    return judge_recovered(policy, acted=acted, by=by)


def _next_n(folded: FoldedJournal, rows: tuple[JournalRow, ...]) -> int:
    """The number of the next record: after all records of the journal, readable or not."""
    return max(folded.next_n, _after(rows) if folded.damage else 0)


def _after(rows: tuple[JournalRow, ...]) -> int:
    if not rows:
        return 0
    last = rows[-1]
    lines = decode_records(last.records)
    known = [each.n + 1 for each in lines if isinstance(each, Record)]
    return max([last.n + len(lines), *known])
