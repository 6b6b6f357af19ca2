"""Damaged stores under load: what the conversations notice of it that are not damaged.

Four parts, each with a store of its own. A store is damaged while no server has it open, as a disk does it; then a server
is asked for everything, by several clients at once.

- `local`: a tenth of all conversations, by rows that cannot be read, and by flipped bits on leaves of tables and indexes.
- `rows`: the same on PostgreSQL, by rows alone: its pages are its own business.
- `shared`: a page between root and leaf, where everything meets: the store is only read, over a restart.
- `cut`: a log that was cut while the server was down: an earlier state, which is sound, and which the heads tell of.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, closing
from functools import partial
from pathlib import Path

import aiohttp
import apsw
import msgspec

from holdfast.errors import StoreDamaged
from holdfast.ids import SessionId, SessionKey, Tenant
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.pages.survey import SEARCH_TABLES
from holdfast.store.store import Store
from tests.postgres import Server, connected
from tests.repository import ROOT
from tests.store.sqlite.flips import PAGE_BYTES, flip, hit_by_damage, words_left
from tests.torture.campaign import Figures, Progress, Run
from tests.torture.server_process import Served, say

Serve = Callable[[str], AbstractAsyncContextManager[Served]]
"""Starts a server on the store of this URL."""

LOCAL = Tenant("local")
CONVERSATIONS = 400
FEWER = 100
"""Conversations of a part in which each is treated alike."""
CLIENTS = 8
SHARE = 0.1
GARBLED: tuple[tuple[str, str, str, bytes | str], ...] = (
    ("session", "id", "settings", b"\x7b"),
    ("session", "id", "lineage", b"\xff"),
    ("turn", "session_id", "usage", b"\x00"),
    ("turn", "session_id", "ended_by", "perhaps"),
    ("turn", "session_id", "changes", b"\x5b"),
)
"""Values that cannot be: a table, how its rows belong to a conversation, a column, a value."""
ALWAYS = ("item", "turn_by_session", "sqlite_autoindex_item_1")
"""Trees of which a leaf is damaged in any case: a table, and two indexes. The others are any of all trees."""
LATER_MS = 90 * 24 * 3600 * 1000
GONE = 10
"""Conversations that are deleted, and whose words have to go."""


async def damage(run: Run, progress: Progress, serve: Serve) -> Figures:
    """All four parts; what each did, and what was wrong."""
    parts = {
        "local": await _local(run, progress, Place(f"sqlite:///{run.folder}/local.db"), serve),
        "shared": await _shared(run, progress, Place(f"sqlite:///{run.folder}/shared.db"), serve),
        "cut": await _cut(run, progress, Place(f"sqlite:///{run.folder}/cut.db"), serve),
    }
    with ThreadPoolExecutor(1) as thread, ExitStack() as stack:
        # It runs event loops of its own.
        server = thread.submit(stack.enter_context, Server.started()).result()
        place = Place(server.url(thread.submit(server.fresh_database).result()))
        parts["rows"] = await _local(run, progress, place, serve)
        thread.submit(stack.close).result()
    return Figures(
        "; ".join(f"{name}: {part.did}" for name, part in parts.items()),
        [f"{name}: {each}" for name, part in parts.items() for each in part.violations],
    )


class Place:
    """A store by its URL, and ways to it that no server has."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.path = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else None

    async def open(self, *, later_ms: int = 0) -> Store:
        def now_ms() -> int:
            return time.time_ns() // 1_000_000 + later_ms

        if self.path is None:
            return await PostgresStore.open(parse_address(self.url), clock=now_ms)
        return await SqliteStore.open(self.path, now_ms=now_ms)

    async def ids(self, talks: Iterable[str]) -> dict[str, SessionId]:
        store = await self.open()
        rows = {name: await store.resolve(LOCAL, SessionKey(name)) for name in talks}
        await store.close()
        return {name: row.session_id for name, row in rows.items() if row is not None}

    async def garble(self, ids: Sequence[SessionId]) -> None:
        """Write values that cannot be into rows of these conversations."""
        for n, session_id in enumerate(ids):
            table, by, column, value = GARBLED[n % len(GARBLED)]
            if self.path is not None:
                with closing(apsw.Connection(str(self.path))) as db:
                    db.execute(
                        f"update {table} set {column} = ? where {by} = ?", (value, session_id)
                    )
            else:
                sql = f"update holdfast.{table} set {column} = $1 where {by} = $2"
                async with connected(self.url) as connection:
                    await connection.execute(sql, value, str(session_id))


