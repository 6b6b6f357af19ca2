"""`holdfast db`: what an operator sees, and what a script can rely on."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from holdfast import limits
from holdfast.cli.display import size
from holdfast.core.history import checks
from holdfast.errors import StorePoisoned
from holdfast.store.operations import inspection
from holdfast.store.sql.migrations import Migration
from holdfast.store.sqlite import SqliteStore, migration, store
from holdfast.store.sqlite import inspection as file_inspection
from holdfast.store.verification import session_audit
from holdfast.testing.clock import NOON_MS
from tests.cli.conftest import SOURCES, Run, damage

Spawn = Callable[..., subprocess.CompletedProcess[str]]
STEP = migration.newest_step()
LOOKING = [("verify",), ("stats",), ("prune",), ("backup", "copy.db"), ("export",)]

# ── without a database ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", LOOKING)
def test_no_command_but_migrate_makes_a_database(
    command: tuple[str, ...], run: Run, elsewhere: Path
) -> None:
    told = run("db", *command)
    assert told.exit_code == 2
    assert told.stdout == ""
    assert told.stderr == (
        f"holdfast: there is no database at holdfast.db (in {Path.cwd().resolve()}); "
        "--store names another place\n"
    )
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("command", [("migrate",), *LOOKING])
@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://ada:secret@db:x/x", "postgresql://ada:***@db"),
        ("holdfast.db", "is not the URL of a store"),
        ("memory:", "ends with its process"),
    ],
)
def test_a_store_that_cannot_be_is_refused_in_one_sentence(
    command: tuple[str, ...], url: str, sentence: str, run: Run
) -> None:
    told = run("db", *command, "--store", url)
    assert told.exit_code == 2
    assert sentence in told.stderr
    assert "secret" not in told.stderr
    assert told.stderr.count("\n") == 1


# ── migrate ──────────────────────────────────────────────────────────────────────────────────


def test_migrate_makes_a_database_once(run: Run, elsewhere: Path) -> None:
    first, again = run("db", "migrate"), run("db", "migrate")
    assert first.output == f"holdfast.db: made, the tables are at step {STEP}\n"
    assert again.output == f"holdfast.db: nothing to do, the tables are at step {STEP}\n"
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert run("db", "verify").exit_code == 0


def test_migrate_says_from_where_to_where(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("db", "migrate")
    more = Migration(number=STEP + 1, name="more", sql="create table more (x)")
    monkeypatch.setattr(store, "load_migrations", lambda: (*migration.load_migrations(), more))
    told = run("db", "migrate")
    assert told.output == f"holdfast.db: migrated from step {STEP} to step {STEP + 1}\n"


def test_migrate_leaves_a_newer_database_alone(run: Run, furnished: Path) -> None:
    damage(furnished, "PRAGMA user_version = 99")
    for command in ("migrate", "verify", "stats", "prune"):
        told = run("db", command)
        assert told.exit_code == 2
        assert "written by a newer Holdfast" in told.stderr
        assert "upgrade Holdfast" in told.stderr
    assert run("db", "backup", "copy.db").exit_code == 0


def test_the_store_is_named_by_option_or_environment(spawn: Spawn, elsewhere: Path) -> None:
    spawn("db", "migrate", HOLDFAST_STORE="sqlite:///one.db")
    spawn("db", "migrate", "--store", f"sqlite:///{elsewhere}/two.db", HOLDFAST_STORE="nonsense")
    assert {"one.db", "two.db"} <= {each.name for each in elsewhere.iterdir()}


# ── verify ───────────────────────────────────────────────────────────────────────────────────


def test_verify_of_a_sound_store_ends_with_0(run: Run, furnished: Path) -> None:
    told = run("db", "verify")
    assert (told.exit_code, told.stdout) == (0, "")
    assert told.stderr == "9 sessions checked, all is well\n"


def test_verify_names_what_is_broken_a_line_each(spawn: Spawn, broken: Path) -> None:
    told = spawn("db", "verify")
    assert told.returncode == 1
    lost, ahead = told.stdout.splitlines()
    assert lost.startswith("acme: key_astray: lost: it means conv_0000")
    assert ": head_off: its head is 9, and it has 4 versions" in ahead
    assert "2 findings" in told.stderr


def test_every_code_has_its_place_in_the_reference() -> None:
    page = (SOURCES.parent / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    listed = [
        code
        for module in (checks, session_audit, inspection, file_inspection)
        for code in re.findall(r"^  ([a-z_]+)  ", module.__doc__ or "", re.MULTILINE)
    ]
    assert len(listed) > 30
    assert [code for code in listed if f"`{code}`" not in page] == []


def test_the_reference_shows_the_step_that_there_is() -> None:
    page = (SOURCES.parent / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert set(re.findall(r"the tables are at step (\d+)", page)) == {str(STEP)}


def test_verify_answers_programs_in_json(run: Run, broken: Path) -> None:
    told = run("db", "verify", "--json")
    assert told.exit_code == 1
    answer = json.loads(told.stdout)
    assert (answer["clean"], answer["complete"], answer["sessions"]) == (False, True, 9)
    assert [each["code"] for each in answer["findings"]] == ["key_astray", "head_off"]
    assert set(answer["findings"][0]) == {"tenant", "session", "code", "where", "what"}


def test_verify_shows_people_a_table(broken: Path) -> None:
    shown, exit_code = on_a_terminal("db", "verify")
    assert exit_code == 1
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    heading = next(line for line in plain.splitlines() if "tenant" in line)
    assert heading.split() == ["tenant", "session", "code", "where", "what"]
    assert "key_astray" in shown
    assert "head_off" in shown


def test_a_store_that_stops_shows_what_was_found_before(
    run: Run, broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stop(self: SqliteStore) -> object:
        raise StorePoisoned("the store stopped; restart the process")

    monkeypatch.setattr(SqliteStore, "tenants", stop)
    told = run("db", "verify", "--json")
    assert told.exit_code == 70
    answer = json.loads(told.stdout)
    assert (answer["clean"], answer["complete"]) == (False, False)
    assert [each["code"] for each in answer["findings"]] == ["key_astray"]
    assert told.stderr == "holdfast: the store stopped; restart the process\n"

    monkeypatch.setattr(inspection, "CHECKS", ())
    told = run("db", "verify", "--json")
    assert (told.exit_code, told.stdout) == (70, "")


def test_verify_goes_by_while_a_server_has_the_store_open(spawn: Spawn, furnished: Path) -> None:
    async def both() -> subprocess.CompletedProcess[str]:
        opened = await SqliteStore.open(furnished)
        try:
            return await asyncio.to_thread(spawn, "db", "verify")
        finally:
            await opened.close()

    assert asyncio.run(both()).returncode == 0


# ── backup, stats, prune ─────────────────────────────────────────────────────────────────────


def test_backup_makes_a_store_like_the_first(run: Run, furnished: Path, elsewhere: Path) -> None:
    told = run("db", "backup", "copy.db")
    assert told.exit_code == 0
    assert told.stdout.startswith("copy.db: ")
    copied = run("db", "verify", "--store", "sqlite:///copy.db")
    assert copied.stderr == "9 sessions checked, all is well\n"
    numbers = [
        run("db", "stats", "--store", f"sqlite:///{name}").stdout
        for name in ("holdfast.db", "copy.db")
    ]
    assert numbers[0] == numbers[1]

    again = run("db", "backup", "copy.db")
    assert again.exit_code == 2
    assert "exists already" in again.stderr


def test_stats_count_what_is_there(run: Run, furnished: Path) -> None:
    answer = json.loads(run("db", "stats", "--json").stdout)
    assert (answer["sessions"], answer["turns_open"], answer["turns_discarded"]) == (9, 1, 1)
    assert answer["bytes"] == furnished.stat().st_size
    lines = dict(line.split("\t") for line in run("db", "stats").stdout.splitlines())
    assert lines == {name: str(number) for name, number in answer.items()}
    shown, _ = on_a_terminal("db", "stats")
    assert "turns_committed" in shown


def test_prune_goes_on_until_nothing_is_left_to_remove(
    run: Run, furnished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was made in June 2025: by now everything that may go may go."""
    steps: list[int] = []
    prune = SqliteStore.prune

    async def in_small_steps(self: SqliteStore, *, trust_clock: bool) -> object:
        step = await prune(self, limit=2)
        steps.append(step.rows)
        return step

    monkeypatch.setattr(SqliteStore, "prune", in_small_steps)
    monkeypatch.setattr(limits, "upkeep_pause_s", 0)
    told = run("db", "prune")
    assert told.exit_code == 0
    assert len(steps) > 2
    assert told.stdout == f"{sum(steps)} rows removed\n"
    assert run("db", "prune").stdout == "nothing to remove\n"
    assert run("db", "verify").exit_code == 0


