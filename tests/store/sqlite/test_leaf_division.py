"""Full leaves beside damaged ones: divided, so that sound conversations take turns, and nothing else changes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import apsw
import pytest

from holdfast.errors import SessionDamaged, StoreDamaged
from holdfast.ids import Minter, SessionId
from holdfast.store import operations
from holdfast.store.sql import tables
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import open_reader, open_writer
from holdfast.store.sqlite.hints import HintingStore
from holdfast.store.sqlite.migration import load_migrations, migrate
from holdfast.store.sqlite.pages import leaf_division
from holdfast.store.sqlite.pages.index_repair import IndexRepair
from holdfast.store.sqlite.pages.leaf_division import APPENDED, ROOM_BYTES, FullLeaf
from holdfast.store.sqlite.pages.records import Cells, page_of, room_beside
from holdfast.store.sqlite.pages.survey import FilePages
from holdfast.store.sqlite.pages.trees import damaged_leaves
from tests.store.builders import ACME, Player, Playing
from tests.store.sqlite.flips import PAGE_BYTES, flip, hit_by_damage, trees_of, truth_of

ROWS = 1_000


def schema_of(db: apsw.Connection) -> dict[str, str]:
    found = db.execute(
        "select name, sql from sqlite_schema where type = 'table' and rootpage > 0 "
        "and name not glob 'sqlite_*' and name not glob 'search_*'"
    )
    return {str(name): str(sql) for name, sql in found}


def _tables() -> dict[str, str]:
    with closing(apsw.Connection("")) as db:
        migrate(db, migrations=load_migrations())
        return schema_of(db)


TABLES = _tables()
DIVIDED = sorted(TABLES.keys() - APPENDED)


async def filled(
    path: Path,
    chance: Random,
    table: str = "session",
    *,
    in_order: bool = True,
    more: int = 60,
    long: float = 0.0,
) -> None:
    """A file at rest with many rows of a table. Pages are full if rows come `in_order`; some rows are so `long` that they
    go on on other pages."""
    await (await SqliteStore.open(path)).close()
    numbers = list(range(1, ROWS + 1))
    if not in_order:
        chance.shuffle(numbers)
    with closing(open_writer(path)) as db:
        db.execute("pragma ignore_check_constraints = on")
        columns = db.execute(f"pragma table_info({table})").fetchall()
        own = {str(name): (str(kind), bool(pk)) for _, name, kind, _, _, pk in columns}
        rowid = "without rowid" not in TABLES[table]
        listed = ", ".join([*(["rowid"] if rowid else []), *(f'"{each}"' for each in own)])
        marks = ", ".join("?" * (len(own) + rowid))
        with db:
            db.execute(f"delete from {table}")
            for n in numbers:
                row = [_value(name, *own[name], n, chance, more, long) for name in own]
                sql = f"insert into {table} ({listed}) values ({marks})"
                db.execute(sql, [*([n] if rowid else []), *row])
        db.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _value(
    name: str, kind: str, is_key: bool, n: int, chance: Random, more: int, long: float
) -> object:
    if kind == "INTEGER":
        return n if is_key else n % 300
    if kind == "BLOB":
        size = chance.randrange(3_000, 9_000) if chance.random() < long else chance.randrange(2, 60)
        return b"x" * size
    if name == "tenant":
        return "acme"
    if is_key or name.endswith(("_id", "key")):
        return f"{name}_{n:026d}"
    return "é" * chance.randrange(more) if name in ("title", "detail", "value", "name") else "same"


def leaves_of(path: Path, table: str = "session") -> list[int]:
    return trees_of(path)[table, "leaf"]


def damage(path: Path, page: int) -> None:
    """Flip a bit; once more, and it is as it was."""
    flip(path, (page - 1) * PAGE_BYTES + 2_000, 3)


def page_at(path: Path, number: int) -> bytes:
    with closing(open_writer(path)) as db:
        db.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
    return path.read_bytes()[(number - 1) * PAGE_BYTES : number * PAGE_BYTES]


def rooms(path: Path) -> list[int]:
    """How many bytes are free on each leaf of sessions, in their order."""
    with closing(open_reader(path)) as db:
        pages = FilePages(db)
        found = [pages.read(number) for number in leaves_of(path)]
        return [room_beside(Cells(pages).whole(page, False), PAGE_BYTES) for page in found if page]


def demand_same(path: Path, before: list[tuple[object, ...]], table: str = "session") -> None:
    with closing(open_reader(path)) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert schema_of(db) == TABLES
    assert content_of(path, table) == before


def content_of(path: Path, table: str = "session") -> list[tuple[object, ...]]:
    order = "1, 2, 3" if "without rowid" in TABLES[table] else "rowid"
    what = "*" if "without rowid" in TABLES[table] else "rowid, *"
    with closing(open_reader(path)) as db:
        return db.execute(f"select {what} from {table} order by {order}").fetchall()


@pytest.mark.parametrize("table", DIVIDED)
@pytest.mark.parametrize(
    ("in_order", "more", "long"), [(True, 60, 0.0), (False, 60, 0.03), (True, 250, 0.03)]
)
async def test_full_leaves_beside_damaged_ones_are_divided_and_no_row_changes(
    table: str,
    in_order: bool,
    more: int,
    long: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It runs for each table of the schema, so that it fails for a new one that cannot be divided."""
    chance, whole, grown = Random(1), tmp_path / "whole.db", 0
    make_room, made_room = leaf_division._make_room, list[int]()

    def making_room(db: apsw.Connection, leaf: FullLeaf) -> bool:
        made_room.append(leaf.above)
        return make_room(db, leaf)

    monkeypatch.setattr(leaf_division, "_make_room", making_room)
    await filled(whole, chance, table, in_order=in_order, more=more, long=long)
    leaves, before = leaves_of(whole, table), content_of(whole, table)
    assert len(leaves) > 5
    for n in range(4):
        path, hit = tmp_path / f"{n}.db", chance.sample(leaves, chance.choice([1, 1, 3]))
        shutil.copyfile(whole, path)
        for leaf in hit:
            damage(path, leaf)
        was = [page_at(path, leaf) for leaf in hit]
        repaired = IndexRepair(path).run()
        assert [page_at(path, leaf) for leaf in hit] == was
        for leaf in hit:
            damage(path, leaf)
        demand_same(path, before, table)
        grown += len(leaves_of(path, table)) - len(leaves)
        assert repaired == (trees_of(path) != trees_of(whole))
    assert grown >= 4 or not in_order
    assert made_room or more < 100 or table != "session"


