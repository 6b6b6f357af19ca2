"""Steps that make exactly the same calls as the steps before them: a model that goes round in circles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from holdfast.core.items import Item, Path, ToolCall, ToolResult

Signature: TypeAlias = frozenset[tuple[str, str]]
"""The calls of one step: names and arguments."""


def repeated_steps(items: Iterable[Item], path: Path) -> int:
    """How many of the last steps of a branch, the newest included, made the same calls; 0 without calls."""
    steps = list(_steps(each for each in items if each.path == path))
    count = 0
    for step in reversed(steps):
        if step != steps[-1]:
            break
        count += 1
    return count


def _steps(items: Iterable[Item]) -> Iterator[Signature]:
    """The calls of each step. Between two steps there are results."""
    calls: set[tuple[str, str]] = set()
    answered = False
    for item in items:
        if isinstance(item, ToolCall) and item.state == "complete":
            if answered:
                yield frozenset(calls)
                calls, answered = set(), False
            calls.add((item.name, _plain(item.arguments)))
        elif isinstance(item, ToolResult):
            answered = True
        elif answered and not isinstance(item, ToolCall):
            yield frozenset(calls)
            calls, answered = set(), False
    if calls:
        yield frozenset(calls)


def _plain(arguments: str) -> str:
    """The arguments in a form that does not depend on spaces and the order of members."""
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
    return msgspec.json.encode(value, order="deterministic").decode()
