"""What durable turns cost on SQLite, against the least that could make the same bytes as durable.

1. Turns per second with 1 to 256 sessions at once, against a bare loop: one thread, one connection with the same
   settings, no reading, no deciding; it writes the rows of the same turns as blobs into a plain table, in groups of
   as many turns as there are sessions, with two commits per group like our T1 and T2. Between the two, our engine
   writes the same blobs: what is left to it is what turns themselves cost.
2. A lone commit against a bare `write` and `fdatasync` of as many bytes as it added to the log.
3. A turn at the end of a short and of a long history: it should not know the difference.
4. How much the file grows for what was said, after a check-point.

Both sides of a pair run in turns, on the same disk; shown is the median of the rounds, and the ratio last.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import apsw
from apsw import Connection
from msgspec import Struct

from holdfast.core import chain
from holdfast.core import events as ev
from holdfast.core.codec import encode
from holdfast.core.conversation import Commit, commit_of
from holdfast.core.items import AssistantMessage, UserMessage, plain_text
from holdfast.core.journal import encode_records, numbered
from holdfast.core.turn import advance, begin
from holdfast.ids import MessageId, Minter, NodeId, SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.store.base import Attempt, Begin, ByKey, Committed, Started
from holdfast.store.rows import SessionRow, TurnRow
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import ensure_log, open_writer

TENANT = Tenant("local")
ROUNDS = 5
SAID_CHARS = 400
"""A message of a chat: a few sentences."""

dice = random.Random(1)
mint = Minter(now_ms=lambda: time.time_ns() // 1_000_000, random_bits=dice.getrandbits)


class Line(Struct):
    """One row of the table."""

    what: str
    ours: str
    bare: str
    ratio: float
    goal: str = ""
    met: bool | None = None


# ── turns, made before the clock runs ────────────────────────────────────────────────────────


class Turn(Struct):
    """A whole turn, ready to be written: what T1 and T2 are called with."""

    ask: Begin
    commit: Commit


class Session:
    """Makes the turns of one session, each on top of the last, without asking a store."""

    def __init__(self, key: str, node: NodeId, *, chars: int = SAID_CHARS) -> None:
        self._key = SessionKey(key)
        self._node = node
        self._id = mint(SessionId)
        self._chars = chars
        self._version = Version(0)
        self._length = 0
        self._link = chain.GENESIS

    def next_turn(self) -> Turn:
        request = ev.TurnRequest(
            turn_id=mint(TurnId),
            base=self._version,
            base_length=self._length,
            source_key="agents/butler.yaml",
            agent="butler",
            input=(UserMessage(id=mint(MessageId), content=plain_text("u" * self._chars)),),
        )
        answer = AssistantMessage(id=mint(MessageId), content=plain_text("a" * self._chars))
        turn = begin(ev.Began(request=request))
        for event in (
            ev.StepStarted(),
            ev.Answered(items=(answer,), usage=ev.Usage(input_tokens=90, output_tokens=90)),
            ev.Ended(by="completed", kept=True),
        ):
            turn = advance(turn, event)
        commit = commit_of(turn, previous=self._link)
        ask = Begin(
            tenant=TENANT,
            node=self._node,
            nonce=request.turn_id.body,
            target=ByKey(key=self._key, fresh=self._id),
            expected=self._id if self._version else None,
            request=request,
            attempt=Attempt(request_hash=bytes(32)),
        )
        self._version, self._link = commit.version, commit.link
        self._length += len(commit.items)
        return Turn(ask, commit)


Halves = tuple[list[bytes], list[bytes]]


def rows_of(turn: Turn) -> Halves:
    """The rows that T1 and T2 write for a turn, as plain bytes of about the size that they have."""
    request = turn.ask.request
    row = TurnRow(
        tenant=TENANT,
        turn_id=request.turn_id,
        session_id=SessionId.from_body(request.turn_id.body),
        base_head=request.base,
        state="open",
        agent=request.agent,
        request_hash=turn.ask.attempt.request_hash,
        link=turn.commit.link,
    )
    session = SessionRow(tenant=TENANT, id=row.session_id, head=request.base, agent=row.agent)
    record = encode_records(numbered((ev.Began(request=request),), first=0, at_ms=0))
    return [encode(session), encode(row), record], [
        *turn.commit.encoded,
        encode(row),
        encode(session),
    ]


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
            for rows in halves:
                await self.store.engine.write(partial(_insert, rows=rows))


class Bare:
    """The least that makes the same bytes durable in the same way."""

    def __init__(self, folder: Path) -> None:
        self.connection: Connection = open_writer(folder / "bare.db")
        ensure_log(self.connection)
        self.connection.execute(_TABLE)
        self.connection.wal_autocheckpoint(1000)

    def write(self, group: list[bytes]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        _insert(self.connection, group)
        self.connection.execute("COMMIT")


_TABLE = "create table row (id integer primary key, bytes blob)"


def _insert(db: Connection, rows: list[bytes]) -> None:
    for row in rows:
        db.execute("insert into row (bytes) values (?)", (row,))


async def many_sessions(folder: Path, sessions: int, turns: int) -> list[Line]:
    """Our turns, and between them and the bare loop our engine, which writes the same bytes without a thought."""
    ours, bare = await Ours.open(folder), Bare(folder)
    made = [Session(f"s{number}", ours.node) for number in range(sessions)]
    await asyncio.gather(*(ours.play([each.next_turn()]) for each in made))  # the first is dearer
    await ours.store.engine.write(lambda db: db.execute(_TABLE).fetchall())
    per_s: dict[str, list[float]] = {"ours": [], "engine": [], "bare": []}
    for _ in range(ROUNDS):
        played = [[each.next_turn() for _ in range(turns)] for each in made]
        halves = [[rows_of(turn) for turn in session] for session in played]
        groups = list(_groups(halves, turns))
        with _timed(per_s["ours"], sessions * turns):
            await asyncio.gather(*map(ours.play, played))
        with _timed(per_s["engine"], sessions * turns):
            await asyncio.gather(*map(ours.copy, halves))
        with _timed(per_s["bare"], sessions * turns):
            for group in groups:
                bare.write(group)
    await ours.store.close()
    bare.connection.close()
    mine, engine, floor = (median(per_s[name]) for name in ("ours", "engine", "bare"))
    line = _against(f"turns/s, {sessions} sessions", mine, floor)
    if sessions == 256:
        line.goal, line.met = "≥ 0.6", line.ratio >= 0.6
    return [line, _against("  the engine without turns", engine, floor)]


def _against(what: str, ours: float, bare: float) -> Line:
    return Line(what, f"{ours:,.0f}", f"{bare:,.0f}", ours / bare)


@contextmanager
def _timed(per_s: list[float], turns: int) -> Iterator[None]:
    began = time.perf_counter()
    yield
    per_s.append(turns / (time.perf_counter() - began))


def _groups(halves: list[list[Halves]], turns: int) -> Iterator[list[bytes]]:
    """What the bare loop writes: per round all first halves, then all second halves."""
    for number in range(turns):
        for half in (0, 1):
            yield [row for session in halves for row in session[number][half]]


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
    connection = ours.store.engine._desk._connection
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
    ours.store.engine._desk._connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
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
    print(f"{'':32}{'ours':>12}{'bare':>12}{'ratio':>8}  goal")
    for line in lines:
        met = "" if line.met is None else "  met" if line.met else "  MISSED"
        print(f"{line.what:32}{line.ours:>12}{line.bare:>12}{line.ratio:>8.2f}  {line.goal}{met}")


if __name__ == "__main__":
    main()
