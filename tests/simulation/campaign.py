"""The campaign: many seeds, every simulated store, all cores. Exits with 1 if a promise was broken.

python -m tests.simulation --seeds 100000              # from a random first seed; says which
python -m tests.simulation --minutes 30 --store sqlite
python -m tests.simulation --seeds 100000 --resume build/campaign.json  # goes on where it was stopped
python -m tests.simulation --seed 4711 --store memory --trace
python -m tests.simulation --seeds 200 --store postgres  # in real time, many at once (real_time.py)
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import itertools
import multiprocessing
import os
import secrets
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec

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


class Standing(msgspec.Struct):
    """How far a campaign is. A campaign that can be resumed keeps this in a file."""

    code: str
    """Digest of what the seeds run: a campaign is about one version of it."""
    first: int
    stores: tuple[Where, ...]
    done: int = 0
    """All seeds before this one, counted from the first, have been run."""
    figures: dict[str, int] = msgspec.field(default_factory=dict)
    broken: list[str] = msgspec.field(default_factory=list)
    """How to run each seed with a broken promise again."""

    def count(self, verdict: Verdict) -> None:
        self.done += 1
        for name, count in verdict.figures.items():
            self.figures[name] = self.figures.get(name, 0) + count
        if verdict.broken:
            self.broken.append(replay(verdict))

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.new")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))
        beside.replace(path)


class OtherCampaign(Exception):
    """The file is of a campaign with other seeds, stores or code than were asked for."""


def standing(path: Path | None, first: int | None, stores: tuple[Where, ...]) -> Standing:
    """Where a campaign begins: at its first seed, or where the campaign of this file was stopped."""
    code = code_digest()
    if path is None or not path.exists():
        chosen = secrets.randbelow(1 << 40) if first is None else first
        return Standing(code=code, first=chosen, stores=stores)
    found = msgspec.json.decode(path.read_bytes(), type=Standing)
    if found.code != code:
        raise OtherCampaign(f"{path} is of other code; name another file, or remove it")
    if found.stores != stores or first not in (None, found.first):
        raise OtherCampaign(f"{path} is of other seeds or stores; name another file")
    return found


def code_digest() -> str:
    """Digest of all modules that are loaded here, and so of what a seed runs, and of the store's SQL."""
    loaded = {getattr(module, "__file__", None) or "" for module in sys.modules.values()}
    modules = {Path(each) for each in loaded if "/holdfast/" in each or "/tests/" in each}
    queries = {query for module in modules for query in module.parent.glob("*.sql")}
    digest = hashlib.sha256()
    for each in sorted(modules | queries):
        digest.update(each.name.encode() + each.read_bytes())
    return digest.hexdigest()


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
        try:
            return _campaign(asked, standing(asked.resume, asked.first, homes))
        except OtherCampaign as error:
            print(error, file=sys.stderr)
            return 2


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
        "--resume",
        type=Path,
        metavar="FILE",
        help="keep in FILE how far it is, and go on from there",
    )
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


def _campaign(asked: argparse.Namespace, so_far: Standing) -> int:
    first, homes = so_far.first + so_far.done, so_far.stores
    left = max(0, asked.seeds - so_far.done)
    print(f"{left} seeds from {first} on, over {', '.join(homes)}, {asked.jobs} processes")
    began = said = time.monotonic()
    until = began + asked.minutes * 60 if asked.minutes else float("inf")
    done = 0
    chunk = 1 if "postgres" in homes else 8
    with multiprocessing.get_context("spawn").Pool(asked.jobs, _settle_down) as pool:
        jobs = itertools.islice(_jobs(so_far.first, homes), so_far.done, asked.seeds)
        for verdict in pool.imap(_judge, jobs, chunksize=chunk):
            done += 1
            so_far.count(verdict)
            if verdict.broken and len(so_far.broken) <= SHOWN_MAX:
                _tell(verdict)
            now = time.monotonic()
            if now - said > 10:
                said = now
                print(
                    f"  {so_far.done} seeds, {done / (now - began):.1f}/s, {len(so_far.broken)} broken",
                    flush=True,
                )
                if asked.resume:
                    so_far.write(asked.resume)
            if now > until:
                pool.terminate()
                break
    if asked.resume:
        so_far.write(asked.resume)
    spent_s = time.monotonic() - began
    print(f"\n{done} seeds in {spent_s:.0f} s, {done / spent_s:.1f} seeds/s; {so_far.done} in all")
    for name, count in so_far.figures.items():
        print(f"{count:10}  {name}")
    print(f"{len(so_far.broken):10}  seeds with a broken promise")
    return 1 if so_far.broken else 0


def _jobs(first: int, homes: tuple[Where, ...]) -> Iterator[tuple[int, Where]]:
    """SQLite is some times slower, so it gets one seed of five."""
    all_of_them: tuple[Where, ...] = ("memory", "unlocked", "memory", "unlocked", "sqlite")
    weighted = homes if len(homes) == 1 else all_of_them
    return zip(itertools.count(first), itertools.cycle(weighted), strict=False)


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
