"""A server on a damaged SQLite file, by the commands of the guide."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import aiohttp
import apsw
import msgspec
import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.ids import Minter, Tenant
from holdfast.store.sqlite import SqliteStore
from tests import repository
from tests.store.builders import Player
from tests.store.sqlite.flips import PAGE_BYTES, flip, furnish
from tests.store.sqlite.test_takeover import by_another_program
from tests.torture.server_process import say, serving

SESSIONS = 40


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A store of the tenant that a server without keys serves."""
    path = tmp_path / "holdfast.db"
    store = await SqliteStore.open(path)
    bits = iter(range(1 << 20))
    mint = Minter(now_ms=lambda: 1_700_000_000_000, random_bits=lambda _: next(bits))
    player = Player(store, mint, tenant=Tenant("local"))
    await player.renew()
    await furnish(store, player, sessions=SESSIONS)
    await store.close()
    return path


def place_of(path: Path, *, kind: str, tree: str = "item") -> int:
    """A byte of the first page of this kind in a tree. The last leaf of a tree and a root protect the store."""
    db = apsw.Connection(str(path))
    asked = "select pageno from dbstat where name = ? and pagetype = ? order by path limit 1"
    page = db.execute(asked, (tree, kind)).get
    db.close()
    assert isinstance(page, int)
    return (page - 1) * PAGE_BYTES + 2_000


async def holdfast(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, arguments)


async def test_a_damaged_leaf_is_copied_around_to_a_store_that_verifies(
    file: Path, tmp_path: Path
) -> None:
    flip(file, place_of(file, kind="leaf"), 5)
    old, new = f"sqlite:///{file}", f"sqlite:///{tmp_path / 'new.db'}"
    found = await holdfast("db", "verify", "--store", old)
    assert found.exit_code == 1
    assert "file_damaged" in found.output and "conv_" in found.output
    assert (await holdfast("db", "export", "--store", old)).exit_code == 1
    assert (await holdfast("db", "migrate", "--store", new)).exit_code == 0
    copied = await holdfast("db", "copy", old, new)
    assert copied.exit_code == 1
    assert "its rows were read page by page" in copied.output
    assert "left out: it is damaged" in copied.output
    assert (await holdfast("db", "verify", "--store", new)).exit_code == 0
    assert "--help" in (await holdfast("doctor", "--store", old, "--offline")).output


