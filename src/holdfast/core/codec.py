"""Core values as bytes, and back. JSON, so that a person with a database shell can read it.

Bytes on disk outlive code. Three rules keep old bytes readable for ever:

1. A field may be added with a default; a field never loses its meaning, and a tag is never reused.
2. Fields with their default value are not written, so a default never changes.
3. A value that does not decode is `Unreadable`: its neighbours and its session can still be read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Generic, TypeVar, dataclass_transform, final

import msgspec

from holdfast.errors import InvalidId
from holdfast.ids import Name, Version

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A fact: immutable, comparable by content, encodable. The base of everything in `core/`.

    The garbage collector skips values: a value that never changes cannot come to refer to itself.
    """


@final
class Unreadable(Value, tag="unreadable"):
    """Bytes that this code cannot read: damaged, or written by a newer version."""

    raw: bytes
    why: str


def _to_builtin(value: object) -> object:
    if isinstance(value, Name):
        return str(value)
    if isinstance(value, Version):
        return int(value)
    raise NotImplementedError(f"{type(value).__name__} has no encoding")


def _from_builtin(kind: type, value: object) -> object:
    make: Callable[[object], object] = kind
    try:
        return make(value)
    except (InvalidId, TypeError) as error:
        raise ValueError(str(error)) from error


_encoder = msgspec.json.Encoder(enc_hook=_to_builtin)

encode: Callable[[object], bytes] = _encoder.encode
"""The bytes of a core value. The same value always gives the same bytes."""


DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of decoding. Broken UTF-8 and endless nesting are damage too; msgspec has no error of its own for them."""


class Decoder(Generic[T]):
    """Reads values of one type. Made once per type, at import; msgspec learns the type at the first value."""

    def __init__(self, kind: object) -> None:
        self._kind = kind

    @cached_property
    def _decode(self) -> Callable[[bytes | str], T]:
        decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(self._kind, dec_hook=_from_builtin)
        return decoder.decode

    def strict(self, raw: bytes | str) -> T:
        """Decode, or raise msgspec.DecodeError. For bytes that this process, or a test, has encoded."""
        return self._decode(raw)

    def lenient(self, raw: bytes) -> T | Unreadable:
        """Decode, or return `Unreadable` with the reason. For bytes from disk."""
        try:
            return self._decode(raw)
        except DAMAGE as error:
            return Unreadable(raw=raw, why=str(error))
