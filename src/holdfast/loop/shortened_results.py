"""Shortens the old tool results of a turn that is too long for its model: only their two ends are shown.

A summary covers committed history only, so a turn that reads a hundred files has to be shortened by itself.
The stored results do not change; a model that needs an old result again can call the tool again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.core.codec import encode
from holdfast.core.items import Item, Text, ToolResult, text_of
from holdfast.core.transcript import ends

SHOWN_CHARS = 600
LAST_WHOLE = 3
"""How many of the newest results stay whole: the model is working on them."""
STRIDE = 8
"""How many results are shortened at a time: a prompt that changes at every step cannot be cached."""


def shortened(items: Sequence[Item], *, bytes_max: int) -> list[Item]:
    """The same items, with the oldest results cut until all fit, or until none is left to cut."""
    size = sum(len(encode(each)) for each in items)
    results = [n for n, each in enumerate(items) if isinstance(each, ToolResult)][:-LAST_WHOLE]
    cut: dict[int, Item] = {}
    for strided in _strides(results):
        if size <= bytes_max:
            break
        for at in strided:
            short = _cut(items[at])
            size -= len(encode(items[at])) - len(encode(short))
            cut[at] = short
    return [cut.get(n, each) for n, each in enumerate(items)]


def _strides(places: Sequence[int]) -> Iterable[Sequence[int]]:
    return (places[n : n + STRIDE] for n in range(0, len(places), STRIDE))


def _cut(item: Item) -> Item:
    assert isinstance(item, ToolResult)
    text = text_of(item.content)
    if len(text) <= SHOWN_CHARS and all(isinstance(part, Text) for part in item.content):
        return item
    return msgspec.structs.replace(item, content=(Text(text=ends(text, SHOWN_CHARS)),))
