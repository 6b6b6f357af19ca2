"""What happens to a conversation when things go wrong: in Holdfast, and in what people use in its place.

One suite of behaviours (`scenarios/behaviours.py`) is played on every system (`systems/`), each as its documentation
recommends it and in an environment of its own, from outside: a client, an upstream that records what it is sent, a
tool that tells when it runs, and `kill -9`. Each row says whether the promise held, and the transcript of what
happened is kept with it. Where a system offers an option that matters, it is played once more with that.

    python bench/semantics.py                       everybody who is installed
    python bench/semantics.py --peer langgraph      one of them, installed first if need be
    python bench/semantics.py --peer holdfast --only kill_in_tool --show

Results go to `build/bench/semantics/NAME.json`; `bench/report.py` makes a page of them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import msgspec
from _figures import Behaviour as Row
from _figures import Cell, Column, Semantics
from rich.console import Console
from scenarios.behaviours import BEHAVIOURS, Behaviour
from scenarios.run import Databases, now, play
from systems import environments
from systems.base import System
from systems.roster import SYSTEMS, named

from tests.postgres import SAFE, Server

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build" / "bench" / "semantics"
COLOURS = {"held": "green", "broken": "red", "not offered": "yellow", "not run": "magenta"}


@contextmanager
def postgres(systems: Sequence[System]) -> Iterator[Databases | None]:
    """A PostgreSQL of our own, synced as in production, if somebody wants one."""
    if not any(each.needs_postgres for each in systems):
        yield None
        return
    # Both have an event loop of their own for a moment, and so does the suite.
    with Server.started(SAFE) as server, ThreadPoolExecutor(1) as beside:
        yield lambda: nullcontext(server.url(beside.submit(server.fresh_database).result()))


async def column(
    system: System, behaviours: Sequence[Behaviour], databases: Databases | None, console: Console
) -> Column:
    """One system through every behaviour."""
    began = time.monotonic()
    cells: list[Cell] = []
    folder = (
        ROOT / "build" / "bench" / "work"
    )  # `/tmp` may be in memory, and losing that is no crash
    folder.mkdir(parents=True, exist_ok=True)
    for each in behaviours:
        with console.status(f"{system.title}, {system.variant}: {each.title}"):
            cell = await play(system, each, folder, databases)
        cells.append(cell)
        colour = COLOURS[cell.verdict]
        console.print(f"  [{colour}]{cell.verdict:11}[/] {each.title}", highlight=False)
        if cell.verdict != "held":
            console.print(f"              {cell.why}", style="dim", markup=False, highlight=False)
    return Column(
        system=system.name,
        title=system.title,
        variant=system.variant,
        versions=environments.versions(system.environment, system.packages),
        configured=system.configured,
        cells=cells,
        ran_at=now(),
        seconds=time.monotonic() - began,
    )


def written(name: str, columns: list[Column]) -> Path:
    """Keep what was found, beside what is known of other systems."""
    rows = [Row(each.name, each.title, each.promise) for each in BEHAVIOURS]
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    found = Semantics(behaviours=rows, columns=columns)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
    return path


def there(systems: Sequence[System], *, install: bool, console: Console) -> Iterator[System]:
    """Those that can take part; a line for each that cannot."""
    for system in systems:
        if install:
            with console.status(f"installing {system.title}"):
                problem = environments.build(system.environment, system.python)
        else:
            ready = environments.is_built(system.environment)
            problem = "" if ready else f"`make bench-peers PEER={system.name}` installs it"
        if problem:
            console.print(f"{system.title} ({system.variant}) is left out: {problem}", markup=False)
        else:
            yield system


async def run(
    systems: Sequence[System],
    behaviours: Sequence[Behaviour],
    databases: Databases | None,
    console: Console,
    *,
    transcripts: bool,
) -> int:
    """Every system that can take part. How many promises of ours did not hold."""
    broken = 0
    for name in dict.fromkeys(each.name for each in systems):
        columns: list[Column] = []
        for system in (each for each in systems if each.name == name):
            console.print(f"{system.title}, {system.variant}", style="bold")
            columns.append(await column(system, behaviours, databases, console))
        if transcripts:
            show(columns, console)
        if len(behaviours) == len(BEHAVIOURS):
            console.print(f"  written to {written(name, columns).relative_to(ROOT)}", style="dim")
        if name == "holdfast":
            broken = sum(cell.verdict != "held" for each in columns for cell in each.cells)
    return broken


def show(columns: Sequence[Column], console: Console) -> None:
    """The transcripts."""
    for each in columns:
        for cell in each.cells:
            console.rule(f"{each.title}, {each.variant}: {cell.behaviour}, {cell.verdict}")
            console.print("\n".join(cell.evidence), markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", help="one system, by name; it is installed if it is not there")
    parser.add_argument("--variant", help="one of its variants")
    parser.add_argument("--only", help="behaviours, by name, with commas")
    parser.add_argument("--show", action="store_true", help="print the transcripts")
    parser.add_argument("--all", action="store_true", help="install whoever is missing")
    asked = parser.parse_args()
    systems = named(asked.peer) if asked.peer else SYSTEMS
    systems = [each for each in systems if asked.variant in (None, each.variant)]
    wanted = asked.only.split(",") if asked.only else [each.name for each in BEHAVIOURS]
    behaviours = [each for each in BEHAVIOURS if each.name in wanted]
    console = Console(width=None if sys.stdout.isatty() else 150)
    able = list(there(systems, install=bool(asked.peer or asked.all), console=console))
    with postgres(able) as databases:
        broken = asyncio.run(run(able, behaviours, databases, console, transcripts=asked.show))
    if broken:
        raise SystemExit("a promise of ours did not hold")


if __name__ == "__main__":
    main()
