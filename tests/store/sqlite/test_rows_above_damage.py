"""Rows of tables that are kept by their keys: some are on a page above the leaves, and SQLite looks for them on a leaf first.

A row is damaged if its own page is. Above a damaged leaf it is served, listed, found, exported, copied and written.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Awaitable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from holdfast.errors import StoreDamaged
from holdfast.ids import IdempotencyKey, Minter, SessionId, SessionKey
from holdfast.store.outcomes import Attempt, SessionDump
from holdfast.store.search.matches import parse_query
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.pages.salvage import salvaged
from holdfast.store.transfer.copies import NotCopied, copy
from holdfast.store.transfer.exports import LeftOut, export
from holdfast.store.verification.findings import Finding
from holdfast.store.verification.verification import verify
from tests.store.builders import ACME, Player
from tests.store.sqlite.flips import PAGE_BYTES, Truth, content, flip, hit_by_damage, truth_of

SESSIONS = 70
LONG = "x" * 150
"""Long names, so that a few of them fill a page."""

WHOLE = {"dump", "export", "verify"}
"""Who reads all of a conversation."""
READERS = {
    "session": WHOLE | {"snapshot", "retry", "list", "search", "copy"},
    "session_key": WHOLE | {"key", "list", "search"},
    "idempotency": WHOLE | {"retry"},
}
"""Table → who reads it, and so names the conversations of its damaged rows. A copy names the table if nothing else counts
its rows."""


@pytest.fixture
async def whole(tmp_path: Path, mint: Minter) -> tuple[Path, Truth]:
    path = tmp_path / "whole.db"
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    for n in range(SESSIONS):
        key = _retry_key(n)
        request_hash = sha256(key.encode()).digest()
        await player.play(_name(n), f"Question {n}", key=key, request_hash=request_hash)
    while (await store.index()).more:
        pass
    truth = await truth_of(store)
    await store.close()
    return path, truth


def _name(n: int) -> str:
    return f"talk-{n:02}-{LONG}"


def _retry_key(n: int) -> IdempotencyKey:
    return IdempotencyKey(f"key-{n:02}-{LONG}")


@pytest.mark.parametrize("table", READERS)
async def test_every_reader_names_the_rows_of_a_damaged_leaf_and_no_other_ones(
    whole: tuple[Path, Truth], tmp_path: Path, mint: Minter, table: str
) -> None:
    path, truth = whole
    damaged = shutil.copyfile(path, tmp_path / "damaged.db")
    page, rows = _inner_leaf(path, table)
    flip(damaged, (page - 1) * PAGE_BYTES + 2_000, 3)
    hit = hit_by_damage(path, damaged)
    assert len(hit) == rows, "those on the leaf, and no row of the page above"
    store = await SqliteStore.open(damaged)
    assert await _named_by_each(store, truth, tmp_path) == {
        each: hit if each in READERS[table] else set()
        for each in set[str]().union(*READERS.values())
    }
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    for n, session_id in enumerate(truth):
        if session_id not in hit:
            await player.play(_name(n), "And now?", key=f"later-{n}")
    assert store.read_only is None
    await store.close()


async def test_a_turn_that_broke_off_is_listed_if_its_session_is_above_a_damaged_leaf(
    tmp_path: Path, mint: Minter
) -> None:
    path = tmp_path / "whole.db"
    store = await SqliteStore.open(path)
    player = Player(store, mint, tenant=ACME)
    await player.renew()
    for n in range(SESSIONS):
        await player.break_off(_name(n))
    truth = await truth_of(store)
    await store.close()
    damaged = shutil.copyfile(path, tmp_path / "damaged.db")
    page, _ = _inner_leaf(path, "session")
    flip(damaged, (page - 1) * PAGE_BYTES + 2_000, 3)
    store = await SqliteStore.open(damaged)
    listed = {each.session_id for each in await store.unfinished(ACME, since_ms=0, limit=SESSIONS)}
    assert listed == truth.keys() - hit_by_damage(path, damaged)
    await store.close()


def _inner_leaf(path: Path, table: str) -> tuple[int, int]:
    """A leaf with others on both sides, and how many rows are on it."""
    sql = "select pageno, ncell from dbstat where name = ? and pagetype = 'leaf' order by path"
    with closing(apsw.Connection(str(path))) as db:
        leaves = [(int(str(page)), int(str(rows))) for page, rows in db.execute(sql, (table,))]
    assert len(leaves) > 2
    return leaves[1]


async def _named_by_each(
    store: SqliteStore, truth: Truth, folder: Path
) -> dict[str, set[SessionId]]:
    """Each reader, and the conversations that it names as damaged; what it does not name has to be true."""
    named = defaultdict[str, set[SessionId]](set)
    for n, (session_id, told) in enumerate(truth.items()):
        key, retried = SessionKey(_name(n)), _retry_key(n)
        attempt = Attempt(request_hash=sha256(retried.encode()).digest(), key=retried)
        reads: dict[str, Awaitable[object]] = {
            "dump": store.dump(ACME, session_id),
            "snapshot": store.snapshot(ACME, session_id),
            "key": store.resolve(ACME, key),
            "retry": store.find_attempt(ACME, attempt),
        }
        for reader, read in reads.items():
            try:
                assert (found := await read) is not None, (reader, n)
                assert not isinstance(found, SessionDump) or content(found) == told, n
            except StoreDamaged:
                named[reader].add(session_id)
            else:
                named[reader] |= set()
    listed = await store.sessions(ACME, limit=SESSIONS)
    searched = await store.search(ACME, parse_query("question"), limit=SESSIONS)
    named["list"] = set(map(SessionId, listed.damaged))
    named["search"] = set(map(SessionId, searched.damaged))
    assert {each.session.id for each in listed.sessions} == truth.keys() - named["list"]
    assert {each.info.session.id for each in searched.matches} == truth.keys() - named["search"]
    exported = [each async for each in export(store, ACME)]
    named["export"] = {each.session_id for each in exported if isinstance(each, LeftOut)}
    found_wrong = [each async for each in verify(store) if isinstance(each, Finding)]
    named["verify"] = {SessionId(each.session_id) for each in found_wrong if each.session_id}
    named["copy"] = await _left_out_of_a_copy(store.engine.path, folder, truth)
    return named


async def _left_out_of_a_copy(path: Path, folder: Path, truth: Truth) -> set[SessionId]:
    with salvaged(path, folder) as found:
        assert found is not None
        read = await SqliteStore.open(found.path)
        written = await SqliteStore.open(folder / "copy.db")
        reports = [each async for each in copy(read, written)]
        copied = await truth_of(written)
        await read.close()
        await written.close()
    left_out = truth.keys() - copied.keys()
    assert left_out <= {each.what for each in reports if isinstance(each, NotCopied)}
    return left_out
