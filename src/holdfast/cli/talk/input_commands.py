"""The input of a chat: a message, or a command. Plain functions over text."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TypeAlias

from holdfast.core.codec import Value

HELP = (
    ("/help", "this"),
    ("/sessions [WORDS]", "the last conversations, or those in which these words were said"),
    ("/open KEY|ID", "go on with another conversation"),
    ("/new [KEY]", "begin another conversation"),
    ("/show", "this conversation so far"),
    ("/fork [VERSION]", "go on in a copy, as this one stands or stood at a version"),
    ("/rewind [VERSION]", "take back the last turn, or everything after a version"),
    (
        "/retry",
        "ask again what failed, or go on with what broke off; else take back the last turn, and ask the same again",
    ),
    ("/model [NAME]", "list the agents; talk to this one"),
    ("/quit", "leave; so does Ctrl-D"),
)
"""Every command, and what it does."""

KEYS = (
    ("Ctrl-C", "stops an answer, and keeps what was said; twice leaves"),
    ("\\ at the end of a line", "goes on in the next one"),
    ('""" alone on a line', "begins and ends a text of several lines"),
)
"""Keys and marks, and what they do."""


class EmptyInput(Value):
    """White space."""


class MessageInput(Value):
    text: str


class ChatCommand(Value):
    """`name` is a command of HELP, without its slash."""

    name: str
    rest: str = ""


class InvalidInput(Value):
    """An unknown command, or one with wrong arguments."""

    why: str


Typed: TypeAlias = EmptyInput | MessageInput | ChatCommand | InvalidInput

_NAMES = tuple(each.split()[0].removeprefix("/") for each, _ in HELP)
_NUMBERED = frozenset({"fork", "rewind"})
_NAMED = frozenset({"open"})


def parse(text: str) -> Typed:
    """Parse a typed line. A line that begins with two slashes is a message that begins with one."""
    said = text.strip()
    if not said:
        return EmptyInput()
    if not said.startswith("/"):
        return MessageInput(text=said)
    if said.startswith("//"):
        return MessageInput(text=said[1:])
    name, _, rest = said[1:].partition(" ")
    rest = rest.strip()
    if name not in _NAMES:
        near = get_close_matches(name, _NAMES, n=1)
        hint = f"did you mean /{near[0]}?" if near else "/help has them all"
        return InvalidInput(why=f"there is no /{name}; {hint}")
    if name in _NUMBERED and rest and not (rest.isascii() and rest.isdigit()):
        return InvalidInput(
            why=f"/{name} takes the number of a version, not {rest!r}; /show has them"
        )
    if name in _NAMED and not rest:
        return InvalidInput(why=f"/{name} takes a name; /sessions has some")
    return ChatCommand(name=name, rest=rest)


def is_unfinished(lines: list[str]) -> bool:
    """Whether the text goes on in the next line."""
    if lines[0].strip() == '"""':
        return len(lines) == 1 or lines[-1].strip() != '"""'
    return lines[-1].endswith("\\")


def joined(lines: list[str]) -> str:
    """The text of these lines, without the marks for continuation."""
    if lines[0].strip() == '"""':
        return "\n".join(lines[1:-1] if lines[-1].strip() == '"""' else lines[1:])
    return "\n".join(each.removesuffix("\\") for each in lines)


def completions(text: str) -> Iterator[str]:
    """The commands that begin with this text."""
    return (f"/{each}" for each in _NAMES if f"/{each}".startswith(text))
