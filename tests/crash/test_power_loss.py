"""The power goes at every moment of a run: what was told is there, and nothing is there in part."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from holdfast.ids import Minter
from holdfast.store.sqlite import SqliteStore
from tests.crash.outage import FILE, Tally, busy_day, cut, record, taking_up
from tests.crash.power import (
    Create,
    Delete,
    Disk,
    Fate,
    Image,
    Op,
    Recording,
    Sync,
    Told,
    Write,
    images,
    put,
)
from tests.scratch import scratch_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch_folder() as made:
        yield made


@pytest.mark.slow
async def test_what_was_told_outlives_a_power_cut_and_nothing_is_half_there(folder: Path) -> None:
    recording = await record(folder, partial(busy_day, rounds=3), seed=1)
    # Some of the images; `make torture-store` opens them all.
    tally = await cut(recording, seed=1, share=0, shares=23, boot_every=12)
    assert tally.violations == []
    assert tally.images > 140
    assert tally.booted > 10


@pytest.mark.slow
async def test_a_power_cut_during_the_recovery_from_one_is_no_different(folder: Path) -> None:
    recording = await record(folder, partial(busy_day, rounds=1), seed=2)
    middle = len(recording.ops) // 2
    found = next(each for each in images(recording, seed=2) if each.point >= middle and each.files)
    assert found.files is not None
    put(found.files, folder)
    again = await record(folder, taking_up, seed=3)
    assert FILE in again.before
    tally = await cut(again, seed=4, shares=5, boot_every=20)
    assert tally.violations == []
    assert tally.images > 50


@pytest.mark.slow
async def test_a_store_that_does_not_sync_is_caught(folder: Path) -> None:
    """The campaign can fail: without the sync, a power cut takes back what was told."""

    async def careless(store: SqliteStore, mint: Minter) -> None:
        store.engine._writer._connection.execute("pragma synchronous = normal")
        await busy_day(store, mint, rounds=1)

    recording = await record(folder, careless, seed=1)
    tally = await cut(recording, seed=1, shares=13, boot_every=1_000_000)
    assert any("power cut after operation" in each for each in tally.violations)


def test_the_model_of_a_disk_keeps_what_was_synced_and_no_more() -> None:
    ops: list[Op] = [
        Create("a", 1),
        Write(1, 0, b"safe"),
        Sync(1, names=True),
        Write(1, 4, b"loose"),
        Write(1, 0, b"S"),
        Delete("a", synced=False),
    ]
    disk = Disk(Recording({}, b"", ops))
    for index in range(len(ops)):
        disk.happens(index)
    assert disk.loose == [3, 4]
    assert disk.found(Fate(frozenset(), 0)) == {"a": b"safe"}
    assert disk.found(Fate(frozenset({3}), 0)) == {"a": b"safeloose"}
    assert disk.found(Fate(frozenset({4}), 0)) == {"a": b"Safe"}
    assert disk.found(Fate(frozenset({3, 4}), 1)) == {}


def test_a_torn_write_lands_by_sectors() -> None:
    disk = Disk(Recording({"a": bytes(1024)}, b"", [Write(1, 256, b"x" * 512)]))
    disk.happens(0)
    first = disk.found(Fate(frozenset({0}), 0, torn=(0, frozenset({0}))))["a"]
    second = disk.found(Fate(frozenset({0}), 0, torn=(0, frozenset({1}))))["a"]
    assert first == bytes(256) + b"x" * 256 + bytes(512)
    assert second == bytes(512) + b"x" * 256 + bytes(256)


def test_an_image_may_hold_what_was_told_last_or_what_was_on_its_way() -> None:
    ops: list[Op] = [Write(1, 0, b"1"), Sync(1, names=False), Told(b"one"), Write(1, 0, b"2")]
    found: list[Image] = list(images(Recording({"a": b"0"}, b"none", ops), seed=0))
    assert {each.point: each.allowed for each in found} == {
        1: (b"none", b"one"),
        2: (b"none", b"one"),
        3: (b"one",),
        4: (b"one",),
    }


def test_tallies_add_up() -> None:
    tally = Tally(points=1, cuts=2, images=3, booted=4, violations=["a"])
    tally.add(Tally(points=1, cuts=1, images=1, booted=1, violations=["b"]))
    assert tally == Tally(points=2, cuts=3, images=4, booted=5, violations=["a", "b"])
