"""Safe text for terminals and logs: this module alone decides which characters may reach them.

Text comes from clients, models, tools, agent files and providers. A line end in it would add a line to a log, an
escape sequence would move a terminal's cursor or overwrite earlier lines, a direction override would show a name
backwards. So control characters (C0, C1, DEL), line and paragraph separators, direction overrides and isolates, and
lone surrogates are written as escapes: `\\n`, `\\x1b`, `\\u202e`.

Letters of every script stay as they are, and so do joiners and direction marks, which emoji and many scripts need.
JSON is not changed: it has its own escapes, and programs read it.
"""

from __future__ import annotations

import re

_UNSAFE = "\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_ANY = re.compile(f"[{_UNSAFE}]")
_ANY_BUT_LINES = re.compile(rf"(?![\n\t])[{_UNSAFE}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """The text as one line: line ends and tabs are escaped, too."""
    return _ANY.sub(_escaped, text)


def printable_lines(text: str) -> str:
    """The text with its line ends and tabs, to be shown as a block."""
    return _ANY_BUT_LINES.sub(_escaped, text.replace("\r\n", "\n"))


def shortened(text: str, chars_max: int) -> str:
    """The text, or its beginning and a mark."""
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def on_one_line(text: str, chars_max: int) -> str:
    """The beginning of a text without its line ends, as words: for people, and still not safe for a terminal."""
    return shortened(" ".join(text.split()), chars_max)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    number = ord(character)
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")
