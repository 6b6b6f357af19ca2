"""A run of some of the behaviours renews what it has played, and leaves the rest as it was."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
import semantics
from _figures import Behaviour, Cell, Column, Verdict
from rich.console import Console
from systems import environments
from systems.roster import SYSTEMS

ROWS = [Behaviour(name, name, "") for name in ("fail", "kill", "restart")]


def column(variant: str, verdict: Verdict, *behaviours: str, ran_at: str = "then") -> Column:
    cells = [Cell(each, verdict, "") for each in behaviours]
    return Column("peer", "Peer", variant, {}, "", cells, ran_at, 1.0)


def verdicts(columns: Sequence[Column]) -> dict[str, dict[str, str]]:
    return {each.variant: {cell.behaviour: cell.verdict for cell in each.cells} for each in columns}


def test_other_variants_and_other_cells_stay() -> None:
    known = [column("a", "broken", "fail", "kill"), column("b", "broken", "fail")]
    found = [column("b", "held", "kill", ran_at="now")]
    after = semantics.updated(known, found, ROWS, ["a", "b", "c"])
    assert verdicts(after) == {
        "a": {"fail": "broken", "kill": "broken"},
        "b": {"fail": "broken", "kill": "held"},
    }
    assert [(each.ran_at, each.seconds) for each in after] == [("then", 1.0), ("then – now", 2.0)]


def test_columns_and_cells_keep_their_order_whatever_was_played_first() -> None:
    known = [column("b", "held", "restart")]
    found = [column("b", "held", "fail"), column("a", "held", "kill", "fail")]
    after = semantics.updated(known, found, ROWS, ["a", "b"])
    assert [(each.variant, [cell.behaviour for cell in each.cells]) for each in after] == [
        ("a", ["fail", "kill"]),
        ("b", ["fail", "restart"]),
    ]


def test_a_run_of_everything_replaces_everything() -> None:
    known = [column("a", "broken", "fail", "kill", "restart", ran_at="long ago – then")]
    found = column("a", "held", "fail", "kill", "restart", ran_at="now")
    assert semantics.updated(known, [found], ROWS, ["a"]) == [found]


def test_later_runs_count_from_the_first() -> None:
    known = [column("a", "held", "fail", ran_at="long ago – then")]
    (after,) = semantics.updated(known, [column("a", "held", "kill", ran_at="now")], ROWS, ["a"])
    assert after.ran_at == "long ago – now"


def test_what_another_version_did_is_not_kept() -> None:
    known = [msgspec.structs.replace(column("a", "held", "fail"), versions={"peer": "0.9"})]
    found = column("a", "held", "kill")
    assert semantics.updated(known, [found], ROWS, ["a"]) == [found]


def test_what_there_is_no_more_is_dropped() -> None:
    known = [column("gone", "held", "fail"), column("a", "held", "gone", "kill")]
    assert verdicts(semantics.updated(known, [], ROWS, ["a"])) == {"a": {"kill": "held"}}


@pytest.mark.parametrize(
    ("peer", "variant", "said"),
    [("nobody", None, "holdfast"), ("holdfast", "MySQL", "PostgreSQL")],
)
def test_an_unknown_system_is_refused_with_those_that_there_are(
    peer: str, variant: str | None, said: str
) -> None:
    with pytest.raises(SystemExit, match=said):
        semantics.chosen_systems(peer, variant)


def test_an_unknown_behaviour_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SystemExit, match="kill_in_tool"):
        semantics.chosen_behaviours("restart,kill_in_the_tool")


def test_a_known_behaviour_is_chosen() -> None:
    assert [each.name for each in semantics.chosen_behaviours("restart")] == ["restart"]


def test_an_environment_is_installed_once_for_all_variants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []

    def build(environment: str, interpreter: str = "") -> str:
        tried.append(environment)
        return "there is no network"

    monkeypatch.setattr(environments, "build", build)
    console = Console(quiet=True)
    systems = [each for each in SYSTEMS if each.environment == "langgraph"]
    assert list(semantics.there(systems, install=True, console=console)) == []
    assert (len(systems) > 1, tried) == (True, ["langgraph"])
