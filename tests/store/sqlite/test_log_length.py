"""A log that was cut or damaged after a server was killed: what is missing is told, and what does not fit is not opened."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.errors import StoreUnusable
from holdfast.ids import Minter
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.condition import examine
from holdfast.store.verification.findings import Finding
from holdfast.store.verification.verification import verify
from tests.store.builders import ACME, Player
from tests.store.sqlite.flips import PAGE_BYTES, Truth, flip, truth_of

FRAME_BYTES = 24 + PAGE_BYTES
PARTS = ("", "-wal", "-shm")

Told = list[dict[str, object]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What operators are told."""
    events: Told = []
    monkeypatch.setattr(
        "holdfast.store.sqlite.pages.log_length.warn",
        lambda event, **fields: events.append({"event": event, **fields}),
    )
    return events


async def killed(folder: Path, mint: Minter, *, copied: bool) -> tuple[Path, Truth]:
    """The files of a server that was killed; its log had been copied into the database half-way, or as a whole."""
    path, left = folder / "store.db", folder / "left.db"
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew(ttl_ms=600_000)
    for n in range(30):
        await player.play(f"talk-{n}", "Hello", "word " * 300)
    checkpoint(path, apsw.SQLITE_CHECKPOINT_TRUNCATE)
    for n in range(0, 30, 2):
        await player.play(f"talk-{n}", "And then?", "more " * 300)
    if copied:
        checkpoint(path, apsw.SQLITE_CHECKPOINT_PASSIVE)
    for part in PARTS:
        shutil.copyfile(f"{path}{part}", f"{left}{part}")
    truth = await truth_of(store)
    await store.close()
    return left, truth


def checkpoint(path: Path, mode: int) -> None:
    with closing(apsw.Connection(str(path))) as db:
        db.execute("select count(*) from session").fetchall()
        db.wal_checkpoint("main", mode)


def frames_of(path: Path) -> int:
    return (os.path.getsize(f"{path}-wal") - 32) // FRAME_BYTES


def put_away(path: Path) -> None:
    for part in PARTS[1:]:
        Path(f"{path}{part}").unlink()


def tear(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"torn")


def cut(log: Path) -> None:
    os.truncate(log, log.stat().st_size * 2 // 3)


def flip_in_the_middle(log: Path) -> None:
    flip(log, log.stat().st_size // 2, 3)


@pytest.mark.parametrize("damage", [cut, flip_in_the_middle])
async def test_a_log_that_is_older_than_its_database_is_not_opened(
    tmp_path: Path, mint: Minter, told: Told, damage: Callable[[Path], None]
) -> None:
    """Its pages would hide newer ones, and sessions would lead to turns that are gone."""
    path, truth = await killed(tmp_path, mint, copied=True)
    damage(Path(f"{path}-wal"))
    for _ in range(2):
        with pytest.raises(
            StoreUnusable, match=r"had been copied .*holdfast db verify`; its --help"
        ):
            await SqliteStore.open(path)
    with pytest.raises(StoreUnusable, match=r"left\.db-wal was cut or damaged"):
        examine(path)
    await asyncio.to_thread(put_away, path)
    store = await SqliteStore.open(path)
    assert [each async for each in verify(store) if isinstance(each, Finding)] == []
    assert await truth_of(store) == truth
    await store.close()
    assert told == []


@pytest.mark.parametrize(
    "damage", [cut, flip_in_the_middle, Path.unlink, lambda log: os.truncate(log, 0)]
)
async def test_a_log_that_has_lost_its_end_is_told_of(
    tmp_path: Path, mint: Minter, told: Told, damage: Callable[[Path], None]
) -> None:
    """By `verify` and `doctor`, over restarts, until an operator has looked after what is missing."""
    path, truth = await killed(tmp_path, mint, copied=False)
    pages = frames_of(path)
    damage(Path(f"{path}-wal"))
    for _ in range(2):
        store = await SqliteStore.open(path)
        (finding,) = [each async for each in verify(store) if isinstance(each, Finding)]
        assert finding.violation.code == "log_cut"
        assert await truth_of(store) != truth
        await store.close()
    assert any("log were gone" in each for each in examine(path).damage)
    (said,) = told
    assert (said["event"], said["pages"]) == ("store.log_cut", pages)
    left = said["left"]
    assert isinstance(left, int) and 0 <= left < pages
    await asyncio.to_thread(Path(f"{path}-cut").unlink)
    store = await SqliteStore.open(path)
    assert [each async for each in verify(store) if isinstance(each, Finding)] == []
    await store.close()


async def test_what_cannot_be_read_beside_a_database_is_told_by_its_name(
    tmp_path: Path, mint: Minter
) -> None:
    """By a store that does not open, or that tells of damage; never by an error of Python's."""
    path, _ = await killed(tmp_path, mint, copied=False)
    shared, note = Path(f"{path}-shm"), Path(f"{path}-cut")
    await asyncio.to_thread(shared.unlink)
    await asyncio.to_thread(shared.mkdir)
    with pytest.raises(StoreUnusable, match="shm cannot be read"):
        await SqliteStore.open(path)
    await asyncio.to_thread(shared.rmdir)
    await asyncio.to_thread(note.mkdir)
    store = await SqliteStore.open(path)
    (finding,) = [each async for each in verify(store) if isinstance(each, Finding)]
    assert "left.db-cut tells" in str(finding)
    await store.close()


async def test_a_command_tells_of_a_log_that_has_lost_its_end(tmp_path: Path, mint: Minter) -> None:
    """A command looks at the tables before it opens the store."""
    path, _ = await killed(tmp_path, mint, copied=False)
    cut(Path(f"{path}-wal"))
    asked = ["db", "verify", "--store", f"sqlite:///{path}"]
    done = await asyncio.to_thread(CliRunner().invoke, main, asked)
    assert done.exit_code == 1 and "log_cut" in done.output


@pytest.mark.parametrize("copied", [False, True])
async def test_a_log_that_is_whole_is_opened_without_a_word(
    tmp_path: Path, mint: Minter, told: Told, copied: bool
) -> None:
    path, truth = await killed(tmp_path, mint, copied=copied)
    tear(Path(f"{path}-wal"))  # as a crash does
    store = await SqliteStore.open(path)
    assert await truth_of(store) == truth
    await store.close()
    assert told == []


async def test_a_log_that_was_copied_and_deleted_has_lost_nothing(
    tmp_path: Path, mint: Minter, told: Told
) -> None:
    path, truth = await killed(tmp_path, mint, copied=True)
    await asyncio.to_thread(Path(f"{path}-wal").unlink)
    store = await SqliteStore.open(path)
    assert await truth_of(store) == truth
    await store.close()
    assert told == []


@pytest.mark.parametrize("garbage", [b"", b"short", bytes(136), b"\xff" * 32_768])
async def test_shared_memory_that_says_nothing_is_not_believed(
    tmp_path: Path, mint: Minter, told: Told, garbage: bytes
) -> None:
    path, truth = await killed(tmp_path, mint, copied=False)
    await asyncio.to_thread(Path(f"{path}-shm").write_bytes, garbage)
    store = await SqliteStore.open(path)
    assert await truth_of(store) == truth
    await store.close()
    assert told == []
