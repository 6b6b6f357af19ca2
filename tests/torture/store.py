"""The store's torture: kill, cut, break and crowd it for a while, and verify what is left.

    make torture-store
    make torture-store STORE=postgres
    python -m tests.torture.store --only power --only kills --seed 7
    python -m tests.torture.store --minutes 2

Progress is on stderr, the table of figures on stdout; the exit status is 1 if anything was found wrong.
`tests/crash` has a short form of each campaign among the ordinary tests.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from tests.crash import contention, kills, outage, power, syscalls
from tests.crash.zygote import Zygote
from tests.scratch import scratch_folder
from tests.torture import backups, postgres
from tests.torture.campaign import CORES, Campaign, Figures, Progress, Run, gathered, play_all
from tests.torture.flips import flips

FULL_MINUTES = 25
"""What scale 1 takes, about, on two cores."""


# ── campaigns ────────────────────────────────────────────────────────────────────────────────


def power_cuts(run: Run, progress: Progress) -> Figures:
    """Cut the power at every operation of recorded runs; and at every one of recoveries from that."""
    recordings = [
        _recorded(partial(outage.busy_day, rounds=5, seed=seed), seed)
        for seed in range(run.seed, run.seed + run.count(3))
    ]
    again = [
        each for recording in recordings for each in _recoveries(recording, run.seed, run.count(6))
    ]
    tally = outage.Tally()
    shares = 4 * CORES
    # A fresh interpreter each: nothing of ours may be inherited across a fork.
    with ProcessPoolExecutor(CORES, mp_context=get_context("spawn")) as pool:
        futures = [
            pool.submit(_cut, power.encode_recording(recording), run.seed, share, shares)
            for recording in recordings + again
            for share in range(shares)
        ]
        for each in gathered(futures, progress):
            tally.add(each)
    did = (
        f"{len(recordings)} runs and {len(again)} recoveries, {tally.points:,} moments: "
        f"{tally.cuts:,} power cuts, {tally.images:,} distinct disks opened, "
        f"{tally.booted:,} played on"
    )
    return Figures(did, tally.violations, points=tally.cuts)


def _recorded(
    script: outage.Script, seed: int, files: dict[str, bytes] | None = None
) -> power.Recording:
    with scratch_folder() as folder:
        if files:
            power.put(files, folder)
        return asyncio.run(outage.record(folder, script, seed=seed))


def _recoveries(recording: power.Recording, seed: int, count: int) -> list[power.Recording]:
    """What the next boot does with some of the disks that a power cut left behind, recorded as well."""
    left = [each for each in power.images(recording, seed=seed) if each.files]
    chosen = islice(left, len(left) // (2 * count), None, max(1, len(left) // count))
    return [_recorded(outage.taking_up, 10_000 + each.number, each.files) for each in chosen]


def _cut(recording: bytes, seed: int, share: int, shares: int) -> outage.Tally:
    return asyncio.run(
        outage.cut(power.decode_recording(recording), seed=seed, share=share, shares=shares)
    )


def random_kills(run: Run, progress: Progress) -> Figures:
    """Kill a process that plays on several sessions after a random time."""
    per_file = 20
    parts = run.count(100)
    tally = _in_parallel(
        progress,
        (
            partial(kills.kill_at_random, kills=per_file, seed=run.seed + part, per_file=per_file)
            for part in range(parts)
        ),
        run,
    )
    return _killed(tally)


def operation_kills(run: Run, progress: Progress) -> Figures:
    """Kill a process at each single operation on its files: before it, or after it."""
    stride = 25
    tally = _in_parallel(
        progress,
        (
            partial(
                kills.kill_at_every_operation,
                seed=run.seed + 100 * part + first,
                first=first,
                step=stride,
            )
            for part in range(run.count(8))
            for first in range(1, stride + 1)
        ),
        run,
    )
    return _killed(tally)


def _in_parallel(
    progress: Progress, campaigns: Iterable[Callable[[Zygote, Path], kills.Tally]], run: Run
) -> kills.Tally:
    """Run these in threads, each with a zygote and a folder of its own: they mostly wait for children."""
    total = kills.Tally()

    def one(campaign: Callable[[Zygote, Path], kills.Tally]) -> kills.Tally:
        with Zygote() as zygote, tempfile.TemporaryDirectory(dir=run.folder) as folder:
            return campaign(zygote, Path(folder))

    with ThreadPoolExecutor(CORES) as pool:
        for each in gathered([pool.submit(one, campaign) for campaign in campaigns], progress):
            total.add(each)
    return total


def _killed(tally: kills.Tally) -> Figures:
    did = (
        f"{tally.kills:,} kills, {tally.acked:,} turns accounted for, {tally.recovered:,} taken "
        f"over, usable again after {tally.worst_wait_s * 1000:.0f} ms at worst"
    )
    return Figures(did, tally.violations, points=tally.kills)


def broken_calls(run: Run, progress: Progress) -> Figures:
    """Kill at, or fail, every single system call on the store's files."""
    why = syscalls.why_not()
    if why is not None:
        return Figures(f"left out: {why}", [])
    faults: tuple[syscalls.Fault, ...] = ("signal=KILL", "error=EIO", "error=ENOSPC")
    stride = max(1, round(1 / run.scale))
    answers = Counter[str]()

    def one(fault: syscalls.Fault, call: str, zygote: Zygote, folder: Path) -> kills.Tally:
        found = syscalls.break_every_call(zygote, folder, fault, calls=(call,), step=stride)
        for answer, times in found.answers.items():
            answers[f"{fault.partition('=')[2]} → {answer.partition(': ')[2]}"] += times
        return found.tally

    tally = _in_parallel(
        progress,
        (partial(one, fault, call) for call in syscalls.CALLS for fault in faults),
        run,
    )
    told = ", ".join(f"{answer} {times:,}" for answer, times in sorted(answers.items()))
    return Figures(f"{tally.kills:,} calls broken: {told}", tally.violations, points=tally.kills)


