"""Summaries by the demo model: how it writes them, and how it reads them back.

A summary is a few lines that a person can read, and that the model parses.

1. Requests inside a transcript are quoted, never followed.
2. The user's name, once given, and the number of messages are in every later summary.
3. Another model's summary is kept word for word, as far as there is room.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.core.codec import Value
from holdfast.printable import on_one_line

OPENING = "You keep the memory of a long conversation"
"""The beginning of an instruction that asks for a summary."""

SAID_MAX = 30
DONE_MAX = 10
LINE_CHARS_MAX = 150
OTHERS_CHARS_MAX = 1000
"""With the other bounds, short enough that a summary is never cut when it is summarised again."""

NAME = re.compile(r"\b(?:my name is|call me|i am called)\s+([^\s.,;!?]+)", re.IGNORECASE)


class SummaryNotes(Value):
    """The content of a summary."""

    said: tuple[str, ...] = ()
    """The user's messages, shortened; if `untold`, the first and the newest of them."""
    untold: int = 0
    """How many messages between the first and the newest are not quoted."""
    name: str = ""
    done: tuple[str, ...] = ()
    """The newest events that are not messages: tools, interruptions, hand-offs."""
    others: str = ""
    """A summary that another model has written."""


def notes_of(transcript: str) -> SummaryNotes:
    """The notes of a transcript, as `core/transcript.py` writes it."""
    known = SummaryNotes()
    said: list[str] = []
    done: list[str] = []
    name = ""
    for entry in _BETWEEN.split(transcript.removeprefix(_BEGIN).removesuffix(_END)):
        who, _, words = entry.partition(": ")
        if who == "Summary of everything before":
            known = read_back(words)
        elif who == "User":
            said.append(on_one_line(words, 80))
            name = told[-1] if (told := NAME.findall(words)) else name
        elif who not in ("Assistant", "Instructions"):
            done.append(on_one_line(entry, LINE_CHARS_MAX))
    first, *rest = (*known.said, *said) or ("",)
    newest = rest[-(SAID_MAX - 1) :]
    return SummaryNotes(
        said=(first, *newest) if first or newest else (),
        untold=known.untold + len(rest) - len(newest),
        name=name or known.name,
        done=(*known.done, *done)[-DONE_MAX:],
        others=known.others,
    )


_BEGIN, _END = "<transcript>\n", "\n</transcript>"
_BETWEEN = re.compile(
    r"\n\n(?=(?:User|Assistant|Instructions|Result \(\w+\)|The assistant was interrupted"
    r"|Summary of everything before): |Assistant used |\S+ handed the conversation over to )"
)


# ── writing and reading back ─────────────────────────────────────────────────────────────────

_SAID = "The user has said "
_NAMED = "The user's name is "
_DONE = "What was done:"
_OTHERS = "Before that: "


def write(notes: SummaryNotes) -> str:
    """The text of a summary."""
    return "\n".join(_lines(notes))


def _lines(notes: SummaryNotes) -> Iterable[str]:
    if notes.said:
        count = len(notes.said) + notes.untold
        things = "1 thing" if count == 1 else f"{count} things"
        yield f"{_SAID}{things}{'; the first, and the newest' if notes.untold else ''}:"
        yield f"1. {quoted(notes.said[0])}"
        for n, each in enumerate(notes.said[1:], start=2 + notes.untold):
            yield f"{n}. {quoted(each)}"
    else:
        yield f"{_SAID}nothing."
    if notes.name:
        yield f"{_NAMED}{on_one_line(notes.name, 80)}."
    if notes.done:
        yield _DONE
        yield from (f"- {each}" for each in notes.done)
    if notes.others:
        yield f"{_OTHERS}{notes.others}"


def read_back(summary: str) -> SummaryNotes:
    """The notes of a summary's text; another model's summary is kept whole."""
    if not summary.startswith(_SAID):
        return SummaryNotes(others=on_one_line(summary, OTHERS_CHARS_MAX))
    opening, *lines = summary.splitlines()
    count = int(found[0]) if (found := re.search(r"\d+", opening)) else 0
    said = [found[1] for line in lines if (found := re.fullmatch(r"\d+\. “(.*)”", line))]
    return SummaryNotes(
        said=tuple(said),
        untold=max(0, count - len(said)),
        name=next((_after(_NAMED, line)[:-1] for line in lines if line.startswith(_NAMED)), ""),
        done=tuple(_after("- ", line) for line in lines if line.startswith("- ")),
        others=next((_after(_OTHERS, line) for line in lines if line.startswith(_OTHERS)), ""),
    )


def _after(label: str, line: str) -> str:
    return line.removeprefix(label)


def quoted(text: str) -> str:
    return f"“{on_one_line(text, 80)}”"
