"""The index of the SQLite home: what it holds, what it costs others, and that it is only an index."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import apsw
import pytest

from holdfast import limits
from holdfast.core.history.conversation import Titled
from holdfast.ids import Minter, SessionId, Tenant, Version
from holdfast.store.operations import search
from holdfast.store.outcomes import EVERYTHING, Results
from holdfast.store.pages import BEGINNING
from holdfast.store.search.effort import Effort
from holdfast.store.search.matches import parse_query
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import open_reader
from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.sqlite.migration import load_migrations
from holdfast.store.verification.verification import Finding, verify
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.contract.test_search import index_all


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> SqliteStore:
    return await SqliteStore.open(tmp_path / "holdfast.db", now_ms=clock.now_ms)


@pytest.fixture
async def player(store: SqliteStore, mint: Minter) -> Player:
    made = Player(store, mint)
    await made.renew()
    return made


async def rows(store: SqliteStore, sql: str) -> list[tuple[object, ...]]:
    return await store.engine.read(lambda db: db.execute(sql).fetchall())


async def vocabulary(store: SqliteStore) -> set[str]:
    """All words of the index, without the tags of their tenants."""

    def read(db: apsw.Connection) -> set[str]:
        db.execute("create virtual table temp.v using fts5vocab(main, search_word, 'row')")
        try:
            return {str(term)[12:] for (term,) in db.execute("select term from temp.v")}
        finally:
            db.execute("drop table temp.v")

    return await store.engine.write(read)


async def find(store: SqliteStore, typed: str, *, limit: int = 10) -> Results:
    return await store.search(ACME, parse_query(typed), limit=limit)


async def test_a_deleted_session_leaves_no_word_behind(store: SqliteStore, player: Player) -> None:
    turn = await player.play("trip", "To Oslo", "When?")
    await store.annotate(ACME, turn.session_id, [(None, Titled(title="Secret"))])
    await index_all(store)
    assert await vocabulary(store) == {"to", "oslo", "when", "secret"}
    await store.remove(ACME, turn.session_id)
    assert "secret" not in await vocabulary(store), "names go at once"
    while (await store.prune(limit=1)).more:
        pass
    assert await vocabulary(store) == set()
    assert await rows(store, "select * from search_chunk") == []
    assert await index_all(store) == 1
    await store.close()


async def test_what_a_fork_reads_stays_until_it_goes(
    store: SqliteStore, player: Player, mint: Minter
) -> None:
    turn = await player.play("trip", "To Oslo", "When?")
    await index_all(store)
    fork = await store.fork(ACME, turn.session_id, version=Version(1), fresh=mint(SessionId))
    for each, left in ((turn.session_id, {"to", "oslo", "when"}), (fork.id, set())):
        await store.remove(ACME, each)
        while (await store.prune(limit=1)).more:
            pass
        assert await vocabulary(store) == left
    await store.close()


async def test_a_step_that_was_planned_before_a_removal_brings_nothing_back(
    store: SqliteStore, player: Player
) -> None:
    turn = await player.play("trip", "To Oslo", "When?")
    plan = await store._read(partial(search.plan, bytes_max=1000))
    await store.remove(ACME, turn.session_id)
    await store._write(partial(search.take, plan))
    assert await vocabulary(store) == set()

    plan = await store._read(partial(search.plan, bytes_max=1000))
    while (await store.prune(limit=1)).more:
        pass
    await store._write(partial(search.take, plan))
    assert await vocabulary(store) == set()
    assert await index_all(store) == 1
    await store.close()


async def test_several_may_index_at_once(store: SqliteStore, player: Player) -> None:
    for n in range(5):
        await player.play("trip", f"Oslo {n}")
    late = await store._read(partial(search.plan, bytes_max=10_000))
    for size in (1, 10_000):
        plan = await store._read(partial(search.plan, bytes_max=size))
        await store._write(partial(search.take, plan))
    await store._write(partial(search.take, late))
    await asyncio.gather(*(index_all(store, bytes_max=100) for _ in range(3)))
    chunks = await rows(store, "select from_pos, upto_pos from search_chunk order by from_pos")
    assert chunks[0] == (-1, -1)
    positions = [n for start, end in chunks[1:] for n in range(int(str(start)), int(str(end)))]
    assert positions == list(range(10)), "each position once"
    assert [finding async for finding in verify(store) if isinstance(finding, Finding)] == []
    await store.close()


async def test_a_title_that_changes_is_not_kept_twice(store: SqliteStore, player: Player) -> None:
    turn = await player.play("trip", "Hello", "Hi")
    for title in ("Oslo", "Bergen", "Tromsø"):
        await store.annotate(ACME, turn.session_id, [(None, Titled(title=title))])
        await index_all(store)
    assert await vocabulary(store) == {"hello", "hi", "tromso"}
    await store.close()


async def test_a_word_that_is_everywhere_is_found_without_naming_every_place(
    store: SqliteStore, player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [(await player.play(f"s{n}", f"The {n}")).session_id for n in range(9)]
    await index_all(store)
    monkeypatch.setattr(limits, "search_hits_max", 4)
    page = await find(store, "the", limit=5)
    rest = await store.search(ACME, parse_query("the"), cursor=page.cursor, limit=5)
    found = [match.info.session.id for each in (page, rest) for match in each.matches]
    assert found == made[::-1]
    assert rest.cursor is None
    await store.close()


@pytest.mark.parametrize("hits_max", [2, 1000])
async def test_a_long_look_ends_with_a_cursor(
    store: SqliteStore, player: Player, monkeypatch: pytest.MonkeyPatch, hits_max: int
) -> None:
    """What the index does not know yet is looked through, but not all at once."""
    target = await player.play("target", "To Oslo")
    for n in range(6):
        await player.play(f"s{n}", "Hello", "Hi")
    monkeypatch.setattr(limits, "search_items_max", 4)
    monkeypatch.setattr(limits, "search_hits_max", hits_max)
    looks, cursor = 0, None
    while True:
        page = await store.search(ACME, parse_query("oslo"), cursor=cursor)
        looks += 1
        if page.cursor is None:
            break
        assert page.matches == () or page.matches[0].info.session.id == target.session_id
        cursor = page.cursor
    assert looks > 2
    await index_all(store)
    assert len((await find(store, "oslo")).matches) == 1
    await store.close()


async def test_other_tenants_words_are_not_even_passed_over(
    store: SqliteStore, player: Player, mint: Minter
) -> None:
    """Looking for a word costs the same, however often others use it."""

    def steps(tenant: Tenant) -> int:
        """What SQLite does for a search, counted by its own virtual machine."""
        db = open_reader(store.engine.path)
        counted: list[int] = []
        db.trace_v2(
            apsw.SQLITE_TRACE_PROFILE,
            lambda event: counted.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]),
        )
        page = search.search(
            tenant,
            parse_query("oslo os*"),
            where=EVERYTHING,
            before=BEGINNING,
            within=None,
            limit=10,
            effort=Effort(),
        )
        DRIVER.run(db, page)
        db.close()
        return sum(counted)

    await player.play("trip", "To Oslo")
    await index_all(store)
    before = steps(ACME)
    rival = Player(store, mint, tenant=Tenant("rival"))
    await rival.renew()
    for n in range(30):
        await rival.play(f"s{n}", "Oslo")
    await index_all(store)
    assert steps(ACME) < before + 30
    await store.close()


async def test_an_old_database_is_searched_at_once_and_indexed_step_by_step(
    tmp_path: Path, clock: ManualClock, mint: Minter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The migration touches no session: what was there counts as not indexed yet."""
    path, newer = tmp_path / "old.db", tmp_path / "newer.db"
    made = await SqliteStore.open(newer, now_ms=clock.now_ms)
    player = Player(made, mint)
    await player.renew()
    turn = await player.play("trip", "To Oslo", "When?")
    await made.close()
    with monkeypatch.context() as patch:
        first = load_migrations()[:1]
        patch.setattr("holdfast.store.sqlite.store.load_migrations", lambda: first)
        await (await SqliteStore.open(path, now_ms=clock.now_ms)).close()
    _copy_rows(newer, path)
    store = await SqliteStore.open(path, now_ms=clock.now_ms)
    assert store.migrated is not None and store.migrated.before == 1
    for _ in range(2):
        [match] = (await find(store, "oslo")).matches
        assert match.info.session.id == turn.session_id
        await index_all(store)
    assert await vocabulary(store) == {"to", "oslo", "when"}
    await store.close()


def _copy_rows(newer: Path, older: Path) -> None:
    """What an older version would have written: the columns that it knew."""
    db = apsw.Connection(str(older))
    db.execute("attach ? as newer", (str(newer),))
    for table in ("session", "session_key", "turn", "item"):
        found = db.execute("select name from pragma_table_info(?)", (table,)).fetchall()
        names = ", ".join(f'"{name}"' for (name,) in found)
        db.execute(f"insert into {table} ({names}) select {names} from newer.{table}")
    db.close()


async def test_verify_names_words_of_a_session_that_does_not_exist(store: SqliteStore) -> None:
    nobody = "conv_" + "0" * 26
    insert = "insert into search_chunk (tenant, session_id, from_pos, upto_pos) values (?, ?, 0, 1)"
    await store.engine.write(lambda db: db.execute(insert, ("acme", nobody)).fetchall())
    found = [each async for each in verify(store) if isinstance(each, Finding)]
    assert [(each.violation.code, each.violation.where) for each in found] == [
        ("row_astray", nobody)
    ]
    await store.close()
