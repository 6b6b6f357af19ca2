"""What durable turns cost on PostgreSQL, against pgbench writing the same rows.

Turns per second with 1 to 256 sessions at once. A turn waits twice for the disk: when it begins, and when it is
committed. Measured are

- *turns*: our store. Each session plays its turns one after the other; all of them share the connections of one
  process, and one core. Those that come together go in one statement, and one sync.
- *pgbench*: what they are judged against. PostgreSQL's own load generator, written in C, runs the very statements with
  which our turns write, prepared, each a durable transaction: the same rows and bytes in the same tables, with one
  connection for each session. It reads nothing, decides nothing, and gathers nothing: two statements to a turn,
  made for one turn. PostgreSQL lets the commits of its connections share a sync.

Beside them stands the CPU time of a turn, of the server's processes and of the client's: where the machine has other
things to do, it says more than the turns per second, which then count how often somebody had to wait for a core.

Both use one server with its defaults for durability (fsync, full_page_writes and synchronous_commit on) on a real
disk, over TCP, in interleaved rounds; shown is the median, and the ratio last. Run it by `make bench`, or with the
root of the repository on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from _cpu import cpu_s
from _turns import TENANT, Session, Turn, mint
from msgspec import Struct, field

from holdfast.ids import NodeId, SessionId
from holdfast.store.outcomes import Committed, Started
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.queries import Bound, PostgresQuery, Row, compiled
from holdfast.store.postgres.store import PostgresStore
from tests.postgres import SAFE, Server, give_away, programs

ROUNDS = 5
SETTINGS = {**SAFE, "max_connections": "300", "shared_buffers": "128MB"}
POOL = 10
"""Connections of ours: what a URL without `pool_size` asks for."""


class Pace(Struct):
    """How fast something went, and what it cost the server and the client, round by round."""

    per_s: list[float] = field(default_factory=list)
    server_us: list[float] = field(default_factory=list)
    client_us: list[float] = field(default_factory=list)

    @contextmanager
    def measured(self, server: Server, turns: int) -> Iterator[None]:
        before, own = cpu_s(server), sum(os.times()[:4])
        yield
        self.server_us.append((cpu_s(server) - before) / turns * 1e6)
        self.client_us.append((sum(os.times()[:4]) - own) / turns * 1e6)

    @property
    def cpu_us(self) -> float:
        return median(self.server_us) + median(self.client_us)


# ── ours ─────────────────────────────────────────────────────────────────────────────────────


class Ours:
    """A store, and sessions that play turns on it at once."""

    def __init__(self, store: PostgresStore, node: NodeId, sessions: int) -> None:
        self.store = store
        self.sessions = [Session(f"s{mint(SessionId)}", node) for _ in range(sessions)]

    @classmethod
    async def open(cls, url: str, sessions: int, pool: int) -> Ours:
        store = await PostgresStore.open(parse_address(f"{url}?pool_size={pool}&listen=off"))
        node = mint(NodeId)
        await store.renew(node, ttl_ms=3_600_000)
        ours = cls(store, node, sessions)
        await ours.play(1)  # the first is dearer: it makes the session
        return ours

    async def play(self, turns: int) -> float:
        """So many turns of each session, made before the clock runs. Turns per second."""
        made = [[each.next_turn() for _ in range(turns)] for each in self.sessions]
        began = time.perf_counter()
        await asyncio.gather(*map(self._session, made))
        return turns * len(self.sessions) / (time.perf_counter() - began)

    async def _session(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            started = await self.store.begin(turn.ask)
            assert isinstance(started, Started), started
            outcome = await self.store.commit(started.fence, turn.commit, n=1, records=b"")
            assert isinstance(outcome, Committed), outcome


# ── the same by pgbench ──────────────────────────────────────────────────────────────────────

SEQ = ":seq::bigint"
SESSION = "('conv_' || :client_id::text)"
TURN = "('turn_' || :client_id::text || '_' || :seq::text)"
OF_BOTH = {
    "on.id": SESSION,
    "session.id": SESSION,
    "turn.turn_id": TURN,
    "journal.turn_id": TURN,
}
VARYING: tuple[dict[str, str], dict[str, str]] = (
    # T1 and T2 each move the stamp by one; the first turn of each session is there already.
    {
        **OF_BOTH,
        "on.stamp": f"(2 * ({SEQ} - 1))",
        "session.open_turn": TURN,
        "session.lease_token": SEQ,
        "turn.session_id": SESSION,
        "turn.base_head": f"({SEQ} - 1)",
        "turn.lease_token": SEQ,
        "journal.token": SEQ,
    },
    {
        **OF_BOTH,
        "on.stamp": f"(2 * ({SEQ} - 1) + 1)",
        "session.head": SEQ,
        "session.length": f"(2 * {SEQ})",
        "turn.seq": SEQ,
        "turn.start": f"(2 * ({SEQ} - 1))",
        "turn.end": f"(2 * {SEQ})",
        "item.session_id": f"array[{SESSION}, {SESSION}]",
        "item.pos": f"array[2 * ({SEQ} - 1), 2 * {SEQ} - 1]",
        "item.turn_id": f"array[{TURN}, {TURN}]",
    },
)
"""What differs from one turn to the next, as an expression of pgbench's variables."""


