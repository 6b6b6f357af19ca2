"""The PostgreSQL home under fire: its clients die, its wires are cut, its server crashes.

Whoever dies has said what it was about to do and what was acknowledged. Afterwards a fresh process cleans up, `verify`
looks at every row, and what it finds has to fit what the dead have said: nothing acknowledged is lost or undone,
nothing is there twice, and nothing is there that nobody asked for.
"""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from threading import Event, Lock, Thread
from urllib.parse import urlsplit, urlunsplit

import msgspec

from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.queries import compiled
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing import ManualClock
from tests.crash.kills import Ledger, Tally
from tests.crash.turn_server import CONTINUED, TTL_MS, Server
from tests.crash.worker import new_minter
from tests.crash.zygote import Child, Zygote
from tests.postgres import SAFE, give_away, wipe
from tests.postgres import Server as Database
from tests.postgres_wire import Moment, Wire
from tests.torture.campaign import Campaign, Figures, Progress, Run
from tests.torture.client import (
    SETTLED_S,
    WAIT_S,
    Client,
    Found,
    cancel,
    fork,
    inspected,
    take_turn,
    take_turn_once,
)

SLOTS = 3
"""Clients that live at the same time."""

KEYS = 24
"""Sessions that they meet on."""

CUT_KEYS = 4
"""The same where wires are cut."""

LIFE_S = 0.08
ROUND_KILLS = 240
ROUND_CRASHES = 10
OPTIONS = "?pool_size=4&timeout=20&listen=off"

Report = Callable[[int], None]
"""Told how many have died so far."""


class Accounts(Ledger):
    """What clients have said: turns, and forks that came and went."""

    def __init__(self, keys: int) -> None:
        super().__init__(keys)
        self._forks: dict[str, tuple[str, int]] = {}
        """By id, the key and the version that was forked."""
        self._forked: set[str] = set()
        self._removing: set[str] = set()
        self._removed: set[str] = set()

    def hear(self, lines: Iterable[str]) -> list[str]:
        said = list(lines)
        for line in said:
            match line.split(" "):
                case ["fork", fresh, key, version]:
                    self._forks[fresh] = key, int(version)
                case ["forked", fresh]:
                    self._forked.add(fresh)
                case ["remove", fresh]:
                    self._removing.add(fresh)
                case ["removed", fresh]:
                    self._removed.add(fresh)
        # What is asked for once is a try like another, but nobody repeats it.
        return super().hear(re.sub("^once ", "try ", line) for line in said)

    def tried(self, lines: Iterable[str]) -> list[str]:
        """The turns among these that were not acknowledged, as `NAME=KEY`."""
        tries = (line.split(" ") for line in lines if line.startswith("try "))
        return [f"{name}={key}" for _, name, key in tries if name in self.open]

    def wrong_forks(self, found: Found) -> list[str]:
        wrong = []
        for fresh, (key, version) in self._forks.items():
            there = fresh in found.sessions
            names = found.sessions.get(fresh)
            if fresh in self._forked and not there:
                wrong.append(f"the fork {fresh} was acknowledged, and is not there")
            if names is None and there and fresh not in self._removing:
                wrong.append(f"the fork {fresh} is gone, and nobody removed it")
            if names is not None and fresh in self._removed:
                wrong.append(f"the fork {fresh} was removed, and is there")
            if names is not None and not _is_fork(names, found.histories[key][:version]):
                wrong.append(f"the fork {fresh} is not {key} at version {version}")
        return wrong

    def judged(self, found: Found) -> list[str]:
        return self.wrong_forks(found) + self.violations(found)


def _is_fork(names: list[str], forked: list[str]) -> bool:
    """Whether the plans are those that were forked. One that was continued later is not in its fork."""
    pairs = zip(names, forked, strict=False)
    return len(names) == len(forked) and all(
        one == other or other == CONTINUED for one, other in pairs
    )


# ── clients that are killed ──────────────────────────────────────────────────────────────────


