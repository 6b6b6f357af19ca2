"""Every promise that a store can show: kept by whatever a store does, and missed when it is broken on purpose."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import apsw
import pytest

from holdfast.core.history.checks import Violation
from holdfast.ids import Minter, SessionId, Tenant, Version
from holdfast.store.outcomes import SessionDump
from holdfast.store.rows import SessionRow
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from holdfast.store.verification.verification import Finding, Progress, verify
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.furnishing import furnish, prune_later, remove
from tests.store.homes import Damage


async def findings(store: Store) -> list[Finding]:
    return [each async for each in verify(store) if isinstance(each, Finding)]


async def codes(store: Store) -> set[str]:
    return {each.violation.code for each in await findings(store)}


# ── what is as it should be ──────────────────────────────────────────────────────────────────


async def test_an_empty_store_is_clean(store: Store) -> None:
    assert await findings(store) == []


async def test_a_store_with_one_of_everything_is_clean(store: Store, player: Player) -> None:
    await furnish(player)
    assert await findings(store) == []


async def test_every_session_of_every_tenant_is_counted(
    store: Store, player: Player, mint: Minter
) -> None:
    for tenant in ("acme", "zeta"):
        other = Player(store, mint, tenant=Tenant(tenant), node=player.node)
        for name in ("a", "b"):
            await other.play(name)
    await remove(player, "a")
    seen = [each async for each in verify(store) if isinstance(each, Progress)]
    sessions = [each for each in seen if each.what == "sessions"]
    assert [each.done for each in sessions] == [1, 2, 3, 4]
    assert all(each.done <= each.of for each in seen)


async def test_deleting_and_pruning_leave_a_clean_store(
    store: Store, player: Player, clock: ManualClock
) -> None:
    await furnish(player)
    await remove(player, "trip")
    assert await findings(store) == []
    await remove(player, "busy")
    assert await findings(store) == []
    await prune_later(player, clock)
    assert await findings(store) == []


async def test_every_step_of_pruning_leaves_a_clean_store(
    store: Store, player: Player, clock: ManualClock
) -> None:
    """Bytes of a deleted session go a few at a time, and verify may come at any moment."""
    for number in range(3):
        await player.play("gone", f"{number}")
    await remove(player, "gone")
    clock.advance(40 * 24 * 3600)
    while (await store.prune(limit=1)).more:
        assert await findings(store) == []


async def test_a_deleted_session_keeps_what_a_live_fork_reads(
    store: Store, player: Player, clock: ManualClock
) -> None:
    await player.play("old", "One", "Two")
    old, fork = await player.id_of("old"), player.mint(SessionId)
    await store.fork(ACME, old, version=Version(1), fresh=fork)
    await remove(player, "old")
    await prune_later(player, clock)
    assert await findings(store) == []
    assert (await player.snapshot(fork)).version == 1


# ── what is not ──────────────────────────────────────────────────────────────────────────────


async def test_a_damaged_item_is_named(store: Store, player: Player, damage: Damage) -> None:
    await player.play("trip", "One")
    await player.play("other", "Two")
    trip = await player.id_of("trip")
    await damage.item(ACME, trip, 0, b'{"type":"user","id":"damaged"}')
    found = await findings(store)
    assert {each.violation.code for each in found} == {"unreadable", "link_broken"}
    assert {(each.tenant, each.session_id) for each in found} == {(ACME, trip)}


async def test_damage_under_a_deleted_session_is_seen_while_a_fork_reads_it(
    store: Store, player: Player, damage: Damage
) -> None:
    await player.play("old", "One", "Two")
    old, fork = await player.id_of("old"), player.mint(SessionId)
    await store.fork(ACME, old, version=Version(1), fresh=fork)
    await remove(player, "old")
    body = (await _dump(store, old)).items[0].body
    await damage.item(ACME, old, 0, body.replace(b"One", b"Won"))
    assert await codes(store) == {"link_broken"}


async def test_an_annotation_or_journal_that_cannot_be_read_is_named(
    store: Store, player: Player, damage: Damage
) -> None:
    await furnish(player)
    [old] = [each for each in await _rows(store) if each.meta_rev == 3 and not each.lineage]
    await damage.annotation(ACME, old.id, 1, b"?")
    [busy] = [each for each in await _rows(store) if each.open_turn]
    assert busy.open_turn is not None
    await damage.record(ACME, busy.open_turn, 0, b"?")
    named = {(each.session_id, each.violation.code) for each in await findings(store)}
    assert {(old.id, "unreadable"), (busy.id, "unreadable")} <= named


async def _dump(store: Store, session_id: SessionId) -> SessionDump:
    found = await store.dump(ACME, session_id)
    assert found is not None
    return found


async def _rows(store: Store) -> list[SessionRow]:
    found = [
        await store.session(ACME, each)
        for each in await store.session_ids(ACME, after=None, limit=100)
    ]
    return [each for each in found if each is not None]


# ── what is not, in SQLite ───────────────────────────────────────────────────────────────────

FIRST = "(select min(session_id) from turn where seq = 4)"
"""The session that `furnish` begins with; its forks go on from it."""
EARLY = (
    f"(select session_id from session_past where ancestor = {FIRST} order by session_id limit 1)"
)
LATER = (
    f"(select session_id from session_past where ancestor <> {FIRST} order by session_id limit 1)"
)
BUSY = "(select id from session where open_turn is not null)"
TOMBSTONE = "(select id from session where state = 'deleted')"
ABSENT = "'conv_00000000000000000000000000'"

REPLAYABLE = "select turn_id from turn where replayable and ended_by = 'completed'"

BROKEN = {
    "a head that is ahead": (f"update session set head = 5 where id = {FIRST}", "head_off"),
    "a length that is short": (f"update session set length = 3 where id = {FIRST}", "length_off"),
    "another link": (f"update session set link = zeroblob(32) where id = {FIRST}", "link_off"),
    "a missing turn": (f"delete from turn where session_id = {FIRST} and seq = 2", "not_dense"),
    "a missing item": (f"delete from item where session_id = {FIRST} and pos = 1", "not_dense"),
    "an item after the end": (
        (
            f"insert into item select tenant, session_id, 99, turn_id, path, body from item"
            f" where session_id = {FIRST} and pos = 0"
        ),
        "item_astray",
    ),
    "an item of another turn": (
        (
            f"update item set turn_id = (select turn_id from turn where session_id = {FIRST} and seq = 2)"
            f" where session_id = {FIRST} and pos = 0"
        ),
        "item_astray",
    ),
    "an altered item": (
        (
            f"update item set body = cast(replace(cast(body as text), 'Friday', 'Monday') as blob)"
            f" where session_id = {FIRST}"
        ),
        "link_broken",
    ),
    "an altered change": (
        (
            f"update turn set changes = cast(replace(cast(changes as text), 'pack', 'sell') as blob)"
            f" where session_id = {FIRST} and seq = 1"
        ),
        "link_broken",
    ),
    "an end that nobody recorded": (
        f"update turn set ended_by = null where session_id = {FIRST} and seq = 2",
        "turn_unmarked",
    ),
    "a discarded turn with a version": (
        f"update turn set state = 'discarded' where session_id = {FIRST} and seq = 2",
        "turn_unmarked",
    ),
    "a turn on another base": (
        f"update turn set base_head = 0 where session_id = {FIRST} and seq = 2",
        "turn_unmarked",
    ),
    "state from the future": ("update state set seq = 77", "state_astray"),
    "state that nobody set": (
        f"update state set value = 'x' where session_id = {FIRST}",
        "state_astray",
    ),
    "a missing annotation": (
        f"delete from annotation where session_id = {FIRST} and rev = 2",
        "revision_gap",
    ),
    "an annotation too many": (
        (
            f"insert into annotation select tenant, session_id, 9, item, patch, at_ms, proof from annotation"
            f" where session_id = {FIRST} and rev = 1"
        ),
        "revision_gap",
    ),
    "another title": (f"update session set title = 'x' where id = {FIRST}", "notes_off"),
    "another title of a fork": (f"update session set title = 'x' where id = {LATER}", "notes_off"),
    "two open turns": (
        (
            f"update turn set state = 'open', ended_by = null"
            f" where session_id = {FIRST} and state = 'discarded'"
        ),
        "open_off",
    ),
    "an open turn that ended": (
        (
            f"update turn set state = 'discarded', ended_by = 'crash'"
            f" where session_id = {BUSY} and state = 'open'"
        ),
        "open_off",
    ),
    "an open turn that is forgotten": (
        f"update session set open_turn = null where id = {BUSY}",
        "open_off",
    ),
    "an open turn without its request": (
        f"delete from journal where turn_id = (select open_turn from session where id = {BUSY})",
        "journal_cut",
    ),
    "a turn that waits for a deleted session": (
        f"update turn set session_id = {TOMBSTONE} where state = 'queued'",
        "queued_off",
    ),
    "a turn that waits and is held": (
        "update turn set lease_token = 7 where state = 'queued'",
        "queued_off",
    ),
    "a turn that waits without its request": (
        "delete from journal where turn_id in (select turn_id from turn where state = 'queued')",
        "journal_cut",
    ),
    "an answer that is missing among the events of a turn": (
        f"delete from journal where n = 1 and turn_id in ({REPLAYABLE})",
        "journal_cut",
    ),
    "an end that is missing among the events of a turn": (
        f"delete from journal where n = 3 and turn_id in ({REPLAYABLE})",
        "journal_cut",
    ),
    "damaged bytes": ("update blob set bytes = x'00'", "blob_damaged"),
    "missing bytes": ("delete from blob", "blob_missing"),
    "a fork of nothing": (f"delete from session where id = {FIRST}", "past_missing"),
    "a fork beyond the end": (
        (
            f"update session set lineage = cast(replace(cast(lineage as text), '\"upto_version\":1',"
            f" '\"upto_version\":9') as blob) where id = {EARLY}"
        ),
        "past_off",
    ),
    "a fork from elsewhere": (
        (
            f"update session set lineage = cast(replace(cast(lineage as text), '\"upto_pos\":4',"
            f" '\"upto_pos\":3') as blob) where id = {EARLY}"
        ),
        "past_off",
    ),
    "a lineage that cannot be read": (
        f"update session set lineage = x'7b' where id = {EARLY}",
        "unreadable",
    ),
    "an id that is none": (
        f"update turn set retry_of = 'x' where session_id = {FIRST}",
        "unreadable",
    ),
    "a tombstone with words": (
        f"update session set title = 'x', opening = 'y' where id = {TOMBSTONE}",
        "tombstone_full",
    ),
    "a tombstone with a key": (
        f"update session_key set session_id = {TOMBSTONE} where key = 'asking'",
        "key_astray",
    ),
    "a key of nothing": (f"update session_key set session_id = {ABSENT}", "key_astray"),
    "a claim that waits for ever": (
        "update idempotency set state = 'running' where key = 'friday'",
        "claim_running",
    ),
    "a claim of nothing": (
        "update idempotency set turn_id = 'turn_00000000000000000000000000' where key = 'busy'",
        "claim_running",
    ),
    "an attribute too many": (
        f"insert into session_attribute values ('acme', {FIRST}, 'x', 'y')",
        "derived_off",
    ),
    "a past that is not listed": (
        f"delete from session_past where session_id = {EARLY}",
        "derived_off",
    ),
    "bytes that are not gone": (
        f"update session set bytes_gone = 1 where id = {TOMBSTONE}",
        "derived_off",
    ),
}

OWNED = "turn item state annotation".split()
PLAYED = "journal signal".split()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A furnished store, closed: one file. Copying it is quicker than furnishing one for each test."""
    path = tmp_path_factory.mktemp("template") / "store.db"

    async def make() -> None:
        clock, steps = ManualClock(), count()
        store = await SqliteStore.open(path, now_ms=clock.now_ms)
        mint = Minter(now_ms=clock.now_ms, random_bits=lambda bits: next(steps) % (1 << bits))
        player = Player(store, mint)
        await player.renew()
        await furnish(player)
        await player.play("gone")
        await remove(player, "gone")
        await store.close()

    asyncio.run(make())
    return path


