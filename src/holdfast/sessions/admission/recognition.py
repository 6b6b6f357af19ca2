"""Requests that were here before: known by a key, by their hash, or by a message that an open turn has heard."""

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
    """Finds the turn that a request has begun before, or that has heard its message."""

    def __init__(self, store: Store, steered: SteeredRequests, ambient: Ambient) -> None:
        self._store = store
        self._steered = steered
        self._ambient = ambient

    async def find(
        self, ask: Ask, target: Target | None, snapshot: Snapshot | None
    ) -> Known | None:
        """What a request has begun before. A request without a key that says again what was steered into a turn that
        broke off stands for the request of that turn. `snapshot` is the session as far as it is remembered."""
        found = await self._store.find_attempt(ask.tenant, ask.attempt, target)
        if found is not None or snapshot is None or not snapshot.marks:
            return found
        turn_id = self._steered.find(snapshot, ask.attempt)
        is_heads = turn_id == snapshot.marks[-1].turn_id and snapshot.is_unfinished
        if is_heads or _is_steered_again(ask, snapshot):
            found = await self._find_as_head(ask, target, snapshot)
            if isinstance(found, Unfinished) and found.version == snapshot.version:
                return found
            # The turn that has heard the message was the head once: what the same request has begun since then has not
            # heard it.
            newer = await self._store.snapshot(ask.tenant, snapshot.session_id, known=snapshot)
            if newer is not None and newer.version > snapshot.version:
                return await self.find(ask, target, newer)
        if found is None and turn_id is not None:
            return await self._find_steered(ask, snapshot, turn_id)
        return found

    async def _find_as_head(
        self, ask: Ask, target: Target | None, snapshot: Snapshot
    ) -> Joined | Replay | Unfinished | None:
        """What the request of the turn at the head has begun, if it is said again, as long as that is the head."""
        turn = await self._store.turn(ask.tenant, snapshot.marks[-1].turn_id)
        attempt = Attempt(request_hash=turn.request_hash if turn else b"")
        found = await self._store.find_attempt(ask.tenant, attempt, target)
        if isinstance(found, Joined | Replay | Unfinished):
            return found if found.session_id == snapshot.session_id else None
        return None

    async def _find_steered(self, ask: Ask, snapshot: Snapshot, turn_id: TurnId) -> Replay | None:
        """The turn that an SDK's retry was said to before, if that one has ended a short while ago."""
        row = await self._store.turn(ask.tenant, turn_id)
        if row is None or row.session_id != snapshot.session_id:
            return None
        is_recent = self._ambient.now_ms() - row.ended_ms <= limits.recognised_retry_s * 1000
        return Replay(turn_id=row.turn_id, session_id=row.session_id) if is_recent else None


def _is_steered_again(ask: Ask, snapshot: Snapshot) -> bool:
    """Whether a request says again what was steered into a turn that broke off. A request that says which version it follows
    means another place in the conversation than the message that was steered."""
    if not snapshot.is_unfinished or ask.attempt.key is not None or ask.if_match is not None:
        return False
    if ask.approvals or ask.verbatim:
        return False
    stored = ask.system_is_stored
    return is_steered_again(snapshot, ask.messages, system_is_stored=stored)
