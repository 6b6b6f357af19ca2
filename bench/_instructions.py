"""Instructions of the hot path, counted: `make bench-instructions`. The same on a busy machine as on an idle one.

Valgrind counts what a script executes; a script is run at two lengths, and the difference is what its units cost,
free of start-up. Time, disks and neighbours do not count, so that two versions can be compared by one run of each:
what differs by more than a percent is the code. Instructions are not time: a system call, a sync or a cache miss
costs more than its few. `make bench` has those.

Over HTTP a server in the counted process answers a client in another one, on SQLite; beside it, the bare proxies of
`bench/serving`, whose distance is what is to be had.

On PostgreSQL our own process is counted, which talks to a real server over TCP: two runs differ by two per mille.

    python bench/_instructions.py            count, and write bench/instructions.json
    python bench/_instructions.py --check    count, and compare with what is written there
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from tests.postgres import Server

HERE = Path(__file__).parent
TABLE = HERE / "instructions.json"
VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
MISSING = "valgrind is not installed, and counts the instructions: apt-get install -y valgrind"


class Script(msgspec.Struct, frozen=True):
    """A script in `counting`, and the two numbers of units that it is run for."""

    what: str
    file: str
    short: int
    long: int
    arguments: tuple[str, ...] = ()
    on_postgres: bool = False
    """It is given the URL of an empty database. The server is another process, and is not counted."""


class Counted(msgspec.Struct):
    """What was counted, and where: another Python executes other instructions."""

    python: str
    machine: str
    instructions: dict[str, int]
    """Unit → how many."""


SCRIPTS = (
    Script("a start, until it is ready", "started.py", 0, 1),
    Script("a turn in memory", "turns.py", 20, 120),
    Script("a chat request in memory", "chat_requests.py", 20, 120),
    Script("a chat request in memory, keyed", "chat_requests.py", 20, 120, ("--keyed",)),
    Script("a chunk in, a frame out", "chunks.py", 100, 1_100),
    Script("a JSON turn over HTTP", "served.py", 20, 120, ("turns", "holdfast")),
    Script("a JSON turn of the bare proxy", "served.py", 20, 120, ("turns", "bare")),
    Script(
        "a JSON turn of the bare proxy with T1 and T2",
        "served.py",
        20,
        120,
        ("turns", "bare_turns"),
    ),
    Script("a token that comes alone over HTTP", "served.py", 50, 550, ("tokens", "holdfast")),
    Script("a token that comes alone, of the bare proxy", "served.py", 50, 550, ("tokens", "bare")),
    Script("begin and commit on SQLite", "durable.py", 20, 120),
    Script("begin and commit on SQLite, keyed", "durable.py", 20, 120, ("--keyed",)),
    Script("begin and commit on PostgreSQL", "durable.py", 20, 120, (), True),
    Script("begin and commit on PostgreSQL, keyed", "durable.py", 20, 120, ("--keyed",), True),
    Script("64 turns at once on PostgreSQL", "grouped.py", 2, 8, (), True),
)

# ── counting ─────────────────────────────────────────────────────────────────────────────────


def counted(script: Script, units: int, server: Server) -> int:
    """The instructions of a process that runs a script for so many units."""
    done = ran(script, units, server, VALGRIND)
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if found is None:
        raise SystemExit(f"{script.what} was not counted: {done.stderr[-2000:]}")
    return int(found[1].replace(",", ""))


def ran(
    script: Script, units: int, server: Server, under: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    database = ["--store", server.url(server.fresh_database())] if script.on_postgres else []
    asked = [str(HERE / "counting" / script.file), str(units), *script.arguments, *database]
    command = [*under, sys.executable, *asked]
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    still = {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "UV_USE_IO_URING": "0"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **still}
    )
    if done.returncode:
        raise SystemExit(f"{script.what} failed: {done.stderr[-2000:]}")
    return done


def count_all() -> Counted:
    """All scripts, at both lengths. As many at a time as there are cores: they do not disturb each other."""
    runs = [(each, units) for each in SCRIPTS for units in (each.short, each.long)]
    with Server.started() as server, ThreadPoolExecutor(os.cpu_count()) as threads:
        for each in SCRIPTS:
            ran(each, 1, server)  # compiles what is not compiled yet, which is not to be counted
        counts = threads.map(lambda run: counted(run[0], run[1], server), runs)
        found = dict(zip(runs, counts, strict=True))

    def per_unit(each: Script) -> int:
        more = found[each, each.long] - found[each, each.short]
        return round(more / (each.long - each.short))

    return Counted(
        python=platform.python_version(),
        machine=platform.machine(),
        instructions={each.what: per_unit(each) for each in SCRIPTS},
    )


def table_of(now: Counted, before: Counted | None) -> Table:
    then = before.instructions if before else {}
    table = Table("instructions", "now", "written", "to that")
    for what, count in now.instructions.items():
        was = then.get(what)
        ratio = (f"{was:,}", f"{count / was:.3f}×") if was else ("", "")
        table.add_row(what, f"{count:,}", *ratio)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    asked = parser.parse_args()
    if shutil.which(VALGRIND[0]) is None:
        raise SystemExit(MISSING)
    before = msgspec.json.decode(TABLE.read_bytes(), type=Counted) if TABLE.exists() else None
    now = count_all()
    Console(width=None if sys.stdout.isatty() else 120).print(table_of(now, before))
    if before is not None and before.python != now.python:
        print(f"written by Python {before.python}, counted by {now.python}: not to be compared")
    if not asked.check:
        TABLE.write_bytes(msgspec.json.format(msgspec.json.encode(now)) + b"\n")


if __name__ == "__main__":
    main()