@pytest.mark.slow
async def test_a_store_that_was_looked_at_after_a_kill_is_told_and_taken_over_with_its_last_turn(
    file: Path, tmp_path: Path
) -> None:
    """Another SQLite that closes the file copies the log into it, and knows no checksums."""
    old, new = f"sqlite:///{file}", f"sqlite:///{tmp_path / 'new.db'}"
    async with (
        serving(tmp_path, old, "demo") as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        for n in range(5):
            assert (await say(http, f"last-{n}", "hello"))[0] == 200
        server.process.kill()
        await server.process.wait()
    by_another_program(file, "select count(*) from session")
    assert not file.with_name("holdfast.db-wal").exists()
    found = await holdfast("db", "verify", "--store", old)
    assert (found.exit_code, "--ignore-checksums" in found.output) == (2, True)
    assert (await holdfast("db", "migrate", "--store", new)).exit_code == 0
    taken = await holdfast("db", "copy", "--ignore-checksums", old, new)
    assert taken.exit_code == 0, taken.output
    assert f"{SESSIONS + 5} sessions there" in taken.output
    async with (
        serving(tmp_path, new, "demo", name="again") as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        assert (await say(http, "last-4", "Are you there?"))[0] == 200
        async with http.get("/api/sessions/talk-1/items") as older:
            assert older.status == 200


def test_what_a_killed_server_leaves_can_be_put_aside_by_the_command_of_the_guide(
    tmp_path: Path,
) -> None:
    """Its named pipe is there, and `cp` would wait for a writer of it."""
    page = (repository.ROOT / "docs" / "guides" / "damage.md").read_text()
    (command,) = {line[2:] for line in page.splitlines() if line.startswith("$ mkdir aside")}
    (tmp_path / "holdfast.db").write_bytes(b"a database")
    os.mkfifo(tmp_path / "holdfast.db-hint-1")
    subprocess.run(command, shell=True, cwd=tmp_path, check=True, timeout=30)
    assert (tmp_path / "aside" / "holdfast.db").read_bytes() == b"a database"


@pytest.mark.slow
async def test_a_store_with_a_damaged_branch_is_read_and_not_written(
    file: Path, tmp_path: Path
) -> None:
    """Over a restart, and until it was repaired and verified, which a running server hears of."""
    place = place_of(file, kind="internal")
    flip(file, place, 5)
    for name in ("first", "again"):
        async with (
            serving(tmp_path, f"sqlite:///{file}", "demo", name=name) as server,
            aiohttp.ClientSession(server.url) as http,
        ):
            async with http.get("/api/sessions/talk-1/items") as damaged:
                error = (await damaged.json())["error"]
                assert (damaged.status, error["code"]) == (500, "conversation_damaged")
                assert damaged.headers["x-should-retry"] == "false"
            async with http.get("/readyz") as ready:
                said = await ready.json()
                assert (ready.status, said["status"]) == (200, "read-only")
                assert "page" in said["reason"]
            status, headers, body = await say(http, "new", "hello")
            code = msgspec.json.decode(body)["error"]["code"]
            assert (status, code) == (503, "storage_read_only")
            assert headers["x-should-retry"] == "false"
            async with http.get("/api/sessions?limit=100") as listed:
                assert len((await listed.json())["sessions"]) == SESSIONS
            async with http.get("/metrics") as metrics:
                assert "holdfast_store_read_only 1.0" in await metrics.text()
            if name == "again":
                flip(file, place, 5)  # the same bit again: it is as it was
                verified = await holdfast("db", "verify", "--store", f"sqlite:///{file}")
                assert verified.exit_code == 0, verified.output
                status, _, body = await say(http, "new", "hello")
                assert status == 200, body
        assert server.process.returncode == 0, server.log_end()


async def test_a_changed_row_is_replaced_from_a_backup_by_way_of_a_copy(
    file: Path, tmp_path: Path
) -> None:
    """An import replaces nothing that is there, and a copy has nothing that does not verify."""
    old, new = f"sqlite:///{file}", f"sqlite:///{tmp_path / 'new.db'}"
    backup, lost = tmp_path / "monday.db", tmp_path / "lost.jsonl"
    assert (await holdfast("db", "backup", str(backup), "--store", old)).exit_code == 0
    with closing(apsw.Connection(str(file))) as db:
        session_id = db.execute("select session_id from session_key where key = 'talk-3'").get
        changed = "update item set body = cast(replace(cast(body as text), 'word3', 'WORD3') as blob) where session_id = ?"
        db.execute(changed, (session_id,))
    found = await holdfast("db", "verify", "--store", old)
    assert found.exit_code == 1 and str(session_id) in found.output
    assert (await holdfast("db", "migrate", "--store", new)).exit_code == 0
    copied = await holdfast("db", "copy", old, new)
    assert copied.exit_code == 1 and f"local/{session_id} left out" in copied.output
    exported = await holdfast(
        "db", "export", "--store", f"sqlite:///{backup}", "--session", str(session_id)
    )
    lost.write_text(exported.stdout)
    imported = await holdfast("db", "import", str(lost), "--store", new)
    assert imported.exit_code == 0, imported.output
    verified = await holdfast("db", "verify", "--store", new)
    assert f"{SESSIONS} sessions checked, all is well" in verified.output
    shown = await holdfast("sessions", "show", "talk-3", "--store", new)
    assert "word3" in shown.output and "WORD3" not in shown.output


async def test_a_copy_without_its_api_keys_is_not_made_by_accident(
    file: Path, tmp_path: Path
) -> None:
    """A server that finds no keys serves every client."""
    flip(file, place_of(file, kind="leaf", tree="api_key"), 5)
    old, new = f"sqlite:///{file}", f"sqlite:///{tmp_path / 'new.db'}"
    assert (await holdfast("db", "migrate", "--store", new)).exit_code == 0
    refused = await holdfast("db", "copy", old, new)
    assert refused.exit_code == 2 and "--damaged" in refused.output
    copied = await holdfast("db", "copy", "--damaged", old, new)
    assert copied.exit_code == 1 and "rows of the table api_key left out" in copied.output


@pytest.mark.slow
async def test_a_server_starts_on_damaged_leaves_and_names_what_it_cannot_go_on_with(
    file: Path, tmp_path: Path
) -> None:
    """A turn that cannot be written is answered at once, and by the damage: not by a crash that a client would retry."""
    for tree in ("turn", "item", "sqlite_autoindex_item_1", "session"):
        flip(file, place_of(file, kind="leaf", tree=tree), 5)
    agent = tmp_path / "butler.yaml"  # whose conversations these are
    agent.write_text("agents: {butler: {model: demo/parrot}}\n")
    async with (
        serving(tmp_path, f"sqlite:///{file}", str(agent)) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        asked = (say(http, f"talk-{n}", "hello", model="butler") for n in range(SESSIONS))
        answers = Counter(
            "200" if status == 200 else f"{status} {msgspec.json.decode(body)['error']['code']}"
            for status, _, body in await asyncio.gather(*asked)
        )
        assert answers.keys() == {"200", "500 conversation_damaged"}
        async with http.get("/api/sessions?limit=100") as listed:
            page = await listed.json()
            assert len(page["sessions"]) + len(page["damaged"]) == SESSIONS
            assert page["sessions"] and page["damaged"]
        async with http.get("/readyz") as ready:
            assert (ready.status, (await ready.json())["status"]) == (200, "ready")