async def _local(run: Run, progress: Progress, place: Place, serve: Serve) -> Figures:
    talks = [f"talk-{n}" for n in range(run.count(CONVERSATIONS))]
    async with serve(place.url) as server:
        await _ask_all(server, talks, "hello", progress)
        await _ask_all(server, talks, "and now?", progress)
    ids = await place.ids(talks)
    chance = random.Random(run.seed)
    tenth = round(len(ids) * SHARE)
    share = tenth if place.path is None else tenth // 3
    await place.garble(chance.sample(list(ids.values()), max(len(GARBLED), share)))
    bad, unserved = await _damaged(place, list(ids.values()))
    pages, hit = await asyncio.to_thread(_flip_leaves, place.path, 2 * tenth // 3, chance)
    bad, unserved = bad | hit, unserved | hit
    good = [name for name in talks if ids[name] not in bad]
    wrong: list[str] = []
    async with serve(place.url) as server:
        answers, slowest_s = await _ask_all(server, talks, "still there?", progress)
        wrong += [
            f"{name} ({ids[name]}) was answered {answers[name]}"
            for name in talks
            if ids[name] in unserved and answers[name] != "500 conversation_damaged"
        ]
        wrong += [
            f"{name} is sound, and was answered {answers[name]}"
            for name in good
            if answers[name] != "200"
        ]
        wrong += await _look(server, bad, {ids[name] for name in good})
        await _delete(server, good[:GONE])
        if not server.is_running:
            wrong.append(f"the server has ended: {server.log_end()}")
    wrong += await asyncio.to_thread(_verify, place.url, bad)
    wrong += await asyncio.to_thread(_export, place.url, len(talks) - len(bad) - GONE, bad)
    wrong += await _expire(place, [ids[name] for name in good[:GONE]])
    if place.path is not None:
        wrong += await _copied(place, run.folder / "copied.db", {ids[name] for name in good[GONE:]})
    did = (
        f"{len(talks)} conversations, {len(bad)} of them damaged ({len(bad) / len(talks):.0%}; pages: {pages}): "
        f"{dict(Counter(answers.values()))}; "
        f"the slowest answer took {slowest_s:.1f} s; {len(good)} are listed, found, exported and copied, the words of {GONE} that were deleted are gone, verify names all {len(bad)}"
    )
    return Figures(did, wrong)


async def _shared(run: Run, progress: Progress, place: Place, serve: Serve) -> Figures:
    assert place.path is not None
    talks = [f"talk-{n}" for n in range(run.count(FEWER))]
    async with serve(place.url) as server:
        await _ask_all(server, talks, "hello", progress)
    with closing(apsw.Connection(str(place.path))) as db:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        (page,) = _pages(db, "item", "internal")[:1]
    flip(place.path, (page - 1) * PAGE_BYTES + 2_000, 3)
    wrong: list[str] = []
    told: Counter[str] = Counter()
    for life in ("first", "second"):
        async with serve(place.url) as server:
            answers, _ = await _ask_all(server, talks, "still there?", progress)
            told.update(answers.values())
            refused = {each for each in answers.values() if each != "503 storage_read_only"}
            # The first requests find the damage; what has found it is read-only from then on.
            if life == "second" and refused:
                wrong.append(f"after a restart, writes were answered {sorted(refused)}")
            if "200" in refused or not server.is_running:
                wrong.append(f"it took writes, or has ended: {server.log_end()[-300:]}")
            (listed, _), status = await _listed(server), await _status(server)
            if len(listed) != len(talks) or status != "read-only":
                wrong.append(f"{len(listed)} are listed, and it says that it is {status}")
    done = await asyncio.to_thread(_holdfast, "db", "verify", "--store", place.url)
    if (
        done.returncode != 1
        or f"page {page}: it is not as it was written; it is the root of the table item"
        not in done.stdout
    ):
        wrong.append(f"verify ended with {done.returncode}: {done.stdout[-200:]}")
    did = f"{2 * len(talks)} requests over a restart: {dict(told)}; all {len(talks)} are listed, verify names the page and its table"
    return Figures(did, wrong)


async def _cut(run: Run, progress: Progress, place: Place, serve: Serve) -> Figures:
    assert place.path is not None
    talks = [f"talk-{n}" for n in range(run.count(FEWER))]
    log, heads = place.path.with_name("cut.db-wal"), run.folder / "heads.jsonl"
    async with serve(place.url) as server:
        await _ask_all(server, talks, "hello", progress)
        await _ask_all(server, talks, "and now?", progress)
        server.process.kill()
        await server.process.wait()
    copy = run.folder / "copy.db"  # to look at the heads copies a log into its database
    shutil.copyfile(place.path, copy)
    shutil.copyfile(log, copy.with_name("copy.db-wal"))
    done = await asyncio.to_thread(
        _holdfast, "db", "heads", str(heads), "--store", f"sqlite:///{copy}"
    )
    assert done.returncode == 0, done.stderr
    pages = _logged(log)
    os.truncate(log, 32 + pages * 2 // 3 * (24 + PAGE_BYTES))
    wrong: list[str] = []
    async with serve(place.url) as server:
        kept, _ = await _listed(server)
        answers, _ = await _ask_all(server, talks, "still there?", progress)
        if set(answers.values()) != {"200"}:
            wrong.append(f"it was answered {dict(Counter(answers.values()))}")
    alone = await asyncio.to_thread(_holdfast, "db", "verify", "--store", place.url)
    told = await asyncio.to_thread(
        _holdfast, "db", "verify", "--json", "--heads", str(heads), "--store", place.url
    )
    said = alone.stdout + alone.stderr
    if alone.returncode != 1 or " 1 finding" not in said or "log_cut" not in said:
        wrong.append(f"what is left is not sound, or not told to be less: {said[-300:]}")
    found = Counter(each.code for each in msgspec.json.decode(told.stdout, type=_Verified).findings)
    found.pop("log_cut", None)
    if told.returncode != 1 or not found:
        wrong.append(f"verify ended with {told.returncode}, and the heads tell of {dict(found)}")
    did = (
        f"{pages:,} pages of log cut by a third, {len(kept)} of {len(talks)} conversations left, all go on and verify; "
        f"the heads tell of {dict(found)}"
    )
    return Figures(did, wrong)


def _logged(log: Path) -> int:
    """How many pages are in a log since it was begun anew."""
    data = log.read_bytes()
    starts = range(32, len(data) - 24, 24 + PAGE_BYTES)
    return next(
        (n for n, at in enumerate(starts) if data[at + 8 : at + 16] != data[16:24]), len(starts)
    )


# ── doing it ─────────────────────────────────────────────────────────────────────────────────


def _pages(db: apsw.Connection, tree: str, kind: str) -> list[int]:
    sql = "select pageno from dbstat where name = ? and pagetype = ? order by path"
    return [int(str(page)) for (page,) in db.execute(sql, (tree, kind))]


def _flip_leaves(
    path: Path | None, wanted: int, chance: random.Random
) -> tuple[dict[str, int], set[SessionId]]:
    """Flip bits on leaves of any tree, but on no last one, until about so many conversations are hit; how many leaves of
    each tree, and which conversations have a row there."""
    if path is None:
        return {}, set()
    with closing(apsw.Connection(str(path))) as db:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        named = "select name from sqlite_schema where rootpage > 0 and tbl_name not glob ?"
        trees = [str(name) for (name,) in db.execute(named, (SEARCH_TABLES,))]
        leaves = [(tree, page) for tree in trees for page in _pages(db, tree, "leaf")[:-1]]
    whole = shutil.copyfile(path, path.with_name("whole.db"))
    chance.shuffle(leaves)
    first = [next(each for each in leaves if each[0] == tree) for tree in ALWAYS]
    flipped: Counter[str] = Counter()
    hit: set[str] = set()
    for tree, page in (*first, *(each for each in leaves if each not in first)):
        if len(hit) >= wanted and flipped.total() >= len(first):
            break
        flip(path, (page - 1) * PAGE_BYTES + chance.randrange(PAGE_BYTES), chance.randrange(8))
        flipped[tree] += 1
        hit |= hit_by_damage(whole, path)
    return dict(flipped), set(map(SessionId, hit))


async def _damaged(place: Place, ids: list[SessionId]) -> tuple[set[SessionId], set[SessionId]]:
    """Which conversations cannot be read as a whole, and whose history cannot be read: a turn needs less than all."""
    store = await place.open()
    bad: set[SessionId] = set()
    unserved: set[SessionId] = set()
    for each in ids:
        for read, found in ((store.dump, bad), (store.snapshot, unserved)):
            try:
                await read(LOCAL, each)
            except StoreDamaged:
                found.add(each)
    assert store.read_only is None, store.read_only
    await store.close()
    return bad | unserved, unserved


# ── asking ───────────────────────────────────────────────────────────────────────────────────


async def _ask_all(
    server: Served, talks: list[str], text: str, progress: Progress
) -> tuple[dict[str, str], float]:
    """Say something in every conversation, by several clients; how each was answered, and the slowest."""
    answers: dict[str, str] = {}
    slowest_s = 0.0
    left = list(reversed(talks))
    async with aiohttp.ClientSession(server.url) as http:

        async def client() -> None:
            nonlocal slowest_s
            while left:
                name = left.pop()
                began_s = time.monotonic()
                status, _, body = await say(http, name, text, model="root")
                slowest_s = max(slowest_s, time.monotonic() - began_s)
                code = "" if status == 200 else msgspec.json.decode(body)["error"]["code"]
                answers[name] = f"{status} {code}".strip()
                progress(len(answers), len(talks))

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return answers, slowest_s


async def _look(server: Served, bad: set[SessionId], good: set[SessionId]) -> list[str]:
    """List and search everything, and ask how the server is."""
    wrong: list[str] = []
    for what in ("", "&q=hello"):
        seen, named = await _listed(server, what)
        if not good <= seen:
            wrong.append(f"a list{what} lacks {sorted(good - seen)[:3]}")
        if not named <= bad:
            wrong.append(f"a list{what} names {sorted(named - bad)[:3]}, which are well")
    if (status := await _status(server)) != "ready":
        wrong.append(f"it is {status}, and not ready")
    return wrong


async def _status(server: Served) -> str:
    async with aiohttp.ClientSession(server.url) as http, http.get("/readyz") as ready:
        return str((await ready.json())["status"])


async def _listed(server: Served, what: str = "") -> tuple[set[str], set[str]]:
    """The conversations that a list or a search has, and the conversations that it names as damaged."""
    seen: set[str] = set()
    named: set[str] = set()
    cursor: str | None = ""
    async with aiohttp.ClientSession(server.url) as http:
        while cursor is not None:
            after = f"&cursor={cursor}" if cursor else ""
            async with http.get(f"/api/sessions?limit=50{what}{after}") as answer:
                page = await answer.json()
                assert answer.status == 200, f"a list{what} was answered {answer.status}: {page}"
            seen.update(each["id"] for each in page["sessions"])
            named.update(page.get("damaged", ()))
            cursor = page["cursor"]
    return seen, named


async def _delete(server: Served, talks: list[str]) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        for name in talks:
            async with http.delete(f"/api/sessions/{name}") as answer:
                assert answer.status == 200, await answer.text()


# ── without a server ─────────────────────────────────────────────────────────────────────────


def _holdfast(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "holdfast", *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


class _Found(msgspec.Struct):
    session: str
    code: str


class _Verified(msgspec.Struct):
    complete: bool
    findings: list[_Found]


def _verify(url: str, bad: set[SessionId]) -> list[str]:
    done = _holdfast("db", "verify", "--json", "--store", url)
    said = msgspec.json.decode(done.stdout, type=_Verified)
    named = {each.session for each in said.findings}
    wrong = [] if done.returncode == 1 else [f"verify ended with {done.returncode}"]
    wrong += [] if said.complete else ["verify did not come to its end"]
    wrong += [f"verify does not name {each}" for each in sorted(bad - named)]
    # Rows that cannot be read may be of a conversation that is only named by them; a page belongs to no conversation.
    wrong += [f"verify names {each}, which is well" for each in sorted(named - bad - {""})]
    return wrong


def _export(url: str, wanted: int, bad: set[SessionId]) -> list[str]:
    done = _holdfast("db", "export", "--store", url)
    exported = sum(line.startswith('{"session"') for line in done.stdout.splitlines())
    named = {each for each in bad if each in done.stderr}
    wrong = [] if done.returncode == 1 else [f"export ended with {done.returncode}: {done.stderr}"]
    wrong += [] if named == bad else [f"export does not name {sorted(bad - named)[:3]}"]
    last = done.stdout.splitlines()[-1]
    if f'"sessions":{wanted}' not in last:
        wrong.append(f"export ends with {last[:200]}, and not with {wanted} ({exported})")
    return wrong


async def _copied(place: Place, target: Path, wanted: set[SessionId]) -> list[str]:
    """A copy has all that is sound, and verifies."""
    url = f"sqlite:///{target}"
    await asyncio.to_thread(_holdfast, "db", "migrate", "--store", url)
    done = await asyncio.to_thread(_holdfast, "db", "copy", place.url, url)
    wrong = [] if done.returncode == 1 else [f"copy ended with {done.returncode}: {done.stderr}"]
    store = await Place(url).open()
    page = await store.sessions(LOCAL, limit=10 * CONVERSATIONS)
    await store.close()
    copied = {each.session.id for each in page.sessions}
    wrong += [f"the copy lacks {each}" for each in sorted(wanted - copied)]
    verified = await asyncio.to_thread(_holdfast, "db", "verify", "--store", url)
    return wrong + ([] if verified.returncode == 0 else [f"the copy: {verified.stdout[-300:]}"])


async def _expire(place: Place, gone: list[SessionId]) -> list[str]:
    """What is long over goes, with every word of it."""
    store = await place.open(later_ms=LATER_MS)
    while (await store.prune(trust_clock=True)).more:
        pass
    if isinstance(store, SqliteStore):
        left = await store.engine.read(partial(words_left, LOCAL, gone))
    else:
        left = [each for each in gone if (dump := await store.dump(LOCAL, each)) and dump.items]
    await store.close()
    return [f"deleted words are still there: {each}" for each in left]
