"""Damaged leaves of indexes: written anew from their tables, each byte for byte in its meaning, or left alone."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.errors import StoreDamaged
from holdfast.ids import Minter
from holdfast.store.rows import TurnRow
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import open_reader, open_writer
from holdfast.store.sqlite.engine.engine import beside
from holdfast.store.sqlite.hints import HintingStore
from holdfast.store.sqlite.locks import WriteTurn
from holdfast.store.sqlite.pages import index_repair, lost_rows
from holdfast.store.sqlite.pages.index_repair import IndexRepair
from holdfast.store.sqlite.pages.records import Cells
from holdfast.store.sqlite.pages.survey import FilePages, damaged_pages
from holdfast.store.sqlite.pages.trees import Leaf, damaged_leaves
from holdfast.store.verification.findings import Finding
from holdfast.store.verification.verification import verify
from tests.store.builders import ACME, Player
from tests.store.sqlite.flips import (
    PAGE_BYTES,
    Truth,
    flip,
    furnish,
    hit_by_damage,
    trees_of,
    truth_of,
)

SESSIONS = 60


@pytest.fixture
async def whole(tmp_path: Path, mint: Minter) -> tuple[Path, Truth]:
    """A file at rest, and what is in it."""
    path = tmp_path / "whole.db"
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew(ttl_ms=600_000)
    await furnish(store, player, sessions=SESSIONS)
    truth = await truth_of(store)
    await store.close()
    return path, truth


def index_leaves(path: Path) -> dict[str, list[int]]:
    """The leaves of each index that has more than its root, in their order."""
    with closing(apsw.Connection(str(path))) as db:
        names = {
            name for (name,) in db.execute("select name from sqlite_schema where type = 'index'")
        }
    return {
        tree: pages
        for (tree, kind), pages in trees_of(path).items()
        if kind == "leaf" and tree in names
    }


def entries(path: Path, index: str) -> list[tuple[object, ...]]:
    """What an index says, in its order."""
    with closing(open_reader(path)) as db:
        table = db.execute("select tbl_name from sqlite_schema where name = ?", (index,)).get
        named = [each[2] or "rowid" for each in db.execute(f'pragma index_xinfo("{index}")')]
        sql = db.execute("select sql from sqlite_schema where name = ?", (index,)).get
        where = str(sql or "").partition("where")[2] or "true"
        columns = ", ".join(named)
        return db.execute(
            f'select {columns} from {table} indexed by "{index}" where {where} order by {columns}'
        ).fetchall()


def is_sound(path: Path) -> bool:
    with closing(open_reader(path)) as db:
        pages, _ = damaged_pages(db, after=0, count=10_000)
        return not pages and db.execute("pragma integrity_check").get == "ok"


def damage(path: Path, page: int) -> None:
    flip(path, (page - 1) * PAGE_BYTES + 2_000, 3)


MORE_ROWS = """
with recursive n (i) as (select 1 union all select i + 1 from n where i < 400)
insert into session (tenant, id, head, length, link, lease_token, lease_nonce, lease_node, open_turn, source_key,
  entry_agent, agent, lineage, settings, meta_rev, summary_rev, title, opening, state, anonymous, created_ms, active_ms, family)
select 'more', format('conv_%d', i * 7919 % 401), i % 3, 0, x'00', 0, '', iif(i % 2, format('node_%d', i), null),
  iif(i % 5, 'turn', null), '', '', '', x'5b5d', x'7b7d', 0, 0, '', '', iif(i % 4, 'live', 'deleted'), i % 2, 0,
  (i << (i % 40)) - 90, iif(i % 3, format('fam_%d', i % 90), null) from n;
