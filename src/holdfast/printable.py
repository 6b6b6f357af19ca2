"""Text that only shows itself: the one place that decides what may reach a terminal or a log.

Words come from clients, models, tools, agent files and providers. A line end in them would make a second line of a
log, an escape sequence would move a terminal's cursor or write over what stands above, an override of the direction
would show a name backwards. So control characters (C0, C1, DEL), the separators of lines and paragraphs, overrides and
isolates of the direction, and halves of characters are written as escapes: `\\n`, `\\x1b`, `\\u202e`.

Letters of every script stay themselves, and so do joiners, which emoji and many scripts need, and the marks with which
text in them is written. JSON is not touched: it has escapes of its own, and programs read it.
"""

from __future__ import annotations

import re

_UNSAFE = "\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_ANY = re.compile(f"[{_UNSAFE}]")
_ANY_BUT_LINES = re.compile(rf"(?![\n\t])[{_UNSAFE}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """The text in one line."""
    return _ANY.sub(_escaped, text)


def printable_lines(text: str) -> str:
    """The text with its lines and tabs, for what is shown as a block."""
    return _ANY_BUT_LINES.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    number = ord(character)
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")
