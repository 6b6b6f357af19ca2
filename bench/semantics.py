"""What happens to a conversation when things go wrong: in Holdfast, and in what people use in its place.

One suite of behaviours (`scenarios/behaviours.py`) is played on every system (`systems/`), each as its documentation
recommends it and in an environment of its own, from outside: a client, an upstream that records what it is sent, a
tool that tells when it runs, and `kill -9`. Each row says whether the promise held, and the transcript of what
happened is kept with it. Where a system offers an option that matters, it is played once more with that.

    python bench/semantics.py                       everybody who is installed
    python bench/semantics.py --peer langgraph      one of them, installed first if need be
    python bench/semantics.py --peer holdfast --only kill_in_tool --show

Results go to `build/bench/semantics/NAME.json`, where a run of some variants or behaviours renews just those;
`make bench-page` makes a page of them.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
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


def written(name: str, columns: Sequence[Column]) -> Path:
    """Keep what was found, beside what is known of other systems, and of this one from other runs."""
    rows = [Row(each.name, each.title, each.promise) for each in BEHAVIOURS]
    variants = [each.variant for each in SYSTEMS if each.name == name]
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    known = decoded(path).columns if path.exists() else []
    found = Semantics(behaviours=rows, columns=updated(known, columns, rows, variants))
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
    return path


def decoded(path: Path) -> Semantics:
    return msgspec.json.decode(path.read_bytes(), type=Semantics)


def updated(
    known: Sequence[Column], found: Sequence[Column], rows: Sequence[Row], variants: Sequence[str]
) -> list[Column]:
    """The columns of one system after another run: what was played now, and what was not as it was known. In the
    order of the roster; a variant or a behaviour that there is no more is dropped."""
    before = {each.variant: each for each in known}
    now = {each.variant: each for each in found}
    columns = [_over(before.get(name), now.get(name), rows) for name in variants]
    return [each for each in columns if each is not None]


def _over(before: Column | None, now: Column | None, rows: Sequence[Row]) -> Column | None:
    """One column, the new cells over the old ones. What other versions did is not known of these."""
    if now is None:
        return before and msgspec.structs.replace(before, cells=_ordered(before.cells, rows))
    played = {cell.behaviour for cell in now.cells}
    old = before.cells if before and before.versions == now.versions else []
    kept = _ordered([cell for cell in old if cell.behaviour not in played], rows)
    cells = _ordered([*kept, *now.cells], rows)
    if not kept or before is None:
        return msgspec.structs.replace(now, cells=cells)
    since = f"{before.ran_at.split(' – ')[0]} – {now.ran_at}"
    spent_s = before.seconds + now.seconds
    return msgspec.structs.replace(now, cells=cells, ran_at=since, seconds=spent_s)


def _ordered(cells: Sequence[Cell], rows: Sequence[Row]) -> list[Cell]:
    found = {cell.behaviour: cell for cell in cells}
    return [found[row.name] for row in rows if row.name in found]


def there(systems: Sequence[System], *, install: bool, console: Console) -> Iterator[System]:
    """Those that can take part; a line for each that cannot."""
    problems: dict[str, str] = {}
    for system in systems:
        name = system.environment
        if name not in problems:
            problems[name] = _missing(system, install=install, console=console)
        if problems[name]:
            left_out = f"{system.title} ({system.variant}) is left out: {problems[name]}"
            console.print(left_out, markup=False)
        else:
            yield system


def _missing(system: System, *, install: bool, console: Console) -> str:
    """What keeps a system from taking part, or nothing."""
    if install:
        with console.status(f"installing {system.title}"):
            return environments.build(system.environment, system.python)
    ready = environments.is_built(system.environment)
    return "" if ready else f"`make bench-peers PEER={system.name}` installs it"


def chosen_systems(peer: str | None, variant: str | None) -> list[System]:
    """Who was asked for. Raises SystemExit with the names that there are."""
    systems = named(peer) if peer else list(SYSTEMS)
    if variant is None:
        return systems
    found = [each for each in systems if each.variant == variant]
    if not found:
        there_are = "; ".join(dict.fromkeys(each.variant for each in systems))
        raise SystemExit(f"there is no variant {variant!r}; there are {there_are}")
    return found


def chosen_behaviours(only: str | None) -> list[Behaviour]:
    """Which behaviours were asked for. Raises SystemExit with the names that there are."""
    names = [each.name for each in BEHAVIOURS]
    wanted = only.split(",") if only else names
    if unknown := [name for name in wanted if name not in names]:
        raise SystemExit(f"there is no {', '.join(unknown)}; there are {', '.join(names)}")
    return [each for each in BEHAVIOURS if each.name in wanted]


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
            # At once: whoever stops a long run keeps what there is.
            path = written(name, columns[-1:])
            console.print(f"  written to {path.relative_to(ROOT)}", style="dim")
        if transcripts:
            show(columns, console)
        if name == "holdfast":
            broken = sum(cell.verdict != "held" for each in columns for cell in each.cells)
    return broken


def show(columns: Sequence[Column], console: Console) -> None:
    """The transcripts."""
    for each in columns:
        for cell in each.cells:
            console.rule(f"{each.title}, {each.variant}: {cell.behaviour}, {cell.verdict}")
            console.print("\n".join(cell.evidence), markup=False, highlight=False, soft_wrap=True)


def _leave(*_: object) -> None:
    raise SystemExit("stopped")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", help="one system, by name; it is installed if it is not there")
    parser.add_argument("--variant", help="one of its variants")
    parser.add_argument("--only", help="behaviours, by name, with commas")
    parser.add_argument("--show", action="store_true", help="print the transcripts")
    parser.add_argument("--all", action="store_true", help="install whoever is missing")
    asked = parser.parse_args()
    systems = chosen_systems(asked.peer, asked.variant)
    behaviours = chosen_behaviours(asked.only)
    signal.signal(signal.SIGTERM, _leave)  # by the way out, so that no server stays behind
    console = Console(width=None if sys.stdout.isatty() else 150)
    able = list(there(systems, install=bool(asked.peer or asked.all), console=console))
    with postgres(able) as databases:
        broken = asyncio.run(run(able, behaviours, databases, console, transcripts=asked.show))
    if broken:
        raise SystemExit("a promise of ours did not hold")


if __name__ == "__main__":
    main()