def retries(run: Run, progress: Progress) -> Figures:
    """Many idempotency keys, each sent by 64 callers at once."""
    keys = run.count(2_000)
    tally = asyncio.run(
        contention.retry_keys(
            run.folder / "retries.db", keys=keys, retries=64, seed=run.seed, progress=progress
        )
    )
    return Figures(f"{keys:,} keys × 64 retries: {tally.turns:,} turns", tally.violations)


def zombies(run: Run, progress: Progress) -> Figures:
    """Nodes that come back after their lease, while somebody takes over."""
    count = run.count(1_000)
    tally = asyncio.run(
        contention.raise_zombies(
            run.folder / "zombies.db", zombies=count, seed=run.seed, progress=progress
        )
    )
    stale = len(tally.violations)
    return Figures(f"{count:,} zombies, {tally.turns:,} in time, {stale} stale", tally.violations)


def first_requests(run: Run, progress: Progress) -> Figures:
    """256 first requests in each of four processes for one new key, in the same moment."""
    rounds = run.count(200)
    with Zygote() as zygote:
        tally = contention.send_first_requests(
            zygote,
            run.folder / "first.db",
            processes=4,
            requests=256,
            rounds=rounds,
            progress=progress,
        )
    did = f"{rounds:,} keys × 4 processes × 256 requests: {tally.turns:,} sessions"
    return Figures(did, tally.violations)


def crowds(run: Run, progress: Progress) -> Figures:
    """Eight processes on one file."""
    turns = 2 * run.count(60)
    with Zygote() as zygote:
        tally = contention.let_crowd(zygote, run.folder / "crowd.db", processes=8, turns=turns)
    progress(1, 1)
    did = (
        f"8 processes × {turns} turns: worst wait {tally.worst_wait_s:.2f} s; when the first was "
        f"done, each had {tally.turns_min} to {tally.turns_max}"
    )
    return Figures(did, tally.violations)


def interleavings(run: Run, progress: Progress) -> Figures:
    """Random interleavings of several nodes, on every home alike."""
    try:
        from tests.store.model import interleavings as played
    except ImportError as error:
        return Figures(f"left out: {error}", [])
    count, done = run.count(10_000), 0
    violations: list[str] = []
    step = min(count, 500)
    while done < count:
        figures = played.run(count=step, seed=run.seed + done)
        violations += figures.violations
        done += step
        progress(min(done, count), count)
    return Figures(f"{done:,} interleavings on every home", violations)


SQLITE: dict[str, Campaign] = {
    "power": power_cuts,
    "operations": operation_kills,
    "kills": random_kills,
    "syscalls": broken_calls,
    "retries": retries,
    "zombies": zombies,
    "first": first_requests,
    "crowd": crowds,
    "interleavings": interleavings,
    "backups": backups.sqlite_backups,
    "flips": flips,
}

POSTGRES: dict[str, Campaign] = {**postgres.CAMPAIGNS, "backups": backups.postgres_backups}

STORES: dict[str, dict[str, Campaign]] = {"sqlite": SQLITE, "postgres": POSTGRES}


def main(arguments: list[str] | None = None) -> int:
    options = _parsed(arguments)
    campaigns = STORES[options.store]
    chosen = options.only or list(campaigns)
    if unknown := set(chosen) - set(campaigns):
        print(f"{options.store} has no {', '.join(unknown)}; it has {', '.join(campaigns)}")
        return 2
    scale = options.scale if options.minutes is None else options.minutes / FULL_MINUTES
    with tempfile.TemporaryDirectory(prefix="holdfast-torture-", dir=options.folder) as folder:
        run = Run(options.seed, scale, Path(folder))
        return play_all({name: campaigns[name] for name in chosen}, run)


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", choices=STORES, default="sqlite")
    every = ", ".join(name for campaigns in STORES.values() for name in campaigns)
    parser.add_argument("--only", action="append", help=f"may be repeated: {every}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is everything")
    parser.add_argument("--minutes", type=float, help=f"instead of a scale; 1 is {FULL_MINUTES}")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on a real disk")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
