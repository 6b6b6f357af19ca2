"""The hash chain over a session's committed turns. It shows damage, not forgery.

Each turn's link is a SHA-256 over the link before it, the turn's header, the bytes of its items and the bytes
of its changes to the session's state, each with its length in front. The bytes are hashed as they are
stored, so that newer code that reads old records never breaks a chain.
A fork's chain continues from the link of the version that it was forked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from holdfast.core.codec import Value, encode
from holdfast.core.items import EndedBy
from holdfast.ids import TurnId, Version

GENESIS = bytes(32)
"""The link before a session's first turn."""


class LinkHeader(Value):
    """The facts about a turn that its link covers besides the content."""

    turn_id: TurnId
    version: Version
    ended_by: EndedBy
    agent: str
    continues: TurnId | None = None
    """The turn that it continues. Not encoded when None, so that the links of older turns stay valid."""


def link(
    previous: bytes, header: LinkHeader, *, items: Iterable[bytes], changes: Iterable[bytes]
) -> bytes:
    """The link of a turn: 32 bytes that depend on everything before and in it."""
    hashed = [previous]
    for group in ((encode(header),), tuple(items), tuple(changes)):
        # Counting each group keeps an item from passing for a change, or two items for one.
        hashed.append(len(group).to_bytes(8))
        for piece in group:
            hashed += (len(piece).to_bytes(8), piece)
    return sha256(b"".join(hashed)).digest()
