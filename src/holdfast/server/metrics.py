"""`GET /metrics`: the numbers of this server, of all its workers, as Prometheus reads them.

They are collected for each request. No label has an id, a tenant's name or anything else in it that a client
can choose; how many series there are is decided here and in `observe/tally.py`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate

from holdfast import limits
from holdfast.errors import StoreError
from holdfast.libraries import prometheus_client as prometheus
from holdfast.observe.tally import Durations, Tally
from holdfast.server.http.routing import AnswerDescription, HttpCall, Route
from holdfast.server.processes.file_descriptors import CAUSES
from holdfast.server.processes.numbers import Numbers, ServerNumbers, process_metrics
from holdfast.sessions.sessions import Load, Sessions
from holdfast.store.outcomes import StoreStats


class Metrics:
    """The endpoint. One instance serves every request."""

    def __init__(self, sessions: Sessions, numbers: Numbers) -> None:
        self._sessions = sessions
        self._numbers = numbers
        self._stored: StoreStats | None = None
        self._counted_s = -math.inf

    @Route(
        "GET /metrics",
        "metrics",
        "readMetrics",
        AnswerDescription("The numbers of this process.", str, media_type="text/plain"),
    )
    async def show(self, call: HttpCall) -> None:
        """Numbers for Prometheus."""
        await self._count_stored()
        body = prometheus.generate_latest(self)
        await call.exchange.answer(200, body, media_type=prometheus.CONTENT_TYPE_LATEST)

    async def _count_stored(self) -> None:
        """Count what is in the store, once a minute at most: it takes a while where there is much. A store that does
        not answer keeps its last numbers: the metrics of the rest are what an operator needs then."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._counted_s < limits.store_counts_s:
            return
        self._counted_s = now_s
        with suppress(StoreError):
            self._stored = await self._sessions.store.stats()

    def collect(self) -> Iterator[prometheus.Metric]:
        gathered = self._numbers.gather(self._sessions)
        yield from counter_metrics(gathered.tally)
        yield from work_metrics(gathered.tally)
        yield from gauge_metrics(gathered.load)
        if self._stored is not None:
            yield from store_metrics(self._stored)
        yield from worker_metrics(gathered)
        yield from prometheus.PlatformCollector(registry=None).collect()


def worker_metrics(gathered: ServerNumbers) -> Iterator[prometheus.Metric]:
    """Metrics of the processes themselves."""
    yield prometheus.metrics_core.GaugeMetricFamily(
        "holdfast_workers", "Processes that serve here.", value=gathered.workers
    )
    yield prometheus.metrics_core.CounterMetricFamily(
        "holdfast_worker_restarts",
        "Workers that were started because another one had ended.",
        value=gathered.restarts,
    )
    for family in process_metrics():
        for sample in family.samples:
            family.samples = [sample._replace(value=gathered.process[sample.name])]
            yield family


def counter_metrics(tally: Tally) -> Iterator[prometheus.Metric]:
    """Metrics that count what has happened since the start."""
    turns = prometheus.metrics_core.CounterMetricFamily(
        "holdfast_turns",
        "Turns that ended here, by how, and by what became of them.",
        labels=("ended_by", "fate"),
    )
    for (by, fate), number in sorted(tally.turns.items()):
        turns.add_metric((by, fate), number)
    yield turns
    admissions = prometheus.metrics_core.CounterMetricFamily(
        "holdfast_admissions",
        "Requests for a turn, by how they got it: began, queued, stateless, joined, replayed, recognised, "
        "steered.",
        labels=("how",),
    )
    for how in ("began", "queued", "stateless", "joined", "replayed", "recognised", "steered"):
        admissions.add_metric((how,), tally.admissions[how])
    yield admissions
    requests = prometheus.metrics_core.CounterMetricFamily(
        "holdfast_requests", "HTTP requests, by route and status.", labels=("route", "status")
    )
    for (route, status), number in sorted(tally.requests.items()):
        requests.add_metric((route, str(status)), number)
    yield requests
    tokens = prometheus.metrics_core.CounterMetricFamily(
        "holdfast_tokens", "Tokens of turns that ended here.", labels=("kind",)
    )
    for kind in ("input", "cached", "output", "reasoning", "estimated"):
        tokens.add_metric((kind,), tally.tokens[kind])
    yield tokens
    yield prometheus.metrics_core.CounterMetricFamily(
        "holdfast_cost",
        "What those turns cost, in the currency of the price lists.",
        value=tally.cost_micros / 1e6,
    )
    yield prometheus.metrics_core.CounterMetricFamily(
        "holdfast_takeovers",
        "Turns that were taken over from a node that was gone.",
        value=tally.takeovers,
    )
    files = prometheus.metrics_core.CounterMetricFamily(
        "holdfast_files_exhausted",
        "How often there were no files left to open, by whose: the process's, or the system's.",
        labels=("cause",),
    )
    for cause in CAUSES.values():
        files.add_metric((cause,), tally.files_exhausted[cause])
    yield files
    failures = prometheus.metrics_core.CounterMetricFamily(
        "holdfast_task_failures",
        "Rounds of tasks that live as long as the process and ended in an error, by task.",
        labels=("task",),
    )
    for task, number in sorted(tally.task_failures.items()):
        failures.add_metric((task,), number)
    yield failures
    yield _histogram(
        "holdfast_admission_seconds", "From a request for a turn to its begin.", tally.admitting
    )
    yield _histogram(
        "holdfast_first_words_seconds", "From a request to its first words.", tally.first_words
    )
    yield _histogram(
        "holdfast_commit_seconds", "From a turn's last word to its end on disk.", tally.settling
    )
    yield _histogram("holdfast_turn_seconds", "Whole turns.", tally.turning)


