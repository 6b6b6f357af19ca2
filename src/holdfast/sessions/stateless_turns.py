"""Stateless turns: a request that names no conversation gets a turn that is not stored.

It is played and watched like any other turn, but its writes go to a `NullStore`. No other node can take it over: when
its node shuts down, it has the same grace time as any other turn, and then it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct, field

from holdfast import limits
from holdfast.core.history.conversation import Commit, Snapshot
from holdfast.core.items import EndedBy, is_substantial
from holdfast.core.ports import Play
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.core.turns.turn import begin
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
    """A conversation that no store holds: its caller keeps it, and passes it along with the next request."""

    snapshot: Snapshot
    blobs: dict[str, bytes] = field(default_factory=dict)
    """The blobs of its tools' results, by digest. Later turns add to them."""


class NullStore(Store):
    """The store of one stateless turn: every write succeeds, and is gone with the turn."""

    def __init__(self, store: Store, ambient: Ambient, loose: LooseConversation) -> None:
        self._store = store
        self._ambient = ambient
        self._loose = loose

    async def append(
        self, fence: Fence, *, n: int, records: bytes, consumed: Sequence[int] = ()
    ) -> None:
        """Drop the records: no journal is read back."""

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
        usage: ev.Usage = ev.NO_USAGE,
    ) -> TurnRow:
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
        """Do nothing: no other node can take the turn over."""

    async def put_blob(self, tenant: Tenant, session_id: SessionId, data: bytes) -> str:
        """Keep the bytes while the turn is played: the model has to see its tools' results."""
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
        """The agent's stored memories. The turn can read them, and adds none."""
        return await self._store.memories(tenant, agent)

    async def grants(
        self,
        tenant: Tenant,
        where: GrantFilter = ANY_GRANT,
        *,
        after: GrantId | None = None,
        limit: int,
    ) -> tuple[GrantRow, ...]:
        """The stored grants. They count here too: a stateless turn cannot ask for an approval."""
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
        """Begin a turn at once, from an empty conversation or from `loose`. Raises what `request_of` raises."""
        session_id = self._ambient.mint(SessionId)
        if loose is None:
            loose = LooseConversation(Snapshot(session_id=session_id))
            is_blank = not any(is_substantial(each.content) for each in ask.messages)
            ask = msgspec.structs.replace(ask, needs_question=is_blank)
        # Each turn has a session id of its own: two turns may continue one loose conversation in two directions.
        snapshot = msgspec.structs.replace(loose.snapshot, session_id=session_id)
        new = request_of(ask, snapshot, self._ambient, self._choose)
        request = _unresumable(new.request)
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
        task = asyncio.create_task(live.run(play), name=str(request.turn_id))
        self._playing[task] = live
        task.add_done_callback(self._over)
        admission = Admission(
            turn_id=request.turn_id,
            session_id=session_id,
            base=request.base,
            input=new.fresh.input,
            ignored=new.ignored,
        )
        note_stateless(self._tally, ask, admission)
        return Watch(self._store, self._lease, ask.tenant, admission, live)

    def _over(self, task: asyncio.Task[None]) -> None:
        note_end(self._tally, self._playing.pop(task))

    async def drain(self, *, grace_s: float) -> None:
        """Let turns finish for `grace_s`, then end them. The caller submits nothing any more.

        A player that does not stop then either is abandoned: its turn would not be stored anyway.
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


def _unresumable(request: ev.TurnRequest) -> ev.TurnRequest:
    """The same request without the `resume` policy: no other node can resume a stateless turn."""
    if request.policy.crash != "resume":
        return request
    policy = msgspec.structs.replace(request.policy, crash="auto")
    return msgspec.structs.replace(request, policy=policy, replayable=False)
