"""What would break first: from what one server and one database cost, to a thousand servers and 10⁸ sessions.

Arithmetic, and nothing else: the constants below were measured by the other files here on one two-core machine, or are
said to be assumed. What comes out is an order of magnitude and the name of a wall, not a promise;
docs/explanation/capacity.md says how to read it. Measure on your machine, and give your own figures:

    python bench/capacity.py
    python bench/capacity.py --servers 20 --sessions 5e6 --turns 400 --turn-ms 2.1
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator

import msgspec
from rich.console import Console
from rich.table import Table

from holdfast.limits import sweepers_max
from holdfast.store.postgres.pool import IDLE_KEPT, IDLE_S


class Costs(msgspec.Struct, frozen=True):
    """What things cost, each as it was measured, or assumed."""

    server_ms: float = 4.1
    """CPU of a server for a turn of 20 tokens, three servers. bench/replicas.py."""
    token_us: float = 100.0
    """CPU of a server for a token that is streamed at a human pace. Assumed: `make bench GROUP=pace` says what yours is,
    and a busy machine takes several at once for a tenth of it."""
    database_ms: float = 2.9
    """CPU of the database for the same: begin and commit, and their reads. bench/replicas.py."""
    rest_ms: float = 0.8
    """CPU of the database for each second of a server that has nothing to do. bench/replicas.py."""
    poll_us: float = 500.0
    """CPU of the database for a statement that finds nothing: what a server at rest costs, by its 1.7 a second."""
    sweep_us: float = 1.4
    """CPU of the database for each open turn that a sweep looks at. bench/replicas.py."""
    own_us: float = 3.0
    """CPU of the database for each of its own turns that a server looks at while it rests from sweeping.
    bench/replicas.py."""
    node_us: float = 1.0
    """CPU of the database for each server that is listed when one counts the living. Assumed."""
    watch_ms: float = 0.4
    """CPU of the database for each second of a watcher elsewhere. bench/replicas.py."""
    turn_kb: float = 2.4
    """Of a turn of 20 tokens, in the database, indexes included. bench/replicas.py."""
    index_share: float = 0.4
    """Of those bytes, what indexes take. Assumed; `holdfast db stats` and pg_relation_size say it for yours."""
    notify_us: float = 10.0
    """CPU of the database for handing one notification to one listener. Assumed."""
    stream_kb: float = 67.0
    """Memory of a server for an open stream. `make bench GROUP=memory`."""


class Limits(msgspec.Struct, frozen=True):
    """What one large database server, and one process, can take. All assumed: they are bought."""

    database_cores: float = 64.0
    connections: float = 500.0
    """Of PostgreSQL itself: each is a process."""
    commits_per_s: float = 50_000.0
    """Durable ones, grouped by the server."""
    memory_gb: float = 512.0
    """What indexes have to fit into, or each turn waits for a disk."""
    disk_tb: float = 30.0
    server_memory_gb: float = 4.0


class Size(msgspec.Struct, frozen=True):
    """A fleet, and what it is asked to do."""

    servers: int
    sessions: float
    """That are kept."""
    turns_per_s: float
    turn_s: float = 10.0
    """How long a turn is open: a model is slow."""
    tokens: float = 300.0
    """That a turn streams."""
    kept_turns: float = 20.0
    """Turns of each session that is kept."""
    elsewhere: float = 0.02
    """Of the open turns, how many are watched at a server that does not play them."""
    signals: float = 0.02
    """Cancels and words, for each turn."""
    pooled: bool = False
    """Whether PgBouncer is in between, and nobody listens."""

    @property
    def open_turns(self) -> float:
        return self.turns_per_s * self.turn_s

    @property
    def connections(self) -> int:
        """Of each server: as many as run statements at once in the worst moment of a minute, if they come by chance, and
        never less than are kept; its heart's, and the one that listens. They are closed after a minute of rest."""
        per_s = self.turns_per_s / self.servers * STATEMENTS_PER_TURN + RESTING_PER_S
        busy, chance, most = per_s * STATEMENT_S, 1.0, 0
        beyond = 1 - math.exp(-busy)
        while most < POOL and beyond * per_s * IDLE_S > 1:
            most += 1
            chance *= busy / most
            beyond -= math.exp(-busy) * chance
        return max(IDLE_KEPT, most + 1) + 2


HEART_S, SWEEP_S, SIGNALS_S = 5.0, 2.0, 0.5
"""How often each server renews its lease, looks for turns of the dead, and for signals."""
COMMITS_PER_TURN = 3
"""Begin, commit, and the note that the client has the answer."""
STATEMENTS_PER_TURN, RESTING_PER_S, STATEMENT_S = 5, 4.0, 0.002
"""What uses a connection, how often a server does at rest, and for how long."""
POOL = 10
"""Connections of a server for its statements, at most."""


class Wall(msgspec.Struct, frozen=True):
    """Something that there is only so much of."""

    name: str
    used: float
    limit: float
    unit: str
    moved_by: str

    @property
    def share(self) -> float:
        return self.used / self.limit


