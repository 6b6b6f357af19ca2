"""A snapshot that somebody holds is brought forward by its holder, and not by the threads that read for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.core.history.conversation import Snapshot, TurnMark
from holdfast.ids import Minter, Version
from holdfast.store import snapshots
from holdfast.store.rows import TurnRow
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player


async def test_two_who_bring_one_snapshot_forward_at_once_do_not_see_each_others_marks(
    path: Path, clock: ManualClock, mint: Minter, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(path, now_ms=clock.now_ms)
    player = Player(store, mint)
    await player.renew()
    for _ in range(4):
        await player.play("trip")
    session_id = await player.id_of("trip")
    known = await store.snapshot(ACME, session_id, version=Version(2))

    both = threading.Barrier(2, timeout=30)
    met = threading.local()
    mark_of = snapshots.mark_of

    def slow(row: TurnRow) -> TurnMark:
        """Both readers are in the middle of it at one moment."""
        if not getattr(met, "once", False):
            met.once = True
            both.wait()
        return mark_of(row)

    monkeypatch.setattr(snapshots, "mark_of", slow)
    found: Sequence[Snapshot | None] = await asyncio.gather(
        *(store.snapshot(ACME, session_id, known=known) for _ in range(2))
    )
    await store.close()
    for snapshot in found:
        assert snapshot is not None
        assert [mark.version for mark in snapshot.marks] == [1, 2, 3, 4]
