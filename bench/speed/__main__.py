"""Measure, group by group, and write down what was found: `python -m speed [GROUP…]`, which `make bench` does.

--rounds N       how often everybody takes a turn
--only A,B       these systems alone, by name
--list           say which groups there are
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable

import report
from _figures import BUILD, Figures, save
from page import words
from rich.console import Console
from rich.status import Status
from rich.table import Table

from speed.conditions import conditions
from speed.groups import GROUPS, Group
from speed.stage import Stage
from speed.subjects import Subject, everybody


def measure(group: Group, stage: Stage) -> Figures:
    began = time.perf_counter()
    under = conditions(stage.subjects)
    lines = group.measure(stage)
    return Figures(
        group=group.name,
        title=group.title,
        about=group.about,
        conditions=under,
        lines=lines,
        skipped=dict(stage.skipped),
        axis=group.axis,
        seconds=time.perf_counter() - began,
    )


def table_of(figures: Figures) -> Table:
    names = figures.systems()
    table = Table("", *names, title=figures.title, title_justify="left")
    for line in figures.lines:
        table.add_row(line.what, *(_cell(figures, line.what, name) for name in names))
    return table


def _cell(figures: Figures, what: str, system: str) -> str:
    line = figures.line(what)
    assert line is not None
    middle = line.middle(system)
    if middle is None:
        return line.notes.get(system, "")[:60]
    parts = (words.said(middle, line.unit), words.spread(line, system), words.to_bare(line, system))
    return "\n".join(filter(None, parts))


def teller(console: Console, status: Status) -> Callable[[str], None]:
    """Says what is going on: on one line of a terminal, or line by line elsewhere."""
    if console.is_terminal:
        return status.update
    return lambda words: console.print(f"  {words}", style="dim", highlight=False)


def chosen(only: str) -> tuple[list[Subject], dict[str, str]]:
    """Who takes part: those that were asked for and are installed; and who is not, and why."""
    wanted = only.split(",") if only else None
    found: list[Subject] = []
    missing: dict[str, str] = {}
    for subject in everybody():
        if wanted is not None and subject.name not in wanted:
            continue
        if subject.is_here:
            found.append(subject)
        else:
            missing[subject.name] = "not installed; `make bench-install` installs it"
    return found, missing


def _leave(*_: object) -> None:
    raise SystemExit("stopped")


def main() -> None:
    parser = argparse.ArgumentParser(prog="speed", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="systems, by name, with commas")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
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
        console.print(f"{name} is left out: {why}")
    wanted = [group for group in GROUPS if not asked.groups or group.name in asked.groups]
    with (
        console.status("…") as status,
        Stage(subjects, asked.rounds, teller(console, status)) as stage,
    ):
        stage.skipped |= missing
        for count, group in enumerate(wanted, start=1):
            console.rule(f"{count} of {len(wanted)}: {group.name}", align="left")
            figures = measure(group, stage)
            save(figures)
            console.print(table_of(figures))
            took = f"{figures.seconds:.0f} s, load {figures.conditions.load:.1f}"
            console.print(took, style="dim")
    console.print(f"the page: {report.write(BUILD)}")


if __name__ == "__main__":
    main()
