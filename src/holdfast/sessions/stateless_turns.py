"""A turn that nobody can come back to: a request that names no conversation stores nothing.

It is played by the same machine and watched in the same way; only its last transaction goes nowhere. It cannot be
handed over: when its node leaves, it has the same time as any other turn, and then it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from hashlib import sha256

import msgspec
from msgspec import Struct, field

from holdfast import limits
from holdfast.core.history.conversation import Commit, Snapshot
from holdfast.core.items import EndedBy
from holdfast.core.ports import OpenTurn, Play
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.core.turns.turn import begin
from holdfast.errors import StoreError, TurnFailed
from holdfast.ids import GrantId, SessionId, Tenant, Version
from holdfast.observe.tally import Tally
from holdfast.sessions.admission.session_lookup import request_of
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.session_requests import Admission, Ask, Choose
from holdfast.sessions.turns.feed import Feed
from holdfast.sessions.turns.lease import Lease
from holdfast.sessions.turns.live_turn import LiveTurn
from holdfast.sessions.turns.turn_notes import note_end, note_stateless
from holdfast.sessions.turns.watch import Watch
from holdfast.store.outcomes import ANY_GRANT, Committed, Fence, GrantFilter, Settlement
from holdfast.store.rows import GrantRow, MemoryRow, TurnRow
from holdfast.store.store import Store


class LooseConversation(Struct, frozen=True):
    """A conversation that no store holds: whoever talks does, and hands it in with what comes next."""

    snapshot: Snapshot
    blobs: dict[str, bytes] = field(default_factory=dict)
    """What its tools have set aside, by digest. Later turns add to it."""


class NullStore(Store):
    """A store for one turn that is not stored: every write succeeds, and is gone with the turn."""

    def __init__(self, store: Store, ambient: Ambient, loose: LooseConversation) -> None:
        self._store = store
        self._ambient = ambient
        self._loose = loose

    async def append(
        self, fence: Fence, *, n: int, records: bytes, consumed: Sequence[int] = ()
    ) -> None:
        """Nobody will read it."""

    async def commit(
        self,
        fence: Fence,
        commit: Commit,
        *,
        n: int,
        records: bytes,
        settlement: Settlement = "done",
    ) -> Committed:
        return Committed(version=commit.version, at_ms=self._ambient.now_ms())

    async def end(
        self,
        fence: Fence,
        *,
        ended_by: EndedBy,
        detail: str,
        n: int,
        records: bytes,
        settlement: Settlement,
    ) -> TurnRow:
        """It has ended; that is all."""
        return TurnRow(
            tenant=fence.tenant,
            turn_id=fence.turn_id,
            session_id=fence.session_id,
            base_head=Version(0),
            state="discarded",
            ended_by=ended_by,
            detail=detail,
        )

    async def release(self, fence: Fence) -> None:
        """There is nobody to hand it over to."""

    async def put_blob(self, tenant: Tenant, session_id: SessionId, data: bytes) -> str:
        """Kept while the turn is played: its model has to see what its tools have found."""
        digest = f"sha256:{sha256(data).hexdigest()}"
        self._loose.blobs[digest] = data
        return digest

    async def blob(self, tenant: Tenant, session_id: SessionId, digest: str) -> bytes | None:
        found = self._loose.blobs.get(digest)
        lineage = self._loose.snapshot.lineage
        if found is not None or not lineage:
            return found
        return await self._store.blob(tenant, lineage[-1].session_id, digest)

    async def memories(self, tenant: Tenant, agent: str) -> tuple[MemoryRow, ...]:
        """What is remembered can be used; nothing is added to it."""
        return await self._store.memories(tenant, agent)

    async def grants(
        self,
        tenant: Tenant,
        where: GrantFilter = ANY_GRANT,
        *,
        after: GrantId | None = None,
        limit: int,
    ) -> tuple[GrantRow, ...]:
        """What was granted holds here, too: nobody can be asked."""
        return await self._store.grants(tenant, where, after=after, limit=limit)


class StatelessTurns:
    """Plays requests that name no conversation."""

    def __init__(
        self, store: Store, lease: Lease, ambient: Ambient, choose: Choose, tally: Tally
    ) -> None:
        self._store = store
        self._lease = lease
        self._ambient = ambient
        self._choose = choose
        self._tally = tally
        self._playing: dict[asyncio.Task[None], LiveTurn] = {}

    def submit(self, ask: Ask, play: Play, loose: LooseConversation | None = None) -> Watch:
        """Begin at once, from an empty conversation or from this one. Raises what `request_of` raises."""
        session_id = self._ambient.mint(SessionId)
        if loose is None:
            loose = LooseConversation(Snapshot(session_id=session_id))
        # A name of its own for every turn: two of them may go on from one point, in two directions.
        snapshot = msgspec.structs.replace(loose.snapshot, session_id=session_id)
        request, new = request_of(ask, snapshot, self._ambient, self._choose)
        request = _unresumable(request)
        fence = Fence(
            tenant=ask.tenant,
            session_id=session_id,
            turn_id=request.turn_id,
            token=0,
            nonce="",
        )
        began = ev.Began(request=request)
        feed = Feed(events_max=limits.feed_events_max)
        feed.publish(Record(n=0, at_ms=self._ambient.now_ms(), event=began))
        live = LiveTurn(
            NullStore(self._store, self._ambient, loose),
            fence,
            snapshot,
            begin(began),
            feed,
            None,
            mint=self._ambient.mint,
            now_ms=self._ambient.now_ms,
        )
        playing = live.run(partial(_play_here, play))
        task = asyncio.create_task(playing, name=str(request.turn_id))
        self._playing[task] = live
        task.add_done_callback(self._over)
        admission = Admission(
            turn_id=request.turn_id, session_id=session_id, base=request.base, input=new.input
        )
        note_stateless(self._tally, ask, admission)
        return Watch(self._store, self._lease, ask.tenant, admission, live)

    def _over(self, task: asyncio.Task[None]) -> None:
        note_end(self._tally, self._playing.pop(task))

    async def drain(self, *, grace_s: float) -> None:
        """Let turns finish for a while, then end them. Nothing may be submitted any more.

        A player that does not stop then either is left behind: nothing of its turn would be kept.
        """
        await self._wait_idle(grace_s)
        for live in tuple(self._playing.values()):
            live.interrupt("shutdown")
        await self._wait_idle(limits.cancel_grace_s)
        for live in tuple(self._playing.values()):
            live.abandon()

    async def _wait_idle(self, at_most_s: float) -> None:
        if self._playing:
            await asyncio.wait(tuple(self._playing), timeout=at_most_s)


async def _play_here(play: Play, turn: OpenTurn) -> None:
    """A store that is away fails this turn. One that is stored would be left to whoever finds it there."""
    try:
        await play(turn)
    except StoreError as error:
        raise TurnFailed("model_error", str(error), reason="storage_unavailable") from error


def _unresumable(request: ev.TurnRequest) -> ev.TurnRequest:
    """The same request, for a turn that no other node can go on with, whatever it asks for."""
    if request.policy.crash != "resume":
        return request
    policy = msgspec.structs.replace(request.policy, crash="auto")
    return msgspec.structs.replace(request, policy=policy, replayable=False)