class Slot:
    """Clients, one after the other. Half of the time, the next asks again for what the last one was asking for."""

    def __init__(self, url: str, zygote: Zygote, dice: random.Random) -> None:
        self._url = url
        self._zygote = zygote
        self._dice = dice
        self._retried: list[str] = []

    def live(self, seed: int, accounts: Accounts, lock: Lock) -> list[str]:
        child = self._zygote.start("play", self._url, seed, KEYS, *self._retried)
        lines: list[str] = []
        # Some die while they start, most while they are busy.
        if self._dice.random() < 0.85:
            lines += until_ready(child)
            time.sleep(self._dice.random() * LIFE_S)
        else:
            time.sleep(self._dice.random() * 0.02)
        child.kill()
        lines += child.lines()
        child.end()
        with lock:
            wrong = accounts.hear(lines)
            again = accounts.tried(lines) if self._dice.random() < 0.5 else []
        self._retried = again
        return wrong

    def forget(self) -> None:
        self._retried = []


def until_ready(child: Child) -> Iterator[str]:
    for line in child.lines():
        yield line
        if line == "ready":
            return


def kill_clients(url: str, *, kills: int, seed: int, report: Report = lambda _: None) -> Tally:
    """Let clients play, and kill each after a random time."""
    tally = Tally()
    url += OPTIONS
    with ExitStack() as entered:
        zygotes = [entered.enter_context(Zygote("tests.torture.client")) for _ in range(SLOTS)]
        slots = [Slot(url, each, random.Random(f"{seed}/{n}")) for n, each in enumerate(zygotes)]
        for first in range(0, kills, ROUND_KILLS):
            accounts = Accounts(KEYS)
            asyncio.run(wiped(url))
            seeds = range(
                seed * 1_000_000 + first, seed * 1_000_000 + min(first + ROUND_KILLS, kills)
            )
            with sweeping(zygotes[0], url, seed):
                kill_some(slots, seeds, accounts, tally, report)
            settle(zygotes[0], url, accounts, tally)
            if tally.violations:
                break
    return tally


def kill_some(
    slots: list[Slot], seeds: Sequence[int], accounts: Accounts, tally: Tally, report: Report
) -> None:
    """A client for each seed, as many at a time as there are slots."""
    lock = Lock()

    def lives(number: int) -> None:
        slots[number].forget()
        for seed in seeds[number :: len(slots)]:
            wrong = slots[number].live(seed, accounts, lock)
            with lock:
                tally.kills += 1
                tally.violations += wrong
                report(tally.kills)

    with ThreadPoolExecutor(len(slots)) as threads:
        list(threads.map(lives, range(len(slots))))


async def wiped(url: str) -> None:
    """An empty store."""
    await (await PostgresStore.open(parse_address(url))).close()
    await wipe(url.partition("?")[0])


@contextmanager
def sweeping(zygote: Zygote, url: str, seed: int) -> Iterator[None]:
    """Somebody cleans up after the dead while we are in here."""
    child = zygote.start("sweep", url, seed + 500_000_000)
    try:
        yield
    finally:
        child.end()


def settle(zygote: Zygote, url: str, accounts: Accounts, tally: Tally) -> None:
    """All are dead: see what a fresh process finds."""
    child = zygote.start("look", url, accounts.keys)
    line = child.read_line()
    child.end()
    if not line or line.startswith("failed"):
        tally.violations.append(line or "it died while it looked")
        return
    found = msgspec.json.decode(line, type=Found)
    tally.violations += accounts.judged(found)
    tally.acked += len(accounts.acked)
    tally.saw(found)


# ── wires that are cut ───────────────────────────────────────────────────────────────────────


