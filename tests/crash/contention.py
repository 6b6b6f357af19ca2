"""Campaigns in which many want the same thing at once: one of them gets it, and everybody agrees who."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct

from holdfast.core.turns.events import Interrupted
from holdfast.core.turns.journal import encode_records, numbered
from holdfast.errors import Superseded
from holdfast.store.outcomes import Started
from holdfast.store.sqlite import SqliteStore
from holdfast.store.store import Store
from tests.crash.audit import audit
from tests.crash.turn_server import ACME, LONG_MS, TTL_MS, Bell, Held, Plan, Server, plans_in
from tests.crash.worker import new_minter
from tests.crash.zygote import Child, Zygote

Progress = Callable[[int, int], None]


def silent(done: int, of: int) -> None:
    """For those who do not watch."""


class Tally(Struct):
    """What a campaign did. `worst_wait_s` and the shares are for those that have them."""

    attempts: int = 0
    turns: int = 0
    worst_wait_s: float = 0.0
    turns_min: int = 0
    turns_max: int = 0
    violations: list[str] = []


# ── retries ──────────────────────────────────────────────────────────────────────────────────


async def retry_keys(
    path: Path,
    *,
    keys: int,
    retries: int,
    seed: int,
    at_once: int = 16,
    progress: Progress = silent,
) -> Tally:
    """Every idempotency key is sent by `retries` callers at once, of two nodes: one turn comes of it."""
    tally = Tally()
    store = await SqliteStore.open(path)
    bell = Bell()
    servers = [Server(store, new_minter(seed + index), waiting=bell) for index in range(2)]
    for server in servers:
        await server.enrol(ttl_ms=LONG_MS)

    async def one_key(number: int) -> None:
        plan = Plan(name=f"k{number}", tools=number % 2, resumes=number % 3 == 0)
        answers = await asyncio.gather(
            *(
                servers[each % 2].ask(f"retried-{number % at_once}", plan, idempotent=True)
                for each in range(retries)
            )
        )
        tally.attempts += retries
        if len(set(answers)) != 1:
            tally.violations.append(f"{plan.name} was answered in {len(set(answers))} ways")

    for first in range(0, keys, at_once):
        await asyncio.gather(*map(one_key, range(first, min(first + at_once, keys))))
        progress(min(first + at_once, keys), keys)
    found = Counter[str]()
    for number in range(at_once):
        found.update(await plans_in(store, f"retried-{number}"))
    tally.turns = found.total()
    if set(found) != {f"k{number}" for number in range(keys)} or set(found.values()) != {1}:
        tally.violations.append(f"{keys} keys made {found.total()} turns of {len(found)} names")
    tally.violations += await audit(store)
    await store.close()
    return tally


# ── zombies ──────────────────────────────────────────────────────────────────────────────────


async def raise_zombies(
    path: Path, *, zombies: int, seed: int, progress: Progress = silent
) -> Tally:
    """A node that believes to hold its turns comes back after its lease, while another takes them over.

    Whatever it tries is refused, or was in time: never both its write and the other's.
    """
    tally, dice, clock = Tally(), random.Random(seed), _Ahead()
    store = await SqliteStore.open(path, now_ms=clock.now_ms)
    sweeper = Server(store, new_minter(seed))
    for first in range(0, zombies, 50):
        await sweeper.enrol()
        # Each wave has a node of its own: one that has renewed since would not be dead.
        owner = Server(store, new_minter(seed + 1 + first))
        await owner.enrol()
        held = await asyncio.gather(
            *(_open(owner, f"grave-{number}") for number in range(first, min(first + 50, zombies)))
        )
        for _ in range(3):
            clock.advance_ms(TTL_MS // 2)
            await sweeper.enrol()
        stale = await asyncio.gather(*(_haunt(sweeper, each, dice) for each in held))
        tally.violations += [each for each in stale if each]
        tally.attempts += len(held)
        progress(tally.attempts, zombies)
    for number in range(zombies):
        names = await plans_in(store, f"grave-{number}")
        tally.turns += len(names)
        if len(names) > 1:
            tally.violations.append(f"grave-{number} holds {names}")
    tally.violations += await audit(store)
    await store.close()
    return tally


class _Ahead:
    """A clock that runs ahead of the wall's when told to."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def advance_ms(self, by_ms: int) -> None:
        self._ahead_ms += by_ms


async def _open(server: Server, key: str) -> Held:
    """A turn in which everything is said, and only its end is missing."""
    ask = await server.request(key, Plan(name=key))
    outcome = await server.store.begin(ask)
    assert isinstance(outcome, Started), outcome
    held = server.held(ask, outcome)
    await held.speak()
    return held


