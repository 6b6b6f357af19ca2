"""Medians, spread, ratios; and files that come back as they were written."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from _figures import (
    Behaviour,
    Cell,
    Column,
    Conditions,
    Figures,
    Line,
    Semantics,
    load_figures,
    load_semantics,
    merged,
    save,
)

UNDER = Conditions(
    at="2026-01-02T03:04:05+00:00",
    machine="a machine",
    cores=2,
    memory_gb=8.0,
    kernel="Linux 6",
    python="CPython 3.11",
    sqlite="3.51",
    sync_ms=1.0,
    load=0.5,
)


def line(**values: list[float]) -> Line:
    return Line("a turn", "ms", "lower", dict(values))


def test_the_middle_is_the_median_and_the_spread_needs_two_rounds() -> None:
    found = line(bare=[3.0, 1.0, 10.0], Holdfast=[4.0])
    assert found.middle("bare") == 3.0
    assert found.spread("bare") == (1.0, 10.0)
    assert found.middle("Holdfast") == 4.0
    assert found.spread("Holdfast") is None
    assert found.middle("nobody") is None
    assert found.spread("nobody") is None


def test_a_ratio_is_one_median_to_another() -> None:
    found = line(bare=[1.0, 2.0, 3.0], Holdfast=[5.0], silent=[0.0])
    assert found.ratio("Holdfast", "bare") == 2.5
    assert found.ratio("Holdfast", "nobody") is None
    assert found.ratio("nobody", "bare") is None
    assert found.ratio("Holdfast", "silent") is None
    assert line(bare=[-1.0], Holdfast=[2.0]).ratio("Holdfast", "bare") is None


def test_what_is_added_is_counted_within_the_round() -> None:
    """A round in which the machine was slow was slow for the floor, too."""
    found = line(direct=[1.0, 5.0], bare=[2.0, 7.0], slow=[9.0]).less("direct", "added")
    assert found.values == {"bare": [1.0, 2.0], "slow": [8.0]}
    assert found.what == "added"


def figures(group: str = "turn") -> Figures:
    return Figures(group, "A turn", "What it takes.", UNDER, [line(bare=[1.0], Holdfast=[2.0])])


def test_figures_come_back_as_they_were_written(tmp_path: Path) -> None:
    written = figures()
    save(figures("turn"), tmp_path)
    save(written, tmp_path)
    assert load_figures(tmp_path) == [written]


def test_a_group_without_a_figure_does_not_replace_one_that_has_some(tmp_path: Path) -> None:
    written = figures()
    assert save(written, tmp_path) is not None
    empty = figures()
    empty.lines = [line()]
    assert save(empty, tmp_path) is None
    assert load_figures(tmp_path) == [written]


def semantics(title: str, *names: str) -> Semantics:
    rows = [Behaviour(name, name.title(), "It holds.") for name in names]
    cells = [Cell(name, "held", "it did", ["> asked"]) for name in names]
    column = Column(title.lower(), title, "", {}, "as it comes", cells, "2026-01-02", 1.0)
    return Semantics(rows, [column])


def test_files_of_systems_become_one_table() -> None:
    both = merged([semantics("A", "x", "y"), semantics("B", "y", "z")])
    assert [row.name for row in both.behaviours] == ["x", "y", "z"]
    assert [column.title for column in both.columns] == ["A", "B"]


def test_ours_is_the_first_column_whatever_its_file_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "semantics"
    folder.mkdir()
    for title in ("Aaa", "Holdfast", "Zzz"):
        file = folder / f"{title.lower()}.json"
        file.write_bytes(msgspec.json.encode(semantics(title, "x")))
    found = [column.title for column in load_semantics(tmp_path).columns]
    assert found == ["Holdfast", "Aaa", "Zzz"]


def test_a_verdict_that_nobody_knows_is_no_verdict() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"behaviour": "x", "verdict": "nice", "why": ""}, Cell)
