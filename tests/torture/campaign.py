"""What every campaign has: how it was asked for, how far it is, what it found, and how all of them are played."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, as_completed
from pathlib import Path
from typing import TypeAlias, TypeVar

from msgspec import Struct

CORES = max(2, os.cpu_count() or 2)

T = TypeVar("T")


class Run(Struct):
    """How this run was asked for."""

    seed: int
    scale: float
    folder: Path

    def count(self, full: int) -> int:
        return max(1, round(full * self.scale))


class Figures(Struct):
    """What a campaign did, in a sentence, and everything that was wrong."""

    did: str
    violations: list[str]
    points: int = 0
    """Moments at which something died."""


# ── progress ─────────────────────────────────────────────────────────────────────────────────


class Progress:
    """One line on stderr that says how far a campaign is."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = time.monotonic()
        self._said = 0.0

    def __call__(self, done: int, of: int) -> None:
        now = time.monotonic()
        if done < of and now - self._said < 0.5:
            return
        self._said = now
        end = "\n" if done >= of else ""
        line = f"\r{self._name}: {done:,} of {of:,}, {now - self._began:.0f} s "
        print(line, end=end, file=sys.stderr, flush=True)


def gathered(futures: Iterable[Future[T]], progress: Progress) -> list[T]:
    """Results as they come, with progress by the piece."""
    waiting = list(futures)
    results = []
    for done, future in enumerate(as_completed(waiting), start=1):
        results.append(future.result())
        progress(done, len(waiting))
    return results


# ── all of them ──────────────────────────────────────────────────────────────────────────────

Campaign: TypeAlias = Callable[[Run, Progress], Figures]


def play_all(campaigns: Mapping[str, Campaign], run: Run) -> int:
    """Play one after the other, and print what came of them. The status to end with: 1 if anything was wrong."""
    points = violations = 0
    for name, campaign in campaigns.items():
        began = time.monotonic()
        figures = _survived(campaign, run, Progress(name))
        points += figures.points
        violations += len(figures.violations)
        verdict = "ok" if not figures.violations else f"{len(figures.violations)} WRONG"
        taken_s = time.monotonic() - began
        print(f"{name:14}{taken_s:6.0f} s  {verdict:10}{figures.did}", flush=True)
        for each in figures.violations[:10]:
            print(f"    {each}", flush=True)
    print(f"\nseed {run.seed}: {points:,} moments of death, {violations} violations")
    return 1 if violations else 0


def _survived(campaign: Campaign, run: Run, progress: Progress) -> Figures:
    """A campaign that breaks off has found something, too; the others still run."""
    try:
        return campaign(run, progress)
    except Exception as error:
        traceback.print_exc()
        return Figures("broke off", [f"{type(error).__name__}: {error}"])
