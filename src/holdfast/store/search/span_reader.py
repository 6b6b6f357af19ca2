"""Reads the messages in some spans of conversations, for a search."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from msgspec import Struct

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.errors import StoreDamaged
from holdfast.ids import Tenant
from holdfast.store.search.matches import ItemSpan
from holdfast.store.steps import Operation, Question, ask

PAGE = 100
"""Positions of a span that are read at once."""

SPANS_AT_ONCE = 50
POSITIONS_AT_ONCE = 1000
"""How many bytes are read ahead, of several sessions together: as many as one page may read at all."""


class SpanItem(Value):
    """An item that may be a message, in the span of this number."""

    nth: int
    pos: int
    body: bytes


MESSAGES = Question("messages_in", SpanItem)


class LastMessages(Struct, frozen=True):
    """The last messages of a span, the last first: all of them from `start` on."""

    start: int
    messages: list[SpanItem]


class SpanReader:
    """Reads the items of some spans. When the end of the first span is needed, the ends of many are read together: a
    round trip takes longer than a few messages."""

    def __init__(self, spans: Iterable[ItemSpan]) -> None:
        """The spans, in the order in which the search may need them."""
        self._spans = tuple(dict.fromkeys(spans))
        self._places = {span: n for n, span in enumerate(self._spans)}
        self._at = 0
        self._known: dict[ItemSpan, LastMessages] = {}

    def end_of(self, tenant: Tenant, span: ItemSpan) -> Operation[LastMessages]:
        self._at = max(self._at, self._places.get(span, 0))
        if span not in self._known:
            later = (each for each in self._spans[self._at + 1 :] if each not in self._known)
            some = [span, *islice(later, SPANS_AT_ONCE - 1)]
            try:
                self._known |= yield from _tails(tenant, some)
            except StoreDamaged:
                # One of these spans cannot be read; reading this one alone shows whether it is the damaged one.
                self._known |= yield from _tails(tenant, [span])
        return self._known[span]


def _tails(tenant: Tenant, spans: list[ItemSpan]) -> Operation[dict[ItemSpan, LastMessages]]:
    """The ends of the first of these spans: as many as fit into the bytes that are read ahead."""
    size = min(PAGE, POSITIONS_AT_ONCE // len(spans))
    tails = [LastMessages(max(each.start, each.end - size), []) for each in spans]
    wanted = [
        (each.session_id, tail.start, each.end) for each, tail in zip(spans, tails, strict=True)
    ]
    most = limits.search_bytes_max
    rows = yield from ask(MESSAGES, tenant=tenant, spans=wanted, bytes=most)
    for row in rows:
        tails[row.nth - 1].messages.append(row)
    if sum(len(row.body) for row in rows) >= most:
        # The last span may have more items, and nothing is known of later spans.
        last = rows[-1]
        tails = [*tails[: last.nth - 1], LastMessages(last.pos, tails[last.nth - 1].messages)]
    return dict(zip(spans, tails, strict=False))