class Recorder:
    """Notes the statements with which one turn writes."""

    def __init__(self) -> None:
        self.noted: list[tuple[PostgresQuery, Sequence[Bound]]] = []

    async def record(self, ours: Ours) -> None:
        put = Db.put

        async def noting(db: Db, query: PostgresQuery, values: Sequence[Bound]) -> list[Row]:
            self.noted.append((query, (*values, None)))  # the clock is the database's
            return await put(db, query, values)

        Db.put = noting  # type: ignore[assignment, method-assign]
        turn = ours.sessions[0].next_turn()
        try:
            started = await ours.store.begin(turn.ask)
            assert isinstance(started, Started), started
            await ours.store.commit(started.fence, turn.commit, n=1, records=b"")
        finally:
            Db.put = put  # type: ignore[method-assign]
        assert len(self.noted) == len(VARYING), "a turn is written by two statements"

    def script(self) -> str:
        """A turn as a script of pgbench."""
        statements = map(self._statement, self.noted, VARYING)
        return "\\set seq :seq + 1\n" + "\n".join(statements)

    def _statement(
        self, noted: tuple[PostgresQuery, Sequence[Bound]], varying: dict[str, str]
    ) -> str:
        query, bound = noted
        values = [
            varying.get(name.partition(" ")[2]) or literal(value)
            for name, value in zip(query.names, bound, strict=True)
        ]
        sql = re.sub(r"\$(\d+)", lambda found: values[int(found[1]) - 1], query.sql)
        return " ".join(sql.split()).rstrip(";") + ";"


