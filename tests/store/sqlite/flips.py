"""A small SQLite store, its true content, and what a server would serve of it after its file was damaged."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from struct import unpack_from

import apsw
import msgspec

from holdfast.core.codec import encode
from holdfast.errors import StoreDamaged, StoreReadOnly, StoreUnusable
from holdfast.ids import NodeId, SessionId, SessionKey, Tenant
from holdfast.store.outcomes import SessionDump
from holdfast.store.overwritten import WORDS
from holdfast.store.search.matches import parse_query
from holdfast.store.sqlite import SqliteStore
from holdfast.store.verification.findings import Finding
from holdfast.store.verification.verification import verify
from tests.store.builders import ACME, Player

PAGE_BYTES = 4096
LONG = "a long way " * 1_200
"""More than fits on a page: its rest lies on pages of its own."""

Truth = dict[SessionId, bytes]
"""Everything of each session."""


async def furnish(store: SqliteStore, player: Player, *, sessions: int) -> None:
    """Sessions enough for every kind of page: leaves, branches, overflow; and some that were removed, for unused ones."""
    for n in range(sessions):
        said = LONG if n % 9 == 0 else f"word{n} " * 60
        await player.play(f"talk-{n}", f"Question {n}", said, key=f"key-{n}")
        await player.play(f"talk-{n}", f"And {n}?", f"The answer {n}")
    while (await store.index()).more:
        pass


async def truth_of(store: SqliteStore) -> Truth:
    ids = await store.session_ids(ACME, after=None, limit=10_000)
    return {each: content(await store.dump(ACME, each)) for each in ids}


def content(dump: SessionDump | None) -> bytes:
    """What clients are shown, and what they are told apart by; without what time takes away."""
    assert dump is not None
    return encode(msgspec.structs.replace(dump, journals=(), claims=()))


OWNED: dict[str, str] = {
    "session": "t.id",
    **dict.fromkeys(("session_key", "turn", "item", "state", "annotation", "blob"), "t.session_id"),
    **dict.fromkeys(
        ("journal", "idempotency", "signal"),
        "(select o.session_id from turn o where o.tenant = t.tenant and o.turn_id = t.turn_id)",
    ),
}
"""Table → the session that a row belongs to."""


def hit_by_damage(whole: Path, damaged: Path) -> set[str]:
    """The sessions with a row that cannot be read, row by row, as SQLite itself says: without anything of ours. A row
    above a damaged leaf can be read from one side."""
    hit: set[str] = set()
    with (
        closing(apsw.Connection(str(whole))) as sound,
        closing(apsw.Connection(str(damaged))) as db,
        closing(apsw.Connection(str(damaged))) as turned,
    ):
        turned.config(apsw.SQLITE_DBCONFIG_REVERSE_SCANORDER, 1)
        for table, owner in OWNED.items():
            info = sound.execute(f"pragma table_info({table})").fetchall()
            rowless = "without rowid" in str(
                sound.execute("select sql from sqlite_schema where name = ?", (table,)).get
            )
            key = [str(each[1]) for each in info if each[5]] if rowless else ["rowid"]
            named = ", ".join(f't."{each}"' for each in key)
            same = " and ".join(f'"{each}" = ?' for each in key)
            for session, *place in sound.execute(f"select {owner}, {named} from {table} t"):
                row = f"select * from {table} not indexed where {same}"
                if not any(_is_readable(side, row, place) for side in (db, turned)):
                    hit.add(str(session))
    return hit


def _is_readable(db: apsw.Connection, sql: str, given: list[apsw.SQLiteValue]) -> bool:
    try:
        db.execute(sql, given).fetchall()
    except apsw.Error:
        return False
    return True


class Served(msgspec.Struct):
    """What came of a damaged store."""

    refused: str = ""
    """It could not be opened."""
    wrong: list[str] = []
    """What was served and is not true."""
    damaged: set[str] = set()
    """Sessions that were refused as damaged."""
    right: int = 0
    """Sessions that were served as they are."""
    findings: int = 0
    named: set[str] = set()
    """Sessions that `verify` names."""
    read_only: bool = False
    listed: int = 0

    @property
    def noticed(self) -> bool:
        return bool(self.refused or self.damaged or self.findings or self.read_only)


async def served_from(path: Path, truth: Truth, hit: set[str] | None = None) -> Served:
    """Ask a store for everything that it is known to hold, and hold each answer against the truth. Sessions that are not
    `hit` by its damage have to be served, listed and found, and none but the others may be named."""
    served = Served(wrong=[], damaged=set())
    try:
        store = await SqliteStore.open(path)
    except (StoreUnusable, StoreDamaged) as error:
        served.refused = str(error)
        return served
    try:
        await _ask(store, truth, served)
        if hit is not None:
            await _ask_as_servers_do(store, served)
    finally:
        await store.close()
    if hit is not None:
        served.wrong += [f"{each} is sound, and named" for each in served.named - hit]
        served.wrong += [f"{each} is hit, and not named" for each in hit - served.named]
    return served


async def _ask_as_servers_do(store: SqliteStore, served: Served) -> None:
    """What a server reads for itself, at its start and all the time."""
    node = NodeId("node_00000000000000000000000000")
    for read in (
        store.orphans(node=node, limit=10),
        store.queued(limit=10),
        store.index(),
        store.prune(),
        store.asking(ACME, since_ms=0, limit=10),
    ):
        try:
            await read
        except (StoreDamaged, StoreReadOnly) as damage:
            if store.read_only is None:
                served.wrong.append(f"a server cannot go on: {damage}")


async def _ask(store: SqliteStore, truth: Truth, served: Served) -> None:
    for n, (session_id, whole) in enumerate(truth.items()):
        try:
            if content(await store.dump(ACME, session_id)) == whole:
                served.right += 1
            else:
                served.wrong.append(f"{session_id} is another one")
            snapshot = await store.snapshot(ACME, session_id)
            assert snapshot is not None
            row = await store.resolve(ACME, SessionKey(f"talk-{n}"))
            if row is None or row.session_id != session_id:
                served.wrong.append(f"talk-{n} leads elsewhere")
        except StoreDamaged:
            served.damaged.add(session_id)
        except AssertionError:
            served.wrong.append(f"{session_id} is missing")
    try:
        page = await store.sessions(ACME, limit=10_000)
        served.listed = len(page.sessions)
        served.damaged.update(page.damaged)
        if served.listed + len(page.damaged) != len(truth):
            served.wrong.append(f"{served.listed} of {len(truth)} are listed")
        found = await store.search(ACME, parse_query("question"), limit=10_000)
        served.damaged.update(found.damaged)
        if len(found.matches) + len(found.damaged) != len(truth):
            served.wrong.append(f"{len(found.matches)} of {len(truth)} are found")
    except StoreDamaged as damage:
        served.wrong.append(f"a list or a search is refused: {damage}")
    async for report in verify(store):
        served.findings += isinstance(report, Finding)
        if isinstance(report, Finding) and report.session_id:
            served.named = served.named | {report.session_id}
    served.read_only = store.read_only is not None


def words_left(tenant: Tenant, gone: Iterable[SessionId], db: apsw.Connection) -> list[str]:
    """What deleted sessions still say, with the table that has it."""
    of_session = "tenant = ?1 and session_id = ?2"
    of_turn = f"tenant = ?1 and turn_id in (select turn_id from turn where {of_session})"
    return [
        f"{each} in {table}: {value!r}"
        for each in gone
        for table, columns in WORDS.items()
        for column in columns
        for (value,) in db.execute(
            f"select cast({column} as text) from {table} "
            f"where {of_turn if table in ('journal', 'signal') else of_session}",
            (tenant, each),
        )
        if str(value).strip("[ ]")
    ]


# ── pages ────────────────────────────────────────────────────────────────────────────────────

KINDS = {0x02: "index branch", 0x05: "table branch", 0x0A: "index leaf", 0x0D: "table leaf"}


def kinds_of(path: Path) -> dict[int, str]:
    """Each page of a file that is at rest, and what it is."""
    data = path.read_bytes()
    pages = {n + 1: data[n * PAGE_BYTES :][:PAGE_BYTES] for n in range(len(data) // PAGE_BYTES)}
    unused = set(_unused(pages))
    db = apsw.Connection(str(path))
    trees = {n for (n,) in db.execute("select pageno from dbstat where pagetype <> 'overflow'")}
    roots = {n for (n,) in db.execute("select rootpage from sqlite_schema where rootpage > 0")}
    db.close()
    named: dict[int, str] = {1: "the first page"}
    for number, page in pages.items():
        if number in unused:
            named[number] = "unused"
        elif number in trees and number != 1:
            kind = KINDS[page[0]]
            named[number] = f"root, {kind}" if number in roots else kind
        elif number != 1:
            named[number] = "overflow"
    return named


def trees_of(path: Path) -> dict[tuple[str, str], list[int]]:
    """The pages of each tree of a file at rest, by the tree's name and the kind of page."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    with closing(apsw.Connection(str(path))) as db:
        roots = {n for (n,) in db.execute("select rootpage from sqlite_schema where rootpage > 0")}
        for name, number, kind in db.execute(
            "select name, pageno, pagetype from dbstat order by path"
        ):
            found[str(name), "root" if number in roots else str(kind)].append(int(str(number)))
    return found


def _unused(pages: dict[int, bytes]) -> Iterator[int]:
    (trunk,) = unpack_from(">I", pages[1], 32)
    while trunk:
        yield trunk
        following, count = unpack_from(">II", pages[trunk])
        yield from unpack_from(f">{count}I", pages[trunk], 8)
        trunk = following


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ (1 << bit)]))


async def sweep(
    source: Path, copy: Path, truth: Truth, places: Iterable[tuple[int, int]]
) -> AsyncIterator[tuple[int, int, Served]]:
    """Flip each of these bits (a byte's place and the bit in it), one at a time, and say what came of it."""
    for at, bit in places:
        for each in copy.parent.glob(f"{copy.name}*"):
            each.unlink()
        shutil.copyfile(source, copy)
        flip(copy, at, bit)
        yield at, bit, await served_from(copy, truth)