class Said:
    """What a client in this process has said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, *words: object) -> None:
        self.lines.append(" ".join(map(str, words)))


MOMENTS: tuple[Moment, ...] = ("before", "after")


async def cut_wires(url: str, *, seed: int, first: int = 1, step: int = 1) -> Tally:
    """A client's day, over and over: its connections die at each message that it sends, before it and after it.

    Ends with the first day that has fewer messages than that.
    """
    tally = Tally()
    await wiped(url)
    clock, accounts = ManualClock(), Accounts(CUT_KEYS)
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    store = await PostgresStore.open(parse_address(f"{url}{OPTIONS}"), clock=clock.now_ms)
    cleaner = Server(store, new_minter(seed))
    async with Wire.before(parts.hostname, parts.port) as wire:
        there = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{wire.port}"))
        for number, nth in enumerate(count(first, step)):
            for moment in MOMENTS:
                wire.die_at(nth, moment)
                said = Said()
                name = f"{seed}.{number}.{moment}"
                if await died(wire, there, clock, said, name):
                    tally.kills += 1
                else:
                    tally.survived += 1
                tally.violations += accounts.hear(said.lines)
                await wait_forgotten(store, wire)
                found = await cleaned_up(cleaner, clock)
                tally.violations += accounts.judged(found)
                tally.recovered += found.recovered
            if tally.survived or tally.violations:
                break
    tally.acked = len(accounts.acked)
    await store.close()
    return tally


async def died(wire: Wire, url: str, clock: ManualClock, said: Said, name: str) -> bool:
    """A client's day; whether it died during it."""
    stores: list[PostgresStore] = []

    async def day() -> None:
        address = parse_address(f"{url}{OPTIONS}&sslmode=disable")
        store = await PostgresStore.open(address, clock=clock.now_ms)
        stores.append(store)
        server = Server(store, new_minter(random.Random(name).getrandbits(60)))
        await server.enrol()
        client = Client(said, server, random.Random(name), iter(()), CUT_KEYS)
        for number in range(2):
            await take_turn(said, server, f"{name}.{number}", f"key-{number}")
            await cancel(client)
        for round_ in (
            "first",
            "second",
        ):  # in the second, the client knows the sessions, and some go together
            await asyncio.gather(
                *(
                    take_turn_once(said, server, f"{name}.{round_}.{number}", f"key-{number}")
                    for number in range(CUT_KEYS)
                )
            )
        await fork(client)
        await store.close()

    others = asyncio.all_tasks()
    living, dying = asyncio.create_task(day()), asyncio.create_task(wire.died.wait())
    await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED)
    if not wire.died.is_set():
        dying.cancel()
        await living
        return False
    # With it goes all that it had begun: what queues in its store would try again, over the next one's wire.
    # Nothing is left if it died of its very last message.
    its_own = asyncio.all_tasks() - others - wire.serving
    for each in its_own:
        each.cancel()
    await asyncio.gather(*its_own, return_exceptions=True)
    for store in stores:
        await store.engine.close()
    return True


_STILL_THERE = compiled(
    "still_there",
    "select count(*) from pg_stat_activity where client_port = any (:ports::int[])",
)


async def wait_forgotten(store: PostgresStore, wire: Wire) -> None:
    """Until the server has done with what was sent before the wire was cut: it may be late, and is nobody's fault."""

    async def work(db: Db) -> int:
        (row,) = await db.fetch(_STILL_THERE, {"ports": sorted(wire.ports)})
        return int(row[0])

    while True:
        if not await store.engine.run(work):
            break
        await asyncio.sleep(WAIT_S)
    wire.ports.clear()


async def cleaned_up(cleaner: Server, clock: ManualClock) -> Found:
    """When the lease of the dead has ended, by the clock: nobody waits."""
    for _ in range(3):
        await cleaner.enrol()
        clock.advance(TTL_MS / 1000 * 0.9)
    await cleaner.enrol()
    recovered = await cleaner.recover_all()
    return await inspected(cleaner, CUT_KEYS, recovered=recovered, waited_s=0.0)


# ── a server that crashes ────────────────────────────────────────────────────────────────────


