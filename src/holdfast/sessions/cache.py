"""A cache of snapshots, bounded by bytes, and of the sessions that keys lead to.

A cached snapshot is never trusted: the transaction that begins a turn (T1) checks the head that the request was
compared with. So an entry that is stale, or was evicted in the middle of a turn, costs a read and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict

from holdfast import limits
from holdfast.core.history.conversation import Snapshot
from holdfast.ids import SessionId, SessionKey, Tenant

ENTRY_BYTES = 2048
"""The size of an entry besides its items."""

ITEM_BYTES = 400
"""The size of an item's objects besides its encoded form, measured with short messages."""


class SnapshotCache:
    """The most recently used snapshots, and the session that each key led to when it was last seen."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._snapshots: OrderedDict[tuple[Tenant, SessionId], Snapshot] = OrderedDict()
        self._keys: OrderedDict[tuple[Tenant, SessionKey], SessionId] = OrderedDict()

    def get(self, tenant: Tenant, session_id: SessionId) -> Snapshot | None:
        found = self._snapshots.get((tenant, session_id))
        if found is not None:
            self._snapshots.move_to_end((tenant, session_id))
        return found

    def put(self, tenant: Tenant, snapshot: Snapshot) -> None:
        """Remember a snapshot, unless a newer one is there already."""
        place = (tenant, snapshot.session_id)
        known = self._snapshots.pop(place, None)
        if known is not None:
            self._bytes -= weight_of(known)
            if (known.version, known.notes.rev) > (snapshot.version, snapshot.notes.rev):
                snapshot = known
        self._snapshots[place] = snapshot
        self._bytes += weight_of(snapshot)
        while self._bytes > self._bytes_max:
            _, evicted = self._snapshots.popitem(last=False)
            self._bytes -= weight_of(evicted)

    def drop(self, tenant: Tenant, session_id: SessionId) -> None:
        known = self._snapshots.pop((tenant, session_id), None)
        if known is not None:
            self._bytes -= weight_of(known)

    def meaning(self, tenant: Tenant, key: SessionKey) -> SessionId | None:
        """The session that a key led to when it was last seen."""
        return self._keys.get((tenant, key))

    def learn(self, tenant: Tenant, key: SessionKey, session_id: SessionId) -> None:
        self._keys[tenant, key] = session_id
        self._keys.move_to_end((tenant, key))
        if len(self._keys) > limits.known_keys_max:
            self._keys.popitem(last=False)

    def forget(self, tenant: Tenant, key: SessionKey) -> None:
        self._keys.pop((tenant, key), None)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def __len__(self) -> int:
        return len(self._snapshots)

    def __repr__(self) -> str:
        return f"<SnapshotCache {len(self)} snapshots, {self._bytes} of {self._bytes_max} bytes>"


def weight_of(snapshot: Snapshot) -> int:
    """About how much memory a snapshot takes."""
    return ENTRY_BYTES + snapshot.size_bytes + ITEM_BYTES * len(snapshot.items)
