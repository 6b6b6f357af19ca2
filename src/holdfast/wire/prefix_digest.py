"""The digest of everything that a request says before one of its messages.

Some providers let a model use a thought only after exactly what it came after. The digest that is kept with a thought
tells us, before the provider would refuse it, whether that is still so.

1. The digest is of bytes, so a prompt that is written differently by a later version is another prompt.
2. It does not depend on how a history is cut into pieces: it is the digest of the messages joined by commas.
3. Going on costs what is new.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TypeAlias

DIGEST_CHARS = 32
"""Half of a SHA-256, in hexadecimal: it tells prompts of one session apart and proves nothing to anybody."""


class PrefixDigest:
    """The digest of a prompt so far. It grows; `copy` keeps a place."""

    __slots__ = ("_begun", "_hash")

    def __init__(self, opening: bytes = b"") -> None:
        """`opening`: what a request says before its messages, instructions and tools."""
        self._hash = sha256(opening)
        self._begun = False

    def add(self, messages: bytes) -> None:
        """Go on with these messages; none is not a message."""
        if not messages:
            return
        if self._begun:
            self._hash.update(b",")
        self._begun = True
        self._hash.update(messages)

    def copy(self) -> PrefixDigest:
        copied = PrefixDigest.__new__(PrefixDigest)
        copied._hash, copied._begun = self._hash.copy(), self._begun
        return copied

    @property
    def text(self) -> str:
        return self._hash.hexdigest()[:DIGEST_CHARS]

    def __repr__(self) -> str:
        return f"<PrefixDigest {self.text}>"


Prefixes: TypeAlias = dict[str, PrefixDigest]
"""Digests by the names of dialects: a fallback of several models has a prompt in each."""


def copied(prefixes: Prefixes) -> Prefixes:
    return {name: digest.copy() for name, digest in prefixes.items()}


def texts_of(prefixes: Prefixes) -> tuple[tuple[str, str], ...]:
    """The digests as text, by the names of dialects."""
    return tuple((name, digest.text) for name, digest in prefixes.items())
