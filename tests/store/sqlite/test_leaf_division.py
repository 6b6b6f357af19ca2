"""Full leaves of sessions beside damaged ones: divided, so that sound conversations take turns, and nothing else changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import apsw
import pytest

from holdfast.errors import SessionDamaged
from holdfast.ids import Minter
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import open_reader, open_writer
from holdfast.store.sqlite.hints import HintingStore
from holdfast.store.sqlite.pages import leaf_division
from holdfast.store.sqlite.pages.index_repair import IndexRepair
from holdfast.store.sqlite.pages.leaf_division import ROOM_BYTES, FullLeaf
from holdfast.store.sqlite.pages.records import Cells, page_of, room_beside
from holdfast.store.sqlite.pages.survey import FilePages
from tests.store.builders import ACME, Player, Playing
from tests.store.sqlite.flips import PAGE_BYTES, flip, hit_by_damage, trees_of, truth_of

ONE = """
insert into session (tenant, id, head, length, link, lease_token, lease_nonce, source_key, entry_agent, agent, lineage,
  settings, meta_rev, summary_rev, title, opening, state, anonymous, created_ms, active_ms)
values ('acme', format('conv_%026d', :n), :n % 300, 0, x'00', :n, '', '', '', '', x'5b5d',
  :settings, 0, 0, :title, 'Hello', 'live', 0, 0, :n)
"""


async def filled(
    path: Path, chance: Random, *, in_order: bool = True, title_max: int = 60, long: float = 0.0
) -> None:
    """A file at rest with sessions on three levels of pages. Pages are full if rows come `in_order`; some rows are so
    `long` that they go on on other pages."""
    await (await SqliteStore.open(path)).close()
    numbers = list(range(800))
    if not in_order:
        chance.shuffle(numbers)
    with closing(open_writer(path)) as db:
        with db:
            for n in numbers:
                settings = b"x" * (chance.randrange(3_000, 9_000) if chance.random() < long else 2)
                title = "é" * chance.randrange(title_max)
                db.execute(ONE, {"n": n, "settings": settings, "title": title})
        db.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)


def leaves_of(path: Path) -> list[int]:
    return trees_of(path)["session", "leaf"]


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
        return [room_beside(Cells(pages).whole(page), PAGE_BYTES) for page in found if page]


def demand_same(path: Path, before: list[tuple[object, ...]]) -> None:
    with closing(open_reader(path)) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert db.execute("select * from session order by tenant, id").fetchall() == before


def content_of(path: Path) -> list[tuple[object, ...]]:
    with closing(open_reader(path)) as db:
        return db.execute("select * from session order by tenant, id").fetchall()


@pytest.mark.parametrize(
    ("in_order", "title_max", "long"),
    [(True, 60, 0.0), (False, 60, 0.0), (True, 250, 0.03), (False, 250, 0.03)],
)
async def test_full_leaves_beside_damaged_ones_are_divided_and_no_row_changes(
    in_order: bool,
    title_max: int,
    long: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance, whole, grown = Random(1), tmp_path / "whole.db", 0
    make_room, made_room = leaf_division._make_room, list[int]()

    def making_room(db: apsw.Connection, leaf: FullLeaf) -> bool:
        made_room.append(leaf.above)
        return make_room(db, leaf)

    monkeypatch.setattr(leaf_division, "_make_room", making_room)
    await filled(whole, chance, in_order=in_order, title_max=title_max, long=long)
    leaves, before = leaves_of(whole), content_of(whole)
    assert len(leaves) > 20
    for n in range(8):
        path, hit = tmp_path / f"{n}.db", chance.sample(leaves, chance.choice([1, 1, 3]))
        shutil.copyfile(whole, path)
        for leaf in hit:
            damage(path, leaf)
        was = [page_at(path, leaf) for leaf in hit]
        repaired = IndexRepair(path).run()
        assert [page_at(path, leaf) for leaf in hit] == was
        for leaf in hit:
            damage(path, leaf)
        demand_same(path, before)
        grown += len(leaves_of(path)) - len(leaves)
        assert repaired == (trees_of(path) != trees_of(whole))
    assert grown >= 8
    assert made_room or title_max < 100


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
