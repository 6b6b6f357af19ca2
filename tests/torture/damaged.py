"""A store with a tenth of its conversations damaged: what the other nine tenths notice of it.

Some have rows that cannot be read, some lie on pages with flipped bits. The file is damaged while no server has it open,
as a disk does it; then a server is asked for everything, by several clients at once.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import apsw
import msgspec

from holdfast.errors import StoreDamaged
from holdfast.ids import SessionId, Tenant
from holdfast.store.sqlite import SqliteStore
from tests.repository import ROOT
from tests.store.sqlite.flips import PAGE_BYTES, flip
from tests.torture.campaign import Figures, Progress, Run
from tests.torture.server_process import Served, say

Serve = Callable[[], AbstractAsyncContextManager[Served]]
"""Starts a server on the store."""

LOCAL = Tenant("local")
CONVERSATIONS = 400
CLIENTS = 8
SHARE = 0.1
GARBLED = (
    "update session set settings = x'7b' where id = ?",
    "update session set lineage = x'ff' where id = ?",
    "update turn set usage = x'00' where session_id = ?",
    "update turn set ended_by = 'perhaps' where session_id = ?",
    "update turn set changes = x'5b' where session_id = ?",
)
"""Values that cannot be."""
LATER_MS = 90 * 24 * 3600 * 1000
GONE = 10
"""Conversations that are deleted, and whose words have to go."""


async def damage(run: Run, progress: Progress, path: Path, serve: Serve) -> Figures:
    talks = [f"talk-{n}" for n in range(run.count(CONVERSATIONS))]
    async with serve() as server:
        await _ask_all(server, talks, "hello", progress)
        await _ask_all(server, talks, "and now?", progress)
    ids = await asyncio.to_thread(_ids, path)
    await asyncio.to_thread(_spoil, path, list(ids.values()), random.Random(run.seed))
    damaged = await _damaged(path, list(ids.values()))
    bad, good = set(damaged), [name for name in talks if ids[name] not in damaged]
    wrong: list[str] = []
    async with serve() as server:
        answers, slowest_s = await _ask_all(server, talks, "still there?", progress)
        for name in talks:
            wanted = "500 conversation_damaged" if ids[name] in bad else "200"
            if answers[name] != wanted:
                wrong.append(f"{name} ({ids[name]}) was answered {answers[name]}, not {wanted}")
        wrong += await _look(server, bad, {ids[name] for name in good})
        await _delete(server, good[:GONE])
        if not server.is_running:
            wrong.append(f"the server has ended: {server.log_end()}")
    told = Counter(answers.values())
    wrong += await asyncio.to_thread(_verify, path, bad)
    wrong += await asyncio.to_thread(_export, path, len(talks) - len(bad) - GONE, bad)
    beside, unexpired = await _expire(path, [ids[name] for name in good[:GONE]])
    wrong += unexpired
    did = (
        f"{len(talks)} conversations, {len(bad)} of them damaged ({len(bad) / len(talks):.0%}): {dict(told)}, the slowest "
        f"answer took {slowest_s:.1f} s; {len(good)} are listed, found and exported, of {GONE} that were deleted {beside} wait beside a damaged page and the others are gone, "
        f"verify names all {len(bad)}"
    )
    return Figures(did, wrong)


# ── doing it ─────────────────────────────────────────────────────────────────────────────────


def _ids(path: Path) -> dict[str, SessionId]:
    db = apsw.Connection(str(path))
    rows = db.execute("select key, session_id from session_key").fetchall()
    db.close()
    return {str(key): SessionId(str(session_id)) for key, session_id in rows}


def _spoil(path: Path, ids: list[SessionId], chance: random.Random) -> None:
    """Garble rows of half of the tenth, and flip bits on leaves and overflow pages for the rest."""
    some = chance.sample(ids, max(len(GARBLED), round(len(ids) * SHARE / 2)))
    db = apsw.Connection(str(path))
    for n, each in enumerate(some):
        db.execute(GARBLED[n % len(GARBLED)], (each,))
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    pages = [
        int(str(page))
        for (page,) in db.execute(
            "select pageno from dbstat where name = 'item' and pagetype = 'leaf' order by path"
        )
    ]
    each_page = max(1, len(ids) // len(pages))
    db.close()
    wanted = max(1, round(len(ids) * SHARE / 2) // each_page)
    for page in chance.sample(pages[:-1], min(wanted, len(pages) - 1)):
        flip(path, (page - 1) * PAGE_BYTES + chance.randrange(PAGE_BYTES), chance.randrange(8))


async def _damaged(path: Path, ids: list[SessionId]) -> dict[SessionId, str]:
    """Which conversations cannot be read, and why."""
    store = await SqliteStore.open(path)
    found: dict[SessionId, str] = {}
    for each in ids:
        try:
            await store.dump(LOCAL, each)
        except StoreDamaged as damage:
            found[each] = damage.why
    assert store.read_only is None, store.read_only
    await store.close()
    return found


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
    async with aiohttp.ClientSession(server.url) as http:
        for what in ("", "&q=hello"):
            seen: set[str] = set()
            named: set[str] = set()
            cursor: str | None = ""
            while cursor is not None:
                after = f"&cursor={cursor}" if cursor else ""
                async with http.get(f"/api/sessions?limit=50{what}{after}") as answer:
                    page = await answer.json()
                    if answer.status != 200:
                        return [*wrong, f"a list{what} was answered {answer.status}: {page}"]
                seen.update(each["id"] for each in page["sessions"])
                named.update(page.get("damaged", ()))
                cursor = page["cursor"]
            if not good <= seen:
                wrong.append(f"a list{what} lacks {sorted(good - seen)[:3]}")
            if not named <= bad:
                wrong.append(f"a list{what} names {sorted(named - bad)[:3]}, which are well")
        async with http.get("/readyz") as ready:
            if (await ready.json())["status"] != "ready":
                wrong.append(f"it is not ready: {await ready.text()}")
    return wrong


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


def _verify(path: Path, bad: set[SessionId]) -> list[str]:
    done = _holdfast("db", "verify", "--json", "--store", f"sqlite:///{path}")
    said = msgspec.json.decode(done.stdout, type=_Verified)
    named = {each.session for each in said.findings}
    wrong = [] if done.returncode == 1 else [f"verify ended with {done.returncode}"]
    wrong += [] if said.complete else ["verify did not come to its end"]
    wrong += [f"verify does not name {each}" for each in sorted(bad - named)]
    # Rows that cannot be read may be of a conversation that is only named by them; pages are nobody's.
    wrong += [f"verify names {each}, which is well" for each in sorted(named - bad - {""})]
    return wrong


def _export(path: Path, wanted: int, bad: set[SessionId]) -> list[str]:
    done = _holdfast("db", "export", "--store", f"sqlite:///{path}")
    exported = sum(line.startswith('{"session"') for line in done.stdout.splitlines())
    named = {each for each in bad if each in done.stderr}
    wrong = [] if done.returncode == 1 else [f"export ended with {done.returncode}: {done.stderr}"]
    wrong += [] if named == bad else [f"export does not name {sorted(bad - named)[:3]}"]
    last = done.stdout.splitlines()[-1]
    if f'"sessions":{wanted}' not in last:
        wrong.append(f"export ends with {last[:200]}, and not with {wanted} ({exported})")
    return wrong


async def _expire(path: Path, gone: list[SessionId]) -> tuple[int, list[str]]:
    """What is long over goes, but for rows whose page SQLite would join with a damaged one: these are told. How many
    conversations have such rows."""
    store = await SqliteStore.open(path, now_ms=lambda: time.time_ns() // 1_000_000 + LATER_MS)
    while (await store.prune(trust_clock=True)).more:
        pass
    left = [each for each in gone if (dump := await store.dump(LOCAL, each)) and dump.items]
    untold = [each for each in left if f"conversation '{each}'" not in store.damages]
    await store.close()
    return len(left), [f"words of {each} are still there, and that is not told" for each in untold]
