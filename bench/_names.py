"""What lines are called: whoever measures them and whoever judges them must mean the same."""

from __future__ import annotations

GROUPS = (
    "tokens",
    "pace",
    "first",
    "turn",
    "history",
    "library",
    "writes",
    "durable",
    "memory",
    "start",
)
"""In the order in which they are shown."""

PACE = "CPU per token, 50 streams of 50 tokens/s"
FIRST, FIRST_EDGE = "added to the first token, p50", "added to the first token, p99"
JSON_P50, JSON_P99, JSON_CPU = "JSON turn, p50", "JSON turn, p99", "JSON turn, CPU"
HISTORY_CPU, HISTORY_P50 = "CPU of a turn", "a turn, p50"
LIBRARY_CPU = "CPU of a turn, as a library"
WRITTEN = "written to disk for a turn"
STREAM_KB, SESSION_KB = "memory for an open stream", "memory for an idle session"
READY, AT_REST = "ready to answer after", "memory at rest"

DIRECT = "direct"
"""The upstream itself: nobody is in between."""
DISK = "the disk's own syncs"
BARE_VALUES = "bare loop: the same values"
BARE_STATEMENTS = "bare loop: the same statements"


LONG, SHORT = 1000, 200
"""Tokens of an answer. Peers are asked for short ones alone: with long ones, most would need minutes."""


def tokens_at(streams: int, tokens: int) -> str:
    """One length for one line: a long answer costs less for each of its tokens."""
    return f"tokens per second and core, {streams} at once, answers of {tokens:,}"


def at_history(what: str, messages: int) -> str:
    return f"{what}, at {messages:,} messages"


def over_http(clients: int) -> str:
    return f"turns per second over HTTP, {clients} at once"


def in_store(sessions: int) -> str:
    return f"turns per second in the store, {sessions} at once"
