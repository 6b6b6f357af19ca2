"""The campaign: many seeds, every simulated store, all cores. Exits with 1 if a promise was broken.

python -m tests.simulation --seeds 100000              # from a random first seed; says which
python -m tests.simulation --minutes 30 --store sqlite
python -m tests.simulation --seed 4711 --store memory --trace
python -m tests.simulation --seeds 200 --store postgres  # in real time, many at once (real_time.py)
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
import os
import secrets
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias, get_args

from holdfast.core.codec import Value
from tests.postgres import QUICK, SHARED, Server
from tests.simulation.checker import check
from tests.simulation.history import Recording
from tests.simulation.real_time import perform
from tests.simulation.simulation import Home, Trace, simulate

Where: TypeAlias = Home | Literal["postgres"]
"""The store of a run. On PostgreSQL it takes place in real time."""

AT_ONCE_REAL = 16
"""Runs in real time at once: each of them waits most of the time."""

SHOWN_MAX = 10
"""Broken promises that are told in full; the rest is counted."""


class Verdict(Value):
    """What came of one seed."""

    seed: int
    home: Where
    broken: tuple[str, ...]
    figures: dict[str, int]


def record(seed: int, home: Where, *, trace: Trace | None = None) -> Recording:
    """Run one seed."""
    return perform(seed, trace=trace) if home == "postgres" else simulate(seed, home, trace=trace)


def judge(seed: int, home: Where) -> Verdict:
    """Run one seed, and check it. What cannot even be run to its end is broken, too."""
    try:
        recording = record(seed, home)
        broken = tuple(map(str, check(recording)))
        return Verdict(seed=seed, home=home, broken=broken, figures=figures(recording))
    except Exception:
        last = traceback.format_exc(limit=-6)
        return Verdict(seed=seed, home=home, broken=(f"raised: {last}",), figures={})


def figures(recording: Recording) -> dict[str, int]:
    """What happened, in numbers."""
    turns = [turn for session in recording.sessions for turn in session.turns]
    return {
        "requests": len(recording.sends),
        "acknowledged": sum(send.acknowledged for send in recording.sends),
        "replayed or joined": sum(send.how in ("replayed", "joined") for send in recording.sends),
        "steered": sum(send.how == "steered" for send in recording.sends),
        "turns committed": sum(turn.row.state == "committed" for turn in turns),
        "turns kept as interrupted": sum(
            turn.row.state == "committed" and turn.row.ended_by != "completed" for turn in turns
        ),
        "turns discarded": sum(turn.row.state == "discarded" for turn in turns),
        "turns taken over": sum(turn.row.attempt > 1 for turn in turns),
        "effects": len(recording.effects),
        "faults": recording.crashes + recording.shutdowns,
    }


def replay(verdict: Verdict) -> str:
    return f"python -m tests.simulation --seed {verdict.seed} --store {verdict.home} --trace"


def main(argv: list[str] | None = None) -> int:
    asked = _parse(argv)
    homes: tuple[Where, ...] = (asked.store,) if asked.store else get_args(Home)
    with _database(homes):
        if asked.seed is not None:
            return _one(asked.seed, homes[0], trace=asked.trace)
        return _campaign(asked, homes)


@contextmanager
def _database(homes: tuple[Where, ...]) -> Iterator[None]:
    """A PostgreSQL for all processes of this run, if it is about one."""
    if "postgres" not in homes:
        yield
        return
    with Server.started({**QUICK, "max_connections": "2000"}) as server:
        os.environ[SHARED] = server.url()
        yield


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many (default: %(default)s)")
    parser.add_argument("--minutes", type=float, help="stop after this long, whatever is left")
    parser.add_argument("--first", type=int, help="the first seed (default: a random one)")
    parser.add_argument(
        "--store",
        choices=(*get_args(Home), "postgres"),
        help="one store (default: memory, unlocked and sqlite in turn)",
    )
    parser.add_argument(
        "--jobs", type=int, help="at once (default: one for each core, or 16 in real time)"
    )
    parser.add_argument("--seed", type=int, help="run this one seed only")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell what happens")
    asked = parser.parse_args(argv)
    real = asked.store == "postgres"
    asked.jobs = asked.jobs or (AT_ONCE_REAL if real else os.cpu_count() or 1)
    return asked


def _one(seed: int, home: Where, *, trace: bool) -> int:
    recording = record(seed, home, trace=print if trace else None)
    broken = check(recording)
    for name, count in figures(recording).items():
        print(f"{count:8}  {name}")
    for each in broken:
        print(f"BROKEN  {each}")
    return 1 if broken else 0


def _campaign(asked: argparse.Namespace, homes: tuple[Where, ...]) -> int:
    first = secrets.randbelow(1 << 40) if asked.first is None else asked.first
    print(f"{asked.seeds} seeds from {first} on, over {', '.join(homes)}, {asked.jobs} processes")
    began = said = time.monotonic()
    until = began + asked.minutes * 60 if asked.minutes else float("inf")
    total: Counter[str] = Counter()
    broken: list[Verdict] = []
    done = 0
    chunk = 1 if "postgres" in homes else 8
    with multiprocessing.get_context("spawn").Pool(asked.jobs, _settle_down) as pool:
        for verdict in pool.imap_unordered(
            _judge, _jobs(first, asked.seeds, homes), chunksize=chunk
        ):
            done += 1
            total.update(verdict.figures)
            if verdict.broken:
                broken.append(verdict)
                if len(broken) <= SHOWN_MAX:
                    _tell(verdict)
            now = time.monotonic()
            if now - said > 10:
                said = now
                print(
                    f"  {done} seeds, {done / (now - began):.1f}/s, {len(broken)} broken",
                    flush=True,
                )
            if now > until:
                pool.terminate()
                break
    spent_s = time.monotonic() - began
    print(f"\n{done} seeds in {spent_s:.0f} s, {done / spent_s:.1f} seeds/s")
    for name, count in total.items():
        print(f"{count:10}  {name}")
    print(f"{len(broken):10}  seeds with a broken promise")
    return 1 if broken else 0


def _jobs(first: int, count: int, homes: tuple[Where, ...]) -> Iterator[tuple[int, Where]]:
    """SQLite is some times slower, so it gets one seed of five."""
    all_of_them: tuple[Where, ...] = ("memory", "unlocked", "memory", "unlocked", "sqlite")
    weighted = homes if len(homes) == 1 else all_of_them
    return zip(range(first, first + count), itertools.cycle(weighted), strict=False)


def _settle_down() -> None:
    """Before the first of many runs: what is loaded stays, and little of what a run leaves behind is garbage by then."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _judge(job: tuple[int, Where]) -> Verdict:
    return judge(*job)


def _tell(verdict: Verdict) -> None:
    print(f"\nseed {verdict.seed} on {verdict.home}: {replay(verdict)}")
    for each in verdict.broken[:5]:
        print(f"  BROKEN  {each}")
    sys.stdout.flush()
