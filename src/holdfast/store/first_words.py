"""The name of a session without a title: the first words of its first message."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.core.items import Item, Part, Text, UserMessage, text_of

TITLE_CHARS = 60
"""As many as fit into a line of a list. A title that a client gives may be longer (`title_chars_max`)."""


def opening_of(items: Iterable[Item]) -> str:
    """The first words of the first user message with text in it; empty if there is none."""
    for item in items:
        if isinstance(item, UserMessage) and not item.path:
            # Only the beginning is read, however long the message is.
            said = tuple(part for part in item.content if not _is_enclosed(part)) or item.content
            words = text_of(said)[: TITLE_CHARS * 20].split()
            if words:
                return _shortened(words)
    return ""


_TAG = re.compile(r"\s*<([a-z][a-z0-9_-]*)>")


def _is_enclosed(part: Part) -> bool:
    """Whether a part is text inside a tag, as in `<system-reminder>…</system-reminder>`: programs add such parts to what
    their users say."""
    if not isinstance(part, Text) or (found := _TAG.match(part.text)) is None:
        return False
    return part.text.rstrip().endswith(f"</{found[1]}>")


def _shortened(words: list[str]) -> str:
    title = words[0][:TITLE_CHARS]
    for word in words[1:]:
        if len(title) + 1 + len(word) > TITLE_CHARS - 1:
            return f"{title}…"
        title = f"{title} {word}"
    return title if title == " ".join(words) else f"{title[: TITLE_CHARS - 1]}…"
