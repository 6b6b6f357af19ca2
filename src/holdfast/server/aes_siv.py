"""AES-256 in SIV mode (RFC 5297) by `cryptography`: authenticated, and without a nonce that must not repeat.

It takes some 50 ms to load, so `seals.py` loads it with the first content that is sealed or opened.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV


def encrypt(key: bytes, plain: bytes, about: bytes) -> bytes:
    """Encrypt, bound to what it is about."""
    return AESSIV(key).encrypt(plain, [about])


def decrypt(key: bytes, sealed: bytes, about: bytes) -> bytes | None:
    """Decrypt; None if it was not encrypted so."""
    try:
        return AESSIV(key).decrypt(sealed, [about])
    except (InvalidTag, ValueError):
        return None