@pytest.fixture
async def furnished(
    template: Path, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[SqliteStore]:
    path = tmp_path / "store.db"
    shutil.copy(template, path)
    opened = await SqliteStore.open(path, now_ms=clock.now_ms)
    yield opened
    await opened.close()


async def damaged(store: SqliteStore, sql: str) -> None:
    def work(db: apsw.Connection) -> int:
        before = db.total_changes()
        db.execute(sql)
        return db.total_changes() - before

    assert await store.engine.write(work), "the damage missed"


async def test_before_it_is_broken_it_is_clean(furnished: SqliteStore) -> None:
    assert await findings(furnished) == []


@pytest.mark.parametrize("name", BROKEN)
async def test_verify_names(name: str, furnished: SqliteStore) -> None:
    sql, code = BROKEN[name]
    await damaged(furnished, sql)
    assert code in await codes(furnished)


@pytest.mark.parametrize("table", OWNED + PLAYED)
async def test_verify_names_rows_of_nobody(table: str, furnished: SqliteStore) -> None:
    owner, absent = (
        ("session_id", ABSENT)
        if table in OWNED
        else ("turn_id", "'turn_00000000000000000000000000'")
    )
    if table == "signal":
        await damaged(
            furnished, f"insert into signal values ('acme', {absent}, 1, 'cancel', x'', 0, 0, null)"
        )
    else:
        sql = (
            f"update {table} set {owner} = {absent} where rowid = (select max(rowid) from {table})"
        )
        await damaged(furnished, sql)
    assert "row_astray" in await codes(furnished)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("create table mine (x)", "schema_foreign"),
        ("create trigger t after insert on item begin delete from turn; end", "schema_foreign"),
        ("drop index turn_by_seq", "schema_broken"),
        ("alter table item add column x text", "schema_broken"),
        ("drop table annotation", "schema_broken"),
    ],
)
async def test_verify_names_tables_that_are_not_as_we_made_them(
    sql: str, code: str, furnished: SqliteStore
) -> None:
    await furnished.engine.write(lambda db: db.execute(sql).fetchall())
    assert await codes(furnished) == {code}


