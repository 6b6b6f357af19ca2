"""What the sweeps of a fleet cost its database, up to 1,000 servers: a simulation of the rota that servers sweep by.

Nothing runs but `SweepRota`, by a clock of its own and with chance from a seed, so that each run says the same. Servers
start together, as after a deployment, and each has its share of the open turns. The table also says how long it takes
from a moment when a lease ends until a server looks at all open turns.

The constants come from `capacity.py`, which says who has measured them. `before` is what it was when every server swept
in each round.

    python bench/fleet.py
"""

from __future__ import annotations

import random
import sys
from itertools import pairwise

import msgspec
from capacity import SIGNALS_S, Costs
from rich.console import Console
from rich.table import Table

from holdfast import limits
from holdfast.sessions.turns.sweep_rota import SweepRota

FLEETS = (1, 3, 4, 10, 40, 100, 200, 500, 1_000)
TURNS_PER_S = 20.0
"""Of each server."""
TURN_S = 10.0
HOURS = 2
ROUNDS = int(HOURS * 3600 / limits.sweep_s)
WARM_UP = 0.25
"""Of the time: servers that were started together have not drifted apart yet."""


class Swept(msgspec.Struct, frozen=True):
    """What happened in a fleet, each second, and how long nobody looked."""

    sweeps_per_s: float
    gap_p50_s: float
    gap_p99_s: float
    gap_most_s: float


def simulated(servers: int, *, seed: int = 1) -> Swept:
    """A fleet that nothing happens to: when its servers sweep."""
    chance = random.Random(seed)
    rotas = [SweepRota(chance=chance.random) for _ in range(servers)]
    phases = [chance.random() * limits.sweep_s for _ in range(servers)]
    first = int(ROUNDS * WARM_UP)
    for each in rotas:
        each.note_count(0.0, servers)
    swept_s = list[float]()
    for number in range(ROUNDS):
        for rota, phase in zip(rotas, phases, strict=True):
            now_s = number * limits.sweep_s + phase
            if rota.is_due(now_s):
                rota.note_sweep(now_s, taken=0)
                if number >= first:
                    swept_s.append(now_s)
    swept_s.sort()
    gaps = [later - before for before, later in pairwise(swept_s)]
    fallen = chance.choices(
        gaps, weights=gaps, k=10_000
    )  # a death falls into a long gap more often
    waits = sorted(gap * chance.random() for gap in fallen)
    spent_s = (ROUNDS - first) * limits.sweep_s
    return Swept(
        sweeps_per_s=len(swept_s) / spent_s,
        gap_p50_s=waits[len(waits) // 2],
        gap_p99_s=waits[len(waits) * 99 // 100],
        gap_most_s=max(gaps),
    )


def table_of(costs: Costs) -> Table:
    table = Table(
        "servers",
        "open turns",
        "sweeps/s",
        "database, cores",
        "of it sweeps",
        "for each server",
        "before",
        "until a sweep, p50",
        "p99",
        "longest",
    )
    for servers in FLEETS:
        found = simulated(servers)
        open_turns = servers * TURNS_PER_S * TURN_S
        sweeps = found.sweeps_per_s * open_turns * costs.sweep_us / 1e6
        sweeps += servers / limits.sweep_count_s * servers * costs.node_us / 1e6
        if servers > limits.sweepers_max:  # which look at their own turns while they rest
            sweeps += open_turns / limits.sweep_s * costs.own_us / 1e6
        fixed = servers * (costs.rest_ms / 1e3 + costs.poll_us / SIGNALS_S / 1e6)
        turns = servers * TURNS_PER_S * costs.database_ms / 1e3
        cores = turns + fixed + sweeps
        before = turns + fixed + servers / limits.sweep_s * open_turns * costs.sweep_us / 1e6
        table.add_row(
            f"{servers:,}",
            f"{open_turns:,.0f}",
            f"{found.sweeps_per_s:.2f}",
            f"{cores:.2f}",
            f"{sweeps:.3f}",
            f"{1e3 * cores / servers:.1f} ms/s",
            f"{1e3 * before / servers:.1f} ms/s",
            f"{found.gap_p50_s:.1f} s",
            f"{found.gap_p99_s:.1f} s",
            f"{found.gap_most_s:.1f} s",
        )
    return table


def main() -> None:
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table_of(Costs()))
    console.print(f"{TURNS_PER_S:g} turns a second at each server, open for {TURN_S:g} s")


if __name__ == "__main__":
    main()
