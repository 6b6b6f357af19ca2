"""What a second worker of `holdfast serve --workers` is worth, on SQLite and on PostgreSQL.

Each round starts a server with one worker and one with two, and asks both for the same: streams side by side, and
JSON turns side by side. Client, upstream and database run on the same machine, so on two cores the ratio of the rates
says what is left there for a second worker. Beside it stands what two workers would give with a core each, which
neighbours change less: the work for each second of CPU against that of one worker, times how evenly the kernel has
spread the connections (all CPU over that of the busier worker: 2 at best).

    python bench/workers.py [--rounds N] [--only sqlite|postgres]
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.request import urlopen

import msgspec
from rich.console import Console
from rich.table import Table
from serving.load import Job
from serving.process import cpu_s, family
from speed.servers import DoesNotStart, Server, measured, on_disk, settle, started, upstream
from speed.subjects import Command, Subject, holdfast_on
from store_postgres import SETTINGS

from tests.postgres import Server as Database
from tests.postgres import give_away

WORKERS = 2
READY_S = 60.0
JOBS = {
    "tokens of 50 streams": Job(
        "answers", "flat1000", streams=50, turns=2, tokens=1_000, limit_s=120.0
    ),
    "JSON turns of 32 clients": Job(
        "answers", "short", streams=32, turns=20, stream=False, limit_s=120.0
    ),
}


class Taken(msgspec.Struct, frozen=True):
    """What a job came to on one server."""

    per_s: float
    per_cpu_s: float
    evenness: float


def apart(one: Taken, more: Taken) -> float:
    """What several workers would do, each with a core of its own, for each unit of work that one does."""
    return more.per_cpu_s / one.per_cpu_s * more.evenness


def with_workers(store: str, workers: int) -> Subject:
    subject = holdfast_on(store)

    def command(port: int, behind: int, folder: Path) -> Command:
        given = subject.command(port, behind, folder)
        return Command([*given.argv, "--workers", str(workers)], given.environment)

    return msgspec.structs.replace(subject, command=command)


def wait_for(server: Server, workers: int) -> None:
    """The first worker answers before the others are there."""
    until = time.perf_counter() + READY_S
    while time.perf_counter() < until:
        with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as page:
            found = re.search(rb"^holdfast_workers (\d+)", page.read(), re.MULTILINE)
        if found is not None and int(found[1]) == workers:
            return
        time.sleep(0.1)
    raise DoesNotStart(f"{server.name} has not got {workers} workers after {READY_S:.0f} s")


def taken(server: Server, job: Job) -> Taken:
    workers = family(server.pid)[1:] or [server.pid]
    before = [*map(cpu_s, workers)]
    found = measured(server, job)
    spent = [now - was for now, was in zip(map(cpu_s, workers), before, strict=True)]
    assert not found.cut, "this machine is too busy for the job"
    done = found.tokens if job.stream else found.turns
    return Taken(done / found.wall_s, done / found.cpu_s, sum(spent) / max(spent))


@contextmanager
def stores(home: str, here: Path) -> Iterator[Callable[[], str]]:
    """A function that names a new store; the empty name is a file in the server's own folder."""
    if home == "sqlite":
        yield lambda: ""
        return
    data = here / "database"
    data.mkdir()
    for each in (here, data):  # the database's user has to get in
        each.chmod(0o755)
    give_away(data)
    with Database.started(SETTINGS, folder=data) as database:
        yield lambda: database.url(database.fresh_database())


def measure(
    home: str, rounds: int, tell: Callable[[str], None]
) -> dict[int, dict[str, list[Taken]]]:
    counts = (1, WORKERS)
    found: dict[int, dict[str, list[Taken]]] = {n: {what: [] for what in JOBS} for n in counts}
    with upstream() as behind, on_disk() as here, stores(home, here) as new_store:
        for number in range(rounds):
            for workers in counts:
                tell(f"{home}: round {number + 1} of {rounds}, with {workers}")
                subject = with_workers(new_store(), workers)
                with started(subject, behind, here / f"{number}-{workers}") as server:
                    wait_for(server, workers)
                    for what, job in JOBS.items():
                        settle(server)
                        found[workers][what].append(taken(server, job))
    return found


def table_of(home: str, found: dict[int, dict[str, list[Taken]]]) -> Table:
    table = Table(
        home, "with one, /s", f"with {WORKERS}", "CPU of each", "evenness", "with a core each"
    )
    for what in JOBS:
        one, more = found[1][what], found[WORKERS][what]
        here = median(b.per_s / a.per_s for a, b in zip(one, more, strict=True))
        dearer = median(a.per_cpu_s / b.per_cpu_s for a, b in zip(one, more, strict=True))
        even = median(each.evenness for each in more)
        table.add_row(
            what,
            f"{median(each.per_s for each in one):,.0f}",
            f"{here:.2f}×",
            f"{dearer:.2f}×",
            f"{even:.2f}",
            f"{median(map(apart, one, more)):.2f}×",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("sqlite", "postgres"))
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    for home in (asked.only,) if asked.only else ("sqlite", "postgres"):
        with console.status("…") as status:
            found = measure(home, asked.rounds, status.update)
        console.print(table_of(home, found))


if __name__ == "__main__":
    main()
