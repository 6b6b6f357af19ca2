"""The ratios that must not slip, in under three minutes: `make bench-quick`. Exits with 1 if one has.

It asks the measurements beside it for what matters most: history that costs nothing, tokens near a bare proxy, durable
turns near what the disk allows, and a program that starts at once. No peers; those are in the whole of `make bench`.
"""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median

import loop
import msgspec
import store
from _figures import BARE, OURS, Line
from _names import JSON_P50, LONG, PACE, tokens_at
from rich.console import Console
from rich.table import Table
from speed import streaming, turns
from speed.stage import Stage
from speed.subjects import bare_turns, everybody

ROUNDS = 9
SERVED = 3
"""Of the groups that need servers: one round says little on a machine with neighbours."""


class Guard(msgspec.Struct):
    """A figure, and what it must be: not a number where nobody could measure it, which fails like one that slipped.

    `known` says why one is missed for now: it is told, and fails nothing.
    """

    what: str
    value: float
    bound: float
    at_least: bool = False
    known: str = ""

    @property
    def holds(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    @property
    def fails(self) -> bool:
        return math.isnan(self.value) or (not self.holds and not self.known)

    @property
    def verdict(self) -> str:
        if math.isnan(self.value):
            return "NOT MEASURED"
        return "holds" if self.holds else f"missed ({self.known})" if self.known else "SLIPPED"


def ratio_of(line: Line, to: str) -> float:
    """Ours to another's; not a number if either is missing."""
    found = line.ratio(OURS, to)
    return math.nan if found is None else found


def starting() -> Iterator[Guard]:
    """How long `holdfast --help` takes, against an interpreter that does nothing, in turns."""
    commands = {
        "nothing": (sys.executable, "-c", "pass"),
        "help": (sys.executable, "-m", "holdfast", "--help"),
    }
    spent: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            spent[name].append(time.perf_counter() - began)
    yield Guard(
        "holdfast --help, to python -c pass", median(spent["help"]) / median(spent["nothing"]), 3
    )


def history() -> Iterator[Guard]:
    short_us, long_us = asyncio.run(loop.side_by_side())["a turn of 20 tokens"]
    yield Guard("a turn at 5,000 messages, to one at 10", median(long_us) / median(short_us), 1.3)


def durable() -> Iterator[Guard]:
    with store.on_disk() as folder:
        found = asyncio.run(store.many_sessions(folder, 256, 8))
    why = "docs/decisions/0012: these tables, in this language"
    yield Guard(
        "durable turns/s at 256 sessions, to bare", found[0].ratio, 0.6, at_least=True, known=why
    )
    unasked = found[0].ratio / found[1].ratio
    yield Guard("  the same, to its own statements unasked", unasked, 0.5, at_least=True)


def served(console: Console) -> Iterator[Guard]:
    """A few rounds of the groups that the report card has more of."""
    subjects = [each for each in everybody() if each.name in (BARE, OURS)]
    with console.status("…") as status, Stage(subjects, SERVED, status.update) as stage:
        groups = (streaming.tokens, streaming.pace, turns.turn)
        found = {line.what: line for group in groups for line in group(stage)}
        ours = stage.cast.get(OURS)

    def ratio(what: str) -> float:
        return ratio_of(found[what], BARE)

    yield Guard(
        "tokens/s and core at 50 streams, to bare",
        ratio(tokens_at(50, LONG)),
        0.4,
        at_least=True,
    )
    yield Guard("CPU per token at a human pace, to bare", ratio(PACE), 1.5)
    why = "docs/decisions/0025: T1 and T2 alone make it 1.8"
    yield Guard("JSON turn, to bare", ratio(JSON_P50), 2, known=why)
    yield Guard("  the same, to bare with T1 and T2", beside_turns(console), 2)
    yield Guard("ready, in s", ours.ready_s if ours else math.nan, 0.5)
    yield Guard("memory at rest, in MB", ours.rest_mb if ours else math.nan, 60)


def beside_turns(console: Console) -> float:
    """A JSON turn, against the bare proxy with our two transactions."""
    floor = bare_turns()
    subjects = [floor, *(each for each in everybody() if each.name == OURS)]
    with console.status("…") as status, Stage(subjects, SERVED, status.update) as stage:
        found = {line.what: line for line in turns.turn(stage)}
    return ratio_of(found[JSON_P50], floor.name)


def main() -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    guards: list[Guard] = []
    for part in (starting, history, durable, lambda: served(console)):
        guards += part()
        console.print(f"{len(guards)} figures …", style="dim")
    table = Table("figure", "is", "must be", "")
    for each in guards:
        bound = f"{'≥' if each.at_least else '≤'} {each.bound:g}"
        table.add_row(each.what, f"{each.value:.2f}", bound, each.verdict)
    console.print(table)
    if any(each.fails for each in guards):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
