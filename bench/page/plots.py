"""Plots as SVG: bars and curves on logarithmic scales, with the spread of their rounds.

They are narrow, so that their words stay readable on a phone, and have no colours of their own: the style sheet of
the page gives marks theirs, in light and in dark. What they show is in a table beside them, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from _figures import Line, Semantics, Verdict
from msgspec import Struct

from page import words
from page.markup import Child, Html, el
from page.palette import Palette

WIDTH = 400.0
ROW, BAR = 38.0, 11.0
TOP, BOTTOM = 6.0, 24.0
CURVE_HEIGHT, LEFT, RIGHT = 270.0, 40.0, 148.0
LABEL = 14.0
NAME_CHARS, CURVE_CHARS = 38, 18


class Log(Struct, frozen=True):
    """A logarithmic scale: whole decades of values, on a stretch of pixels. `start` may be behind `end`."""

    low: int
    high: int
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> Log:
        """The decades that hold these values. Those that are not above 0 have no place, and are not looked at."""
        seen = [value for value in values if value > 0] or [1.0]
        low, high = math.floor(math.log10(min(seen))), math.ceil(math.log10(max(seen)))
        if 10.0**low == min(seen) or high - low < 2:
            low -= 1  # a bar of no length says nothing, and one decade makes little look like much
        return cls(low, max(high, low + 2), start, end)

    def at(self, value: float) -> float:
        """Where a value is; what is below the scale is at its start."""
        if value <= 0:
            return self.start
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + max(0.0, min(1.0, share)) * (self.end - self.start)

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def briefly(name: str, chars: int) -> str:
    """A name that fits beside its mark; the table has all of it."""
    return name if len(name) <= chars else f"{name[: chars - 1].rstrip()}…"


def short(value: float) -> str:
    """A tick: 0.01, 1, 100, 10k, 1M."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


# ── bars ─────────────────────────────────────────────────────────────────────────────────────


def bars(line: Line, palette: Palette) -> Html:
    """One line: a bar for each system, its median beside it, its rounds as a thin stroke."""
    systems = [name for name in line.values if line.values[name]]
    values = [value for name in systems for value in line.values[name]]
    scale = Log.over(values, 0.0, WIDTH)
    foot = TOP + ROW * len(systems)
    rows = [
        _bar(line, name, palette.of(name), scale, TOP + ROW * number)
        for number, name in enumerate(systems)
    ]
    return _svg(
        foot + BOTTOM,
        f"{line.what}, in {line.unit}; {line.better} is better",
        _grid(scale, TOP, foot),
        rows,
    )


def _bar(line: Line, system: str, kind: str, scale: Log, top: float) -> Html:
    middle = line.middle(system)
    assert middle is not None
    y = top + 19.0
    spread = line.spread(system)
    stroke = None
    if spread:
        low, high = map(scale.at, spread)
        mid = y + BAR / 2
        stroke = el("path", d=f"M{low:.1f} {mid:.1f}H{max(high, low + 1):.1f}", class_="spread")
    said = words.said(middle, line.unit)
    return el(
        "g",
        el("text", briefly(system, NAME_CHARS), x=0.0, y=top + LABEL, class_=f"name {kind}"),
        el("text", said, x=WIDTH, y=top + LABEL, class_="value"),
        el("rect", x=0.0, y=y, width=scale.at(middle), height=BAR, rx=2.0, class_=f"mark {kind}"),
        stroke,
        class_="row",
    )


def _grid(scale: Log, top: float, foot: float) -> Iterator[Html]:
    for tick in scale.ticks():
        x = scale.at(tick)
        yield el("path", d=f"M{x:.1f} {top:.1f}V{foot:.1f}", class_="grid")
        anchor = "start" if x < 12 else "end" if x > WIDTH - 12 else "middle"
        yield el("text", short(tick), x=x, y=foot + 16, class_="tick", text_anchor=anchor)


# ── curves ───────────────────────────────────────────────────────────────────────────────────


class Point(Struct, frozen=True):
    """Where a system was at one place of the horizontal axis, in pixels."""

    x: float
    y: float
    low: float
    high: float


def curves(lines: Sequence[Line], axis: str, palette: Palette) -> Html:
    """Lines of one curve: how each system's figure goes along the axis. Both scales are logarithmic."""
    systems = list(dict.fromkeys(name for line in lines for name in line.values))
    values = [value for line in lines for rounds in line.values.values() for value in rounds]
    foot = CURVE_HEIGHT - 44
    places = [line.at for line in lines]
    across = Stretch(min(places), max(places), LEFT, WIDTH - RIGHT)
    up = Log.over(values, foot, TOP + 8)
    found = {name: list(_points(lines, name, across, up)) for name in systems}
    ends = {name: points[-1] for name, points in found.items() if points}
    labels = apart({name: point.y for name, point in ends.items()}, LABEL)
    return _svg(
        CURVE_HEIGHT,
        f"{lines[0].curve} in {lines[0].unit}, over {axis}; {lines[0].better} is better",
        _rules(lines, across, up, foot),
        [_curve(points, palette.of(name)) for name, points in found.items()],
        [
            el(
                "text",
                briefly(name, CURVE_CHARS),
                x=WIDTH - RIGHT + 9,
                y=y + 4,
                class_=f"name label {palette.of(name)}",
            )
            for name, y in labels.items()
        ],
        el("text", axis, x=(LEFT + WIDTH - RIGHT) / 2, y=foot + 36, class_="axis"),
    )


