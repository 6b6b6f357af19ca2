"""`holdfast db export`, `import` and `copy`, as an operator uses them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import apsw
import pytest

from holdfast.core.history.conversation import SettingsChanged
from holdfast.core.items import Permissions, SessionSettings
from holdfast.ids import Minter, SessionKey, Tenant
from holdfast.store import outcomes
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import UNCHECKED
from holdfast.store.sqlite.store import wall_clock_ms
from tests.cli.conftest import SOURCES, Run, damage
from tests.store.builders import ACME, Player

PIPE_BYTES = 64 * 1024
Spawn = Callable[..., subprocess.CompletedProcess[str]]
OTHER = ("--store", "sqlite:///other.db")


@pytest.fixture
def other(run: Run, furnished: Path) -> Path:
    """An empty database beside the furnished one."""
    assert run("db", "migrate", *OTHER).exit_code == 0
    return furnished.with_name("other.db")


def write(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_sessions_go_out_and_come_in(run: Run, other: Path, elsewhere: Path) -> None:
    out = run("db", "export")
    assert out.exit_code == 0
    sessions = out.stdout.count('{"type":"session"')
    assert out.stderr == f"{sessions} sessions exported\n"
    file = write(elsewhere / "sessions.jsonl", out.stdout)

    taken = run("db", "import", file, "--tenant", "acme", *OTHER)
    assert (taken.exit_code, taken.stdout) == (0, "")
    assert taken.stderr == f"{sessions} sessions imported\n"
    again = run("db", "import", file, *OTHER)
    assert again.stderr == f"0 sessions imported, {sessions} there already\n"
    assert run("db", "export", *OTHER).stdout == out.stdout
    assert run("db", "verify", *OTHER).exit_code == 0


def test_one_session_goes_out_by_key_and_by_id(run: Run, furnished: Path) -> None:
    by_key = run("db", "export", "--key", "asking")
    [line] = [line for line in by_key.stdout.splitlines() if line.startswith('{"type":"session"')]
    by_id = run("db", "export", "--session", json.loads(line)["id"])
    assert by_key.exit_code == by_id.exit_code == 0
    assert by_key.stdout == by_id.stdout
    assert by_key.stderr == "1 session exported\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--key", "never"), "session key 'never' does not exist"),
        (("--key", "conv_x"), "is not a valid session key"),
        (("--session", "x"), "is not a valid session id"),
        (("--session", "conv_" + "0" * 26), "does not exist"),
        (("--session", "x", "--key", "y"), "use one of them"),
        (("--tenant", "No Such"), "is not a valid tenant"),
    ],
)
def test_what_is_not_there_does_not_go_out(
    run: Run, furnished: Path, arguments: tuple[str, ...], told: str
) -> None:
    out = run("db", "export", *arguments)
    assert (out.exit_code, out.stdout) == (2, "")
    assert told in out.stderr


def test_of_several_tenants_one_has_to_be_named(run: Run, furnished: Path) -> None:
    damage(furnished, "update session set tenant = 'zoo' where id = (select max(id) from session)")
    out = run("db", "export")
    assert out.exit_code == 2
    assert "several tenants (acme, zoo); --tenant says which one" in out.stderr
    assert run("db", "export", "--tenant", "acme").exit_code == 0


def test_a_file_that_is_cut_off_is_refused_with_its_line(
    run: Run, other: Path, elsewhere: Path
) -> None:
    whole = run("db", "export").stdout.splitlines(keepends=True)
    file = write(elsewhere / "cut.jsonl", "".join(whole[:-3]))
    taken = run("db", "import", file, *OTHER)
    assert taken.exit_code == 2
    assert taken.stderr.startswith(f"holdfast: line {len(whole) - 2}: the file is cut off")
    assert run("db", "verify", *OTHER).exit_code == 0


def test_a_conflict_stops_or_is_skipped(run: Run, other: Path, elsewhere: Path) -> None:
    file = write(elsewhere / "sessions.jsonl", run("db", "export").stdout)
    run("db", "import", file, "--tenant", "acme", *OTHER)
    damage(other, "update session set title = 'Changed' where title = 'A trip'")
    stopped = run("db", "import", file, *OTHER)
    assert stopped.exit_code == 2
    assert "a different session 'conv_" in stopped.stderr
    skipped = run("db", "import", file, "--on-conflict", "skip", *OTHER)
    assert skipped.exit_code == 0
    assert "is there already\n" in skipped.stderr
    assert "skipped\n" in skipped.stderr.splitlines(keepends=True)[-1]


def test_through_a_pipe(spawn: Spawn, run: Run, other: Path) -> None:
    """Bytes on stdout are the file and nothing else."""
    out = spawn("db", "export")
    piped = subprocess.run(
        [*out.args[:3], "db", "import", "-", "--tenant", "acme", *OTHER],
        input=out.stdout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert piped.returncode == 0, piped.stderr
    assert run("db", "export", *OTHER).stdout == out.stdout


# ── copy ─────────────────────────────────────────────────────────────────────────────────────

FROM, TO = "sqlite:///holdfast.db", "sqlite:///other.db"


def test_a_store_is_copied_and_checked(run: Run, other: Path) -> None:
    copied = run("db", "copy", FROM, TO)
    assert (copied.exit_code, copied.stdout) == (0, "")
    assert copied.stderr.endswith("; checked, all is well\n")
    assert run("db", "export", *OTHER).stdout == run("db", "export").stdout
    again = run("db", "copy", FROM, TO)
    assert again.exit_code == 0
    assert "there, 0 of them new" in again.stderr


def test_a_copy_that_broke_off_is_made_again(
    run: Run, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore, calls = SqliteStore.restore, list[str]()

    async def dying(
        self: SqliteStore, tenant: Tenant, dump: outcomes.SessionDump
    ) -> outcomes.RestoreOutcome:
        calls.append(dump.session.id)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return await restore(self, tenant, dump)

    monkeypatch.setattr(SqliteStore, "restore", dying)
    assert run("db", "copy", FROM, TO).exit_code == 130
    again = run("db", "copy", FROM, TO)
    assert again.exit_code == 0
    assert run("db", "export", *OTHER).stdout == run("db", "export").stdout


def test_what_is_broken_is_copied_only_on_demand_and_named_either_way(
    run: Run, other: Path, furnished: Path
) -> None:
    damage(furnished, "update item set body = x'78' where pos = 1")
    copied = run("db", "copy", FROM, TO)
    assert copied.exit_code == 1
    assert "left out: it is damaged" in copied.stderr
    assert copied.stderr.endswith("; checked, what is there is sound; 9 left out, named above\n")
    forced = run("db", "copy", "--damaged", FROM, TO)
    assert forced.exit_code == 1
    assert "unreadable" in forced.stdout
    assert "findings" in forced.stderr


def vacuum(path: Path) -> None:
    """Write every page anew without a checksum, as a program does that has a SQLite of its own."""
    with closing(apsw.Connection(str(path), vfs=UNCHECKED)) as db:
        db.execute("vacuum; PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def test_a_store_that_another_program_has_written_is_told_and_copied_whole(
    run: Run, other: Path, furnished: Path
) -> None:
    before = run("db", "export").stdout
    vacuum(furnished)
    for command in (("sessions", "list"), ("db", "verify"), ("db", "backup", "x.db")):
        refused = run(*command)
        assert refused.exit_code == 2
        assert "another program, such as sqlite3 or a backup tool" in refused.stderr
    plain = run("db", "copy", FROM, TO)
    assert plain.exit_code == 2
    assert "holdfast db copy --ignore-checksums" in plain.stderr
    copied = run("db", "copy", "--ignore-checksums", FROM, TO)
    assert (copied.exit_code, copied.stdout) == (0, "")
    assert "was read without its checksums; SQLite finds no fault in it" in copied.stderr
    assert copied.stderr.endswith("; checked, all is well\n")
    assert run("db", "export", *OTHER).stdout == before


def test_a_copy_around_damaged_pages_tells_if_another_program_may_have_written_them(
    run: Run, other: Path, furnished: Path
) -> None:
    with closing(apsw.Connection(str(furnished), vfs=UNCHECKED)) as db:
        db.execute("update item set body = cast(body || ' ' as blob) where pos = 1")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    copied = run("db", "copy", FROM, TO)
    assert copied.exit_code == 1
    assert "its rows were read page by page" in copied.stderr
    assert "make a new copy with --ignore-checksums" in copied.stderr


def test_only_of_a_sqlite_file_are_checksums_ignored(run: Run, other: Path) -> None:
    refused = run("db", "copy", "--ignore-checksums", "postgresql://db.example/x", TO)
    assert refused.exit_code == 2
    assert "--ignore-checksums is for a SQLite file" in refused.stderr


def test_a_copy_needs_two_stores(run: Run, furnished: Path) -> None:
    assert "are the same store" in run("db", "copy", FROM, FROM).stderr
    missing = run("db", "copy", FROM, TO)
    assert missing.exit_code == 2
    assert "there is no database at other.db" in missing.stderr


def test_an_empty_store_is_copied_too(run: Run, other: Path) -> None:
    async def make() -> None:
        await (await SqliteStore.open("empty.db")).close()

    asyncio.run(make())
    copied = run("db", "copy", "sqlite:///empty.db", TO)
    assert copied.exit_code == 0
    assert copied.stderr == "0 sessions there, 0 of them new; checked, all is well\n"


# ── a process that dies ──────────────────────────────────────────────────────────────────────


def test_an_import_that_is_killed_in_the_middle_is_made_again(run: Run, other: Path) -> None:
    """Half of a file that is longer than any pipe: once it is written, the process has read most of it."""
    asyncio.run(_fill(Path("holdfast.db")))
    file = run("db", "export").stdout.encode()
    half = file[: len(file) // 2]
    assert len(half) > 10 * PIPE_BYTES
    command = [sys.executable, "-m", "holdfast", "db", "import", "-", "--tenant", "acme", *OTHER]
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        process.stdin.write(half)
        process.stdin.flush()
        process.kill()
    verified = run("db", "verify", "--json", *OTHER)
    assert verified.exit_code == 0
    assert 0 < json.loads(verified.stdout)["sessions"] < file.count(b'{"type":"session"')
    Path("whole.jsonl").write_bytes(file)
    again = run("db", "import", "whole.jsonl", *OTHER)
    assert again.exit_code == 0
    assert run("db", "export", *OTHER).stdout.encode() == file


async def _fill(path: Path) -> None:
    store = await SqliteStore.open(path)
    steps = count(1 << 40)
    mint = Minter(now_ms=wall_clock_ms, random_bits=lambda bits: next(steps) % (1 << bits))
    player = Player(store, mint)
    await player.renew(ttl_ms=600_000)
    for n in range(60):
        await player.play(f"long-{n}", "words " * 5000, "more words " * 1000)
    await store.close()


@pytest.mark.parametrize("door", ["db", "sessions"])
def test_permissions_that_a_file_claims_are_told_and_have_no_effect(
    run: Run, other: Path, furnished: Path, elsewhere: Path, door: str
) -> None:
    """Through the command line as over HTTP."""

    async def widen() -> None:
        store = await SqliteStore.open(furnished)
        row = await store.resolve(ACME, SessionKey("trip"))
        assert row is not None
        rules = Permissions(allow=("shell",), ask=("look",))
        settings = SettingsChanged(settings=SessionSettings(permissions=rules))
        await store.annotate(ACME, row.session_id, [(None, settings)])
        await store.close()

    asyncio.run(widen())
    file = write(elsewhere / "file", run("sessions", "export", "trip").stdout)
    taken = run(door, "import", file, *OTHER, "--tenant", "acme")
    assert taken.exit_code == 0, taken.output
    assert (
        "allow shell has no effect; permissions come from agent files and from answers given here"
        in taken.stderr
    )
    assert "look" not in taken.stderr