def crash_server(
    server: Database, url: str, *, crashes: int, seed: int, report: Report = lambda _: None
) -> Tally:
    """Clients play on while the database crashes under them and comes back; at the end they are killed, too."""
    tally, dice = Tally(), random.Random(seed)
    url += OPTIONS
    with Zygote("tests.torture.client") as zygote:
        for first in range(0, crashes, ROUND_CRASHES):
            accounts = Accounts(KEYS)
            asyncio.run(wiped(url))
            with (
                sweeping(zygote, url, seed),
                hearing(
                    [
                        zygote.start("play", url, seed * 1_000_000 + first * SLOTS + number, KEYS)
                        for number in range(SLOTS)
                    ]
                ) as heard,
            ):
                if not heard.acknowledged.wait(SETTLED_S):
                    tally.violations.append(f"nothing was acknowledged in {SETTLED_S:.0f} s")
                for _ in range(first, min(first + ROUND_CRASHES, crashes)):
                    time.sleep(0.05 + 0.4 * dice.random())
                    server.crash()
                    server.start()
                    tally.kills += 1
                    report(tally.kills)
            tally.violations += accounts.hear(heard.lines)
            settle(zygote, url, accounts, tally)
            if tally.violations:
                break
    return tally


class Heard:
    """What children have said so far."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.acknowledged = Event()
        """Something was, so they are at work."""

    def take_in(self, child: Child) -> None:
        for line in child.lines():
            self.lines.append(line)
            if line.startswith("ack "):
                self.acknowledged.set()


@contextmanager
def hearing(children: list[Child]) -> Iterator[Heard]:
    """Take in what children say, so that none of them has to wait for us; kill them when we leave."""
    heard = Heard()
    threads = [Thread(target=heard.take_in, args=(child,)) for child in children]
    for each in threads:
        each.start()
    try:
        yield heard
    finally:
        for child in children:
            child.kill()
        for each in threads:
            each.join()
        for child in children:
            child.end()


# ── campaigns ────────────────────────────────────────────────────────────────────────────────

KILLS = 7_500
CUTS = 2_600
CUTS_STRIDE = 8
CRASHES = 200


@contextmanager
def on_disk(folder: Path) -> Iterator[Database]:
    """A server as in production, on the disk of this folder."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        folder.chmod(0o755)
        Path(made).chmod(0o755)
        give_away(Path(made))
        with Database.started(SAFE, folder=Path(made)) as server:
            yield server


def client_kills(run: Run, progress: Progress) -> Figures:
    """SIGKILL."""
    kills = run.count(KILLS)
    with on_disk(run.folder) as server:
        url = server.url(server.fresh_database())
        tally = kill_clients(
            url, kills=kills, seed=run.seed, report=lambda done: progress(done, kills)
        )
    return _figures("clients killed", tally)


def wire_cuts(run: Run, progress: Progress) -> Figures:
    """Every connection of a client, at each of its messages."""
    cuts, total = run.count(CUTS), Tally()
    with on_disk(run.folder) as server:
        url = server.url(server.fresh_database())
        for seed in count(run.seed):
            # Every message is somebody's last, if the run is long enough to come to all of them.
            day = cut_wires(url, seed=seed, first=1 + seed % CUTS_STRIDE, step=CUTS_STRIDE)
            total.add(asyncio.run(day))
            progress(min(total.kills, cuts), cuts)
            if total.kills >= cuts or total.violations:
                break
    return _figures("wires cut", total)


def server_crashes(run: Run, progress: Progress) -> Figures:
    """`pg_ctl stop -m immediate`."""
    crashes = run.count(CRASHES)
    with on_disk(run.folder) as server:
        url = server.url(server.fresh_database())
        tally = crash_server(
            server,
            url,
            crashes=crashes,
            seed=run.seed,
            report=lambda done: progress(done, crashes),
        )
    return _figures("crashes of the server (fsync on)", tally)


def _figures(what: str, tally: Tally) -> Figures:
    did = f"{tally.kills:,} {what}, {tally.acked:,} turns accounted for, {tally.recovered:,} taken over at the end"
    return Figures(did, tally.violations, points=tally.kills)


CAMPAIGNS: dict[str, Campaign] = {
    "kills": client_kills,
    "cuts": wire_cuts,
    "crashes": server_crashes,
}
