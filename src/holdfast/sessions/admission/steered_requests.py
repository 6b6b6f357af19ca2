"""Requests without a key whose messages were said to an open turn: how an SDK's retry of one is known again.

A turn is known by the request that began it. A message that the turn hears later brings what its own request is known by
along, as an extra that only this module reads; so it is where the message is, on every node and after a crash.

Only a request that an SDK says to have sent before is looked for, and for no longer than that of a turn. A client that has
its answer has no reason to send the request again, so the same words are new then; each node remembers that of the answers
that it has handed over.
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
    """Messages of which the last one says what their request is known by. A request with a key is known by that."""
    if attempt.key is not None or not attempt.request_hash or not messages:
        return messages
    known = _Known(attempt.request_hash.hex(), attempt.client_attempt)
    extra = Opaque(owner=OWNER, json=msgspec.json.encode(known).decode())
    last = messages[-1]
    extras = (*last.extras[: limits.opaques_max - 1], extra)
    return (*messages[:-1], msgspec.structs.replace(last, extras=extras))


def is_retried(items: Iterable[StoredItem], attempt: Attempt) -> bool:
    """Whether one of these items is the message of an earlier attempt of a request."""
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
    """Where such requests were heard, as far as their clients may not know."""

    def __init__(self) -> None:
        self._received: dict[tuple[TurnId, bytes], None] = {}

    def note_received(self, turn_id: TurnId, request_hash: bytes) -> None:
        """A client has the answer to what it said to this turn."""
        self._received[turn_id, request_hash] = None
        if len(self._received) > RECEIPTS_MAX:
            del self._received[next(iter(self._received))]

    def find(self, snapshot: Snapshot, attempt: Attempt) -> TurnId | None:
        """The turn that has answered an earlier attempt of this request: the one that heard it, or that one's last
        continuation."""
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
