"""Counts what happens in this process, in plain numbers.

A turn costs a handful of additions and a token none: counting calls no function of a metrics library and takes no lock.
`server/metrics.py` shows the numbers to Prometheus. They belong to one event loop.

A tally can be serialised and added to others (`written`, `sum_of`): the workers of one port show theirs to each
other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    120,
    300,
    600,
)
"""Histogram bounds for durations from a commit to a whole turn."""


class Durations:
    """A histogram of durations."""

    __slots__ = ("bounds", "counts", "total_s")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """How many durations fell between each bound and the one before; the last: above all bounds."""
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total_s += seconds

    def __repr__(self) -> str:
        return f"<Durations {sum(self.counts)} in {self.total_s:.3f} s>"


SERIES_MAX = 500
OTHER = "other"


class Series(Counter[tuple[str, ...]]):
    """Counts by names that agent files choose: of agents, models, tools. MCP servers name their tools themselves, so
    there are at most `SERIES_MAX` of them; the rest is counted as `other`."""

    def add(self, *labels: str, by: int = 1) -> None:
        """Count something under these labels."""
        if labels not in self and len(self) >= SERIES_MAX:
            labels = (OTHER,) * len(labels)
        self[labels] += by


class Tally:
    """The numbers of one process."""

    __slots__ = (
        "admissions",
        "admitting",
        "agent_turns",
        "answer_ms",
        "answers",
        "call_ms",
        "calls",
        "cost_micros",
        "files_exhausted",
        "first_words",
        "model_cost_micros",
        "model_tokens",
        "requests",
        "settling",
        "takeovers",
        "task_failures",
        "tokens",
        "turning",
        "turns",
    )

    def __init__(self) -> None:
        self.admissions: Counter[str] = Counter()
        """How requests were admitted: `began`, `stateless`, `joined`, `replayed`, `recognised`, `steered`."""
        self.admitting = Durations()
        """From a request's arrival until its turn has begun, waiting included."""
        self.turns: Counter[tuple[str, str]] = Counter()
        """By the end of turns and their outcome: `committed`, `discarded`, or `lost` to another node."""
        self.turning = Durations()
        """Whole turns, from begin to end."""
        self.settling = Durations()
        """From the decision how a turn ends until that decision is durable."""
        self.first_words = Durations()
        """From a streaming request's arrival until its first text was sent."""
        self.takeovers = 0
        self.task_failures: Counter[str] = Counter()
        """Failed rounds of supervised tasks, by task; tasks that never failed are listed with 0."""
        self.tokens: Counter[str] = Counter()
        self.cost_micros = 0
        self.files_exhausted: Counter[str] = Counter()
        """How often no file descriptor was left: in the `process`, or in the `system`."""
        self.requests: Counter[tuple[str, int]] = Counter()
        """By route and status."""
        self.agent_turns = Series()
        """By agent, and by how the turn ended."""
        self.answers = Series()
        """By agent, model (`provider/name`) and outcome: `answered`, `failed`, `stopped`."""
        self.answer_ms = Series()
        """How long these took, by agent and model."""
        self.model_tokens = Series()
        """By agent, model and kind of token."""
        self.model_cost_micros = Series()
        """By agent and model."""
        self.calls = Series()
        """Runs of tools, by agent, tool and outcome."""
        self.call_ms = Series()
        """How long these took, by agent and tool."""

    @property
    def series(self) -> tuple[Series, ...]:
        return (
            self.agent_turns,
            self.answers,
            self.answer_ms,
            self.model_tokens,
            self.model_cost_micros,
            self.calls,
            self.call_ms,
        )

    @property
    def durations(self) -> tuple[Durations, ...]:
        return self.admitting, self.turning, self.settling, self.first_words


class WrittenTally(Struct, frozen=True, kw_only=True):
    """A tally at one moment, to be sent to another worker."""

    admissions: dict[str, int] = {}
    turns: tuple[tuple[str, str, int], ...] = ()
    requests: tuple[tuple[str, int, int], ...] = ()
    tokens: dict[str, int] = {}
    files_exhausted: dict[str, int] = {}
    takeovers: int = 0
    cost_micros: int = 0
    task_failures: dict[str, int] = {}
    durations: tuple[tuple[tuple[int, ...], float], ...] = ()
    """Counts and total of each, in the order of `Tally.durations`."""
    series: tuple[tuple[tuple[tuple[str, ...], int], ...], ...] = ()
    """Labels and number of each, in the order of `Tally.series`."""


def written(tally: Tally) -> WrittenTally:
    return WrittenTally(
        admissions=dict(tally.admissions),
        turns=tuple((by, fate, number) for (by, fate), number in tally.turns.items()),
        requests=tuple((route, status, n) for (route, status), n in tally.requests.items()),
        tokens=dict(tally.tokens),
        files_exhausted=dict(tally.files_exhausted),
        takeovers=tally.takeovers,
        cost_micros=tally.cost_micros,
        task_failures=dict(tally.task_failures),
        durations=tuple((tuple(each.counts), each.total_s) for each in tally.durations),
        series=tuple(tuple(each.items()) for each in tally.series),
    )


def sum_of(tallies: Iterable[WrittenTally]) -> Tally:
    """The sum of several tallies."""
    total = Tally()
    for each in tallies:
        total.admissions.update(each.admissions)
        total.tokens.update(each.tokens)
        total.files_exhausted.update(each.files_exhausted)
        total.task_failures.update(each.task_failures)
        for by, fate, number in each.turns:
            total.turns[by, fate] += number
        for route, status, number in each.requests:
            total.requests[route, status] += number
        total.takeovers += each.takeovers
        total.cost_micros += each.cost_micros
        for durations, (counts, total_s) in zip(total.durations, each.durations, strict=False):
            durations.counts = [a + b for a, b in zip(durations.counts, counts, strict=True)]
            durations.total_s += total_s
        for series, counts_by in zip(total.series, each.series, strict=False):
            for labels, number in counts_by:
                series.add(*labels, by=number)
    return total
