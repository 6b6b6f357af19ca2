"""How figures are said."""

from __future__ import annotations

from _figures import BARE, Line


def number(value: float) -> str:
    """Three figures that matter, and thousands apart: 0.0213, 4.07, 18.2, 941, 93,800."""
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1000:
        step = 10 ** (len(str(int(size))) - 3)
        return f"{round(value / step) * step:,.0f}"
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    said = f"{value:.{digits}f}"
    return said if float(said) else f"{value:.1g}"


def said(value: float, unit: str) -> str:
    return f"{number(value)}{unit}" if unit.startswith("/") else f"{number(value)} {unit}"


def spread(line: Line, system: str) -> str:
    """The rounds' range: `3.9–4.4`. Empty without one."""
    found = line.spread(system)
    if found is None:
        return ""
    low, high = map(number, found)
    return f"{low}–{high}"


def rounds(line: Line, system: str) -> str:
    """How often it was measured, to those who see a median: the range of its rounds, or that there was one."""
    return spread(line, system) or ("one round" if line.values.get(system) else "")


def capital(text: str) -> str:
    """With a capital letter in front."""
    return text[:1].upper() + text[1:]


def ratio(value: float) -> str:
    if value >= 10:
        return f"{number(value)}×"
    return f"{value:.2f}×" if value >= 0.1 else f"{value:.2g}×"


def to_bare(line: Line, system: str) -> str:
    """How a system's figure relates to the bare proxy's. Empty for the proxy itself, and where there is none."""
    found = line.ratio(system, BARE) if system != BARE else None
    return f"{ratio(found)} bare" if found else ""
