"""A SQLite file that another program has written or check-pointed: told as what it is, and taken over if it is sound."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdfast.errors import ChecksumsWrong, StoreUnusable
from holdfast.ids import Minter
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import UNCHECKED
from holdfast.store.sqlite.takeover import taken_over
from holdfast.store.store_url import look_at
from holdfast.store.transfer.copies import NotCopied, copy
from holdfast.store.verification.findings import Finding
from holdfast.store.verification.verification import verify
from tests.store.builders import ACME, Player
from tests.store.sqlite.flips import PAGE_BYTES, Truth, content, flip, furnish, truth_of

SESSIONS = 20

LOOK = "select count(*) from session"
WRITE = "update node set ttl_ms = ttl_ms + 1"
"""It changes nothing that a conversation has."""


@pytest.fixture
async def left(tmp_path: Path, mint: Minter) -> AsyncIterator[tuple[Path, Truth]]:
    """What a server leaves behind that is killed: its file, and a log with the schema and the last turns."""
    path, copied = tmp_path / "server" / "store.db", tmp_path / "store.db"
    path.parent.mkdir()
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    await furnish(store, player, sessions=SESSIONS)
    for name in (path.name, f"{path.name}-wal"):
        shutil.copy(path.with_name(name), copied.with_name(name))
    yield copied, await truth_of(store)
    await store.close()


def by_another_program(path: Path, *statements: str) -> None:
    """Run statements with Python's own SQLite, which knows no checksums, in a process of its own."""
    code = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for each in sys.argv[2:]:\n    db.execute(each).fetchall()\n"
        "db.close()"
    )
    subprocess.run([sys.executable, "-c", code, str(path), *statements], check=True)


async def at_rest(path: Path) -> None:
    """Copy the log into the file, as a server that ends does."""
    await (await SqliteStore.open(path)).close()
    assert not path.with_name(f"{path.name}-wal").exists()


def content_of(folder: Path) -> dict[str, bytes]:
    """The database and its log, if that holds something, without the shared memory of those who read them."""
    files = (folder / "store.db", folder / "store.db-wal")
    found = {each.name: each.read_bytes() for each in files if each.exists()}
    return {name: content for name, content in found.items() if content}


@pytest.mark.parametrize("ended", ["killed", "stopped"])
@pytest.mark.parametrize("statement", [LOOK, "PRAGMA wal_checkpoint", "VACUUM", WRITE])
async def test_a_store_that_another_program_has_opened_is_refused_or_sound_and_taken_over_whole(
    left: tuple[Path, Truth], statement: str, ended: str, tmp_path: Path
) -> None:
    """A program that only reads copies a log that a killed server has left into the file, without checksums."""
    path, truth = left
    if ended == "stopped":
        await at_rest(path)
    by_another_program(path, statement)
    if ended == "killed" or statement == "VACUUM":
        with pytest.raises(ChecksumsWrong, match=r"another program.*--ignore-checksums"):
            look_at(path)
    before = content_of(tmp_path)
    with taken_over(path, tmp_path) as found:
        store = await SqliteStore.open(found)
        assert [each async for each in verify(store) if isinstance(each, Finding)] == []
        assert await truth_of(store) == truth
        await store.close()
    assert content_of(tmp_path) == before
    assert not [name for name in os.listdir(tmp_path) if "takeover" in name]


async def test_a_log_that_no_program_has_copied_is_taken_over_with_its_file(
    left: tuple[Path, Truth], tmp_path: Path
) -> None:
    path, truth = left
    before = content_of(tmp_path)
    assert before.keys() == {"store.db", "store.db-wal"}
    with taken_over(path, tmp_path) as found:
        store = await SqliteStore.open(found)
        assert await truth_of(store) == truth
        await store.close()
    assert content_of(tmp_path) == before


async def test_a_conversation_that_another_program_has_changed_is_left_out_by_name(
    left: tuple[Path, Truth], tmp_path: Path
) -> None:
    path, truth = left
    changed, *others = truth
    by_another_program(
        path,
        f"update item set body = cast(body || ' ' as blob) where session_id = '{changed}' and pos = 1",
    )
    with taken_over(path, tmp_path) as found:
        source = await SqliteStore.open(found)
        target = await SqliteStore.open(tmp_path / "copy.db")
        reports = [each async for each in copy(source, target)]
        assert [each.what for each in reports if isinstance(each, NotCopied)] == [changed]
        assert await truth_of(target) == {each: truth[each] for each in others}
        assert [each async for each in verify(target) if isinstance(each, Finding)] == []
        await source.close()
        await target.close()


async def test_no_flipped_bit_of_a_file_without_right_checksums_is_taken_over_as_true(
    left: tuple[Path, Truth], tmp_path: Path
) -> None:
    """What a checksum would have noticed, SQLite's check notices, or a conversation's own proof."""
    path, truth = left
    by_another_program(path, "VACUUM")
    whole, refused, named = path.read_bytes(), 0, 0
    for at in range(PAGE_BYTES + 999, len(whole), len(whole) // 24):
        path.write_bytes(whole)
        flip(path, at, at % 8)
        try:
            with taken_over(path, tmp_path) as found:
                store = await SqliteStore.open(found)
                broken = {
                    each.session_id async for each in verify(store) if isinstance(each, Finding)
                }
                for session_id in await store.session_ids(ACME, after=None, limit=10_000):
                    if session_id not in broken and "" not in broken:
                        assert content(await store.dump(ACME, session_id)) == truth[session_id]
                named += bool(broken)
                await store.close()
        except StoreUnusable:
            refused += 1
    assert refused > 0 and named > 0


async def test_a_file_that_is_no_sound_database_is_not_taken_over(
    left: tuple[Path, Truth], tmp_path: Path
) -> None:
    path, _ = left
    by_another_program(path, "VACUUM")
    with closing(apsw.Connection(str(path), vfs=UNCHECKED)) as db:
        root = db.execute("select rootpage from sqlite_schema where name = 'turn_by_seq'").get
    assert isinstance(root, int)
    with path.open("r+b") as file:
        file.seek((root - 1) * PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))
    with (
        pytest.raises(StoreUnusable, match="no sound SQLite database"),
        taken_over(path, tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    "statement", ["alter table item add column x text", "drop index turn_by_seq"]
)
async def test_a_file_whose_tables_were_altered_is_not_taken_over(
    left: tuple[Path, Truth], tmp_path: Path, statement: str
) -> None:
    """What cannot be proved is not handed out as sound."""
    path, _ = left
    by_another_program(path, statement)
    with pytest.raises(StoreUnusable, match="missing or was altered"), taken_over(path, tmp_path):
        pass


async def test_a_file_that_was_cut_is_not_taken_over(
    left: tuple[Path, Truth], tmp_path: Path
) -> None:
    path, _ = left
    by_another_program(path, "VACUUM")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 3 * PAGE_BYTES)
    with pytest.raises(StoreUnusable, match="was cut"), taken_over(path, tmp_path):
        pass
