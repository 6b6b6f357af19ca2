"""Campaigns with real processes on a real file: kill them at bad moments, and look at what is left.

`Ledger` is what the dead have said: what they were about to do, and what was durable. Whatever a fresh process
then finds must fit.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.crash.worker import Inspection
from tests.crash.zygote import Child, Zygote

AT_ONCE_S = 10.0
"""Generous, since the machine may be busy; less than a lease, which is what nobody may have to wait for."""


class Ledger:
    """What children have said about one file, over all their lives."""

    def __init__(self, keys: int) -> None:
        self.keys = keys
        self.acked: dict[str, int] = {}
        """By name, the version that a turn was acknowledged with; 0 for one that was discarded."""
        self._key_of: dict[str, str] = {}
        self.open: set[str] = set()
        """The turns that were tried and not acknowledged."""

    def hear(self, lines: Iterable[str]) -> list[str]:
        """Take in what a child has said; what it should not have said comes back."""
        wrong = []
        for line in lines:
            match line.split(" ", 2):
                case ["try", name, key]:
                    self._key_of[name] = key
                    self.open.add(name)
                case ["ack", name, version]:
                    self.acked[name] = int(version)
                    self.open.discard(name)
                case ["failed", *_]:
                    wrong.append(line)
        return wrong

    def violations(self, found: Inspection) -> list[str]:
        """What a fresh process found that does not fit, in sentences."""
        wrong = list(found.wrong)
        if found.waited_s > AT_ONCE_S:
            wrong.append(f"it took {found.waited_s:.1f} s until the sessions could be used")
        for key, history in found.histories.items():
            wrong += self._wrong_in(key, history)
        self._settle(found)
        return wrong

    def _wrong_in(self, key: str, history: list[str]) -> list[str]:
        wrong = []
        mine = {name: version for name, version in self.acked.items() if self._key_of[name] == key}
        for name in filter(None, history):  # what was continued counts where it was finished
            if history.count(name) > 1:
                wrong.append(f"{name} is there {history.count(name)} times")
            if name not in mine and not (name in self.open and self._key_of[name] == key):
                wrong.append(f"{name} is in {key}, and nobody knows why")
        for name, version in mine.items():
            at = history.index(name) + 1 if name in history else 0
            if at != version:
                wrong.append(f"{name} was acknowledged as version {version}, and is at {at}")
        return wrong

    def _settle(self, found: Inspection) -> None:
        """What was in flight is decided now, and stays so."""
        for name in self.open:
            history = found.histories.get(self._key_of[name], [])
            self.acked[name] = history.index(name) + 1 if name in history else 0
        self.open.clear()


class Tally(Struct):
    """What a campaign did."""

    kills: int = 0
    survived: int = 0
    """Runs that came to their end first."""
    acked: int = 0
    recovered: int = 0
    worst_wait_s: float = 0.0
    violations: list[str] = []

    def add(self, other: Tally) -> None:
        self.kills += other.kills
        self.survived += other.survived
        self.acked += other.acked
        self.recovered += other.recovered
        self.worst_wait_s = max(self.worst_wait_s, other.worst_wait_s)
        self.violations += other.violations

    def saw(self, found: Inspection) -> None:
        self.recovered += found.recovered
        self.worst_wait_s = max(self.worst_wait_s, found.waited_s)


def inspect(zygote: Zygote, path: Path, keys: int) -> Inspection:
    """What a fresh process finds."""
    child = zygote.start("look", path, keys)
    line = child.read_line()
    child.end()
    if not line or line.startswith("failed"):
        return Inspection(wrong=[line or "it died"], histories={}, recovered=0, waited_s=0.0)
    return msgspec.json.decode(line, type=Inspection)


def settle(zygote: Zygote, path: Path, child: Child, ledger: Ledger, tally: Tally) -> None:
    """The child is dead or at its end: hear the rest of what it said, and look at the file."""
    lines = list(child.lines())
    child.end()
    tally.survived += "end" in lines
    tally.violations += ledger.hear(lines)
    found = inspect(zygote, path, ledger.keys)
    tally.violations += ledger.violations(found)
    tally.saw(found)


def kill_at_random(
    zygote: Zygote, folder: Path, *, kills: int, seed: int, keys: int = 3, per_file: int = 20
) -> Tally:
    """Let a child play on several sessions at once, and kill it after a random time. Again and again."""
    dice, tally = random.Random(seed), Tally()
    for number in range(0, kills, per_file):
        path, ledger = folder / f"random-{seed}-{number}.db", Ledger(keys)
        for life in range(number, min(number + per_file, kills)):
            child = zygote.start("play", path, seed * 1_000_000 + life, keys)
            # Some die while they start, most while they play.
            if dice.random() < 0.85:
                tally.violations += ledger.hear(_until(child, "ready"))
                time.sleep(dice.random() * 0.04)
            else:
                time.sleep(dice.random() * 0.01)
            child.kill()
            tally.kills += 1
            settle(zygote, path, child, ledger, tally)
        tally.acked += len(ledger.acked)
        if tally.violations:
            break
    return tally


def kill_at_every_operation(
    zygote: Zygote, folder: Path, *, seed: int, first: int = 1, step: int = 1
) -> Tally:
    """Short runs on one growing file, each killed at a later operation on its files: before it, or after it.

    Ends with the first run that has fewer operations than that.
    """
    tally = Tally()
    path, ledger = folder / f"operations-{seed}.db", Ledger(2)
    for number, nth in enumerate(count(first, step)):
        child = zygote.start("die", path, seed * 1_000_000 + number, nth, number % 2 == 0)
        settle(zygote, path, child, ledger, tally)
        if tally.survived or tally.violations:
            break
        tally.kills += 1
    tally.acked = len(ledger.acked)
    return tally


def _until(child: Child, last: str) -> Iterable[str]:
    for line in child.lines():
        yield line
        if line == last:
            return