def work_metrics(tally: Tally) -> Iterator[prometheus.Metric]:
    """Metrics by agent, model and tool: names that agent files and MCP servers choose, bounded in number."""
    about, per_second = ("agent", "provider", "model"), 1000
    for name, help_text, labels, series, unit in (
        ("agent_turns", "Turns, by agent and end.", ("agent", "ended_by"), tally.agent_turns, 1),
        ("model_answers", "Answers of models.", (*about, "outcome"), tally.answers, 1),
        ("model_seconds", "How long these took.", about, tally.answer_ms, per_second),
        ("model_tokens", "Tokens of these.", (*about, "kind"), tally.model_tokens, 1),
        ("model_cost", "What these cost.", about, tally.model_cost_micros, 1e6),
        ("tool_calls", "Runs of tools.", ("agent", "tool", "outcome"), tally.calls, 1),
        ("tool_seconds", "How long these took.", ("agent", "tool"), tally.call_ms, per_second),
    ):
        family = prometheus.metrics_core.CounterMetricFamily(
            f"holdfast_{name}", help_text, labels=labels
        )
        for found, number in sorted(series.items()):
            values = _with_provider(found) if "provider" in labels else found
            family.add_metric(values, number / unit)
        yield family


def _with_provider(labels: tuple[str, ...]) -> tuple[str, ...]:
    agent, model, *others = labels
    provider, _, name = model.partition("/")
    return (agent, provider, name or model, *others)


def store_metrics(stored: StoreStats) -> Iterator[prometheus.Metric]:
    """Metrics of what the store holds, of all tenants and servers."""
    for name, help_text, number in (
        ("holdfast_store_bytes", "The size of the database.", stored.bytes),
        ("holdfast_store_sessions", "Conversations in the store.", stored.sessions),
        ("holdfast_store_turns", "Committed turns in the store.", stored.turns_committed),
    ):
        yield prometheus.metrics_core.GaugeMetricFamily(name, help_text, value=number)


def gauge_metrics(load: Load) -> Iterator[prometheus.Metric]:
    """Metrics of this moment."""
    for name, help_text, number in (
        ("holdfast_turns_running", "Turns that are played here.", load.turns),
        ("holdfast_turns_queued", "Turns that wait in the store for a session.", load.queued),
        ("holdfast_lanes", "Sessions with a turn, or a request for one, here.", load.lanes),
        ("holdfast_lane_waiting", "Requests that wait for a session.", load.waiting),
        ("holdfast_watchers", "Clients that watch a turn that is played here.", load.watchers),
        ("holdfast_store_queue", "Calls that wait for the store.", load.store_queue),
        (
            "holdfast_store_read_only",
            "1 if the store is damaged and not written.",
            int(load.read_only),
        ),
        (
            "holdfast_store_damaged",
            "Causes of damage that were met there since it was opened.",
            load.damaged,
        ),
        ("holdfast_lease_live", "1 if all workers may hold sessions.", int(load.live)),
        ("holdfast_tasks_failing", "Tasks whose last round failed.", len(load.failing)),
    ):
        yield prometheus.metrics_core.GaugeMetricFamily(name, help_text, value=number)


def _histogram(name: str, help_text: str, durations: Durations) -> prometheus.Metric:
    bounds = (*map(_bound, durations.bounds), "+Inf")
    buckets = list(zip(bounds, accumulate(durations.counts), strict=True))
    return prometheus.metrics_core.HistogramMetricFamily(
        name, help_text, buckets=buckets, sum_value=durations.total_s
    )


def _bound(seconds: float) -> str:
    return f"{float(seconds)}"