def test_no_operation_makes_rows_longer_that_are_taken_to_be_appended_only() -> None:
    """What `overwritten` writes has the same length, and names no table."""
    source = "".join(each.read_text() for each in Path(operations.__path__[0]).rglob("*.py"))
    updated = re.findall(r"\b(?:Update|change|become)\(\s*(?:tables\.)?([A-Z_]+)\b", source)
    names = {getattr(tables, each).name for each in updated}
    assert {"session", "turn", "blob", "idempotency"} <= names
    assert names.isdisjoint(APPENDED)
    assert all("without rowid" not in TABLES[each] for each in APPENDED)


async def test_the_sessions_beside_a_damaged_leaf_get_room_for_a_turn(tmp_path: Path) -> None:
    path = tmp_path / "whole.db"
    await filled(path, Random(1))
    place = next(n for n, room in enumerate(rooms(path)[2:], start=2) if room < ROOM_BYTES) - 1
    leaf = leaves_of(path)[place]
    damage(path, leaf)
    assert IndexRepair(path).run()
    damage(path, leaf)
    page_at(path, 1)  # the log is in the file
    after = leaves_of(path).index(leaf)
    assert min(rooms(path)[after - 1], rooms(path)[after + 1]) >= ROOM_BYTES


LONGER_TURNS = "update turn set detail = format('%.*c', 3000, 'x') where rowid > 998"
LONGER_SESSION = """
update session set title = format('%.*c', 700, 'x') where tenant = 'acme' and id = format('id_%026d', 1)
"""


