"""Seals: encryption of content that clients keep for us, `encrypted_content` of reasoning and of summaries.

1. Only a server of this store can read or make sealed content: AES-256 in SIV mode (RFC 5297), authenticated.
2. A seal is valid for one tenant and one kind of content. Another tenant cannot open it.
3. The same content gives the same seal, so a replayed answer is the same answer. SIV is made for that: it needs no
   nonce, and reveals only that two contents are equal.
4. The keys are in the store, which all replicas share and which has everything else in it that they protect. The
   latest key seals, all of them open; so a key is replaced by making another (`holdfast keys rotate`).
5. The cipher is loaded with the first content that needs it: most servers never see one. This is one of the few places
   with a late import; the architecture test names them.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable

from holdfast import aes_siv, limits
from holdfast.ids import KeyId, Minter, Tenant
from holdfast.store.rows import SealKeyRow
from holdfast.store.store import Store
from holdfast.wire.seal import Kind, Seal

MARK = "hfs1_"
UNSEALED = "eyJob2xkZmFzdF9yZWFzb25pbmci", '{"holdfast_summary":'
"""How our content began before we sealed it. Every client could read and make it, so it is not accepted any more."""
SECRET_BYTES = 64


def new_seal_key(mint: Minter) -> SealKeyRow:
    """A new random key."""
    return SealKeyRow(key_id=mint(KeyId), secret=secrets.token_bytes(SECRET_BYTES))


_SEALED = re.compile(rf"{MARK}([0-9a-z]{{26}})_([A-Za-z0-9_-]+)", re.ASCII)


class Seals:
    """The seals of every tenant."""

    def __init__(
        self, store: Store, mint: Minter, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._mint = mint
        self._clock = clock
        self._keys: tuple[SealKeyRow, ...] = ()
        self._fresh_until = float("-inf")

    async def asked_in(self, tenant: Tenant, body: bytes) -> Seal | None:
        """The seal of this tenant, if the body mentions encrypted content."""
        return await self.of(tenant) if b"encrypted_content" in body else None

    async def of(self, tenant: Tenant) -> Seal:
        """The seal of this tenant. The first call makes the store's first key."""
        now = self._clock()
        if now >= self._fresh_until:
            keys = await self._store.seal_keys()
            if not keys:
                await self._store.put_seal_key(new_seal_key(self._mint))
                keys = await self._store.seal_keys()  # another server may have made one, too
            self._keys, self._fresh_until = keys, now + limits.key_cache_s
        return TenantSeal(tenant, self._keys)


class TenantSeal:
    """The seal of one tenant."""

    def __init__(self, tenant: Tenant, keys: tuple[SealKeyRow, ...]) -> None:
        self._tenant = tenant
        self._keys = {row.key_id.body: row.secret for row in keys}
        self._latest = keys[-1].key_id.body

    def close(self, kind: Kind, plain: bytes) -> str:
        sealed = aes_siv.encrypt(self._key(self._keys[self._latest]), plain, kind.encode())
        return f"{MARK}{self._latest}_{_text(sealed)}"

    def open(self, kind: Kind, sealed: str) -> bytes | None:
        found = _SEALED.fullmatch(sealed)
        secret = None if found is None else self._keys.get(found[1])
        if found is None or secret is None:
            return None
        try:
            raw = urlsafe_b64decode(found[2] + "=" * (-len(found[2]) % 4))
        except ValueError:
            return None
        if (
            _text(raw) != found[2]
        ):  # the last character may have unused bits: only one spelling is accepted
            return None
        return aes_siv.decrypt(self._key(secret), raw, kind.encode())

    def is_ours(self, sealed: str) -> bool:
        return sealed.startswith((MARK, *UNSEALED))

    def _key(self, secret: bytes) -> bytes:
        """The tenant's own key: 512 bits, as AES-256-SIV needs."""
        return hmac.digest(secret, b"holdfast tenant\0" + self._tenant.encode(), "sha512")


def _text(sealed: bytes) -> str:
    return urlsafe_b64encode(sealed).decode().rstrip("=")
