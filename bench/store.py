"""What durable turns cost on SQLite, against the least that could make the same bytes as durable.

1. Turns per second with 1 to 256 sessions at once. A turn waits twice for the disk: when it begins, and when it is
   committed. Each session plays its turns one after the other; all sessions share one writer. Measured are

   - *turns*: our store.
   - *bare*: what they are judged against. A loop without a thought: coroutines hand lists of blobs to one thread,
     which writes all that have queued into a plain table (`id integer primary key, bytes blob`) in one transaction
     and then resolves their futures; two such waits a turn. A blob is what one of our writing statements binds,
     run together: so the same values, as many rows, as many waits, the same settings of SQLite, check-points after
     as many pages. It has no keys or indexes, so nobody could find anything again; it reads and decides nothing,
     and does not fail one job alone, give up late ones, or take turns with other processes.
   - *the same statements, unasked*: the statements with which our turns write, recorded, and executed by the same
     bare thread on our tables. Between this and *bare* lies what tables cost in which things can be found;
     between this and *turns* lies what we do: read, decide, and run jobs that may fail. So the turns are judged
     against this, too: no store with these tables is faster (docs/decisions/0012).
   - *blobs through our engine*: the bare blobs, handed to our engine. What the engine costs without turns.
   - *bare, in one thread*: the bare blobs again, written in groups of as many turns as there are sessions, by a
     loop that nobody waits for. The disk and SQLite alone; no server could be built on it.

   All numbers of a block are from interleaved rounds on one disk. The CPU time is of the whole process.
2. A lone commit against a bare `write` and `fdatasync` of as many bytes as it added to the log.
3. A turn at the end of a short and of a long history: it should not know the difference.
4. How much the file grows for what was said, after a check-point.

Both sides of a pair run in turns, on the same disk; shown is the median of the rounds, and the ratio last.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import apsw
from _turns import Session, Turn, mint
from apsw import Connection
from msgspec import Struct, field

from holdfast.ids import NodeId
from holdfast.store.operations import nodes, turns
from holdfast.store.outcomes import Committed, Started
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import ensure_log, open_writer
from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.sqlite.engine.writer import Bounds
from holdfast.store.sqlite.migration import load_migrations, migrate

ROUNDS = 5


class Line(Struct):
    """One row of the table."""

    what: str
    ours: str
    bare: str
    ratio: float
    goal: str = ""
    met: bool | None = None


# ── what turns write ─────────────────────────────────────────────────────────────────────────


class Write(NamedTuple):
    """One execution of a statement that writes."""

    sql: str
    values: tuple[Any, ...]


Halves = tuple[list[Write], list[Write]]
"""What T1 and what T2 of a turn write."""

_TABLE = "create table row (id integer primary key, bytes blob)"
_INSERT = "insert into row (bytes) values (?)"


class Recorder:
    """Plays turns on a store of its own, and notes the statements with which they write."""

    def __init__(self, folder: Path, node: NodeId) -> None:
        self._connection = new_tables(folder / "recorded.db")
        self._connection.execute("pragma synchronous = off")
        DRIVER.run(self._connection, nodes.renew(node, ttl_ms=3_600_000))
        self._noted: list[Write] = []
        self._connection.exec_trace = self._note

    def halves(self, turn: Turn) -> Halves:
        started = DRIVER.run(self._connection, turns.begin(turn.ask), now_ms=1)
        assert isinstance(started, Started), started
        first, self._noted = self._noted, []
        commit = turns.commit(started.fence, turn.commit, n=1, records=b"", settlement="done")
        outcome = DRIVER.run(self._connection, commit, now_ms=1)
        assert isinstance(outcome, Committed), outcome
        second, self._noted = self._noted, []
        return first, second

    def _note(self, _: object, sql: str, values: Any) -> bool:
        if not sql.lstrip().startswith("select"):
            self._noted.append(Write(sql, tuple(values)))
        return True


def new_tables(path: Path) -> Connection:
    """Our tables, without our engine."""
    connection = open_writer(path)
    ensure_log(connection)
    migrate(connection, load_migrations())
    return connection


def blobs_of(halves: Halves) -> Halves:
    """The same values without keys. Deletions are left out: a bare loop would have nothing to delete."""
    first, second = (
        [
            Write(_INSERT, (b"".join(map(_bytes, write.values)),))
            for write in half
            if not write.sql.startswith("delete")
        ]
        for half in halves
    )
    return first, second


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


# ── 1: many sessions ─────────────────────────────────────────────────────────────────────────


class Ours:
    """A store, and sessions that play turns on it at once."""

    def __init__(self, store: SqliteStore, node: NodeId) -> None:
        self.store = store
        self.node = node

    @classmethod
    async def open(cls, folder: Path) -> Ours:
        store = await SqliteStore.open(folder / "ours.db")
        node = mint(NodeId)
        await store.renew(node, ttl_ms=3_600_000)
        return cls(store, node)

    async def play(self, turns: list[Turn]) -> None:
        """These turns of one session, one after the other."""
        for turn in turns:
            started = await self.store.begin(turn.ask)
            assert isinstance(started, Started), started
            outcome = await self.store.commit(started.fence, turn.commit, n=1, records=b"")
            assert isinstance(outcome, Committed), outcome

    async def copy(self, turns: list[Halves]) -> None:
        """The rows of these turns as plain bytes, in as many durable writes."""
        for halves in turns:
            for half in halves:
                await self.store.engine.write(partial(_execute, half))


class Bare:
    """One connection with our settings, and a thread that commits what has queued. Nothing else."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        connection.wal_autocheckpoint(Bounds().step_pages)
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[list[Write], asyncio.Future[None]]] = deque()
        self._more = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._main, name="bare")
        self._thread.start()

    async def play(self, turns: list[Halves]) -> None:
        """These turns of one session, one after the other."""
        for halves in turns:
            for half in halves:
                future = self._loop.create_future()
                self._queue.append((half, future))
                if not self._more.is_set():
                    self._more.set()
                await future

    def write(self, groups: Iterable[list[Write]]) -> None:
        """A transaction for each group, here and now."""
        for group in groups:
            self.connection.execute("BEGIN IMMEDIATE")
            _execute(group, self.connection)
            self.connection.execute("COMMIT")

    def close(self) -> None:
        self._closing = True
        self._more.set()
        self._thread.join()
        self.connection.close()

    def _main(self) -> None:
        while not self._closing:
            self._more.wait()
            self._more.clear()
            while self._queue:
                self._commit_all()

    def _commit_all(self) -> None:
        written: list[asyncio.Future[None]] = []
        self.connection.execute("BEGIN IMMEDIATE")
        while self._queue:
            half, future = self._queue.popleft()
            _execute(half, self.connection)
            written.append(future)
        self.connection.execute("COMMIT")
        self._loop.call_soon_threadsafe(_resolve, written)


