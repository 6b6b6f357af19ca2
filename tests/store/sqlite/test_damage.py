"""A SQLite file with flipped bits, a cut log, or none at all: nothing of it is served as true."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import Counter, defaultdict
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random

import apsw
import pytest

from holdfast.core.items import StoredItem
from holdfast.errors import (
    SessionDamaged,
    StoreDamaged,
    StorePoisoned,
    StoreReadOnly,
    StoreUnusable,
)
from holdfast.ids import Minter, SessionId, SessionKey
from holdfast.store.operations.reads import dump
from holdfast.store.outcomes import SessionDump
from holdfast.store.search.matches import parse_query
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import open_writer
from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.sqlite.hints import HintingStore
from holdfast.store.sqlite.migration import has_checksums
from holdfast.store.sqlite.pages.index_repair import IndexRepair
from holdfast.store.sqlite.pages.salvage import salvaged
from holdfast.store.sqlite.pages.trees import parts_of_file
from holdfast.store.steps import Operation
from holdfast.store.transfer.copies import NotCopied, copy
from holdfast.store.verification.findings import Finding
from holdfast.store.verification.verification import verify
from tests.store.builders import ACME, Player
from tests.store.sqlite.flips import (
    PAGE_BYTES,
    Truth,
    flip,
    furnish,
    hit_by_damage,
    kinds_of,
    served_from,
    sweep,
    trees_of,
    truth_of,
    words_left,
)

SESSIONS = 60


@pytest.fixture
async def whole(tmp_path: Path, mint: Minter) -> tuple[Path, Truth]:
    """A file at rest, and what is in it."""
    path = tmp_path / "whole.db"
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    await furnish(store, player, sessions=SESSIONS)
    await store.engine.write(_leave_pages_unused)
    truth = await truth_of(store)
    await store.close()
    return path, truth


def _leave_pages_unused(db: apsw.Connection) -> None:
    db.execute(
        "create table gone (words); insert into gone values (zeroblob(40000)); drop table gone"
    )


async def test_no_flipped_bit_is_served_as_true(whole: tuple[Path, Truth], tmp_path: Path) -> None:
    """Some bits of every kind of page; `make torture-store` flips one in every so many of a whole file."""
    path, truth = whole
    chance = Random(26)
    places = [
        ((number - 1) * PAGE_BYTES + chance.randrange(PAGE_BYTES), chance.randrange(8))
        for number in _some_of_each_kind(kinds_of(path), chance)
    ]
    kinds = kinds_of(path)
    seen: Counter[str] = Counter()
    async for at, bit, served in sweep(path, tmp_path / "flipped.db", truth, places):
        kind = kinds[at // PAGE_BYTES + 1]
        seen[kind] += 1
        assert not served.wrong, (kind, at, bit, served)
        assert served.noticed, (kind, at, bit, served)
        if kind in ("table leaf", "index leaf", "overflow", "unused"):
            assert served.right > len(truth) // 2, (kind, at, bit, served)
    assert {"table leaf", "index leaf", "overflow", "unused", "root, index branch"} <= set(seen)


LIKELY = (
    *(("session", "leaf"), ("turn", "leaf"), ("item", "root"), ("item", "overflow")),
    *(("turn_by_session", "root"), ("session_key", "root"), ("sqlite_autoindex_item_1", "leaf")),
    *(("search_word_data", "root"), ("session_past", "root")),
)
"""Trees and kinds of pages that are damaged in every run of the tests."""


@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.thorough)])
async def test_damage_of_any_tree_is_local_and_what_is_sound_can_be_copied(
    whole: tuple[Path, Truth], tmp_path: Path, all_of_them: bool
) -> None:
    """For a page of each kind of each table and index: what is not on it is served, listed, found, verified and copied
    as if nothing were, and what is on it is named."""
    path, truth = whole
    for (tree, kind), pages in trees_of(path).items():
        if tree == "sqlite_schema" or not (all_of_them or (tree, kind) in LIKELY):
            continue
        damaged = tmp_path / f"{tree}-{kind}.db"
        shutil.copyfile(path, damaged)
        flip(damaged, (pages[len(pages) // 2] - 1) * PAGE_BYTES + 2_000, 3)
        hit = hit_by_damage(path, damaged)
        served = await served_from(damaged, truth, hit)
        assert not served.wrong, (tree, kind, served)
        assert served.noticed, (tree, kind, served)
        assert served.right >= len(truth) - len(hit), (tree, kind, served)
        copied, left_out = await _copied(damaged, tmp_path / f"{tree}-{kind}-copy.db")
        assert {each: copied[each] for each in truth if each not in hit} == {
            each: content for each, content in truth.items() if each not in hit
        }, (tree, kind)
        assert truth.keys() - copied.keys() <= left_out, (tree, kind)
        assert all(truth[each] == content for each, content in copied.items()), (tree, kind)


async def _copied(source: Path, target: Path) -> tuple[Truth, set[str]]:
    """What a copy of a damaged store has, and what it names as left out."""
    with salvaged(source, target.parent) as found:
        assert found is not None
        read, written = await SqliteStore.open(found.path), await SqliteStore.open(target)
        reports = [each async for each in copy(read, written)]
        truth = await truth_of(written)
        assert [each async for each in verify(written) if isinstance(each, Finding)] == []
        await read.close()
        await written.close()
    return truth, {each.what for each in reports if isinstance(each, NotCopied)}


PLACES = {"root": "the root", "internal": "between root and leaves", "leaf": "a leaf"}


async def test_a_page_is_told_by_what_it_is_part_of(whole: tuple[Path, Truth]) -> None:
    """By another reader of the file: SQLite's own statistics."""
    path, _ = whole
    trees, kinds = trees_of(path), kinds_of(path)
    with closing(apsw.Connection(str(path))) as db:
        indexes = {
            name for (name,) in db.execute("select name from sqlite_schema where type = 'index'")
        }
        leaves = {page for page, kind in kinds.items() if kind == "index leaf"}
        wanted = {
            page: f"{PLACES[kind]} of the {'index' if tree in indexes else 'table'} {tree}"
            for (tree, kind), pages in trees.items()
            if kind in PLACES and tree != "sqlite_schema"
            for page in pages
        }
    with closing(open_writer(path)) as db:
        parts = parts_of_file(db, frozenset(kinds))
    assert leaves & wanted.keys()
    assert {page: parts[page].partition(",")[0] for page in wanted} == wanted
    unused = {page for page, kind in kinds.items() if kind == "unused"}
    assert unused == {page for page, part in parts.items() if part == "unused"} != set()
    assert not {page for page, kind in kinds.items() if kind == "overflow"} & parts.keys()
    leaf = trees["turn_by_session", "leaf"][0]
    flip(path, (leaf - 1) * PAGE_BYTES + 2_000, 3)
    store = await SqliteStore.open(path)
    found = [str(each) async for each in verify(store) if isinstance(each, Finding)]
    await store.close()
    assert found[0].endswith("it is a leaf of the index turn_by_session, of the table turn")


