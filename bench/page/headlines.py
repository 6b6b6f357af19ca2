"""What the page says first: a handful of sentences, each made of figures that follow further down."""

from __future__ import annotations

from collections.abc import Iterator

from _figures import BARE, OURS
from _names import FIRST, HISTORY_CPU, JSON_P50, PACE, SHORT, at_history, tokens_at

from page import words
from page.goals import Known
from page.verdicts import counts, held_of_played


def sentences(known: Known) -> Iterator[str]:
    """Those for which there are figures."""
    yield from _behaviours(known)
    yield from _compared(
        known,
        "tokens",
        tokens_at(50, SHORT),
        "At 50 streams of 200 tokens, Holdfast passes on {} tokens a second and core",
        "/s",
    )
    yield from _compared(
        known, "pace", PACE, "At a human pace, it spends {} of CPU on a token", "µs"
    )
    yield from _compared(known, "first", FIRST, "It adds {} to the first token", "ms")
    yield from _compared(known, "turn", JSON_P50, "It answers a JSON turn in {}", "ms")
    growth = known.growth("history", at_history(HISTORY_CPU, 5000), at_history(HISTORY_CPU, 10))
    if growth:
        yield f"A turn at 5,000 messages costs {words.ratio(growth)} the CPU of one at 10."


def _behaviours(known: Known) -> Iterator[str]:
    rows = known.semantics.behaviours
    for column in known.semantics.columns:
        found = counts(column, rows)
        if column.title == OURS:
            yield f"{column.name}: {held_of_played(found)} behaviours held, of those that could be played."


def _compared(known: Known, group: str, what: str, sentence: str, unit: str) -> Iterator[str]:
    line = known.line(group, what)
    middle = line.middle(OURS) if line else None
    if line is None or middle is None:
        return
    others = [name for name in line.values if name != OURS]
    ratios = [
        f"{words.ratio(found)} {'the bare proxy' if name == BARE else name}"
        for name in others
        if (found := line.ratio(OURS, name))
    ]
    said = sentence.format(words.said(middle, unit).removesuffix("/s"))
    yield f"{said}{': ' if ratios else ''}{', '.join(ratios)}."
