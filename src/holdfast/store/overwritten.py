"""Words that retention had to delete and could not: they are overwritten in place by a value of the same length.

SQLite refuses to delete a row if it would have to join the row's page with a damaged one. A value of the same length
changes neither the size of the row nor an index, so that SQLite reads no other page to write it. The row stays, without
its words, until the store is copied; `verify` takes it for gone.
"""

from __future__ import annotations

from msgspec import Raw

WORDS: dict[str, tuple[str, ...]] = {
    "item": ("body",),
    "state": ("value",),
    "annotation": ("patch",),
    "blob": ("bytes",),
    "turn": ("detail", "changes"),
    "journal": ("records",),
    "signal": ("payload",),
}
"""Table → the columns in which clients, models and tools have said something. None of them is in an index."""


def overwritten(value: str | bytes | Raw) -> str | bytes | Raw:
    """A value without words, of the same length: spaces, and an empty list where JSON is expected."""
    if isinstance(value, Raw):
        return Raw(b"[" + b" " * (len(bytes(value)) - 2) + b"]")
    if isinstance(value, str):
        return " " * len(value.encode())
    return b" " * len(value)


def is_overwritten(value: object) -> bool:
    """Whether a text or bytes were overwritten. What was empty before does not tell."""
    return isinstance(value, str | bytes) and len(value) > 0 and not value.strip()