def _some_of_each_kind(kinds: dict[int, str], chance: Random) -> list[int]:
    by_kind: dict[str, list[int]] = defaultdict(list)
    for number, kind in kinds.items():
        by_kind[kind].append(number)
    return [
        number for pages in by_kind.values() for number in chance.sample(pages, min(len(pages), 5))
    ]


# ── the log ──────────────────────────────────────────────────────────────────────────────────


async def test_a_log_that_was_cut_or_flipped_gives_a_state_that_there_was(
    tmp_path: Path, mint: Minter
) -> None:
    """What is missing from the end of a log cannot be read; what is left is whole turns, and verifies."""
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    states: list[Histories] = [{}]
    for n in range(12):
        await player.play(f"talk-{n % 4}", f"Question {n}", f"Answer {n}")
        states.append(await _histories(store))
    file, log = path.read_bytes(), path.with_name("store.db-wal").read_bytes()
    await store.close()
    for n in range(40):
        copy = tmp_path / f"cut-{n}.db"
        copy.write_bytes(file)
        cut = log[: len(log) * n // 40]
        if n % 2:
            at = Random(n).randrange(len(log))
            cut = log[:at] + bytes([log[at] ^ 4]) + log[at + 1 :]
        copy.with_name(f"{copy.name}-wal").write_bytes(cut)
        again = await SqliteStore.open(copy)
        assert await _histories(again) in states
        assert [each async for each in verify(again) if isinstance(each, Finding)] == []
        await again.close()


Histories = dict[SessionId, tuple[StoredItem, ...]]


async def _histories(store: SqliteStore) -> Histories:
    """What was said in each session, if anything was."""
    found: Histories = {}
    for each in await store.session_ids(ACME, after=None, limit=100):
        snapshot = await store.snapshot(ACME, each)
        assert snapshot is not None
        if snapshot.items:
            found[each] = tuple(snapshot.items)
    return found


async def test_a_log_without_its_database_is_no_new_store(tmp_path: Path, mint: Minter) -> None:
    """Opening it would make an empty store, and remove the log with turns that are in there alone."""
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    await player.play("trip", "To Oslo", "When?")
    path.unlink()
    with pytest.raises(StorePoisoned, match="moved or deleted"):
        await player.play("trip", "On Friday", "Good")
    await store.close()
    with pytest.raises(StoreUnusable, match=r"is gone, but its log store\.db-wal is there"):
        await SqliteStore.open(path)
    assert path.with_name("store.db-wal").stat().st_size


@pytest.mark.parametrize("happens", ["cut", "deleted", "replaced"])
async def test_a_log_that_is_lost_under_a_store_in_use_stops_it_before_it_writes_on(
    happens: str, tmp_path: Path, mint: Minter
) -> None:
    """SQLite would write on behind a gap, and copy the gap into the database."""
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    for n in range(6):
        await player.play(f"talk-{n}", f"Question {n}", f"Answer {n}")
    before, log = await _histories(store), path.with_name("store.db-wal")
    match happens:
        case "cut":
            os.truncate(log, log.stat().st_size - 1)
        case "deleted":
            log.unlink()
        case _:
            log.rename(tmp_path / "elsewhere")
            log.touch()
    with pytest.raises(StorePoisoned, match=f"the log .* was {happens}"):
        await player.renew()
    await store.close()
    again = await SqliteStore.open(path)
    after = await _histories(again)
    assert after.items() <= before.items()
    assert happens != "deleted" or after == before, "all of it was copied into the database"
    assert [each async for each in verify(again) if isinstance(each, Finding)] == []
    await again.close()


async def test_a_log_does_not_meet_a_file_that_took_the_place_of_its_own(
    tmp_path: Path, mint: Minter
) -> None:
    """SQLite would take it for the log of that file, and write pages of the one into the other."""
    path, older = tmp_path / "store.db", tmp_path / "older.db"
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    for n in range(5):
        await player.play(f"talk-{n}")
    before = await _histories(store)
    await store.close()
    shutil.copyfile(path, older)
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    for n in range(5):
        await player.play(f"talk-{n}", "more", "words " * 300)
    os.replace(older, path)
    with pytest.raises(StorePoisoned, match="was replaced by another file"):
        await player.renew()
    await store.close()
    again = await SqliteStore.open(path)
    assert await _histories(again) == before
    assert [each async for each in verify(again) if isinstance(each, Finding)] == []
    await again.close()


# ── only reading ─────────────────────────────────────────────────────────────────────────────


SEARCH_TREES = [
    "search_chunk",
    "sqlite_autoindex_search_chunk_1",
    "search_word_config",
    "search_word_data",
    "search_word_docsize",
    "search_word_idx",
]


INDEXED_TO_MERGE = 20
"""After how many writes FTS5 has certainly merged some of its segments, in a COMMIT."""


def _page_of(path: Path, *, tree: str, kind: str, nth: int = 0) -> int:
    """A page of this kind in a tree: the first, or the one after so many."""
    return _pages_of(path, tree=tree, kind=kind)[nth]


def _pages_of(path: Path, *, tree: str, kind: str = "*") -> list[int]:
    """The pages of this kind in a tree, in its order."""
    pages = "select pageno from dbstat where name = ? and pagetype glob ? order by path"
    with closing(apsw.Connection(str(path))) as db:
        return [int(str(number)) for (number,) in db.execute(pages, (tree, kind))]


@pytest.mark.parametrize("tree", ["item", "sqlite_autoindex_item_1"])
async def test_a_page_in_the_place_of_one_below_it_leads_no_reader_astray(
    whole: tuple[Path, Truth], tmp_path: Path, tree: str
) -> None:
    """Its checksum fits, and the way down its tree leads up again."""
    path, _ = whole
    trees = trees_of(path)
    root, last, other = trees[tree, "root"][0], trees[tree, "leaf"][-1], trees["turn", "leaf"][0]
    with path.open("r+b") as file:
        file.seek((root - 1) * PAGE_BYTES)
        page = file.read(PAGE_BYTES)
        file.seek((last - 1) * PAGE_BYTES)
        file.write(page)
    flip(path, (other - 1) * PAGE_BYTES + 2_000, 3)
    async with asyncio.timeout(60):
        store = await SqliteStore.open(path)
        found = [str(each) async for each in verify(store) if isinstance(each, Finding)]
        await store.close()
        await asyncio.to_thread(IndexRepair(path).run)
        with salvaged(path, tmp_path) as copied:
            assert copied is not None
    assert any("a leaf of the table turn" in each for each in found)
    assert any("file_damaged: item" in each for each in found)


async def test_a_request_is_told_of_damage_by_the_name_that_it_knows(
    whole: tuple[Path, Truth], mint: Minter
) -> None:
    """A request brings a fresh id for the conversation that it may make; nobody knows that id. Where everything meets, the
    first request is told what the next ones are."""
    path, _ = whole
    (root,) = (
        number
        for (tree, kind), pages in trees_of(path).items()
        for number in pages
        if tree == "session_key" and kind.startswith("root")
    )
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    ask = await player.ask("nobody", "Hello")
    await store.close()
    flip(path, (root - 1) * PAGE_BYTES + 2_000, 3)
    store = await SqliteStore.open(path)
    for _ in range(2):
        with pytest.raises(StoreReadOnly):
            await store.begin(ask)
    assert store.read_only is not None
    assert ("conversation 'nobody'" in store.damages, len(store.damages)) == (True, 1)
    await store.close()


async def test_a_request_without_a_name_is_told_of_no_conversation(
    whole: tuple[Path, Truth], mint: Minter
) -> None:
    path, _ = whole
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    ask = await player.ask(None, "Hello")
    await store.close()
    (root,) = _pages_of(path, tree="node")
    flip(path, (root - 1) * PAGE_BYTES + 2_000, 3)
    store = await SqliteStore.open(path)
    with pytest.raises(StoreReadOnly):
        await store.begin(ask)
    assert ("what a new conversation needs" in store.damages, len(store.damages)) == (True, 1)
    await store.close()


async def test_damage_where_everything_meets_makes_the_store_read_only_until_it_is_verified(
    whole: tuple[Path, Truth], mint: Minter
) -> None:
    path, truth = whole
    at = (_page_of(path, tree="item", kind="internal") - 1) * PAGE_BYTES + 2_000
    flip(path, at, 3)
    store = await SqliteStore.open(path)
    with pytest.raises(SessionDamaged):
        await store.snapshot(ACME, next(iter(truth)))
    assert "page" in (store.read_only or "")
    player = Player(store, mint, tenant=ACME)
    with pytest.raises(StoreReadOnly, match="holdfast db verify --help"):
        await player.renew()
    page = await store.sessions(ACME, limit=SESSIONS)
    assert len(page.sessions) == SESSIONS
    await store.close()

    again = await SqliteStore.open(path)
    assert again.read_only == store.read_only, "it stays so over a restart"
    with pytest.raises(StoreReadOnly):
        await Player(again, mint, tenant=ACME).renew()
    flip(path, at, 3)  # as an operator would restore the file
    await again.close()
    repaired = await SqliteStore.open(path)
    with pytest.raises(StoreReadOnly):
        await Player(repaired, mint, tenant=ACME).renew()
    assert [each async for each in verify(repaired) if isinstance(each, Finding)] == []
    await repaired.declare_sound()
    await Player(repaired, mint, tenant=ACME).renew()
    await repaired.close()


@pytest.mark.parametrize("tree", SEARCH_TREES)
async def test_a_damaged_search_index_stops_no_turn(
    whole: tuple[Path, Truth], mint: Minter, tree: str
) -> None:
    """Nothing but the indexer writes there; a search reads what is not indexed."""
    path, truth = whole
    for number in _pages_of(path, tree=tree):
        flip(path, (number - 1) * PAGE_BYTES + 4_000, 3)
        store = await SqliteStore.open(path)
        player = Player(store, mint, tenant=ACME)
        await player.renew()
        for n in range(INDEXED_TO_MERGE):
            await player.play(f"fresh-{number}", "Where is the marmot?", f"In meadow {n}")
            await store.index()
        await player.play("talk-1", "And you?", "I am here")
        found = await store.search(ACME, parse_query("marmot"), limit=5)
        assert found.matches
        assert store.read_only is None
        assert not [each for each in truth if f"conversation '{each}'" in store.damages]
        await store.close()
        flip(path, (number - 1) * PAGE_BYTES + 4_000, 3)


async def test_an_error_that_is_kept_holds_no_snapshot_of_the_writer(
    whole: tuple[Path, Truth], mint: Minter
) -> None:
    """A server keeps the error while it repairs, and the repair waits for all snapshots of the log. What another process
    had written meanwhile kept the writer from every further transaction."""
    path, truth = whole
    damaged = path.with_name("damaged.db")
    shutil.copyfile(path, damaged)
    flip(damaged, (trees_of(path)["item", "leaf"][0] - 1) * PAGE_BYTES + 2_000, 3)
    hit = hit_by_damage(path, damaged)
    store = await SqliteStore.open(damaged)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    kept = list[BaseException]()
    for session_id in truth:
        if session_id in hit:
            with pytest.raises(SessionDamaged) as told:
                await store.engine.write(partial(DRIVER.run, operation=dump(ACME, session_id)))
            kept.append(told.value)
        else:
            with pytest.raises(ZeroDivisionError) as raised:
                await store.engine.write(
                    partial(DRIVER.run, operation=_fails_after_a_step(session_id))
                )
            kept.append(raised.value)
    with closing(open_writer(damaged)) as db:
        db.execute("update node set ttl_ms = ttl_ms + 1")
        db.set_busy_timeout(0)
        db.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_FULL)
    await player.renew()
    assert len(kept) == len(truth)
    await store.close()