def _execute(writes: Iterable[Write], db: Connection) -> None:
    for sql, values in writes:
        db.execute(sql, values)


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


class Pace(Struct):
    """How fast something went, round by round."""

    per_s: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    @contextmanager
    def timed(self, turns: int) -> Iterator[None]:
        began, cpu = time.perf_counter(), time.process_time()
        yield
        self.per_s.append(turns / (time.perf_counter() - began))
        self.cpu_us.append((time.process_time() - cpu) / turns * 1e6)


async def paces(
    folder: Path, sessions: int, turns: int, *, rounds: int = ROUNDS
) -> dict[str, Pace]:
    """How fast all of them are with this many sessions at once, in turns."""
    ours = await Ours.open(folder)
    await ours.store.engine.write(lambda db: db.execute(_TABLE).fetchall())
    bare, unasked = Bare(new_tables(folder / "bare.db")), Bare(new_tables(folder / "unasked.db"))
    bare.connection.execute(_TABLE)
    recorder = Recorder(folder, ours.node)
    made = [Session(f"s{number}", ours.node) for number in range(sessions)]
    first = [each.next_turn() for each in made]  # dearer: it makes the session
    await asyncio.gather(*(ours.play([turn]) for turn in first))
    await asyncio.gather(*(unasked.play([recorder.halves(turn)]) for turn in first))
    found = {name: Pace() for name in ("turns", "bare", "unasked", "engine", "one thread")}
    count = sessions * turns
    for _ in range(rounds):
        played = [[each.next_turn() for _ in range(turns)] for each in made]
        halves = [[recorder.halves(turn) for turn in session] for session in played]
        blobs = [[blobs_of(each) for each in session] for session in halves]
        groups = list(_groups(blobs, turns))
        with found["turns"].timed(count):
            await asyncio.gather(*map(ours.play, played))
        with found["bare"].timed(count):
            await asyncio.gather(*map(bare.play, blobs))
        with found["unasked"].timed(count):
            await asyncio.gather(*map(unasked.play, halves))
        with found["engine"].timed(count):
            await asyncio.gather(*map(ours.copy, blobs))
        with found["one thread"].timed(count):
            bare.write(groups)
    await ours.store.close()
    bare.close()
    unasked.close()
    return found