class Stretch(Struct, frozen=True):
    """A logarithmic scale that begins and ends where its values do."""

    first: float
    last: float
    start: float
    end: float

    def at(self, value: float) -> float:
        if self.first == self.last:
            return self.start
        share = math.log(value / self.first) / math.log(self.last / self.first)
        return self.start + share * (self.end - self.start)


def _points(lines: Sequence[Line], system: str, across: Stretch, up: Log) -> Iterator[Point]:
    for line in lines:
        middle = line.middle(system)
        if middle is not None:
            low, high = line.spread(system) or (middle, middle)
            yield Point(across.at(line.at), up.at(middle), up.at(low), up.at(high))


def _curve(points: Sequence[Point], kind: str) -> Html:
    way = "L".join(f"{point.x:.1f} {point.y:.1f}" for point in points)
    return el(
        "g",
        el("path", d=f"M{way}", class_=f"line {kind}"),
        [
            el("path", d=f"M{point.x:.1f} {point.low:.1f}V{point.high:.1f}", class_="spread")
            for point in points
            if abs(point.low - point.high) >= 1
        ],
        [el("circle", cx=point.x, cy=point.y, r=3.5, class_=f"mark {kind}") for point in points],
    )


def _rules(lines: Sequence[Line], across: Stretch, up: Log, foot: float) -> Iterator[Html]:
    for tick in up.ticks():
        y = up.at(tick)
        yield el("path", d=f"M{LEFT:.1f} {y:.1f}H{WIDTH - RIGHT:.1f}", class_="grid")
        yield el("text", short(tick), x=LEFT - 8, y=y + 4, class_="tick", text_anchor="end")
    for line in lines:
        x = across.at(line.at)
        yield el("path", d=f"M{x:.1f} {up.end:.1f}V{foot:.1f}", class_="grid")
        yield el("text", short(line.at), x=x, y=foot + 16, class_="tick", text_anchor="middle")


def apart(heights: dict[str, float], gap: float) -> dict[str, float]:
    """Labels at these heights, pushed down as far as it takes to keep them apart; the highest stays."""
    placed: dict[str, float] = {}
    last = -math.inf
    for name, height in sorted(heights.items(), key=lambda each: each[1]):
        last = max(height, last + gap)
        placed[name] = last
    return placed


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────

MARKS: dict[Verdict, str] = {"held": "✓", "broken": "✗", "not offered": "–", "not run": "·"}
MATRIX_COLUMN, MATRIX_ROW, LETTER = 44.0, 26.0, 7.2
SLOPE = math.radians(40)


def matrix(semantics: Semantics) -> Html:
    """Every verdict at one glance: behaviours down, systems across. For pictures; the page has a table."""
    columns = semantics.columns
    left = 16 + LETTER * max(len(row.title) for row in semantics.behaviours)
    longest = LETTER * max(len(column.name) for column in columns)
    top = 20 + longest * math.sin(SLOPE)
    across = [left + MATRIX_COLUMN * (number + 0.5) for number in range(len(columns))]
    reach = LETTER * math.cos(SLOPE)
    width = max(x + reach * len(column.name) for column, x in zip(columns, across, strict=True))
    turn = f"rotate({-math.degrees(SLOPE):g} {{:.1f}} {top - 12:.1f})"
    heads = [
        el("text", column.name, x=x, y=top - 12, class_="name", transform=turn.format(x))
        for column, x in zip(columns, across, strict=True)
    ]
    rows: list[Html] = []
    for number, row in enumerate(semantics.behaviours):
        y = top + MATRIX_ROW * number
        rows.append(el("path", d=f"M0 {y:.1f}H{width:.1f}", class_="grid"))
        rows.append(el("text", row.title, x=0.0, y=y + 18, class_="name"))
        for column, x in zip(columns, across, strict=True):
            verdict = column.cell(row.name).verdict
            kind = f"verdict {verdict.replace(' ', '-')}"
            rows.append(el("text", MARKS[verdict], x=x, y=y + 19, class_=kind))
    height = top + MATRIX_ROW * len(semantics.behaviours) + 8
    return _svg(height, "which behaviours hold at which system", heads, rows, width=width)


def _svg(height: float, title: str, *children: Child, width: float = WIDTH) -> Html:
    return el(
        "svg",
        el("title", title),
        children,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=width,
        role="img",
        class_="plot",
    )
