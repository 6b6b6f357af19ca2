"""Keys, as a store keeps them: who may come in, and as whom; and what seals what clients keep for us.

An API key is shown once, when it is made, and is nowhere after that: a row has the hash of its secret. What a key may do,
and what happens to one that is wrong, is decided in `server/access/authentication.py`.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from hashlib import sha256

from holdfast.core.codec import Value
from holdfast.errors import InvalidId
from holdfast.ids import KeyId


class ShownKey(Value):
    """A key as its holder has it."""

    key_id: KeyId
    secret: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.key_id.body}_{self.secret}"

    def __repr__(self) -> str:
        return f"<ShownKey {self.key_id}>"  # a secret has no place in a log or a debugger

    @property
    def digest(self) -> bytes:
        """What is kept of the secret.

        One round of SHA-256 is enough. Slow hashes are for passwords, which can be guessed; a secret is
        256 random bits, and whoever has its hash has nothing to try. And a slow hash would be computed
        for every request, at the will of whoever sends them.
        """
        return sha256(self.secret.encode()).digest()


PREFIX = "hf_"
"""Keys can be told apart from other secrets, by people and by tools that look for leaked ones."""

SECRET_BYTES = 32
_SECRET_CHARS = 43
_FORM = re.compile(rf"{PREFIX}([0-9a-z]{{26}})_([A-Za-z0-9_-]{{{_SECRET_CHARS}}})")


def new_key(key_id: KeyId, entropy: bytes) -> ShownKey:
    """A key from these 32 random bytes."""
    assert len(entropy) == SECRET_BYTES, "a secret has 256 bits"
    return ShownKey(key_id=key_id, secret=urlsafe_b64encode(entropy).decode().rstrip("="))


def parse_key(text: str) -> ShownKey | None:
    """A key that somebody shows; None if it cannot be one."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    try:
        return ShownKey(key_id=KeyId.from_body(found[1]), secret=found[2])
    except InvalidId:
        return None