@pytest.mark.parametrize(
    ("table", "nth", "sql"),
    [
        ("turn", -2, LONGER_TURNS),
        ("turn", -3, LONGER_TURNS),
        ("session", 1, LONGER_SESSION),
        ("session", 2, LONGER_SESSION),
    ],
)
async def test_rows_at_an_end_get_longer_though_sqlite_reads_two_leaves_beside_theirs(
    table: str, nth: int, sql: str, tmp_path: Path
) -> None:
    path = tmp_path / "whole.db"
    await filled(path, Random(1), table)
    leaf = leaves_of(path, table)[nth]
    damage(path, leaf)
    with closing(open_writer(path)) as db, pytest.raises(apsw.IOError):
        db.execute(sql)
    assert IndexRepair(path).run()
    with closing(open_writer(path)) as db:
        db.execute(sql)
    page_at(path, 1)
    damage(path, leaf)
    with closing(open_reader(path)) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]


async def test_a_crash_at_any_step_leaves_the_file_as_it_was_or_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copies = tmp_path / "whole.db", list[Path]()
    await filled(path, Random(1))
    before, leaf = content_of(path), leaves_of(path)[7]

    def crashed() -> None:
        copies.append(tmp_path / f"crashed-{len(copies)}.db")
        for end in ("", "-wal"):
            shutil.copyfile(f"{path}{end}", f"{copies[-1]}{end}")

    def looked(is_so: bool) -> None:
        assert is_so
        crashed()

    damage(path, leaf)
    monkeypatch.setattr(leaf_division, "_demand", looked)
    with closing(open_reader(path)) as db:
        db.execute("select count(*) from sqlite_schema").fetchall()  # makes a log
        assert IndexRepair(path).run()
        crashed()
    assert len(copies) > 5
    for copy in copies:
        page_at(copy, 1)  # the log is in the file
        damage(copy, leaf)
        demand_same(copy, before)


def _loses_a_row(leaf: FullLeaf, new: int, found: dict[int, bytes]) -> dict[int, bytes]:
    shorter = page_of(leaf.cells[leaf.middle + 2 :], leaf.page_bytes)
    return {**found, leaf.number: shorter}


def _repeats_a_row(leaf: FullLeaf, new: int, found: dict[int, bytes]) -> dict[int, bytes]:
    longer = page_of(leaf.cells[leaf.middle :], leaf.page_bytes)
    return {**found, leaf.number: longer}


def _leads_nowhere(leaf: FullLeaf, new: int, found: dict[int, bytes]) -> dict[int, bytes]:
    unchanged = page_of(leaf.cells_above, leaf.page_bytes, last=leaf.last_above)
    return {**found, leaf.above: unchanged}


def _shows_what_is_not_read(leaf: FullLeaf, new: int, found: dict[int, bytes]) -> dict[int, bytes]:
    return {**found, 1_000_000: bytes(leaf.page_bytes)}


def _leaves_rows_in_two_places(
    leaf: FullLeaf, new: int, found: dict[int, bytes]
) -> dict[int, bytes]:
    return {leaf.above: found[leaf.above]}


