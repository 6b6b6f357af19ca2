"""AES-256 in SIV mode (RFC 5297) by `cryptography`: authenticated, and without a nonce that must not repeat.

It is loaded with the first content that is sealed or opened.
"""

from __future__ import annotations

from holdfast.libraries import aead, cipher_errors


def encrypt(key: bytes, plain: bytes, about: bytes) -> bytes:
    """Encrypt; `about` is authenticated with it, and needed to decrypt."""
    return aead.AESSIV(key).encrypt(plain, [about])


def decrypt(key: bytes, sealed: bytes, about: bytes) -> bytes | None:
    """Decrypt; None if it was not encrypted with this key and `about`."""
    try:
        return aead.AESSIV(key).decrypt(sealed, [about])
    except (cipher_errors.InvalidTag, ValueError):
        return None
