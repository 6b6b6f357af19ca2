"""Locks between processes: who writes, and who lives."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import StoreClosed, StoreUnavailable
from holdfast.store.sqlite.locks import Liveness, SideFile, WriteTurn
from tests.store.sqlite.children import Child

Start = Callable[..., Child]


@pytest.fixture
def side(tmp_path: Path) -> Path:
    return tmp_path / "store.db-writer"


def test_two_users_in_one_process_exclude_each_other(side: Path) -> None:
    """The kernel takes them for one; the registry does not."""
    one, two = WriteTurn(side), WriteTurn(side)
    with one:
        with pytest.raises(StoreUnavailable):
            two.wait(timeout_s=0)
    two.wait(timeout_s=0)
    two.release()
    one.close()
    two.close()


def test_a_turn_waits_until_it_is_left(side: Path) -> None:
    one, two = WriteTurn(side), WriteTurn(side)
    order: list[str] = []

    def second() -> None:
        with two:
            order.append("two")

    thread = threading.Thread(target=second)
    with one:
        thread.start()
        order.append("one")
    thread.join()
    assert order == ["one", "two"]
    one.close()
    two.close()


def test_all_users_in_a_process_share_one_descriptor(tmp_path: Path) -> None:
    """Closing a second one would drop the locks that the first one holds."""
    path = tmp_path / "live"
    other_name = tmp_path / "other"
    one = SideFile.share(path)
    os.link(path, other_name)
    two, three = SideFile.share(path), SideFile.share(other_name)
    assert one is two is three
    for _ in range(3):
        assert not one.closed
        one.leave()
    assert one.closed
    fresh = SideFile.share(path)
    assert fresh is not one
    fresh.leave()


def test_closing_one_user_leaves_the_others_locks_alone(path: Path, start: Start) -> None:
    mine, also_mine = Liveness(_live(path)), Liveness(_live(path))
    assert mine.hold_nowait(3)
    also_mine.close()
    also_mine.close()
    gc.collect()
    other = start("live", 3)
    assert other.wait_line() == "False"
    mine.close()


def test_a_closed_lock_says_so(side: Path) -> None:
    turn = WriteTurn(side)
    turn.close()
    with pytest.raises(StoreClosed, match="is closed"):
        turn.wait(timeout_s=0)


def test_a_slot_has_one_holder_in_a_process_too(path: Path) -> None:
    one, two = Liveness(_live(path)), Liveness(_live(path))
    assert one.hold_nowait(7)
    assert not one.hold_nowait(7)
    assert not two.hold_nowait(7)
    assert one.is_held(7)
    assert two.is_held(7)
    assert not two.is_held(6)
    two.release(7)  # not its own
    assert two.is_held(7)
    one.release(7)
    assert two.hold_nowait(7)
    one.close()
    assert two.is_held(7)
    two.close()


@pytest.mark.parametrize("slot", [0, 1, 5, 2**40])
def test_a_slot_is_free_the_moment_its_process_is_killed(
    path: Path, start: Start, slot: int
) -> None:
    other = start("live", slot)
    assert other.wait_line() == "True"
    mine = Liveness(_live(path))
    assert mine.is_held(slot)
    assert not mine.is_held(slot + 1)
    assert not mine.hold_nowait(slot)

    other.kill()
    assert not mine.is_held(slot)
    assert mine.hold_nowait(slot)
    mine.close()


def _live(path: Path) -> Path:
    return path.with_name(f"{path.name}-live")