@pytest.mark.parametrize(
    "wrongly",
    [
        _loses_a_row,
        _repeats_a_row,
        _leads_nowhere,
        _shows_what_is_not_read,
        _leaves_rows_in_two_places,
    ],
)
async def test_a_division_that_would_change_a_row_is_not_made(
    wrongly: Callable[[FullLeaf, int, dict[int, bytes]], dict[int, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "whole.db"
    await filled(path, Random(1))
    before, leaf = content_of(path), leaves_of(path)[7]
    damage(path, leaf)
    divided = FullLeaf.divided
    monkeypatch.setattr(
        FullLeaf, "divided", lambda leaf, new: wrongly(leaf, new, divided(leaf, new))
    )
    IndexRepair(path).run()
    assert "store.leaf_not_divided" in caplog.text
    assert "store.leaf_divided" not in caplog.text
    page_at(path, 1)
    damage(path, leaf)
    demand_same(path, before)


async def test_sound_conversations_take_turns_and_damaged_ones_are_told_by_id(
    tmp_path: Path, mint: Minter
) -> None:
    path, whole = tmp_path / "store.db", tmp_path / "whole.db"
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew(ttl_ms=600_000)
    for n in range(100):
        await player.play(f"talk-{n}", f"Question {n}", f"The answer {n}")
    ids = list(await truth_of(store))
    await store.close()
    shutil.copyfile(path, whole)
    for leaf in leaves_of(whole)[1:-1:2]:
        damage(path, leaf)
    hit = hit_by_damage(whole, path)
    assert 10 < len(hit) < 90
    store = await HintingStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew(ttl_ms=600_000)
    opened = list[Playing]()
    for n, session_id in enumerate(ids):
        if session_id not in hit:
            opened.append(await player.open(f"talk-{n}", "Are you there?"))
            continue
        with pytest.raises(SessionDamaged, match=str(session_id)):
            await store.snapshot(ACME, session_id)
        with pytest.raises(SessionDamaged):
            await player.open(f"talk-{n}", "Are you there?")
    for each in opened:
        await each.answer("I am")
        await each.commit()
    assert store.read_only is None
    for session_id in set(ids) - hit:
        assert await store.dump(ACME, session_id) is not None
    await store.close()


async def test_turns_on_the_last_leaf_are_committed_beside_a_damaged_one(
    tmp_path: Path, mint: Minter
) -> None:
    """Turns come at the end of their table, and get longer there."""
    path, whole = tmp_path / "store.db", tmp_path / "whole.db"
    ids = await talked(path, mint, talks=60)
    shutil.copyfile(path, whole)
    damage(path, leaves_of(path, "turn")[-2])
    hit = hit_by_damage(whole, path)
    assert 0 < len(hit) < 20
    store = await HintingStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew(ttl_ms=600_000)
    sound = [n for n, each in enumerate(ids) if each not in hit]
    opened = [await player.open(f"talk-{n}", "Are you there?") for n in sound]
    for each in opened:
        await each.answer("I am")
        await each.commit()
    assert store.read_only is None
    for n in sound:
        assert await store.dump(ACME, ids[n]) is not None
    await store.close()


@pytest.mark.parametrize("table", ["idempotency", "session_key"])
async def test_new_keys_beside_a_damaged_leaf_are_taken_and_those_on_it_are_told(
    table: str, tmp_path: Path, mint: Minter
) -> None:
    path = tmp_path / "store.db"
    await talked(path, mint, talks=200)
    damage(path, leaves_of(path, table)[1])
    with closing(open_reader(path)) as db:
        root = db.execute("select rootpage from sqlite_schema where name = ?", (table,)).get
        found = damaged_leaves(FilePages(db), int(str(root)))
    assert found
    leaf = found[0]
    assert leaf.above
    assert leaf.below
    store = await HintingStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew(ttl_ms=600_000)
    refused, on_it = dict[str, str](), set[str]()
    for n in range(0, 200, 3):
        name, key = f"talk-{n}-more", f"key-{n}-more"
        if leaf.above[1] < (key if table == "idempotency" else name) < leaf.below[1]:
            on_it.add(name)
        try:
            await player.play(name, "Hello", "Hi", key=key)
        except StoreDamaged as damaged:
            refused[name] = str(damaged)
    assert refused.keys() == on_it
    assert all("is not as it was written" in each for each in refused.values())
    assert 10 < len(on_it) < 50
    assert store.read_only is None
    await store.close()


async def talked(path: Path, mint: Minter, *, talks: int) -> list[SessionId]:
    """A file at rest with a turn of each of these conversations, which are named by their numbers."""
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew(ttl_ms=600_000)
    for n in range(talks):
        await player.play(f"talk-{n}", f"Question {n}", f"The answer {n}", key=f"key-{n}")
    ids = list(await truth_of(store))
    await store.close()
    return ids