def literal(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case bytes():
            return f"'\\x{value.hex()}'::bytea"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case list():
            return f"array[{', '.join(map(literal, value))}]" if value else "'{}'"
        case _:
            raise AssertionError(f"a statement cannot bind {value!r}")


class PgBench:
    """The rows of our turns, without us."""

    def __init__(self, url: str, script: Path, sessions: int) -> None:
        self._url = url
        self._script = script
        self._sessions = sessions
        self.turns = 0
        """Of each session, so far."""

    def run(self, turns: int) -> float:
        """So many turns of each session; turns per second, connecting not counted."""
        command = [
            *(str(programs() / "pgbench"), "-n", "-M", "prepared", "-f", str(self._script)),
            *("-c", str(self._sessions), "-j", "1", "-t", str(turns)),
            *("-D", f"seq={self.turns}", self._url),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.search(r"tps = ([\d.]+)", done.stdout)
        if found is None or "number of failed transactions: 0 " not in done.stdout:
            raise RuntimeError(done.stdout + done.stderr)
        self.turns += turns
        return float(found[1])


async def make_sessions(ours: Ours, sessions: int) -> None:
    """Sessions for pgbench, as the first T1 and T2 would leave them but for their numbers, which begin at nothing."""
    await ours.store.engine.run(
        lambda db: db.script(
            "insert into holdfast.session (tenant, id, head, length, link, lease_token, lease_nonce, source_key, "
            "entry_agent, agent, lineage, settings, meta_rev, summary_rev, title, opening, state, anonymous, "
            "created_ms, active_ms, stamp) "
            f"select '{TENANT}', 'conv_' || n, 0, 0, s.link, 0, '', s.source_key, s.entry_agent, s.agent, s.lineage, "
            "s.settings, 0, 0, '', s.opening, 'live', false, s.created_ms, s.active_ms, 0 "
            f"from generate_series(0, {sessions - 1}) n, (select * from holdfast.session limit 1) s"
        )
    )


# ── all of them ──────────────────────────────────────────────────────────────────────────────


class Line(Struct):
    """One row of the table."""

    sessions: int
    ours: Pace
    bare: Pace

    def __str__(self) -> str:
        ours, bare = median(self.ours.per_s), median(self.bare.per_s)
        met = "met" if ours / bare >= 0.6 else "MISSED"
        cpu = (
            f"{median(each.server_us):>6.0f} +{median(each.client_us):>5.0f} µs"
            for each in (self.ours, self.bare)
        )
        ratio = self.bare.cpu_us / self.ours.cpu_us
        return (
            f"{self.sessions:>4} sessions{ours:>9,.0f}{bare:>9,.0f}{ours / bare:>8.2f}  ≥ 0.6 {met:6}"
            f"{'  '.join(cpu)}{ratio:>8.2f}"
        )


HEAD = (
    f"{'turns/s':13}{'ours':>9}{'pgbench':>9}{'ratio':>8}  goal          ours: server + client"
    "  pgbench: the same   ratio"
)


async def measured(server: Server, url: str, folder: Path, sessions: int, pool: int) -> Line:
    ours = await Ours.open(url, sessions, pool)
    recorder = Recorder()
    await recorder.record(ours)
    script = folder / "turn.sql"
    script.write_text(recorder.script())
    await make_sessions(ours, sessions)
    bare = PgBench(url, script, sessions)
    turns = max(4, 1200 // sessions) if sessions > 1 else 200
    line = Line(sessions, Pace(), Pace())
    await ours.play(2)
    bare.run(2)
    for _ in range(ROUNDS):
        with line.ours.measured(server, turns * sessions):
            line.ours.per_s.append(await ours.play(turns))
        with line.bare.measured(server, turns * sessions):
            line.bare.per_s.append(await asyncio.to_thread(bare.run, turns))
    written = compiled(
        "written",
        "select min(head) from holdfast.session where id like 'conv\\_%' and length(id) < 12",
    )
    ((head,),) = await ours.store.engine.run(lambda db: db.fetch(written, {}))
    assert head == bare.turns, "pgbench has written what it was to write"
    await ours.store.close()
    return line


@contextmanager
def on_disk() -> Iterator[Path]:
    """A folder beside this file, since `/tmp` may be in memory, and a sync there costs nothing."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path(__file__).parent) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pool", type=int, default=POOL)
    parser.add_argument("--sessions", type=int, nargs="*", default=[1, 16, 64, 256])
    options = parser.parse_args()
    lines = []
    with on_disk() as folder:
        data = folder / "server"
        data.mkdir()
        give_away(data)
        with Server.started(SETTINGS, folder=data) as server:
            print(f"fsync on, full_page_writes on, synchronous_commit on; our pool: {options.pool}")
            for sessions in options.sessions:
                print(f"\r{sessions} sessions …", end="", file=sys.stderr, flush=True)
                url = server.url(server.fresh_database())
                lines.append(asyncio.run(measured(server, url, folder, sessions, options.pool)))
    print("\r", end="", file=sys.stderr)
    print(HEAD)
    for line in lines:
        print(line)


if __name__ == "__main__":
    main()
