"""Finds the turn of a request that was sent before: by its key, its hash, or a message steered into an open turn."""

from __future__ import annotations

from holdfast import limits
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.reconciliation import is_steered_again
from holdfast.ids import TurnId
from holdfast.sessions.admission.steered_requests import SteeredRequests
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.session_requests import Ask
from holdfast.store.outcomes import Attempt, Joined, Known, Replay, Target, Unfinished
from holdfast.store.store import Store


class Recognition:
    """Finds the turn that a request has begun before, or that its message was steered into."""

    def __init__(self, store: Store, steered: SteeredRequests, ambient: Ambient) -> None:
        self._store = store
        self._steered = steered
        self._ambient = ambient

    async def find(
        self, ask: Ask, target: Target | None, snapshot: Snapshot | None
    ) -> Known | None:
        """The turn of an earlier attempt of this request, if any. A request without a key that repeats a message
        steered into a turn that broke off counts as a retry of that turn's request. `snapshot` is the cached session,
        if any."""
        found = await self._store.find_attempt(ask.tenant, ask.attempt, target)
        if found is not None or snapshot is None or not snapshot.marks:
            return found
        turn_id = self._steered.find(snapshot, ask.attempt)
        is_heads = turn_id == snapshot.marks[-1].turn_id and snapshot.is_unfinished
        if is_heads or _is_steered_again(ask, snapshot):
            found = await self._find_as_head(ask, target, snapshot)
            if isinstance(found, Unfinished) and found.version == snapshot.version:
                return found
            # The turn with the steered message may not be the head any more: look again if the session has moved on.
            newer = await self._store.snapshot(ask.tenant, snapshot.session_id, known=snapshot)
            if newer is not None and newer.version > snapshot.version:
                return await self.find(ask, target, newer)
        if found is None and turn_id is not None:
            return await self._find_steered(ask, snapshot, turn_id)
        return found

    async def _find_as_head(
        self, ask: Ask, target: Target | None, snapshot: Snapshot
    ) -> Joined | Replay | Unfinished | None:
        """The result for a retry of the request that began the head's turn, if it is about this session."""
        turn = await self._store.turn(ask.tenant, snapshot.marks[-1].turn_id)
        attempt = Attempt(request_hash=turn.request_hash if turn else b"")
        found = await self._store.find_attempt(ask.tenant, attempt, target)
        if isinstance(found, Joined | Replay | Unfinished):
            return found if found.session_id == snapshot.session_id else None
        return None

    async def _find_steered(self, ask: Ask, snapshot: Snapshot, turn_id: TurnId) -> Replay | None:
        """The turn that an earlier attempt of an SDK's retry was steered into, if it has ended a short while ago."""
        row = await self._store.turn(ask.tenant, turn_id)
        if row is None or row.session_id != snapshot.session_id:
            return None
        is_recent = self._ambient.now_ms() - row.ended_ms <= limits.recognised_retry_s * 1000
        return Replay(turn_id=row.turn_id, session_id=row.session_id) if is_recent else None


def _is_steered_again(ask: Ask, snapshot: Snapshot) -> bool:
    """Whether a request repeats a message that was steered into a turn that broke off. A request with `if_match` does
    not: it means another place in the conversation."""
    if not snapshot.is_unfinished or ask.attempt.key is not None or ask.if_match is not None:
        return False
    if ask.approvals or ask.verbatim:
        return False
    stored = ask.system_is_stored
    return is_steered_again(snapshot, ask.messages, system_is_stored=stored)