def _fails_after_a_step(session_id: SessionId) -> Operation[None]:
    yield next(dump(ACME, session_id))
    raise ZeroDivisionError


async def test_a_first_page_that_a_new_reader_meets_damaged_is_told_as_damage(
    whole: tuple[Path, Truth], mint: Minter
) -> None:
    """A reader opens the file anew now and then. Told as a store that cannot be opened, it would look as if a later try
    could help, and the server would say that it is ready."""
    path, _ = whole
    store = await HintingStore.open(path, engine=partial(SqliteEngine.open, readers=1))
    await Player(store, mint, tenant=ACME).renew()
    with closing(open_writer(path)) as db:
        db.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
    kept: list[apsw.Cursor] = []
    with pytest.raises(RuntimeError, match="cursor open"):
        await store.engine.read(lambda db: kept.append(db.execute("select id from session")))
    flip(path, 50, 3)
    for _ in range(2):
        with pytest.raises(StoreDamaged) as told:
            await store.sessions(ACME, limit=5)
        assert told.value.in_pages
        assert store.unreadable
    with pytest.raises(StoreReadOnly):
        await Player(store, mint, tenant=ACME).renew()
    await store.close()


async def test_a_file_that_is_cut_under_a_store_in_use_stops_it(
    whole: tuple[Path, Truth], mint: Minter
) -> None:
    """SQLite would serve noughts for what is gone."""
    path, truth = whole
    store = await SqliteStore.open(path)
    await Player(store, mint, tenant=ACME).renew()  # what is in the log keeps SQLite from noticing
    os.truncate(path, path.stat().st_size * 2 // 3)
    for each in truth:
        with pytest.raises(StorePoisoned, match=r"was cut while in use"):
            await store.dump(ACME, each)
    await store.close()


@pytest.mark.parametrize("logged", [False, True])
async def test_a_file_that_was_cut_is_not_opened(
    logged: bool, whole: tuple[Path, Truth], tmp_path: Path, mint: Minter
) -> None:
    """Also where its log has the first page, by which SQLite opens it."""
    path, _ = whole
    file = path
    if logged:
        store = await SqliteStore.open(path)
        await Player(store, mint, tenant=ACME).renew()
        file = tmp_path / "killed.db"
        for end in ("", "-wal"):
            shutil.copyfile(f"{path}{end}", f"{file}{end}")
        await store.close()
    os.truncate(file, file.stat().st_size * 2 // 3)
    with pytest.raises(StoreUnusable, match=r"was cut.*holdfast db verify --help"):
        await SqliteStore.open(file)


async def test_a_file_that_a_check_point_has_not_made_longer_yet_is_opened(
    tmp_path: Path, mint: Minter
) -> None:
    path, killed = tmp_path / "store.db", tmp_path / "killed.db"
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    before = path.stat().st_size
    await player.play("trip", "To Oslo", "When? " * 9_000)
    log = path.with_name("store.db-wal").read_bytes()
    await store.close()
    killed.write_bytes(path.read_bytes()[:before])
    killed.with_name("killed.db-wal").write_bytes(log)
    again = await SqliteStore.open(killed)
    assert [each async for each in verify(again) if isinstance(each, Finding)] == []
    await again.close()


async def test_a_file_that_was_cut_is_not_opened_for_what_its_log_held_before(
    tmp_path: Path, mint: Minter
) -> None:
    """A log that starts over keeps pages of its last time behind the new ones. SQLite reads none of them."""
    path, killed = tmp_path / "store.db", tmp_path / "killed.db"
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    await player.play("trip", "To Oslo", "When? " * 9_000)
    with closing(open_writer(path)) as db:
        pages, copied = db.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
        assert pages == copied
    await player.renew()
    for end in ("", "-wal"):
        shutil.copyfile(f"{path}{end}", f"{killed}{end}")
    await store.close()
    os.truncate(killed, killed.stat().st_size - PAGE_BYTES)
    with pytest.raises(StoreUnusable, match=r"was cut"):
        await SqliteStore.open(killed)


async def test_a_server_hears_that_its_store_was_verified_by_another_process(
    whole: tuple[Path, Truth], mint: Minter
) -> None:
    path, _ = whole
    store, other = await SqliteStore.open(path), await SqliteStore.open(path)
    store.engine.protection.protect("somebody has seen something")
    with pytest.raises(StoreReadOnly):
        await Player(store, mint, tenant=ACME).renew()
    await other.declare_sound()
    await Player(store, mint, tenant=ACME).renew()
    await store.close()
    await other.close()


async def test_a_damaged_leaf_stops_its_conversations_and_no_other(
    whole: tuple[Path, Truth], mint: Minter
) -> None:
    """Its conversations are refused when they are read and when they are written; all others go on."""
    path, truth = whole
    flip(path, (_page_of(path, tree="item", kind="leaf") - 1) * PAGE_BYTES + 2_000, 3)
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    told: dict[str, str] = {}
    for n, session_id in enumerate(truth):
        try:
            await player.play(f"talk-{n}", "Are you there?", "I am")
        except SessionDamaged as damage:
            told[session_id] = str(damage)
    assert 0 < len(told) < SESSIONS // 2
    assert all(session_id in words for session_id, words in told.items())
    assert store.read_only is None
    await store.close()


async def test_what_is_damaged_is_left_out_of_a_copy_that_verifies(
    whole: tuple[Path, Truth], tmp_path: Path
) -> None:
    path, truth = whole
    flip(path, (_page_of(path, tree="item", kind="leaf") - 1) * PAGE_BYTES + 2_000, 3)
    source, target = await SqliteStore.open(path), await SqliteStore.open(tmp_path / "copy.db")
    reports = [each async for each in copy(source, target)]
    left_out = {each.what for each in reports if isinstance(each, NotCopied)}
    assert left_out
    assert await truth_of(target) == {
        each: whole for each, whole in truth.items() if each not in left_out
    }
    assert [each async for each in verify(target) if isinstance(each, Finding)] == []
    await source.close()
    await target.close()


@pytest.mark.parametrize("tree", ["item", "turn"])
async def test_a_copy_of_what_can_be_read_goes_on_past_what_cannot(
    whole: tuple[Path, Truth], tmp_path: Path, tree: str
) -> None:
    """Each conversation is in the copy as it was, or `verify` names it there, or the copy has named it as left out."""
    path, truth = whole
    flip(path, (_page_of(path, tree=tree, kind="leaf") - 1) * PAGE_BYTES + 2_000, 3)
    with salvaged(path, tmp_path) as found:
        assert found is not None
        source = await SqliteStore.open(found.path)
        target = await SqliteStore.open(tmp_path / "copy.db")
        reports = [each async for each in copy(source, target, damaged=True)]
        left_out = {each.what for each in reports if isinstance(each, NotCopied)}
        named = {each.session_id async for each in verify(target) if isinstance(each, Finding)}
        copied = await truth_of(target)
        assert {each: whole for each, whole in copied.items() if each not in named} == {
            each: whole for each, whole in truth.items() if each not in named | left_out
        }
        assert len(copied) > len(truth) // 2
        assert (named, left_out) != (set(), set())
        assert not named & left_out
        assert (tree == "item") == bool(named)  # an item has its place in the copy, a turn has none
        await source.close()
        await target.close()


# ── retention ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tree", ["item", "turn", "sqlite_autoindex_item_1"])
async def test_no_deleted_words_stay_beside_a_damaged_page(
    whole: tuple[Path, Truth], tree: str
) -> None:
    """SQLite does not delete a row if it would have to join its page with a damaged one."""
    path, _ = whole
    leaf = _page_of(path, tree=tree, kind="leaf", nth=1)
    flip(path, (leaf - 1) * PAGE_BYTES + 2_000, 3)
    store = await SqliteStore.open(path, now_ms=_in_a_year)
    gone = [
        each
        for each in await store.session_ids(ACME, after=None, limit=99)
        if await _dumped(store, each)
    ]
    for each in gone:
        await store.remove(ACME, each)
    while (await store.prune(trust_clock=True)).more:
        pass
    assert await store.engine.read(partial(words_left, ACME, gone)) == []
    named = {each.session_id async for each in verify(store) if isinstance(each, Finding)}
    assert named.isdisjoint(gone)
    assert store.read_only is None
    await store.close()


def _in_a_year() -> int:
    return time.time_ns() // 1_000_000 + 365 * 24 * 3600 * 1000


async def _dumped(store: SqliteStore, session_id: SessionId) -> bool:
    """Whether all of a session can be found by a writer, which uses indexes."""
    try:
        work = partial(_dump, session_id)
        return await store.engine.write(work) is not None
    except SessionDamaged:
        return False


def _dump(session_id: SessionId, db: apsw.Connection) -> SessionDump | None:
    return DRIVER.run(db, dump(ACME, session_id))


async def test_retention_goes_on_beside_a_session_on_a_damaged_page(
    whole: tuple[Path, Truth],
) -> None:
    """SQLite gives up a transaction in which a read meets damage, and with it what others have written there."""
    path, _ = whole
    leaf = _page_of(path, tree="sqlite_autoindex_item_1", kind="leaf", nth=1)
    flip(path, (leaf - 1) * PAGE_BYTES + 2_000, 3)
    store = await SqliteStore.open(path, now_ms=_in_a_year)
    everyone = await store.session_ids(ACME, after=None, limit=99)
    gone = [each for each in everyone if await _dumped(store, each)]
    assert 0 < len(gone) < len(everyone)
    for each in everyone:
        await store.remove(ACME, each)

    async def prune() -> None:
        while (await store.prune(trust_clock=True)).more:
            pass

    names = [SessionKey(f"new-{n}") for n in range(40)]
    binds = (
        store.bind(ACME, name, fresh=SessionId(f"conv_{n:026}")) for n, name in enumerate(names)
    )
    await asyncio.gather(prune(), *binds)
    assert await store.engine.read(partial(words_left, ACME, gone)) == []
    assert all([await store.resolve(ACME, name) for name in names])
    await store.close()


# ── files from before ────────────────────────────────────────────────────────────────────────


async def test_a_file_without_checksums_is_used_as_it_is(
    tmp_path: Path, mint: Minter, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    monkeypatch.setattr("holdfast.store.sqlite.connection.CHECKSUMS", False)
    before = await SqliteStore.open(path)
    player = Player(before, mint, tenant=ACME)
    await player.renew()
    await player.play("trip", "To Oslo", "When?")
    await before.close()
    monkeypatch.undo()
    store = await SqliteStore.open(path)
    assert not has_checksums_now(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    await player.play("trip", "On Friday", "Good")
    assert [each async for each in verify(store) if isinstance(each, Finding)] == []
    await store.close()


def has_checksums_now(path: Path) -> bool:
    db = apsw.Connection(str(path))
    try:
        return has_checksums(db)
    finally:
        db.close()


async def test_a_flip_that_would_hide_the_checksums_is_noticed(whole: tuple[Path, Truth]) -> None:
    """The byte of the header that says how much room is left for them."""
    path, truth = whole
    for bit in range(8):
        flip(path, 20, bit)
        assert "holdfast db verify --help" in (await served_from(path, truth)).refused
        flip(path, 20, bit)
    assert (await served_from(path, truth)).right == len(truth)
