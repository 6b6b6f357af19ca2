"""What operators are given fits the server: metric names, dashboards, alerts, settings, and the security checklist."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.core import Metric

from holdfast.server.metrics import (
    counter_metrics,
    gauge_metrics,
    store_metrics,
    work_metrics,
    worker_metrics,
)
from holdfast.server.processes.numbers import OwnNumbers
from holdfast.testing import ScriptedModel
from tests import repository
from tests.server.stubs import agent, serving

DOCS = repository.ROOT / "docs"
NAME = re.compile(r"\bholdfast_[a-z_]+")


@pytest.fixture
async def metrics() -> list[Metric]:
    async with serving(agent(ScriptedModel())) as server:
        gathered = OwnNumbers().gather(server.sessions)
        ours = [
            *counter_metrics(gathered.tally),
            *work_metrics(gathered.tally),
            *store_metrics(await server.sessions.store.stats()),
            *gauge_metrics(gathered.load),
            *worker_metrics(gathered),
        ]
        return [each for each in ours if each.name.startswith("holdfast_")]


def samples_of(metric: Metric) -> set[str]:
    """The names by which a metric is queried."""
    match metric.type:
        case "counter":
            return {f"{metric.name}_total"}
        case "histogram":
            return {f"{metric.name}_{part}" for part in ("bucket", "count", "sum")}
        case _:
            return {metric.name}


def strangers(text: str, metrics: list[Metric]) -> set[str]:
    """Names of metrics in a text that there are none of."""
    return set(NAME.findall(text)) - {name for each in metrics for name in samples_of(each)}


def test_every_metric_is_explained_and_no_other(metrics: list[Metric]) -> None:
    rows = re.findall(
        r"^\| `(holdfast_\w+)` \| (\w+) \|", _read("reference/metrics.md"), re.MULTILINE
    )
    shown = {
        each.name + ("_total" if each.type == "counter" else ""): each.type for each in metrics
    }
    assert dict(rows) == shown


def test_the_dashboard_asks_for_metrics_that_there_are(metrics: list[Metric]) -> None:
    board = json.loads(_read("operations/dashboard.json"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(asked) > 10
    assert strangers("\n".join(asked), metrics) == set()
    assert all(NAME.search(each) for each in asked)


def test_the_alerts_ask_for_metrics_that_there_are_and_say_where_to_look(
    metrics: list[Metric],
) -> None:
    [group] = yaml.safe_load(_read("operations/alerts.yml"))["groups"]
    for rule in group["rules"]:
        assert strangers(rule["expr"], metrics) == set(), rule["alert"]
        assert NAME.search(rule["expr"]) and rule["annotations"]["look"]


def test_a_metric_that_there_is_not_is_seen(metrics: list[Metric]) -> None:
    asked = "rate(holdfast_turns_total[5m]) / holdfast_turns + holdfast_commit_seconds_max"
    assert strangers(asked, metrics) == {"holdfast_turns", "holdfast_commit_seconds_max"}


def test_every_line_of_the_threat_model_is_held_by_a_test_that_exists() -> None:
    page = _read("security.md")
    rows = [each for each in page.splitlines() if re.match(r"\| (?!what it can)[^-]", each)]
    assert [each for each in rows if not re.search(r"\| `tests/[\w/]+\.py::\w+` \|$", each)] == []
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) == len(rows) > 70
    assert [each for each in named if each[1] not in _tests_in(each[0])] == []


def _tests_in(path: str) -> set[str]:
    tree = ast.parse((repository.ROOT / path).read_text(encoding="utf-8"))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in tree.body if isinstance(node, kinds)}


def _read(name: str) -> str:
    return Path(DOCS / name).read_text(encoding="utf-8")
