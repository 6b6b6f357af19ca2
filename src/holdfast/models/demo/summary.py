"""How the demo model sums a conversation up, and what it knows of it afterwards.

A summary is a few lines that a person can read, and that the model reads back.

1. What a transcript says is quoted, and never done.
2. A name that was told, and how much was said, is in every later summary.
3. A summary by somebody else is kept in its words, as far as there is room.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.core.codec import Value

OPENING = "You keep the memory of a long conversation"
"""How the instruction begins that asks for a summary."""

SAID_MAX = 30
DONE_MAX = 10
LINE_CHARS_MAX = 150
OTHERS_CHARS_MAX = 1000
"""Together short enough that a summary is never shown by its two ends when it is summed up again."""

NAME = re.compile(r"\b(?:my name is|call me|i am called)\s+([^\s.,;!?]+)", re.IGNORECASE)


class SummaryNotes(Value):
    """What is kept of a conversation."""

    said: tuple[str, ...] = ()
    """What the user said, shortened; if `untold`, the first and the newest."""
    untold: int = 0
    """How much was said between the first and the others."""
    name: str = ""
    done: tuple[str, ...] = ()
    """The newest of what was not said: tools, interruptions, hand-offs."""
    others: str = ""
    """A summary that somebody else has written."""


def notes_of(transcript: str) -> SummaryNotes:
    """What there is to keep of a transcript, as `core/transcript.py` writes it."""
    known = SummaryNotes()
    said: list[str] = []
    done: list[str] = []
    name = ""
    for entry in _BETWEEN.split(transcript.removeprefix(_BEGIN).removesuffix(_END)):
        who, _, words = entry.partition(": ")
        if who == "Summary of everything before":
            known = read_back(words)
        elif who == "User":
            said.append(shortened(words, 80))
            name = told[-1] if (told := NAME.findall(words)) else name
        elif who not in ("Assistant", "Instructions"):
            done.append(shortened(entry, LINE_CHARS_MAX))
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


# ── written, and read back ───────────────────────────────────────────────────────────────────

_SAID = "The user has said "
_NAMED = "The user's name is "
_DONE = "What was done:"
_OTHERS = "Before that: "


def write(notes: SummaryNotes) -> str:
    """The summary."""
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
        yield f"{_NAMED}{shortened(notes.name, 80)}."
    if notes.done:
        yield _DONE
        yield from (f"- {each}" for each in notes.done)
    if notes.others:
        yield f"{_OTHERS}{notes.others}"


def read_back(summary: str) -> SummaryNotes:
    """What a summary says; of one by somebody else, all of it."""
    if not summary.startswith(_SAID):
        return SummaryNotes(others=shortened(summary, OTHERS_CHARS_MAX))
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
    return f"“{shortened(text, 80)}”"


def shortened(text: str, chars_max: int) -> str:
    """The text in one line, and no longer than that."""
    line = " ".join(text.split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"
