"""A history as plain text: for a person at a terminal, and for a model that writes a summary of it.

The model gets text and not messages in its dialect: a transcript can be cut between any two entries, needs no tool
definitions, and no provider takes it for a conversation to continue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from holdfast.core.items import (
    AssistantMessage,
    Audio,
    File,
    ForeignItem,
    HandOff,
    Image,
    Interruption,
    Item,
    Part,
    Parts,
    Reasoning,
    Refusal,
    Summary,
    SystemMessage,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)

ENTRY_CHARS_MAX = 6_000
"""The most characters of one entry; of a longer one only the two ends are shown."""


def transcript(items: Iterable[Item]) -> Iterator[str]:
    """One entry per item that has text, oldest first."""
    for item in items:
        entry = entry_of(item)
        if entry:
            yield ends(entry, ENTRY_CHARS_MAX)


def ends(text: str, room: int) -> str:
    """The text, or only its beginning and its end if it is longer than `room` characters."""
    if len(text) <= room:
        return text
    half = room // 2
    left_out = len(text) - 2 * half
    tail = text[-half:] if half else ""
    return f"{text[:half]}\n[… {left_out} characters left out …]\n{tail}"


def portions(entries: Iterable[str], *, bytes_max: int) -> Iterator[str]:
    """The entries joined into portions of at most `bytes_max`. An entry longer than that is a portion by itself."""
    held: list[str] = []
    size = 0
    for entry in entries:
        entry_bytes = len(entry.encode()) + 2
        if held and size + entry_bytes > bytes_max:
            yield "\n\n".join(held)
            held, size = [], 0
        held.append(entry)
        size += entry_bytes
    if held:
        yield "\n\n".join(held)


def entry_of(item: Item) -> str:
    """The item's text with its speaker in front; empty for reasoning."""
    match item:
        case UserMessage():
            return f"User: {_words(item.content)}"
        case SystemMessage():
            return f"Instructions: {_words(item.content)}"
        case AssistantMessage():
            return f"Assistant: {_words(item.content)}"
        case ToolCall():
            return f"Assistant used {item.name} with {item.arguments}"
        case ToolResult():
            return f"Result ({item.outcome}): {_words(item.content)}"
        case Interruption():
            return f"The assistant was interrupted: {item.ended_by} {item.detail}".rstrip()
        case HandOff():
            return f"{item.from_agent} handed the conversation over to {item.to_agent}."
        case Summary():
            return f"Summary of everything before: {item.text}"
        case ForeignItem():
            return item.original.text
        case Reasoning():
            return ""
        case _:  # pragma: no cover
            assert_never(item)


def _words(parts: Parts) -> str:
    return " ".join(filter(None, map(_part, parts)))


def _part(part: Part) -> str:
    match part:
        case Text() | Refusal():
            return part.text
        case Image():
            return "[a picture]"
        case Audio():
            return f"[a recording: {part.transcript}]" if part.transcript else "[a recording]"
        case File():
            return f"[the file {part.name}]" if part.name else "[a file]"
        case _:  # pragma: no cover
            assert_never(part)