async def many_sessions(folder: Path, sessions: int, turns: int) -> list[Line]:
    found = await paces(folder, sessions, turns)
    line = _against(f"turns/s, {sessions} sessions", found["turns"], found["bare"])
    if sessions == 256:
        line.goal, line.met = "≥ 0.6", line.ratio >= 0.6
    return [
        line,
        _against("  the same statements, unasked", found["unasked"], found["bare"]),
        _against("  turns, against those", found["turns"], found["unasked"]),
        _against("  blobs through our engine", found["engine"], found["bare"]),
        _against("  bare, in one thread", found["one thread"], found["bare"]),
        _cpu("  CPU of a turn", found["turns"], found["bare"]),
        _cpu("  CPU of the same, unasked", found["unasked"], found["bare"]),
        _cpu("  CPU of blobs through our engine", found["engine"], found["bare"]),
        _cpu("  CPU of turns, against unasked", found["turns"], found["unasked"]),
    ]


def _against(what: str, one: Pace, bare: Pace) -> Line:
    mine, floor = median(one.per_s), median(bare.per_s)
    return Line(what, f"{mine:,.0f}", f"{floor:,.0f}", mine / floor)


def _cpu(what: str, one: Pace, bare: Pace) -> Line:
    mine, floor = median(one.cpu_us), median(bare.cpu_us)
    return Line(what, f"{mine:.0f} µs", f"{floor:.0f} µs", mine / floor)


def _groups(halves: list[list[Halves]], turns: int) -> Iterator[list[Write]]:
    """What the bare loop writes in one thread: per round all first halves, then all second halves."""
    for number in range(turns):
        for half in (0, 1):
            yield [write for session in halves for write in session[number][half]]


# ── 2: a lone commit ─────────────────────────────────────────────────────────────────────────


async def lone_commit(folder: Path) -> list[Line]:
    ours = await Ours.open(folder)
    session = Session("lone", ours.node)
    await ours.play([session.next_turn()])
    plain = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT)
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(60):
        turn = session.next_turn()
        started = await ours.store.begin(turn.ask)
        assert isinstance(started, Started)
        pages = ours.store.engine.stats.log_pages
        began = time.perf_counter()
        await ours.store.commit(started.fence, turn.commit, n=1, records=b"")
        mine.append(time.perf_counter() - began)
        grown = max(1, ours.store.engine.stats.log_pages - pages) * (4096 + 24)

        data = bytes(grown)
        began = time.perf_counter()
        os.write(plain, data)
        os.fdatasync(plain)
        theirs.append(time.perf_counter() - began)
    os.close(plain)
    await ours.store.close()
    ratio = median(mine) / median(theirs)
    return [Line("a lone commit", _ms(mine), _ms(theirs), ratio, "≤ 2.5", ratio <= 2.5)]