async def test_all_that_is_missing_is_named_before_verify_gives_up(furnished: SqliteStore) -> None:
    """Without its tables nothing else can be said about a store."""
    await furnished.engine.write(
        lambda db: db.execute("drop table blob; drop table item").fetchall()
    )
    reports = [each async for each in verify(furnished)]
    assert {str(each) for each in reports} == {
        "store: schema_broken: blob: this table is missing or was altered",
        "store: schema_broken: blob_to_judge: this index is missing or was altered",
        "store: schema_broken: item: this table is missing or was altered",
    }


async def test_verify_names_a_page_that_is_not_what_it_was(furnished: SqliteStore) -> None:
    """An index that lost an entry answers wrongly, without a word."""
    path = furnished.engine.path
    root = await furnished.engine.read(_root_of_an_index)
    await furnished.close()
    with path.open("r+b") as file:
        file.seek(root * PAGE_BYTES - 12)
        file.write(b"00000000")
    again = await SqliteStore.open(path)
    found = await findings(again)
    await again.close()
    assert ("file_damaged", "idempotency") in {
        (each.violation.code, each.violation.where) for each in found
    }


PAGE_BYTES = 4096


def _root_of_an_index(db: apsw.Connection) -> int:
    name = "idempotency_by_turn"
    root = db.execute("select rootpage from sqlite_schema where name = ?", (name,)).get
    assert isinstance(root, int)
    return root


