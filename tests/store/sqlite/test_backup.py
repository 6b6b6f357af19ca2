"""A backup is the store at one moment, whole, while turns go on; or there is none."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest

from holdfast.core.items import UserMessage, text_of
from holdfast.errors import StorageFull, StoreUnavailable, StoreUnusable
from holdfast.ids import Minter, SessionKey
from holdfast.store.sqlite import SqliteStore, backup
from holdfast.store.sqlite.backup import back_up
from holdfast.store.sqlite.connection import open_reader
from holdfast.store.sqlite.pages.survey import FilePages
from holdfast.store.store import Store
from holdfast.store.verification.verification import Finding, verify
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.furnishing import furnish
from tests.store.sqlite import store_child
from tests.store.state import contents

LARGE_BYTES = 3_000_000
"""SQLite keeps 2 MB of a file in memory that it writes."""


@pytest.fixture
async def opened(path: Path, clock: ManualClock) -> SqliteStore:
    return await SqliteStore.open(path, now_ms=clock.now_ms)


@pytest.fixture
async def playing(opened: SqliteStore, mint: Minter) -> Player:
    made = Player(opened, mint)
    await made.renew()
    return made


async def is_sound(store: Store) -> bool:
    return not [each async for each in verify(store) if isinstance(each, Finding)]


async def said_in(store: Store, key: str) -> list[str]:
    """What the user has said in a session."""
    row = await store.resolve(ACME, SessionKey(key))
    found = await store.snapshot(ACME, row.session_id) if row else None
    items = found.items if found else ()
    return [text_of(item.content) for item in items if isinstance(item, UserMessage)]


def left_in(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


async def test_a_backup_holds_all_that_was_there(
    opened: SqliteStore, playing: Player, tmp_path: Path, clock: ManualClock
) -> None:
    await furnish(playing)
    target = tmp_path / "copies" / "monday.db"
    target.parent.mkdir()
    copied = await asyncio.to_thread(back_up, opened.engine.path, target)
    assert copied.path == target
    assert copied.bytes == target.stat().st_size == copied.pages * 4096
    assert left_in(target.parent) == {"monday.db"}
    assert target.stat().st_mode & 0o777 == 0o600

    copy = await SqliteStore.open(target, now_ms=clock.now_ms)
    claims = ("friday", "stop", "busy")
    ours, theirs = [await contents(each, claims=claims) for each in (opened, copy)]
    # Nobody plays the open turn there: whoever opens the copy takes it over at once.
    assert (len(ours.orphans), len(theirs.orphans)) == (0, 1)
    assert msgspec.structs.replace(theirs, orphans=()) == ours
    assert await is_sound(copy)
    await copy.close()
    await opened.close()


async def test_each_page_of_a_large_backup_is_whole(
    opened: SqliteStore, playing: Player, tmp_path: Path
) -> None:
    """Pages come from the log without a checksum, and are written as soon as there are more than SQLite keeps in memory."""
    source, target = opened.engine.path, tmp_path / "monday.db"
    with closing(open_reader(source)) as holding:
        holding.execute("begin; select count(*) from session")  # so that nothing leaves the log
        for number in range(4):
            await playing.play(f"trip-{number}", "word " * 200_000)
        copied = await asyncio.to_thread(back_up, source, target)
    assert copied.bytes > LARGE_BYTES
    with closing(open_reader(target)) as reader:
        pages = FilePages(reader)
        assert [n for n in range(1, copied.pages + 1) if pages.read(n) is None] == []
    copy = await SqliteStore.open(target)
    assert await is_sound(copy)
    await copy.close()
    await opened.close()


async def test_a_backup_is_one_moment_of_a_store_that_goes_on(
    opened: SqliteStore, playing: Player, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two steps a turn is committed; what is copied is the store as it was at the first."""
    for number in range(3):
        await playing.play("trip", f"{number}")
    monkeypatch.setattr(backup, "STEP_PAGES", 1)
    loop = asyncio.get_running_loop()
    steps: list[tuple[int, int]] = []

    def progress(done: int, of: int) -> None:
        steps.append((done, of))
        if len(steps) <= 5:
            turn = playing.play("trip", f"later {len(steps)}")
            asyncio.run_coroutine_threadsafe(turn, loop).result()

    target = tmp_path / "copy.db"
    await asyncio.to_thread(back_up, opened.engine.path, target, progress=progress)
    assert steps[-1][0] == steps[-1][1] == len(steps)
    assert len(await said_in(opened, "trip")) == 8
    await opened.close()

    copy = await SqliteStore.open(target)
    assert await said_in(copy, "trip") == ["0", "1", "2"]
    assert await is_sound(copy)
    await copy.close()


