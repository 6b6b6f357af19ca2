"""What befalls replicas and their database, and when: drawn from a seed, so that a run can be had again.

kill      SIGKILL; started again after a while
drain     SIGTERM; started again when it is gone
hurry     SIGTERM twice
pause     SIGSTOP for longer than a lease, then SIGCONT
blink     SIGSTOP for less than that
cut       its connections to the database are torn down, and none is made for a while
silence   nothing of what it and the database say to each other arrives, until much of it is too late

restart   the database is stopped, its transactions are ended, and it is started
crash     the database dies at once, and recovers from its log
away      the database is stopped for longer than a lease
slow      every answer of the database takes longer
full      the database has no free connection, and has ended those of the replicas
"""

from __future__ import annotations

from random import Random
from typing import Literal, TypeAlias, get_args

from holdfast.core.codec import Value

OfReplica: TypeAlias = Literal["kill", "drain", "hurry", "pause", "blink", "cut", "silence"]
OfDatabase: TypeAlias = Literal["restart", "crash", "away", "slow", "full"]
Kind: TypeAlias = OfReplica | OfDatabase

OF_REPLICA: tuple[OfReplica, ...] = get_args(OfReplica)
OF_DATABASE: tuple[OfDatabase, ...] = get_args(OfDatabase)


class Fault(Value):
    """Something that begins at a moment and lasts for a while. `replica` is None if it befalls the database."""

    at_s: float
    kind: Kind
    for_s: float
    replica: int | None = None

    @property
    def until_s(self) -> float:
        return self.at_s + self.for_s

    def __str__(self) -> str:
        whom = "the database" if self.replica is None else f"replica {self.replica}"
        return f"{self.at_s:6.1f} s  {self.kind} {whom} for {self.for_s:.1f} s"


def draw_faults(
    seed: int, *, from_s: float, to_s: float, replicas: int, ttl_s: float
) -> tuple[Fault, ...]:
    """One every few seconds. Nothing is struck again before it has recovered, but several things may be struck at
    once; the database is left alone for a while after each time, since nobody is taken over from meanwhile."""
    rng = Random(f"replicas/{seed}")
    free_s: dict[int | None, float] = {None: from_s, **dict.fromkeys(range(replicas), from_s)}
    faults: list[Fault] = []
    at_s = from_s
    while True:
        at_s += rng.uniform(1.0, 4.0)
        if at_s >= to_s:
            return tuple(faults)
        of_database = rng.random() < 0.25
        whom = None if of_database else rng.randrange(replicas)
        kind: Kind = rng.choice(OF_DATABASE) if of_database else rng.choice(OF_REPLICA)
        for_s = min(_lasts_s(rng, kind, ttl_s), max(0.5, to_s - at_s))
        if free_s[whom] > at_s:
            continue
        rest_s = 3 * ttl_s if of_database else ttl_s / 2
        free_s[whom] = at_s + for_s + rest_s
        faults.append(Fault(at_s=at_s, kind=kind, for_s=for_s, replica=whom))


def _lasts_s(rng: Random, kind: Kind, ttl_s: float) -> float:
    match kind:
        case "pause" | "silence" | "away":
            return ttl_s + rng.uniform(1.0, 3.0)
        case "blink":
            return ttl_s * rng.uniform(0.2, 0.6)
        case "cut":
            return ttl_s * rng.uniform(0.2, 2.0)
        case "slow" | "full":
            return rng.uniform(2.0, 4.0)
        case _:
            return rng.uniform(0.2, 2.0)