async def _haunt(sweeper: Server, zombie: Held, dice: random.Random) -> str | None:
    """The sweeper takes over and the zombie writes, mostly too late; what was wrong with that."""
    store, fence = sweeper.store, zombie.fence
    way, order = dice.choice(("play", "end", "append", "release")), dice.random()
    writing = _accepted(_written(store, zombie, way))
    if order < 0.2:
        wrote, taken = await asyncio.gather(writing, sweeper.recover(fence.session_id))
    elif order < 0.4:
        taken, wrote = await asyncio.gather(sweeper.recover(fence.session_id), writing)
    else:
        taken = await sweeper.recover(fence.session_id)
        wrote = await writing
    row = await store.turn(ACME, fence.turn_id)
    assert row is not None
    ended = wrote and way in ("play", "end")
    if ended != (row.lease_token == fence.token):
        return f"{way} under {fence} was {wrote}, and the turn is {row}"
    # Long after, it tries everything once more.
    late = [
        each for each in ("append", "release") if await _accepted(_written(store, zombie, each))
    ]
    return f"{late} were accepted after {taken}" if late else None


async def _written(store: Store, zombie: Held, way: str) -> None:
    match way:
        case "play":
            await zombie.play()
        case "end":
            await zombie.discard("shutdown")
        case "release":
            await store.release(zombie.fence)
        case "append":
            records = encode_records(numbered((Interrupted(by="shutdown"),), first=3, at_ms=0))
            await store.append(zombie.fence, n=3, records=records)


async def _accepted(write: Awaitable[object]) -> bool:
    try:
        await write
    except Superseded:
        return False
    return True


# ── first requests ───────────────────────────────────────────────────────────────────────────


def send_first_requests(
    zygote: Zygote,
    path: Path,
    *,
    processes: int,
    requests: int,
    rounds: int,
    progress: Progress = silent,
) -> Tally:
    """Several processes send many first requests for one new key in the same moment: one session."""
    tally = Tally()
    asyncio.run(_made(path))
    children = [zygote.start("first", path, index, requests) for index in range(processes)]
    for child in children:
        child.expect("ready")
    for number in range(rounds):
        started, sessions = _one_round(children, f"first-{number}")
        tally.attempts += processes * requests
        tally.turns += started
        if started != 1 or len(sessions) != 1:
            tally.violations.append(f"round {number}: {started} started, sessions {sessions}")
            return tally
        progress(number + 1, rounds)
    for child in children:
        child.tell("")
    for child in children:
        tally.violations += list(child.lines())
        child.end()
    return tally


def _one_round(children: list[Child], key: str) -> tuple[int, set[str]]:
    for child in children:
        child.tell(key)
    for child in children:
        if (said := child.read_line()) != "set":
            return 0, {said}
    for child in children:
        child.tell("go")
    started, sessions = 0, set[str]()
    for child in children:
        count, *named = child.read_line().split()
        if not count.isdigit():
            return 0, {count, *named}  # it failed, and says how
        started += int(count)
        sessions.update(named)
    return started, sessions


async def _made(path: Path) -> None:
    await (await SqliteStore.open(path)).close()


# ── a crowd ──────────────────────────────────────────────────────────────────────────────────


def let_crowd(zygote: Zygote, path: Path, *, processes: int, turns: int) -> Tally:
    """Several processes play turns on one shared session and their own. Nobody gets an error or starves.

    The shares are counted when the first process is done: how far each had come by then.
    """
    tally = Tally()
    asyncio.run(_made(path))
    children = [zygote.start("crowd", path, index, turns) for index in range(processes)]
    for child in children:
        child.expect("ready")
    for child in children:
        child.tell("go")
    ended: list[list[float]] = []
    for child in children:
        times: list[float] = []
        for line in child.lines():
            match line.split(" ", 1):
                case ["turn", at]:
                    times.append(float(at))
                case ["worst", seconds]:
                    tally.worst_wait_s = max(tally.worst_wait_s, float(seconds))
                case _:
                    tally.violations.append(line)
        ended.append(times)
        child.end()
    first_done = min(times[-1] for times in ended if times)
    shares = [sum(at <= first_done for at in times) for times in ended]
    tally.turns_min, tally.turns_max = min(shares), max(shares)
    if tally.turns_min * 20 < tally.turns_max:
        tally.violations.append(f"somebody starves: {shares} turns when the first was done")
    tally.turns = tally.attempts = sum(map(len, ended))
    tally.violations += asyncio.run(_dense(path, processes=processes, turns=turns))
    return tally


async def _dense(path: Path, *, processes: int, turns: int) -> list[str]:
    store = await SqliteStore.open(path)
    wrong = await audit(store)
    shared = await plans_in(store, "shared")
    if len(shared) != processes * (turns // 2) or len(set(shared)) != len(shared):
        wrong.append(f"the shared session holds {len(shared)} turns, {len(set(shared))} names")
    for index in range(processes):
        own = await plans_in(store, f"own-{index}")
        if own != [f"{index}.{number}" for number in range(0, turns, 2)]:
            wrong.append(f"own-{index} holds {own}")
    await store.close()
    return wrong
