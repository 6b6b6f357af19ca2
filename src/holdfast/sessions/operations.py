"""Operations on sessions besides turns: cancel, fork, rewind, reset, rebind, annotate, compact, delete.

None of them loads an agent, and none of them rewrites a history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.history.conversation import Patch, SettingsChanged, Summarized, Titled
from holdfast.core.items import SessionSettings, Summary
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import STOPPED_BY
from holdfast.errors import SessionBusy
from holdfast.ids import ItemId, NoteId, SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.sessions.admission.queued_turns import Queue
from holdfast.sessions.admission.wait_budget import RETRY_AFTER_S
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.cache import SnapshotCache
from holdfast.sessions.session_requests import Ending, ending_of
from holdfast.sessions.turns.owner import Owner
from holdfast.sessions.turns.recovery import Recovery
from holdfast.sessions.turns.turn_notes import note_signal
from holdfast.sessions.turns.watch import find_ending
from holdfast.store.outcomes import AnnotateOutcome, Busy, TooLate
from holdfast.store.rows import SessionRow
from holdfast.store.store import Store


class StillRunning(Value):
    """The turn was cancelled, and its player has not stopped yet."""

    turn_id: TurnId


class Operations:
    """The operations on sessions. The caller has checked that its client may use them."""

    def __init__(
        self,
        store: Store,
        cache: SnapshotCache,
        owner: Owner,
        recovery: Recovery,
        queue: Queue,
        ambient: Ambient,
    ) -> None:
        self._store = store
        self._cache = cache
        self._owner = owner
        self._recovery = recovery
        self._queue = queue
        self._ambient = ambient

    async def cancel(
        self, tenant: Tenant, turn_id: TurnId, *, by: str = ""
    ) -> Ending | StillRunning:
        """Stop a turn, on whichever node it is played, and return how it ended, also if it had ended before. The turn
        says who stopped it: `by`, such as an API key's id.

        A queued turn ends at once, and is not kept: it has done nothing.
        A node that ignores the cancel for `cancel_grace_s` is fenced, and the turn is closed from its journal.
        Raises SessionMissing for an unknown turn.
        """
        detail = f"{STOPPED_BY}{by}" if by else ""
        payload = detail.encode()
        signalled = await self._store.signal(tenant, turn_id, kind="cancel", payload=payload)
        note_signal(tenant, turn_id, "cancel")
        while isinstance(signalled, TooLate) and signalled.turn.state == "queued":
            stopped = ev.Interrupted(by="cancelled", detail=detail)
            row = await self._queue.withdraw(tenant, turn_id, stopped, settlement="done")
            if row.ended_by is not None:
                signalled = TooLate(turn=row)
            else:  # another node opened it at this moment
                signalled = await self._store.signal(
                    tenant, turn_id, kind="cancel", payload=payload
                )
        if isinstance(signalled, TooLate):
            ending = ending_of(signalled.turn)
            assert ending is not None, "a turn that takes no signal has ended"
            return ending
        live = self._owner.live.get(turn_id)
        if live is not None:
            live.interrupt("cancelled", detail)
        else:
            await self._end_waiting(tenant, turn_id)
        return await self._wait_for_end(tenant, turn_id)

    async def _end_waiting(self, tenant: Tenant, turn_id: TurnId) -> None:
        """Take over a cancelled turn that waits for a node with room: no node would see its signal."""
        row = await self._store.turn(tenant, turn_id)
        session = await self._store.session(tenant, row.session_id) if row else None
        if session is not None and session.open_turn == turn_id and session.lease_node is None:
            await self._recovery.recover(tenant, session.id, turn_id, handed_over=True)

    async def _wait_for_end(self, tenant: Tenant, turn_id: TurnId) -> Ending | StillRunning:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + limits.cancel_grace_s
        overruled = False
        while True:
            ending = await find_ending(self._store, tenant, turn_id)
            if ending is not None:
                return ending
            if loop.time() >= give_up_at:
                if overruled:
                    return StillRunning(turn_id=turn_id)
                overruled = True
                give_up_at = loop.time() + limits.busy_poll_s * 4
                await self._overrule(tenant, turn_id)
            live = self._owner.live.get(turn_id)
            if live is not None and not live.done.done():
                await asyncio.wait({live.done}, timeout=max(0.0, give_up_at - loop.time()))
            else:
                await asyncio.sleep(limits.busy_poll_s)

    async def _overrule(self, tenant: Tenant, turn_id: TurnId) -> None:
        row = await self._store.turn(tenant, turn_id)
        if row is not None:
            await self._recovery.recover(tenant, row.session_id, turn_id, ignored_cancel=True)

    async def fork(
        self,
        tenant: Tenant,
        session_id: SessionId,
        version: Version | None = None,
        *,
        anonymous: bool = False,
    ) -> SessionRow:
        """A new session that begins as this one stood at a version, by default its head.

        `anonymous`: the fork is an anonymous line, even if this session has a key.
        """
        if version is None:
            row = await self._store.session(tenant, session_id)
            version = row.head if row else Version(0)
        return await self._store.fork(
            tenant,
            session_id,
            version=version,
            fresh=self._ambient.mint(SessionId),
            anonymous=anonymous,
        )

    async def reset(self, tenant: Tenant, key: SessionKey) -> SessionRow:
        """Bind a key to a new, empty session. The old session stays, under its id."""
        return await self._bind(tenant, key, None)

    async def rewind(self, tenant: Tenant, key: SessionKey, version: Version) -> SessionRow:
        """Bind a key to a fork of its session at an earlier version. The old session stays."""
        return await self._bind(tenant, key, version)

    async def name(self, tenant: Tenant, session_id: SessionId, key: SessionKey) -> SessionRow:
        """Give a session one more key. Raises SessionMissing, SessionGone, and NameTaken if another session has it."""
        row = await self._store.name(tenant, session_id, key)
        self._cache.learn(tenant, key, row.id)
        return row

    async def _bind(self, tenant: Tenant, key: SessionKey, version: Version | None) -> SessionRow:
        fresh = self._ambient.mint(SessionId)
        row = await self._store.bind(tenant, key, fresh=fresh, version=version)
        self._cache.learn(tenant, key, row.id)
        return row

    async def rebind(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        source_key: str,
        source_name: str = "",
        entry_agent: str | None = None,
    ) -> SessionRow:
        """Move a session to the agents of another source. Its history stays as it is.

        Calls that wait for an approval can only be closed from then on. Raises SessionBusy while a turn is open.
        """
        outcome = await self._store.rebind(
            tenant,
            session_id,
            source_key=source_key,
            source_name=source_name or None,
            entry_agent=entry_agent,
        )
        if isinstance(outcome, Busy):
            raise SessionBusy(session_id, turn_id=outcome.turn_id, retry_after_s=RETRY_AFTER_S)
        await self._refresh(tenant, session_id)
        return outcome

    async def annotate(
        self,
        tenant: Tenant,
        session_id: SessionId,
        patches: Sequence[tuple[ItemId | None, Patch]],
        *,
        summary_rev: int | None = None,
    ) -> AnnotateOutcome:
        """Add annotations to a session or its items, beside the history."""
        outcome = await self._store.annotate(tenant, session_id, patches, summary_rev=summary_rev)
        await self._refresh(tenant, session_id)
        return outcome

    async def title(self, tenant: Tenant, session_id: SessionId, title: str) -> AnnotateOutcome:
        shortened = title[: limits.title_chars_max]
        return await self.annotate(tenant, session_id, [(None, Titled(title=shortened))])

    async def settings(
        self, tenant: Tenant, session_id: SessionId, settings: SessionSettings
    ) -> AnnotateOutcome:
        return await self.annotate(tenant, session_id, [(None, SettingsChanged(settings=settings))])

    async def compact(
        self, tenant: Tenant, session_id: SessionId, text: str, *, covers_to: int, summary_rev: int
    ) -> AnnotateOutcome:
        """Let the model see a summary in place of the items before position `covers_to`; people still see everything.

        One atomic step, on top of the summary with revision `summary_rev` (0: none yet). The caller provides the
        text.
        """
        summary = Summary(id=self._ambient.mint(NoteId), text=text, covers_to=covers_to)
        return await self.annotate(
            tenant,
            session_id,
            [(None, Summarized(summary=summary))],
            summary_rev=summary_rev,
        )

    async def delete(self, tenant: Tenant, session_id: SessionId) -> SessionRow:
        """Delete a session at once. Its open turn ends."""
        row = await self._store.remove(tenant, session_id)
        self._cache.drop(tenant, session_id)
        for live in tuple(self._owner.live.values()):
            if live.fence.session_id == session_id and live.fence.tenant == tenant:
                live.interrupt("deleted")
        return row

    async def _refresh(self, tenant: Tenant, session_id: SessionId) -> None:
        known = self._cache.get(tenant, session_id)
        if known is not None:
            fresh = await self._store.snapshot(tenant, session_id, known=known)
            if fresh is not None:
                self._cache.put(tenant, fresh)