# ── while turns go on ────────────────────────────────────────────────────────────────────────


async def test_turns_that_go_on_meanwhile_are_no_damage(
    furnished: SqliteStore, mint: Minter, clock: ManualClock
) -> None:
    clock.advance(1)
    player = Player(furnished, mint)
    await player.renew()
    stop = False

    async def go_on(name: str) -> int:
        played = 0
        while not stop:
            await player.play(name, key=f"{name}-{played}")
            await player.discard(name)
            played += 1
        return played

    playing = [asyncio.create_task(go_on(name)) for name in ("one", "two", "three")]
    try:
        for _ in range(5):
            assert await findings(furnished) == []
    finally:
        stop = True
        played = await asyncio.gather(*playing)
    assert all(played)


async def test_what_is_found_only_once_is_no_finding(store: Store, player: Player) -> None:
    """Two reads see two moments: here a turn begins between them, once."""
    await player.play("trip")

    class Between:
        def __init__(self) -> None:
            self.begun = False

        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def session(self, tenant: Tenant, session_id: SessionId) -> SessionRow | None:
            if not self.begun:
                self.begun = True
                await player.open("trip")
            return await store.session(tenant, session_id)

    between = Between()
    assert await findings(between) == []  # type: ignore[arg-type]
    assert between.begun


def test_a_finding_is_one_line() -> None:
    found = Violation(code="head_off", where="conv_1", what="its head is 3")
    line = str(Finding(violation=found, tenant="acme", session_id="conv_1"))
    assert line == "acme/conv_1: head_off: its head is 3"
    assert str(Finding(violation=found)) == "store: head_off: conv_1: its head is 3"