def walls(size: Size, costs: Costs, limits: Limits) -> list[Wall]:
    """All of them, the nearest first."""
    found = [
        *_processors(size, costs, limits),
        *_connections(size, limits),
        Wall(
            "commits",
            size.turns_per_s * COMMITS_PER_TURN + size.servers / HEART_S,
            limits.commits_per_s,
            "/s",
            "a faster disk, or several databases",
        ),
        *_bytes(size, costs, limits),
    ]
    return sorted(found, key=lambda wall: -wall.share)


def _processors(size: Size, costs: Costs, limits: Limits) -> Iterator[Wall]:
    """The database's CPU, by what it is spent on."""
    sweepers = min(size.servers, sweepers_max)
    sweeps = sweepers / SWEEP_S * size.open_turns * costs.sweep_us / 1e6
    if size.servers > sweepers:  # which rest in turns, and look at their own turns meanwhile
        sweeps += size.open_turns / SWEEP_S * costs.own_us / 1e6
    polls = size.servers / SIGNALS_S * costs.poll_us / 1e6
    rest = size.servers * costs.rest_ms / 1e3
    listeners = 0 if size.pooled else size.servers
    parts = (
        ("turns", size.turns_per_s * costs.database_ms / 1e3, "several databases, by tenant"),
        ("sweeps", sweeps, "several databases, by tenant"),
        ("signal polls", polls, "polling rarely where NOTIFY is heard"),
        ("heartbeats and looking around", rest, "one server that indexes for all"),
        (
            "watchers elsewhere",
            size.open_turns * size.elsewhere * costs.watch_ms / 1e3,
            "a balancer that sends a conversation to one server",
        ),
        (
            "NOTIFY",
            size.turns_per_s * size.signals * listeners * costs.notify_us / 1e6,
            "a channel for each node",
        ),
    )
    for name, cores, moved_by in parts:
        yield Wall(f"database CPU: {name}", cores, limits.database_cores, "cores", moved_by)


def _connections(size: Size, limits: Limits) -> Iterator[Wall]:
    if not size.pooled:
        made = size.servers * size.connections
        yield Wall("connections", made, limits.connections, "", "PgBouncer, or a smaller pool_size")


def _bytes(size: Size, costs: Costs, limits: Limits) -> Iterator[Wall]:
    disk_gb = size.sessions * size.kept_turns * costs.turn_kb / 1e6
    yield Wall("disk", disk_gb / 1e3, limits.disk_tb, "TB", "expiry, exports, several databases")
    yield Wall(
        "indexes in memory",
        disk_gb * costs.index_share,
        limits.memory_gb,
        "GB",
        "partitions by time, several databases",
    )
    streams_gb = size.open_turns / size.servers * costs.stream_kb / 1e6
    yield Wall("memory of a server", streams_gb, limits.server_memory_gb, "GB", "more servers")
    turn_s = costs.server_ms / 1e3 + size.tokens * costs.token_us / 1e6
    cores = size.turns_per_s / size.servers * turn_s
    yield Wall("the one core of a server", cores, 1.0, "cores", "more servers")


LADDER = (
    Size(servers=1, sessions=1e4, turns_per_s=20),
    Size(servers=3, sessions=1e5, turns_per_s=60),
    Size(servers=10, sessions=1e6, turns_per_s=200),
    Size(servers=40, sessions=1e7, turns_per_s=800),
    Size(servers=40, sessions=1e7, turns_per_s=800, pooled=True),
    Size(servers=200, sessions=3e7, turns_per_s=4_000, pooled=True),
    Size(servers=1_000, sessions=1e8, turns_per_s=20_000, pooled=True),
)


def table_of(sizes: tuple[Size, ...], costs: Costs, limits: Limits) -> Table:
    table = Table(
        "servers", "sessions", "turns/s", "nearest wall", "used", "next", "used", "moved by"
    )
    for size in sizes:
        first, second, *_ = walls(size, costs, limits)
        table.add_row(
            f"{size.servers:,}{' pooled' if size.pooled else ''}",
            f"{size.sessions:.0e}",
            f"{size.turns_per_s:,.0f}",
            first.name,
            _share(first),
            second.name,
            _share(second),
            first.moved_by,
        )
    return table


def _share(wall: Wall) -> str:
    return f"{wall.share:.0%} ({wall.used:,.3g} of {wall.limit:,.3g} {wall.unit})".replace(
        " )", ")"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", type=int, help="one fleet in place of the ladder")
    parser.add_argument("--sessions", type=float, default=1e6)
    parser.add_argument("--turns", type=float, default=100.0, help="each second")
    parser.add_argument("--pooled", action="store_true", help="PgBouncer is in between")
    parser.add_argument(
        "--turn-ms", type=float, default=Costs().database_ms, help="of the database"
    )
    parser.add_argument("--server-ms", type=float, default=Costs().server_ms, help="of a server")
    asked = parser.parse_args()
    costs = Costs(database_ms=asked.turn_ms, server_ms=asked.server_ms)
    console = Console(width=None if sys.stdout.isatty() else 170)
    if asked.servers is None:
        console.print(table_of(LADDER, costs, Limits()))
        return
    size = Size(asked.servers, asked.sessions, asked.turns, pooled=asked.pooled)
    table = Table("wall", "used", "moved by")
    for wall in walls(size, costs, Limits()):
        table.add_row(wall.name, _share(wall), wall.moved_by)
    console.print(table)


if __name__ == "__main__":
    main()
