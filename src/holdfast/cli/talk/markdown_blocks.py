"""Markdown that is still growing: which of its blocks are complete, and can be shown for good."""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def split_done(text: str) -> tuple[str, str]:
    """The complete blocks, which later text cannot change, and the rest. Both together are the text.

    A block ends with a blank line outside of a fence, if the next line begins at the margin: an indented line may
    still belong to a list.
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