def _ms(seconds: list[float]) -> str:
    return f"{median(seconds) * 1000:.2f} ms"


# ── 3: long histories ────────────────────────────────────────────────────────────────────────


async def long_history(folder: Path) -> list[Line]:
    ours = await Ours.open(folder)
    short, long = Session("short", ours.node), Session("long", ours.node)
    await ours.play([short.next_turn() for _ in range(5)])
    # Two items a turn; several long turns would be no different, so these are made quickly.
    await _fill(ours, long, items=10_000)
    times: dict[Session, list[float]] = {short: [], long: []}
    for _ in range(150):
        for session, taken in times.items():
            turn = session.next_turn()
            began = time.perf_counter()
            await ours.play([turn])
            taken.append(time.perf_counter() - began)
    await ours.store.close()
    ratio = median(times[long]) / median(times[short])
    what = "a turn at 10,000 / at 10 items"
    return [Line(what, _ms(times[long]), _ms(times[short]), ratio, "≤ 1.1", ratio <= 1.1)]


async def _fill(ours: Ours, session: Session, *, items: int) -> None:
    turns = [session.next_turn() for _ in range(items // 2)]
    # The sync is what takes the time, and these need none: nobody measures them.
    connection = ours.store.engine._writer._connection
    connection.execute("pragma synchronous = off")
    await ours.play(turns)
    connection.execute("pragma synchronous = full")


# ── 4: growth ────────────────────────────────────────────────────────────────────────────────


async def growth(folder: Path, chars: int) -> list[Line]:
    ours = await Ours.open(folder)
    session = Session("fat", ours.node, chars=chars // 2)
    await ours.play([session.next_turn()])
    path = folder / "ours.db"
    before = await _size_after_checkpoint(ours, path)
    payload = 0
    for _ in range(100):
        turn = session.next_turn()
        payload += sum(map(len, turn.commit.encoded))
        await ours.play([turn])
    grown = await _size_after_checkpoint(ours, path) - before
    await ours.store.close()
    ratio = grown / payload
    what = f"growth for {chars // 1000} kB turns"
    sizes = f"{grown / 1e6:.1f} MB", f"{payload / 1e6:.1f} MB"
    return [Line(what, *sizes, ratio, "≤ 2.5", ratio <= 2.5)]


async def _size_after_checkpoint(ours: Ours, path: Path) -> int:
    await ours.store.engine.write(lambda db: None)
    ours.store.engine._writer._connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
    return os.stat(path).st_size


# ── all of them ──────────────────────────────────────────────────────────────────────────────


@contextmanager
def on_disk() -> Iterator[Path]:
    """A folder beside this file, since `/tmp` may be in memory, and a sync there costs nothing."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path(__file__).parent) as folder:
        yield Path(folder)


def main() -> None:
    measurements: list[Callable[[Path], Coroutine[None, None, list[Line]]]] = [
        lambda folder: many_sessions(folder, 1, 40),
        lambda folder: many_sessions(folder, 8, 30),
        lambda folder: many_sessions(folder, 64, 12),
        lambda folder: many_sessions(folder, 256, 8),
        lone_commit,
        long_history,
        lambda folder: growth(folder, 16_000),
        lambda folder: growth(folder, 64_000),
    ]
    lines: list[Line] = []
    for number, measure in enumerate(measurements, start=1):
        print(f"\r{number} of {len(measurements)} …", end="", file=sys.stderr, flush=True)
        with on_disk() as folder:
            lines += asyncio.run(measure(folder))
    print("\r", end="", file=sys.stderr)
    print(f"{'':34}{'ours':>12}{'bare':>12}{'ratio':>8}  goal")
    for line in lines:
        met = "" if line.met is None else "  met" if line.met else "  MISSED"
        print(f"{line.what:34}{line.ours:>12}{line.bare:>12}{line.ratio:>8.2f}  {line.goal}{met}")


if __name__ == "__main__":
    main()
