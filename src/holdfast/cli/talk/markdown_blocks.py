"""Markdown as it comes: what of a growing text is done, and can be shown for good."""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def split_done(text: str) -> tuple[str, str]:
    """The blocks that nothing will change any more, and the rest.

    A block ends with a blank line outside of a fence, if what follows it begins at the margin: an indented line
    may still belong to a list. Both parts put together are the text.
    """
    fence, done, at, blank = "", 0, 0, False
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line)
        if not fence and blank and line.strip() and not line[0].isspace():
            done = at
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and not line.strip(" \n" + fence[0]):
            fence = ""
        blank = not fence and not line.strip() and line.endswith("\n")
        at += len(line)
    return text[:done], text[done:]
