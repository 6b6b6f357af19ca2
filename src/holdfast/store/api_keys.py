"""API keys: their text form, and the hash that the store keeps.

A key is shown once, when it is made, and is stored nowhere: its row has the hash of its secret. What a key allows, and
what happens to a wrong key, is decided in `server/access/authentication.py`.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from hashlib import sha256

from holdfast.core.codec import Value
from holdfast.errors import InvalidId
from holdfast.ids import KeyId


class ShownKey(Value):
    """A key as its client has it."""

    key_id: KeyId
    secret: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.key_id.body}_{self.secret}"

    def __repr__(self) -> str:
        return f"<ShownKey {self.key_id}>"  # a secret has no place in a log or a debugger

    @property
    def digest(self) -> bytes:
        """The hash of the secret, which the store keeps.

        One round of SHA-256 is enough. Slow hashes are for passwords, which can be guessed; a secret is
        256 random bits, which an attacker with the hash cannot guess. And the server would have to compute
        a slow hash for every request that any client sends.
        """
        return sha256(self.secret.encode()).digest()


PREFIX = "hf_"
"""People, and tools that look for leaked secrets, recognise a key by it."""

SECRET_BYTES = 32
_SECRET_CHARS = 43
_FORM = re.compile(rf"{PREFIX}([0-9a-z]{{26}})_([A-Za-z0-9_-]{{{_SECRET_CHARS}}})")


def new_key(key_id: KeyId, entropy: bytes) -> ShownKey:
    """A key from these 32 random bytes."""
    assert len(entropy) == SECRET_BYTES, "a secret has 256 bits"
    return ShownKey(key_id=key_id, secret=urlsafe_b64encode(entropy).decode().rstrip("="))


def parse_key(text: str) -> ShownKey | None:
    """The key in a text that a client sent; None if the text cannot be a key."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    try:
        return ShownKey(key_id=KeyId.from_body(found[1]), secret=found[2])
    except InvalidId:
        return None
