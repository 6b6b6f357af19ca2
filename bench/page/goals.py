"""What we want to be true, what is, and why where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from _figures import BARE, OURS, Figures, Line, Semantics
from _names import (
    AT_REST,
    BARE_STATEMENTS,
    BARE_VALUES,
    FIRST,
    HISTORY_CPU,
    JSON_P50,
    LONG,
    PACE,
    READY,
    SHORT,
    WRITTEN,
    at_history,
    in_store,
    tokens_at,
)
from msgspec import Struct

from page import words
from page.markup import Html, coded, el
from page.tables import Row, table

Of = Callable[["Known"], float | None]


class Known(Struct, frozen=True):
    """Everything that was found, to be asked for a line by its group and name."""

    figures: Sequence[Figures]
    semantics: Semantics

    def line(self, group: str, what: str) -> Line | None:
        return next(
            (found for each in self.figures if each.group == group if (found := each.line(what))),
            None,
        )

    def middle(self, group: str, what: str) -> float | None:
        line = self.line(group, what)
        return line.middle(OURS) if line else None

    def ratio(self, group: str, what: str, to: str) -> float | None:
        line = self.line(group, what)
        return line.ratio(OURS, to) if line else None

    def to_best(self, group: str, what: str) -> float | None:
        """Our median to that of the best of the peers."""
        line = self.line(group, what)
        best = line.best(besides=(OURS, BARE)) if line else None
        return line.ratio(OURS, best) if line and best else None

    def growth(self, group: str, last: str, first: str) -> float | None:
        """One line's median of ours to another's."""
        high, low = self.middle(group, last), self.middle(group, first)
        return high / low if high is not None and low else None

    def broken(self) -> float | None:
        """How many behaviours we do not keep, over all ways in which we were set up."""
        ours = [column for column in self.semantics.columns if column.title == OURS]
        cells = [column.cell(row.name) for column in ours for row in self.semantics.behaviours]
        return float(sum(cell.verdict != "held" for cell in cells)) if cells else None


class Goal(Struct, frozen=True):
    """Something that we want to be true."""

    words: str
    side: Literal["≤", "≥"]
    bound: float
    of: Of
    unit: str = "×"
    known: str = ""
    """Why it is missed, where we know."""


GOALS = (
    Goal("Behaviours that do not hold here", "≤", 0, Known.broken, unit=""),
    Goal(
        "Tokens per second and core at 50 streams, answers of 1,000, to the bare proxy",
        "≥",
        0.4,
        lambda known: known.ratio("tokens", tokens_at(50, LONG), BARE),
    ),
    Goal(
        "Tokens per second and core at 50 streams, answers of 1,000, to the best of the peers",
        "≥",
        25,
        lambda known: known.to_best("tokens", tokens_at(50, LONG)),
    ),
    Goal(
        "Tokens per second and core at 50 streams, answers of 200, to the best of the peers",
        "≥",
        25,
        lambda known: known.to_best("tokens", tokens_at(50, SHORT)),
        known="two thirds of what such an answer costs are its turn, whatever its length; with 1,000 tokens, less than a third",
    ),
    Goal(
        "CPU per token at a human pace, to the bare proxy",
        "≤",
        1.5,
        lambda known: known.ratio("pace", PACE, BARE),
        known="runs lie on both sides of it; `docs/decisions/0026` says what a token passes through",
    ),
    Goal(
        "CPU per token at a human pace, to the best of the peers",
        "≤",
        0.2,
        lambda known: known.to_best("pace", PACE),
    ),
    Goal(
        "Time added to the first token, p50",
        "≤",
        2,
        lambda known: known.middle("first", FIRST),
        unit="ms",
    ),
    Goal(
        "A JSON turn, p50",
        "≤",
        4,
        lambda known: known.middle("turn", JSON_P50),
        unit="ms",
    ),
    Goal(
        "A JSON turn, p50, to the bare proxy",
        "≤",
        2,
        lambda known: known.ratio("turn", JSON_P50, BARE),
        known="a turn here is two synced transactions, and the bare proxy has one",
    ),
    Goal(
        "CPU of a turn at 5,000 messages, to one at 10",
        "≤",
        1.3,
        lambda known: known.growth(
            "history", at_history(HISTORY_CPU, 5000), at_history(HISTORY_CPU, 10)
        ),
    ),
    Goal(
        "Bytes written for a turn at 1,000 messages, to one at 10",
        "≤",
        1.2,
        lambda known: known.growth(
            "writes",
            at_history(WRITTEN, 1000),
            at_history(WRITTEN, 10),
        ),
    ),
    Goal(
        "Durable turns per second at 256 sessions, to a bare loop that commits the same values",
        "≥",
        0.6,
        lambda known: known.ratio(
            "durable",
            in_store(256),
            BARE_VALUES,
        ),
        known="tables in which things can be found again cost more than rows that are only "
        "appended; `docs/decisions/0012` says what was tried",
    ),
    Goal(
        "The same, to a bare loop that runs the same statements",
        "≥",
        0.5,
        lambda known: known.ratio(
            "durable",
            in_store(256),
            BARE_STATEMENTS,
        ),
    ),
    Goal(
        "Ready to answer",
        "≤",
        1,
        lambda known: known.middle("start", READY),
        unit="s",
    ),
    Goal(
        "Memory at rest",
        "≤",
        75,
        lambda known: known.middle("start", AT_REST),
        unit="MB",
    ),
)


class Outcome(Struct, frozen=True):
    """A goal, and what became of it. Neither met nor missed if there is nothing to judge it by."""

    goal: Goal
    value: float | None

    @property
    def verdict(self) -> Literal["met", "missed", "not measured"]:
        if self.value is None:
            return "not measured"
        goal = self.goal
        is_met = self.value <= goal.bound if goal.side == "≤" else self.value >= goal.bound
        return "met" if is_met else "missed"

    @property
    def why(self) -> str:
        if self.verdict != "missed":
            return ""
        return self.goal.known or "we know of no reason: it is a slip, or the machine was busy"


def outcomes(known: Known, goals: Sequence[Goal] = GOALS) -> Iterator[Outcome]:
    for goal in goals:
        yield Outcome(goal, goal.of(known))


def section(found: Sequence[Outcome]) -> Html:
    rows = [
        Row(
            each.goal.words,
            [
                (f"{each.goal.side} {_bound(each.goal)}", "figure"),
                ("" if each.value is None else _said(each.value, each.goal.unit), "figure"),
                (el("span", each.verdict, class_="word"), each.verdict.replace(" ", "-")),
                (coded(each.why), "why"),
            ],
        )
        for each in found
    ]
    caption = "What we want to be true of ourselves, and what was found"
    return table(caption, "goal", ["wanted", "found", "verdict", "why"], rows, kind="goals")


def _bound(goal: Goal) -> str:
    gap = "" if goal.unit == "×" else " "
    return f"{goal.bound:g}{gap}{goal.unit}".strip()


def _said(value: float, unit: str) -> str:
    if unit == "×":
        return words.ratio(value)
    return words.said(value, unit).strip()
