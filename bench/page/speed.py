"""The speed groups: for each a few sentences, its plots, and every figure in a table."""

from __future__ import annotations

from itertools import groupby

from _figures import Figures, Line

from page import words
from page.markup import Child, Html, el
from page.palette import Palette
from page.plots import bars, curves
from page.tables import Row, table


def section(figures: Figures, palette: Palette) -> Html:
    return el(
        "section",
        el("h3", figures.title),
        el("p", figures.about),
        el("div", _plots(figures, palette), class_="plots"),
        el(
            "details",
            el("summary", "Every figure"),
            _table(figures),
            class_="figures",
        ),
        id=figures.group,
        class_="group",
    )


def _plots(figures: Figures, palette: Palette) -> list[Html]:
    found: list[Html] = []
    for curve, lines in groupby(sorted(figures.lines, key=_by_curve), key=lambda line: line.curve):
        if curve:
            along = sorted(lines, key=lambda line: line.at)
            found.append(_figure(curve, along[0], curves(along, figures.axis, palette)))
        else:
            found += [
                _figure(line.what, line, bars(line, palette))
                for line in lines
                if line.values and line.drawn
            ]
    return found


def _by_curve(line: Line) -> str:
    return line.curve


def _figure(title: str, line: Line, plot: Html) -> Html:
    unit = "" if line.unit.startswith("/") else f"in {line.unit}, "
    note = f" {unit}{line.better} is better; the scale is logarithmic"
    caption = [el("b", words.capital(title)), note]
    return el("figure", el("figcaption", caption), plot)


def _table(figures: Figures) -> Html:
    systems = list(
        dict.fromkeys(name for line in figures.lines for name in (*line.values, *line.notes))
    )
    rows = [
        Row(line.what, [(_cell(line, name), "figure") for name in systems])
        for line in figures.lines
    ]
    caption = (
        f"{figures.title}: the median of the rounds, their range, and the ratio to the bare proxy"
    )
    return table(caption, "measured", systems, rows, kind="speeds")


def _cell(line: Line, system: str) -> Child:
    middle, note = line.middle(system), line.notes.get(system, "")
    if middle is None:
        return el("small", first_line(note)) if note else None
    small = (words.rounds(line, system), words.to_bare(line, system), first_line(note))
    return [el("b", words.said(middle, line.unit)), *(el("small", each) for each in small if each)]


def first_line(text: str) -> str:
    """A reason may be the traceback of a client: what it ends with says it best."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    said = lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"
    return said if len(said) <= 160 else f"{said[:157]}…"
