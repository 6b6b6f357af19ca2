"""What the report card is made of: figures of the speed groups, verdicts of the scenarios, and how they are kept.

Whoever measures writes these as JSON under `build/bench/`, one file for each group and one for each system that
went through the scenarios; the page reads them. Nothing here measures, and nothing here draws.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
from msgspec import Struct, field

BUILD = Path(__file__).parents[1] / "build" / "bench"
"""Where everything lands."""

Better = Literal["higher", "lower"]
Verdict = Literal["held", "broken", "not offered", "not run"]

OURS = "Holdfast"
BARE = "bare proxy"
"""A proxy of the same parts that promises nothing: what figures are put in relation to."""

# ── speed ────────────────────────────────────────────────────────────────────────────────────


class Conditions(Struct, frozen=True):
    """Under what a group was measured. A figure without it says nothing."""

    at: str
    """When it began: ISO 8601, UTC."""
    machine: str
    cores: int
    memory_gb: float
    kernel: str
    python: str
    sqlite: str
    sync_ms: float
    """What a bare write of a page and its `fdatasync` take on the disk that is written to; the median."""
    load: float
    """The load average of the last minute, when it began: what others were doing."""
    versions: dict[str, str] = {}
    """Of what takes part, by name."""
    counting_ms: float = 0.0
    """What this Python takes to count to a million: builds of one version differ by a quarter, and hosts by more."""


class Line(Struct):
    """One thing that was measured, of every system that could be asked."""

    what: str
    unit: str
    better: Better
    values: dict[str, list[float]] = field(default_factory=dict)
    """System → one value for each round."""
    notes: dict[str, str] = field(default_factory=dict)
    """System → why it has no value, or how its value came about."""
    drawn: bool = True
    """Whether there is a plot of it, or only a row in a table."""
    curve: str = ""
    """What lines with the same name have in common: they are drawn as one curve, over `at`."""
    at: float = 0.0

    def middle(self, system: str) -> float | None:
        """The median of a system's rounds. None if it has none."""
        values = self.values.get(system)
        return median(values) if values else None

    def spread(self, system: str) -> tuple[float, float] | None:
        """The lowest and the highest round. None without at least two."""
        values = self.values.get(system, [])
        return (min(values), max(values)) if len(values) > 1 else None

    def ratio(self, system: str, to: str) -> float | None:
        """One median to another. None if either is missing, or is not above 0, as a difference may be by chance."""
        mine, theirs = self.middle(system), self.middle(to)
        return mine / theirs if mine and theirs and mine > 0 and theirs > 0 else None

    def best(self, *, besides: Container[str]) -> str | None:
        """Who has the best median, of everybody else. None if nobody else was measured."""
        others = {name: middle for name in self.values if (middle := self.middle(name)) is not None}
        others = {name: middle for name, middle in others.items() if name not in besides}
        if not others:
            return None
        return (max if self.better == "higher" else min)(others, key=others.__getitem__)

    def less(self, floor: str, what: str) -> Line:
        """What every other system adds to one of them, round by round."""
        below = self.values.get(floor, [])
        values = {
            name: [value - under for value, under in zip(rounds, below, strict=False)]
            for name, rounds in self.values.items()
            if name != floor
        }
        return Line(what, self.unit, self.better, values, dict(self.notes))


class Figures(Struct):
    """What one run of one group has found."""

    group: str
    title: str
    about: str
    """What is measured and how, in a few sentences; for people."""
    conditions: Conditions
    lines: list[Line]
    skipped: dict[str, str] = field(default_factory=dict)
    """Systems that took no part in the whole group, and why."""
    axis: str = ""
    """What the horizontal axis of its curves counts."""
    seconds: float = 0.0

    def systems(self) -> list[str]:
        """Those with a value, in the order in which they were first measured."""
        return list(dict.fromkeys(name for line in self.lines for name in line.values))

    def line(self, what: str) -> Line | None:
        return next((line for line in self.lines if line.what == what), None)


# ── semantics ────────────────────────────────────────────────────────────────────────────────


class Behaviour(Struct, frozen=True):
    """A row of the table: something that may be expected of a conversation."""

    name: str
    title: str
    promise: str


class Cell(Struct, frozen=True):
    """What one system did there. The evidence is what was sent and seen, line by line, as it came: hostile text."""

    behaviour: str
    verdict: Verdict
    why: str
    evidence: list[str] = []


class Column(Struct, frozen=True):
    """One system, set up in one way."""

    system: str
    title: str
    variant: str
    versions: dict[str, str]
    configured: str
    cells: list[Cell]
    ran_at: str
    seconds: float

    @property
    def name(self) -> str:
        """What it is called where several are side by side."""
        plain = self.variant in ("", "default")
        return self.title if plain else f"{self.title}, {self.variant}"

    def cell(self, behaviour: str) -> Cell:
        """What it did there; "not run" if nobody has tried."""
        for cell in self.cells:
            if cell.behaviour == behaviour:
                return cell
        return Cell(behaviour, "not run", "nobody has tried this here")


class Semantics(Struct, frozen=True):
    """What one file holds: one system, a column for each way in which it was set up."""

    behaviours: list[Behaviour]
    columns: list[Column]


def merged(files: Iterable[Semantics]) -> Semantics:
    """Many files as one table: each behaviour once, in the order in which it first comes; columns as they come."""
    rows: dict[str, Behaviour] = {}
    columns: list[Column] = []
    for each in files:
        for row in each.behaviours:
            rows.setdefault(row.name, row)
        columns += each.columns
    return Semantics(list(rows.values()), columns)


# ── files ────────────────────────────────────────────────────────────────────────────────────


def save(figures: Figures, folder: Path = BUILD) -> Path | None:
    """Write a group's figures, in place of those that were there. Nothing is written of a group without a figure."""
    if not figures.systems():
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{figures.group}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=1))
    return path


def load_figures(folder: Path = BUILD) -> list[Figures]:
    """Every group that has been measured, by name."""
    return [
        msgspec.json.decode(path.read_bytes(), type=Figures)
        for path in sorted(folder.glob("*.json"))
    ]


def load_semantics(folder: Path = BUILD) -> Semantics:
    """What all systems did. Ours comes first, the others by name."""
    paths = sorted((folder / "semantics").glob("*.json"), key=lambda path: path.stem.lower())
    files = [msgspec.json.decode(path.read_bytes(), type=Semantics) for path in paths]
    files.sort(key=lambda each: all(col.title != OURS for col in each.columns))
    return merged(files)