def test_prune_says_what_a_clock_that_leapt_keeps_from_going(run: Run, furnished: Path) -> None:
    db = apsw.Connection(str(furnished))
    db.execute("update horizon set seen_ms = ?", (NOON_MS,))
    db.close()
    told = run("db", "prune")
    assert "hours ahead of when this store was last in use" in told.stdout
    assert "--trust-clock" in told.stdout
    trusting = run("db", "prune", "--trust-clock")
    assert "removed" in trusting.stdout
    assert "ahead" not in trusting.stdout
    assert run("db", "prune").stdout == "nothing to remove\n"


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (4096, "4.0 KiB"), (5 << 30, "5.0 GiB")]
)
def test_sizes_are_for_people(count: int, shown: str) -> None:
    assert size(count) == shown


def test_a_bar_is_shown_to_those_who_watch(furnished: Path) -> None:
    shown, exit_code = on_a_terminal("db", "verify")
    assert exit_code == 0
    assert "\x1b[" in shown
    assert "9 sessions checked, all is well" in shown


def on_a_terminal(*arguments: str) -> tuple[str, int]:
    """Run a command whose stdout and stderr are a terminal; what it shows there, and how it ends."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *arguments],
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"PYTHONPATH": str(SOURCES), "TERM": "xterm", "COLUMNS": "200"},
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:
        pass  # how Linux says that a terminal has nobody left at its other end
    os.close(ours)
    return shown.decode(), process.wait()


def test_a_store_is_compared_with_heads_that_were_kept(run: Run, furnished: Path) -> None:
    assert run("db", "heads", "monday.heads").exit_code == 0
    assert "there already" in run("db", "heads", "monday.heads").output
    assert run("db", "backup", "tuesday.db", "--heads", "tuesday.heads").exit_code == 0
    assert Path("tuesday.heads").read_bytes() == Path("monday.heads").read_bytes()
    assert run("db", "verify", "--heads", "monday.heads").exit_code == 0
    lines = Path("monday.heads").read_text(encoding="utf-8").replace('"version":4', '"version":5')
    Path("later.heads").write_text(lines, encoding="utf-8")
    told = run("db", "verify", "--heads", "later.heads", "--json")
    assert told.exit_code == 1
    assert {each["code"] for each in json.loads(told.stdout)["findings"]} == {"set_back"}
