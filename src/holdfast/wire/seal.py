"""What clients keep for us, as `encrypted_content`: sealed, so that they can neither read it nor make it.

Whatever comes back was ours and was this tenant's, or the request is refused. What other servers have sealed is none
of our business, and is passed on to them.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from holdfast.wire.problems import Refused, bad_request

Kind: TypeAlias = Literal["reasoning", "summary"]


class Seal(Protocol):
    """One tenant's seal."""

    def close(self, kind: Kind, plain: bytes) -> str:
        """Seal some content. The same content gives the same seal."""
        ...

    def open(self, kind: Kind, sealed: str) -> bytes | None:
        """What is in it; None if it was damaged, is of another kind or tenant, or its key was forgotten."""
        ...

    def is_ours(self, sealed: str) -> bool:
        """Whether a server like this one has sealed it, or it pretends so."""
        ...


def opened(seal: Seal | None, kind: Kind, sealed: str, *, where: str) -> bytes | None:
    """What is in it; None if it is another server's. Raises Refused if it is ours and cannot be opened."""
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
