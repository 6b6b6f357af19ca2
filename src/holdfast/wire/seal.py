"""Sealed content (`encrypted_content`), which clients keep for us and can neither read nor forge.

Content that comes back must be sealed by us for this tenant, or the request is refused. Content that other servers
have sealed is passed on to them.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from holdfast.wire.problems import Refused, bad_request

Kind: TypeAlias = Literal["reasoning", "summary"]


class Seal(Protocol):
    """One tenant's seal."""

    def close(self, kind: Kind, plain: bytes) -> str:
        """Seal some content. The same content gives the same result."""
        ...

    def open(self, kind: Kind, sealed: str) -> bytes | None:
        """The content; None if it was damaged, is of another kind or tenant, or its key was removed."""
        ...

    def is_ours(self, sealed: str) -> bool:
        """Whether a Holdfast server has sealed it, or it claims so."""
        ...


def opened(seal: Seal | None, kind: Kind, sealed: str, *, where: str) -> bytes | None:
    """The content; None if another server sealed it. Raises Refused if it is ours and cannot be opened."""
    if seal is None or not seal.is_ours(sealed):
        return None
    plain = seal.open(kind, sealed)
    if plain is None:
        raise _unopened(where)
    return plain


def _unopened(where: str) -> Refused:
    return bad_request(
        "invalid_encrypted_content",
        f"{where}.encrypted_content was not sealed for this key's tenant, was changed, or its key was forgotten; "
        "leave the item out",
        param=where,
    )
