"""Pages of lists as OpenAI has them: newest first by default, each page starting after an id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.wire.problems import bad_request


class PageAsk(Value):
    """The requested page of a list."""

    limit: int = limits.page_size_default
    newest_first: bool = True
    after: str | None = None


def read_page(query: Mapping[str, str]) -> PageAsk:
    """Parse a query. Raises Refused."""
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise bad_request("invalid_value", "order is asc or desc", param="order")
    return PageAsk(limit=read_limit(query), newest_first=order == "desc", after=query.get("after"))


def read_limit(query: Mapping[str, str]) -> int:
    """The requested page size. Raises Refused."""
    text = query.get("limit", str(limits.page_size_default))
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= limits.page_size_max):
        raise bad_request("invalid_value", f"limit is 1 to {limits.page_size_max}", param="limit")
    return int(text)


def page_object(items: Sequence[Mapping[str, Any]], ask: PageAsk) -> dict[str, object]:
    """A page of these items, which are given oldest first. Raises Refused for an unknown `after`."""
    ordered = list(reversed(items)) if ask.newest_first else list(items)
    start = 0
    if ask.after is not None:
        found = (n + 1 for n, each in enumerate(ordered) if each["id"] == ask.after)
        start = next(found, 0)
        if not start:
            raise bad_request(
                "invalid_value", f"after: there is no item {ask.after[:100]!r}", param="after"
            )
    chosen = ordered[start : start + ask.limit]
    return {
        "object": "list",
        "data": chosen,
        "first_id": chosen[0]["id"] if chosen else None,
        "last_id": chosen[-1]["id"] if chosen else None,
        "has_more": start + ask.limit < len(ordered),
    }
