"""As much of Markdown as checking our pages needs: fenced blocks, links and headings."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after its opening fence, and where its first line is."""

    info: tuple[str, ...]
    text: str
    line: int


FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
CODE = re.compile(r"`[^`]*`")
HEADING = re.compile(r"^#{1,6}\s+(?P<text>.*?)\s*#*$")


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order. A block that is never closed ends with the page."""
    return _split(page)[1]


def prose(page: str) -> str:
    """A page without its fenced blocks."""
    return _split(page)[0]


def links(page: str) -> list[str]:
    """Where the links of a page point, leaving out what is shown as code."""
    return [match["target"] for match in LINK.finditer(CODE.sub("", prose(page)))]


def anchors(page: str) -> set[str]:
    """The fragments by which the headings of a page can be linked to."""
    headings = (HEADING.match(line) for line in prose(page).splitlines())
    return {_anchor(match["text"]) for match in headings if match}


def _anchor(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")


def _split(page: str) -> tuple[str, list[Block]]:
    outside: list[str] = []
    found: list[Block] = []
    inside: list[str] = []
    info: tuple[str, ...] = ()
    fence, start = "", 0
    for number, line in enumerate(page.splitlines(), 1):
        opening = FENCE.match(line)
        if fence and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            found.append(Block(info, "\n".join(inside), start))
            fence, inside = "", []
        elif fence:
            inside.append(line)
        elif opening:
            fence, info, start = opening["fence"], tuple(opening["info"].split()), number + 1
        else:
            outside.append(line)
    if fence:
        found.append(Block(info, "\n".join(inside), start))
    return "\n".join(outside), found