async def test_backups_taken_while_another_process_writes_are_prefixes(
    path: Path, tmp_path: Path
) -> None:
    writer = store_child.start("play", path)
    assert writer.stdout is not None
    assert writer.stdin is not None
    acknowledged = [int(writer.stdout.readline())]
    targets = [tmp_path / f"copy-{number}.db" for number in range(4)]
    for target in targets:
        back_up(path, target)
        acknowledged.append(int(writer.stdout.readline()))
    writer.communicate("\n")
    assert writer.returncode == 0

    lengths = []
    for target in targets:
        copy = await SqliteStore.open(target)
        said = await said_in(copy, "line")
        assert said == [str(number) for number in range(len(said))]
        assert await is_sound(copy)
        await copy.close()
        lengths.append(len(said))
    # Each copy has all that was acknowledged before it was begun.
    assert all(length > said for length, said in zip(lengths, acknowledged, strict=False))


async def test_an_existing_file_is_never_replaced(
    opened: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, dangling = tmp_path / "taken.db", tmp_path / "dangling.db"
    taken.write_text("mine")
    dangling.symlink_to(tmp_path / "nowhere")
    before = left_in(tmp_path)
    for target in (taken, opened.engine.path):
        with pytest.raises(StoreUnusable, match="exists already"):
            back_up(opened.engine.path, target)

    def take(done: int, of: int) -> None:
        (tmp_path / "meanwhile.db").write_text("mine too")

    with pytest.raises(StoreUnusable, match="exists already"):
        back_up(opened.engine.path, tmp_path / "meanwhile.db", progress=take)
    assert taken.read_text() == "mine"
    assert (tmp_path / "meanwhile.db").read_text() == "mine too"
    assert left_in(tmp_path) == before | {"meanwhile.db"}

    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(StoreUnusable, match="exists already"):
        back_up(opened.engine.path, tmp_path / "late.db", progress=lambda *_: _touch(tmp_path))
    (tmp_path / "late.db").unlink()
    back_up(opened.engine.path, tmp_path / "late.db")
    assert left_in(tmp_path) == before | {"meanwhile.db", "late.db"}
    await opened.close()


def _touch(folder: Path) -> None:
    (folder / "late.db").touch()


async def test_a_backup_that_is_stopped_leaves_nothing(opened: SqliteStore, tmp_path: Path) -> None:
    before = left_in(tmp_path)

    def stop(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(opened.engine.path, tmp_path / "copy.db", progress=stop)
    assert left_in(tmp_path) == before
    await opened.close()


async def test_a_backup_without_room_or_place_says_so(
    opened: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, before = opened.engine.path, left_in(tmp_path)
    with pytest.raises(StoreUnusable, match=r"cannot be written \(No such file"):
        back_up(source, tmp_path / "no" / "copy.db")
    with pytest.raises(StoreUnusable, match="there is no database"):
        back_up(tmp_path / "none.db", tmp_path / "copy.db")

    def fails(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(backup, "_sync", fails)
    with pytest.raises(StoreUnusable, match="Input/output error"):
        back_up(source, tmp_path / "copy.db")
    assert left_in(tmp_path) == before
    await opened.close()


@pytest.mark.parametrize(
    ("error", "becomes"),
    [("FullError", StorageFull), ("IOError", StoreUnavailable), ("CorruptError", StoreUnusable)],
)
async def test_a_disk_that_fails_is_told_of_and_leaves_nothing(
    error: str, becomes: type[Exception], opened: SqliteStore, tmp_path: Path
) -> None:
    before = left_in(tmp_path)

    def fail(done: int, of: int) -> None:
        raise getattr(apsw, error)("no")

    with pytest.raises(becomes):
        back_up(opened.engine.path, tmp_path / "copy.db", progress=fail)
    assert left_in(tmp_path) == before
    await opened.close()


async def test_what_is_no_store_is_not_copied(tmp_path: Path) -> None:
    diary = tmp_path / "diary.txt"
    diary.write_text("Dear diary")
    with pytest.raises(StoreUnusable, match="is no SQLite database"):
        back_up(diary, tmp_path / "copy.db")
    assert left_in(tmp_path) == {"diary.txt"}