with recursive n (i) as (select 1 union all select i + 1 from n where i < 700)
insert into blob (tenant, session_id, digest, bytes, noticed_ms)
select 'more', format('conv_%d', i % 9), format('%064d', i * 7919 % 701), x'', iif(i % 3, i - 100, null) from n;
"""
"""Rows that give indexes with conditions, with nulls and with numbers of every size more leaves than one."""


async def test_every_leaf_of_every_index_is_made_anew_as_it_was(
    whole: tuple[Path, Truth], tmp_path: Path
) -> None:
    path, _ = whole
    with closing(open_writer(path)) as db:
        db.execute(MORE_ROWS)
        db.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
    found = index_leaves(path)
    for index in ("sqlite_autoindex_item_1", "session_listed", "session_held", "blob_to_judge"):
        assert len(found[index]) > 1
    for index, leaves in found.items():
        before = entries(path, index)
        for some in (leaves[:1], leaves[1:]):
            damaged = tmp_path / f"{index}-{len(some)}.db"
            shutil.copyfile(path, damaged)
            for page in some:
                damage(damaged, page)
            assert not is_sound(damaged)
            assert IndexRepair(damaged).run(), index
            assert is_sound(damaged), index
            assert entries(damaged, index) == before


async def test_a_leaf_is_made_anew_beside_rows_that_cannot_be_read(
    whole: tuple[Path, Truth], tmp_path: Path
) -> None:
    """A row that no entry leads to would be missing without a word: sessions tell of how many items there are."""
    path, _ = whole
    index = "sqlite_autoindex_item_1"
    rows, leaves = trees_of(path)["item", "leaf"], index_leaves(path)[index]
    before, repaired = entries(path, index), list[bool]()
    for row in (rows[0], rows[len(rows) // 2], rows[-2], rows[-1]):
        damaged = tmp_path / f"{row}.db"
        shutil.copyfile(path, damaged)
        damage(damaged, row)
        damage(damaged, leaves[1])
        was = damaged.read_bytes()
        repaired.append(IndexRepair(damaged).run())
        if not repaired[-1]:
            assert damaged.read_bytes() == was
            continue
        after = entries(damaged, index)
        assert [each[:3] for each in after] == [each[:3] for each in before]
        with closing(open_reader(damaged)) as db:
            for entry, there in zip(before, after, strict=True):
                if entry != there:  # then both lead to rows that cannot be read
                    for each in (entry, there):
                        with pytest.raises(apsw.IOError):
                            db.execute(
                                "select body from item where rowid = ?", each[-1:]
                            ).fetchall()
    assert repaired == [True, True, True, False]


async def test_conversations_on_a_damaged_leaf_of_an_index_go_on_in_a_server(
    whole: tuple[Path, Truth], mint: Minter
) -> None:
    """All of them, while others write, and the file is as it would be without the damage."""
    path, truth = whole
    for leaves in index_leaves(path).values():
        for page in {leaves[-1], leaves[len(leaves) // 3]} - {leaves[0]}:
            damage(path, page)
    store = await HintingStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew(ttl_ms=600_000)
    turns = (player.play(f"talk-{n}", "Are you there?", "I am") for n in range(SESSIONS))
    await asyncio.gather(*turns)
    assert store.read_only is None
    assert (await truth_of(store)).keys() == truth.keys()
    assert [each async for each in verify(store) if isinstance(each, Finding)] == []
    await store.close()
    assert is_sound(path)


async def test_a_command_that_only_looks_repairs_nothing(
    whole: tuple[Path, Truth], mint: Minter
) -> None:
    path, truth = whole
    leaf = index_leaves(path)["turn_by_session"][0]
    damage(path, leaf)
    store = await SqliteStore.open(path)
    assert await truth_of(store) == truth
    found = [each async for each in verify(store) if isinstance(each, Finding)]
    assert f"page {leaf}" in str(found)
    await store.close()
    assert not is_sound(path)


async def test_a_leaf_has_the_entries_of_rows_that_move_while_it_is_made(
    whole: tuple[Path, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that grow move to other pages of their table, and a check-point brings these into the file. A row that was
    on no page when that page was read would be missing in the index for ever, without a word."""
    path, _ = whole
    index = "sqlite_autoindex_item_1"
    before = entries(path, index)
    damaged = trees_of(path)["item", "leaf"][0], index_leaves(path)[index][1]
    for page in damaged:
        damage(path, page)
    found_out = damaged_leaves

    def grown_meanwhile(*given: Any, **named: Any) -> list[Leaf] | None:
        lost = found_out(*given, **named)
        with closing(open_writer(path)) as db:
            for (row,) in before_last(db):
                db.execute("update item set body = zeroblob(1500) where rowid = ?", (row,))
            db.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
        return lost

    def before_last(db: apsw.Connection) -> list[tuple[int]]:
        last = db.execute("select max(rowid) from item").get
        assert isinstance(last, int)
        return [(row,) for row in range(last // 3, last // 3 * 2)]

    monkeypatch.setattr(lost_rows, "damaged_leaves", grown_meanwhile)
    assert IndexRepair(path).run()
    monkeypatch.undo()
    assert sorted(entries(path, index)) == sorted(before)


async def test_requests_that_wait_for_a_repair_take_no_thread_from_others(tmp_path: Path) -> None:
    """Names of hosts are looked up in the threads that all share: models could not be reached during a repair."""
    store = await HintingStore.open(tmp_path / "store.db")
    go_on = threading.Event()
    store._repair.run = go_on.wait  # type: ignore[method-assign]
    damage = StoreDamaged("a page", "its checksum is wrong", in_pages=True)
    waiting = [asyncio.create_task(store._meet(damage)) for _ in range(100)]
    try:
        async with asyncio.timeout(10):
            await asyncio.gather(*(asyncio.sleep(0) for _ in waiting))
            assert await asyncio.to_thread(lambda: "done") == "done"
    finally:
        go_on.set()
    assert all(await asyncio.gather(*waiting))
    await store.close()


CHECK_POINT = """
import fcntl, sys
with open(sys.argv[1], "r+b") as shared:
    fcntl.lockf(shared, fcntl.LOCK_EX, 1, 121)
    print("there", flush=True)
    sys.stdin.read()
"""
"""Holds SQLite's lock of check-points, which is a byte of the file that its log is found by."""


def making_a_check_point(path: Path) -> subprocess.Popen[bytes]:
    other = subprocess.Popen(
        [sys.executable, "-c", CHECK_POINT, f"{path}-shm"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None and other.stdout.readline() == b"there\n"
    return other


async def test_a_repair_waits_for_a_check_point_of_another_process(
    whole: tuple[Path, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = whole
    damage(path, index_leaves(path)["turn_by_session"][0])
    with closing(open_reader(path)) as db:
        db.execute("select count(*) from sqlite_schema").fetchall()  # makes the file
        other = making_a_check_point(path)
        monkeypatch.setattr(time, "sleep", lambda _: other.communicate())
        assert IndexRepair(path).run()
        monkeypatch.undo()
    assert other.returncode == 0
    assert is_sound(path)


async def test_a_repair_that_a_reader_was_in_the_way_of_is_soon_tried_again(
    whole: tuple[Path, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair that has read all indexes, and could do nothing, is not worth another one so soon."""
    path, _ = whole
    damage(path, index_leaves(path)["turn_by_session"][0])
    monkeypatch.setattr(index_repair, "BUSY_S", 0.0)
    monkeypatch.setattr(index_repair, "BUSY_AGAIN_S", 0.0)
    repair = IndexRepair(path)
    with closing(open_writer(path)) as db, closing(open_reader(path)) as reader:
        reader.execute("begin").fetchall()
        reader.execute("select count(*) from sqlite_schema").fetchall()
        db.execute("update node set ttl_ms = ttl_ms + 1")  # of which this reader knows nothing
        assert not repair.run()
        reader.execute("commit")
        assert repair.run()
    assert is_sound(path)


async def test_a_repair_that_waits_for_a_reader_lets_others_write(
    whole: tuple[Path, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = whole
    damage(path, index_leaves(path)["turn_by_session"][0])
    with (
        closing(open_writer(path)) as db,
        closing(open_reader(path)) as reader,
        closing(WriteTurn(beside(path, "writer"))) as turn,
    ):
        reader.execute("begin").fetchall()
        reader.execute("select count(*) from sqlite_schema").fetchall()
        db.execute("update node set ttl_ms = ttl_ms + 1")  # of which this reader knows nothing

        def others_write(_: float) -> None:
            turn.wait(timeout_s=0)
            turn.release()
            if reader.in_transaction:
                reader.execute("commit")

        monkeypatch.setattr(time, "sleep", others_write)
        assert IndexRepair(path).run()
    assert is_sound(path)


def leaf_about(path: Path, leaves: list[int], tree: str, turn: TurnRow) -> int:
    """The leaf of a tree that has something of a turn, or of its session."""
    names = {turn.turn_id, turn.session_id}
    with closing(open_reader(path)) as db:
        cells, is_numbered = Cells(FilePages(db)), tree in ("turn", "item")
        return next(
            leaf
            for leaf in leaves
            for record in cells.records(leaf, is_numbered)
            if record is not None
            and names.intersection(each for each in record if type(each) is str)
        )


TOGETHER = (
    ("session", "session_listed"),
    ("session_key", "session_key_by_session"),
    ("idempotency", "idempotency_by_turn"),
    ("turn", "turn_by_session"),
    ("turn", "turn_by_seq"),
    ("turn", "sqlite_autoindex_turn_1"),
    ("item", "sqlite_autoindex_item_1"),
    ("turn", "turn_by_session", "turn_by_seq", "session"),
    ("turn", "sqlite_autoindex_turn_1", "turn_by_session"),
)
"""Tables and indexes with leaves for the same rows."""


@pytest.mark.slow
async def test_sound_conversations_go_on_if_a_table_and_its_indexes_are_damaged(
    tmp_path: Path, mint: Minter
) -> None:
    """The rows that are lost are told as damaged by the index, too: none is missing without a word."""
    path = tmp_path / "whole.db"
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew(ttl_ms=600_000)
    await furnish(store, player, sessions=150)
    truth = {each: await store.dump(ACME, each) for each in await truth_of(store)}
    await store.close()
    trees = trees_of(path)
    middle = list(truth.values())[len(truth) // 2]
    assert middle is not None
    for hit_trees in TOGETHER:
        table, index = hit_trees[0], " ".join(hit_trees[1:])
        damaged = tmp_path / f"{index}.db"
        shutil.copyfile(path, damaged)
        for tree in hit_trees:
            damage(damaged, leaf_about(path, trees[tree, "leaf"], tree, middle.turns[0]))
        hit = hit_by_damage(path, damaged)
        assert 0 < len(hit) < len(truth), table
        store = await HintingStore.open(damaged)
        player = Player(store, mint, tenant=ACME)
        await player.renew(ttl_ms=600_000)
        for n, session_id in enumerate(truth):
            if session_id not in hit:
                await player.play(f"talk-{n}", "Are you there?", "I am")
        assert store.read_only is None
        page = await store.sessions(ACME, limit=1_000)
        listed = {each.session.id for each in page.sessions}
        assert listed | {*page.damaged} == truth.keys(), index
        assert truth.keys() - hit <= listed, index
        for session_id, was in truth.items():
            assert was is not None
            try:
                found = await store.dump(ACME, session_id)
            except StoreDamaged:
                assert session_id in hit, index
            else:
                assert found is not None
                assert found.items[: len(was.items)] == was.items, index
                assert {each.turn_id for each in was.turns} <= {
                    each.turn_id for each in found.turns
                }
                assert {each.key for each in was.keys} <= {each.key for each in found.keys}
        await store.close()


async def test_the_loop_of_a_servers_heart_may_meet_damage_while_another_loop_waits_for_a_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    begun, go_on = threading.Semaphore(0), threading.Event()

    def repair() -> bool:
        begun.release()
        return go_on.wait()

    monkeypatch.setattr(store._repair, "run", repair)
    monkeypatch.setattr(store, "repairs", True)
    waiting = [asyncio.create_task(store._repair_indexes()) for _ in range(2)]
    await asyncio.to_thread(begun.acquire)
    heart = asyncio.create_task(asyncio.to_thread(asyncio.run, store._repair_indexes()))
    entered = asyncio.create_task(asyncio.to_thread(begun.acquire))
    await asyncio.wait({heart, entered}, return_when=asyncio.FIRST_COMPLETED)
    go_on.set()
    begun.release()
    assert await asyncio.gather(heart, *waiting, entered) == [True] * 4
    await store.close()
