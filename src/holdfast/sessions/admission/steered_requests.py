"""Recognises an SDK's retry of a request without a key whose message was steered into an open turn.

A turn's row holds the hash of the request that began it. A steered message carries the hash of its own request, as an
extra that only this module reads; so the hash is where the message is, on every node and after a crash.

Only a request that an SDK marks as a retry is looked for, and for as long as a turn's own request would be. A client
that has received its answer has no reason to retry, so the same words are new then; each node remembers which answers
it has delivered.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast import limits
from holdfast.core.history.conversation import Snapshot
from holdfast.core.items import Opaque, StoredItem, UserMessage
from holdfast.ids import TurnId
from holdfast.store.outcomes import Attempt

OWNER = "holdfast.steered"
RECEIPTS_MAX = 4096


class _Known(msgspec.Struct, frozen=True):
    request: str
    attempt: int = 0


_decode = msgspec.json.Decoder(_Known).decode


def signed(messages: tuple[UserMessage, ...], attempt: Attempt) -> tuple[UserMessage, ...]:
    """The messages, the last one with the hash of their request. A request with a key needs none."""
    if attempt.key is not None or not attempt.request_hash or not messages:
        return messages
    known = _Known(attempt.request_hash.hex(), attempt.client_attempt)
    extra = Opaque(owner=OWNER, json=msgspec.json.encode(known).decode())
    last = messages[-1]
    extras = (*last.extras[: limits.opaques_max - 1], extra)
    return (*messages[:-1], msgspec.structs.replace(last, extras=extras))


def is_retried(items: Iterable[StoredItem], attempt: Attempt) -> bool:
    """Whether one of these items is the message of an earlier attempt of this request."""
    if attempt.key is not None or not attempt.client_attempt:
        return False
    found = (
        _decode(extra.json)
        for item in items
        if isinstance(item, UserMessage)
        for extra in item.extras
        if extra.owner == OWNER
    )
    request = attempt.request_hash.hex()
    return any(each.request == request and each.attempt < attempt.client_attempt for each in found)


class SteeredRequests:
    """Finds the turns that requests were steered into, for clients that may not have their answer."""

    def __init__(self) -> None:
        self._received: dict[tuple[TurnId, bytes], None] = {}

    def note_received(self, turn_id: TurnId, request_hash: bytes) -> None:
        """Note that a client has received the answer of the turn that its request was steered into."""
        self._received[turn_id, request_hash] = None
        if len(self._received) > RECEIPTS_MAX:
            del self._received[next(iter(self._received))]

    def find(self, snapshot: Snapshot, attempt: Attempt) -> TurnId | None:
        """The turn that has answered an earlier attempt of this request: the one that it was steered into, or that
        turn's last continuation."""
        if attempt.key is not None or not attempt.client_attempt:
            return None
        answered_by: TurnId | None = None
        since = max(0, snapshot.version - limits.recognised_versions)
        for mark in reversed(snapshot.marks.since(since)):
            answered_by = answered_by or mark.turn_id
            if is_retried(snapshot.items[mark.start : mark.end], attempt):
                received = (answered_by, attempt.request_hash) in self._received
                return None if received else answered_by
            if mark.continues is None:
                answered_by = None
        return None
