"""Which behaviours hold at which system: a table whose cells open their evidence, without a script."""

from __future__ import annotations

from collections import Counter

from _figures import Behaviour, Cell, Column, Semantics

from page.markup import Html, coded, el
from page.plots import MARKS
from page.tables import Row, table

MANY = 6
"""Columns beyond which there is no room for words: signs have to do, and headings stand upright."""
EVIDENCE_LINES = 200
"""More is cut, and said to be: the whole is in the JSON."""


def section(semantics: Semantics) -> list[Html]:
    if not semantics.columns:
        return [el("p", "No scenarios have been run here.", class_="empty")]
    columns = semantics.columns
    rows = [
        Row(
            [el("span", row.title, class_="title"), el("span", row.promise, class_="promise")],
            [(_cell(row, column), _kind(column.cell(row.name))) for column in columns],
        )
        for row in semantics.behaviours
    ]
    held = [held_of_played(counts(column, semantics.behaviours)) for column in columns]
    title = el("span", "Held, of those that could be played", class_="title")
    rows.append(Row(title, [(el("b", each), "total") for each in held]))
    signs = ", ".join(f"{sign} {verdict}" for verdict, sign in MARKS.items())
    caption = (
        "Behaviours, and what became of them at each system. "
        f"Each verdict opens its evidence. {signs}."
    )
    names = [column.name for column in columns]
    return [
        table(
            caption,
            "behaviour",
            names,
            rows,
            kind="verdicts many" if len(columns) > MANY else "verdicts",
        ),
        el("h3", "How each system was set up"),
        el("dl", [_setup(column) for column in columns], class_="setup"),
    ]


def counts(column: Column, behaviours: list[Behaviour]) -> Counter[str]:
    """How many of the behaviours had which verdict."""
    return Counter(column.cell(row.name).verdict for row in behaviours)


def held_of_played(found: Counter[str]) -> str:
    """As `9/11`: what is not offered, or was not run, is no promise that was broken."""
    return f"{found['held']}/{found['held'] + found['broken']}"


def _kind(cell: Cell) -> str:
    return cell.verdict.replace(" ", "-")


def _cell(row: Behaviour, column: Column) -> Html:
    cell = column.cell(row.name)
    mark = el("span", MARKS[cell.verdict], aria_hidden="true", class_="sign")
    evidence = cell.evidence[:EVIDENCE_LINES]
    left = len(cell.evidence) - len(evidence)
    return el(
        "details",
        el("summary", mark, " ", el("span", cell.verdict, class_="word")),
        el(
            "div",
            el("p", el("b", f"{column.name}: {row.title}")),
            el("p", coded(cell.why)) if cell.why else None,
            el("pre", "\n".join(evidence), tabindex="0") if evidence else None,
            el("p", f"… and {left} more lines, in the JSON of the run") if left else None,
            class_="evidence",
        ),
        name="evidence",
    )


def _setup(column: Column) -> list[Html]:
    versions = ", ".join(f"{name} {version}" for name, version in column.versions.items())
    ran = f"ran {column.ran_at}, {column.seconds:.0f} s"
    return [
        el("dt", column.name),
        el(
            "dd",
            coded(column.configured),
            " ",
            el("small", f"({'; '.join(filter(None, (versions, ran)))})"),
        ),
    ]
