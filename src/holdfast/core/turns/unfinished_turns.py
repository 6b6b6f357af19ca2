"""Turns that were kept although they broke off, and how they may be continued.

A kept turn that did not complete is *unfinished* while it is its session's head. It can be *continued* by a turn that
brings no message and goes on where it broke off.

1. A retry of its request continues the turn, if the cause of its end may pass: at most `continuations_max` times in
   a row. After that, and if the cause does not pass, the retry is answered with the stored failure.
2. A turn that a person ended (a cancel, a client whose stop button disconnects) or a limit ended is continued only when
   a person asks for it, never by a retry: the same words again are a new request.
3. Limits count over all continuations that retries began: together they may use what one turn may use.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.items import (
    AssistantMessage,
    EndedBy,
    Interruption,
    Item,
    Reasoning,
    StoredItem,
    ToolCall,
    ToolResult,
)
from holdfast.core.policy import Policy
from holdfast.ids import CallId, ItemId

BY_HAND: frozenset[EndedBy] = frozenset({"cancelled", "limit"})
"""Ends after which only a person may continue a turn."""

CUT = "output_tokens"
"""The limit of an answer that its model cut off for length."""

_PASSING_CODES = frozenset(
    """
    rate_limit_exceeded upstream_error upstream_unreachable upstream_broke_off upstream_garbled upstream_timeout
    storage_full storage_unavailable tool_error
    """.split()
)
"""Error codes after which the same request may succeed later. Any other code is a refusal."""

_PASSING_ENDS: frozenset[EndedBy] = frozenset(
    {"disconnected", "deadline", "model_error", "tool_error", "crash", "superseded", "shutdown"}
)


def may_pass(by: EndedBy, code: str = "") -> bool:
    """Whether the cause that ended a turn may be gone when the turn is tried again."""
    if code and by in ("model_error", "tool_error", "superseded"):
        return code in _PASSING_CODES
    return by in _PASSING_ENDS


def retries_left(by: EndedBy, code: str, policy: Policy, *, links: int) -> int | None:
    """How many retries may still continue a kept turn that ended like this; None if no retry is meant to.

    `links` is how many retries in a row have continued it already.
    """
    if by == "completed" or by in BY_HAND or (by == "disconnected" and policy.disconnect == "keep"):
        return None
    if not may_pass(by, code):
        return 0
    return max(0, limits.continuations_max - links)


def links_after(retries_left: int | None) -> int | None:
    """How many retries in a row have continued a turn, the next one included; None if no retry may."""
    return limits.continuations_max - retries_left + 1 if retries_left else None


class Spent(Value):
    """How much of its limits the turns before a continuation have used."""

    steps: int = 0
    calls: int = 0
    output_chars: int = 0
    cost_micros: int = 0


NOTHING_SPENT = Spent()


def broken_off(items: Iterable[StoredItem]) -> frozenset[ItemId]:
    """The items of a kept turn that no model sees once the turn was continued: the interrupted text, and the
    interruption note."""
    return frozenset(
        each.id
        for each in items
        if isinstance(each, Interruption)
        or (isinstance(each, AssistantMessage | Reasoning) and each.state == "interrupted")
    )


def is_cut(item: StoredItem) -> bool:
    """Whether this note says that the answer before it was cut for length: a continuation goes on in the middle of the
    sentence."""
    return (
        isinstance(item, Interruption)
        and item.ended_by == "limit"
        and item.detail == CUT
        and not item.path
    )


def keys_of_calls(items: Iterable[StoredItem | Item]) -> dict[CallId, CallId]:
    """The idempotency key that each call of a chain of turns passes to its tool, by call id.

    It is the call's own id, with one exception: a call that repeats a call of an idempotent tool whose outcome is
    unknown (same tool, same arguments) uses the key of that call. Each key is passed on once.
    """
    keys: dict[CallId, CallId] = {}
    calls: dict[CallId, ToolCall] = {}
    unknown: dict[tuple[str, str], list[CallId]] = {}
    for item in items:
        if isinstance(item, ToolCall) and item.state == "complete":
            same = unknown.get((item.name, item.arguments))
            calls[item.id] = item
            keys[item.id] = same.pop(0) if same else item.id
        elif isinstance(item, ToolResult) and item.outcome == "unknown" and item.idempotent:
            call = calls.get(item.call)
            if call is not None:
                unknown.setdefault((call.name, call.arguments), []).append(keys[call.id])
    return keys
