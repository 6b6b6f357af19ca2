"""Measure, group by group, and write down what was found: `python -m speed [GROUP…]`, which `make bench` does.

--rounds N         how often Holdfast and the bare proxy take a turn
--peer-rounds N    how often the others do
--only A,B         these systems alone, by name; the page of a part goes to build/bench/part
--list             say which groups there are
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import report
from _figures import BUILD, Figures, save
from page import words
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from speed.conditions import conditions
from speed.groups import GROUPS, Group
from speed.stage import Stage, is_peer
from speed.subjects import Subject, everybody


def measure(group: Group, stage: Stage) -> Figures:
    began = time.perf_counter()
    under = conditions(stage.subjects)
    stage.begin(group.peer_s * sum(is_peer(each.name) for each in stage.subjects))
    lines = group.measure(stage)
    return Figures(
        group=group.name,
        title=group.title,
        about=group.about,
        conditions=under,
        lines=lines,
        skipped=stage.skipped | stage.late,
        axis=group.axis,
        seconds=time.perf_counter() - began,
    )


def table_of(figures: Figures) -> Table:
    names = figures.systems()
    table = Table("", *names, title=figures.title, title_justify="left")
    for line in figures.lines:
        table.add_row(line.what, *(Text(_cell(figures, line.what, name)) for name in names))
    return table


def _cell(figures: Figures, what: str, system: str) -> str:
    line = figures.line(what)
    assert line is not None
    middle = line.middle(system)
    if middle is None:
        return line.notes.get(system, "")[:60]
    parts = (words.said(middle, line.unit), words.rounds(line, system), words.to_bare(line, system))
    return "\n".join(filter(None, parts))


def teller(console: Console, status: Status) -> Callable[[str], None]:
    """Says what is going on: on one line of a terminal, or line by line elsewhere."""
    if console.is_terminal:
        return lambda said: status.update(Text(said))
    return lambda said: console.print(Text(f"  {said}", style="dim"))


def chosen(only: str) -> tuple[list[Subject], dict[str, str]]:
    """Who takes part: those that were asked for and are installed; and who is not, and why. Refuses other names."""
    known = {each.name.lower(): each for each in everybody()}
    wanted = [name.strip().lower() for name in only.split(",")] if only else list(known)
    if unknown := [name for name in wanted if name not in known]:
        names = ", ".join(each.name for each in known.values())
        raise SystemExit(f"there is no {', '.join(unknown)}; there are {names}")
    asked = [subject for name, subject in known.items() if name in wanted]
    missing = {
        each.name: "not installed; `make bench-install` installs it"
        for each in asked
        if not each.is_here
    }
    return [each for each in asked if each.is_here], missing


ROUND_S = 8.0
"""What a round of a group takes without peers, roughly."""
START_S = 10.0
"""What a peer takes to start, roughly."""


def longest_s(groups: Sequence[Group], subjects: Sequence[Subject], rounds: int) -> float:
    """How long it may take, roughly: peers have a limit in each group, and are started before the first."""
    peers = sum(is_peer(each.name) for each in subjects)
    limits = {each.name: each.peer_s for each in groups}
    if "memory" in limits:
        limits.pop("start", None)  # it looks at the same servers
    ours = sum(each.before_s + rounds * ROUND_S for each in groups)
    return peers * (START_S + sum(limits.values())) + ours


def _leave(*_: object) -> None:
    raise SystemExit("stopped")


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="speed", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="systems, by name, with commas")
    parser.add_argument("--list", action="store_true")
    return parser


def run(groups: Sequence[Group], stage: Stage, folder: Path, console: Console) -> None:
    """One group after the other. What is found is kept at once, so that a later failure costs nothing."""
    for count, group in enumerate(groups, start=1):
        console.rule(f"{count} of {len(groups)}: {group.name}", align="left")
        figures = measure(group, stage)
        if save(figures, folder) is None:
            console.print("nobody could be measured: what was there before is kept")
        console.print(table_of(figures))
        took = f"{figures.seconds:.0f} s, load {figures.conditions.load:.1f}"
        console.print(took, style="dim")


def main() -> None:
    asked = options().parse_args()
    signal.signal(signal.SIGTERM, _leave)  # by the way out, so that no server stays behind
    console = Console(width=None if sys.stdout.isatty() else 160)
    names = [group.name for group in GROUPS]
    if asked.list:
        for group in GROUPS:
            console.print(f"{group.name:10}{group.title}")
        return
    if unknown := set(asked.groups) - set(names):
        raise SystemExit(f"no group {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    subjects, missing = chosen(asked.only)
    for name, why in missing.items():
        console.print(f"{name} is left out: {why}", markup=False)
    if not subjects:
        raise SystemExit("nobody is there to be measured")
    wanted = [group for group in GROUPS if not asked.groups or group.name in asked.groups]
    minutes = longest_s(wanted, subjects, asked.rounds) / 60
    console.print(
        f"{len(wanted)} groups, {len(subjects)} systems: {math.ceil(minutes)} min at most, on an idle machine"
    )
    # A part would stand on the page as if it were the whole.
    folder = BUILD / "part" if asked.only else BUILD
    with (
        console.status("…") as status,
        Stage(
            subjects, asked.rounds, teller(console, status), peer_rounds=asked.peer_rounds
        ) as stage,
    ):
        stage.skipped |= missing
        run(wanted, stage, folder, console)
    console.print(f"the page: {report.write(folder)}")


if __name__ == "__main__":
    main()
