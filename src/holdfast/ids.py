"""Ids, keys and versions. Parse, don't check: a value of these types is well formed, or does not exist.

Minted ids are a prefix and 26 characters of Crockford base32: 48 bits of milliseconds, then 80 bits
of randomness. So they sort by time, need no coordination, and are never reused. Time and randomness
come in as arguments (`Minter`), so that a simulation can replay the same ids.

A turn, its response and its completion have ids with the same body, so each is computed from the others:

    turn_0k5z…  ↔  resp_0k5z…  ↔  chatcmpl-0k5z…
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from operator import index
from types import MethodType
from typing import Any, ClassVar, Self, TypeVar

from holdfast.errors import InvalidId
from holdfast.limits import session_key_chars_max

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_BODY_CHARS = 26
# Two characters at a time: ten bits each. The time has ten characters, the randomness sixteen.
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SECOND_SHIFTS = range(30, -1, -10)
_HALF_BITS = 40
_HALF_MASK = (1 << _HALF_BITS) - 1
_AS_PYTHON = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
_ENTROPY_BITS = 80
_STEP_MASK = (1 << 32) - 1
_TIME_MS_END = 1 << 48
_ENTROPY_MASK = (1 << _ENTROPY_BITS) - 1
# The first character of 26 carries only the top 3 of 128 bits, so it never passes "7".
_BODY = "[0-7][0-9a-hjkmnp-tv-z]{25}"


class Name(str):
    """A string with a fixed form. The constructor is the parser; it raises InvalidId."""

    __slots__ = ()
    kind: ClassVar[str]
    expected: ClassVar[str]
    pattern: ClassVar[re.Pattern[str]]

    def __new__(cls, text: str) -> Self:
        if cls.pattern.fullmatch(text) is None:
            raise InvalidId(cls.kind, text, expected=cls.expected)
        return str.__new__(cls, text)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class SessionKey(Name):
    """A client's name for a conversation. Case-sensitive, scoped by tenant."""

    __slots__ = ()
    kind = "session key"
    expected = f"1–{session_key_chars_max} visible ASCII characters, not starting with 'conv_'"
    # `conv_…` is an id and must exist; as a key it could shadow another session.
    pattern = re.compile(rf"(?!conv_)[\x21-\x7e]{{1,{session_key_chars_max}}}")


class Tenant(Name):
    """The owner of a row. Every primary key of the store but the node's starts with it."""

    __slots__ = ()
    kind = "tenant"
    expected = "1–64 characters of a–z, 0–9, '-' and '_', starting with a letter or digit"
    pattern = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


LOCAL = Tenant("local")
"""The tenant of every request to a server without API keys, and of code that says nothing else."""


class IdempotencyKey(Name):
    """A client's name for one request; the same request gives the same answer under it."""

    __slots__ = ()
    kind = "idempotency key"
    expected = "1–255 visible ASCII characters, bare or in double quotes"
    pattern = re.compile(r"[\x21-\x7e]{1,255}")

    @classmethod
    def from_header(cls, text: str) -> Self:
        """Read a header's value: a bare token, or a structured-field string in double quotes."""
        quoted = len(text) >= 2 and text[0] == text[-1] == '"'
        return cls(text[1:-1] if quoted else text)


class MintedId(Name):
    """An id that Holdfast made: `prefix` and a time-ordered body."""

    __slots__ = ()
    prefix: ClassVar[str]

    def __init_subclass__(cls, *, prefix: str | None = None) -> None:
        super().__init_subclass__()
        if prefix is not None:
            cls.prefix = prefix
            cls.expected = f"'{prefix}' and {_BODY_CHARS} characters of base32"
            cls.pattern = re.compile(re.escape(prefix) + _BODY)

    @classmethod
    def from_body(cls, body: str) -> Self:
        return cls(cls.prefix + body)

    @property
    def body(self) -> str:
        return self[-_BODY_CHARS:]

    @property
    def minted_at_ms(self) -> int:
        """When it was minted, by the clock of the node that minted it."""
        return int(self.body[:10].translate(_AS_PYTHON), 32)


class SessionId(MintedId, prefix="conv_"):
    """One conversation, for ever. A key may be bound to another id later; an id never moves."""

    __slots__ = ()
    kind = "session id"


class TurnId(MintedId, prefix="turn_"):
    """Everything one request adds to a conversation."""

    __slots__ = ()
    kind = "turn id"

    @property
    def response_id(self) -> ResponseId:
        return ResponseId.from_body(self.body)

    @property
    def completion_id(self) -> str:
        return f"chatcmpl-{self.body}"


class ResponseId(MintedId, prefix="resp_"):
    """A turn, as the Responses API calls it."""

    __slots__ = ()
    kind = "response id"

    @property
    def turn_id(self) -> TurnId:
        return TurnId.from_body(self.body)


class NodeId(MintedId, prefix="node_"):
    """One boot of one process."""

    __slots__ = ()
    kind = "node id"


class KeyId(MintedId, prefix="key_"):
    """An API key, by the part of it that may be shown."""

    __slots__ = ()
    kind = "key id"


class GrantId(MintedId, prefix="grant_"):
    """A remembered approval."""

    __slots__ = ()
    kind = "approval id"


class ItemId(MintedId):
    """One item of a history. The prefix tells messages, calls and the rest apart, as clients expect."""

    __slots__ = ()
    kind = "item id"
    expected = "one of msg_, fc_, fco_, rs_, itm_ and 26 characters of base32"
    pattern = re.compile(rf"(?:msg|fc|fco|rs|itm)_{_BODY}")


class MessageId(ItemId, prefix="msg_"):
    __slots__ = ()


class CallId(ItemId, prefix="fc_"):
    """A tool call. It is also the call's stable key: the same for every attempt at that call."""

    __slots__ = ()


class ResultId(ItemId, prefix="fco_"):
    __slots__ = ()


class ReasoningId(ItemId, prefix="rs_"):
    __slots__ = ()


class NoteId(ItemId, prefix="itm_"):
    """An item that neither the user nor the model wrote: an interruption, a summary, a hand-off; or an item that only
    other servers act on."""

    __slots__ = ()


class Version(int):
    """How many turns a session holds. Turn `n` moves it from version n-1 to version n."""

    __slots__ = ()

    def __new__(cls, number: int) -> Self:
        whole = index(number)  # a TypeError for 1.5, which int() would cut to 1
        if whole < 0:
            raise InvalidId("version", str(whole), expected="a whole number from 0")
        return int.__new__(cls, whole)

    @property
    def next(self) -> Version:
        return int.__new__(Version, self + 1)

    @property
    def etag(self) -> str:
        return f'"{int(self)}"'

    @classmethod
    def from_etag(cls, text: str) -> Version:
        """Read `If-Match`: a strong entity tag with a version in it."""
        found = re.fullmatch(r'"(0|[1-9][0-9]{0,17})"', text.strip(), re.ASCII)
        if found is None:
            raise InvalidId("version", text, expected='a version in quotes, such as "7"')
        return cls(int(found[1]))


def trusted(kind: type[Name] | type[Version]) -> Callable[[Any], object]:
    """A constructor that does not check: only for values that were parsed before they were stored.

    All other code parses. A turn reads a dozen ids from its own rows, and checking their form would take longer
    than reading them.
    """
    return MethodType(int.__new__ if issubclass(kind, int) else str.__new__, kind)


Minted = TypeVar("Minted", bound=MintedId)


def mint(kind: type[Minted], *, at_ms: int, entropy: int) -> Minted:
    """Make the id that this time and these 80 random bits determine."""
    assert 0 <= at_ms < _TIME_MS_END, "time is outside 48 bits"
    assert 0 <= entropy < 1 << _ENTROPY_BITS, "entropy is outside 80 bits"
    return _named(kind, at_ms, entropy)


def _named(kind: type[Minted], at_ms: int, entropy: int) -> Minted:
    assert at_ms < _TIME_MS_END, "time is outside 48 bits"
    # In halves: shifting an integer that is larger than a machine word allocates another such integer each time.
    high, low = entropy >> _HALF_BITS, entropy & _HALF_MASK
    pairs = _PAIRS
    text = (
        f"{kind.prefix}{_second_chars(at_ms >> 10)}{pairs[at_ms & 1023]}"
        f"{pairs[high >> 30]}{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}{pairs[high & 1023]}"
        f"{pairs[low >> 30]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )
    return str.__new__(kind, text)  # well formed, so there is nothing to parse


@lru_cache(maxsize=16)
def _second_chars(second: int) -> str:
    """The first eight characters of a time: they stay the same for 1,024 ms."""
    return "".join([_PAIRS[second >> shift & 1023] for shift in _SECOND_SHIFTS])


class Minter:
    """Mints ids from the clock and the randomness it was given.

    Ids from one minter are distinct and sort in the order in which they were minted,
    also within one millisecond and when the clock steps back.
    """

    def __init__(self, *, now_ms: Callable[[], int], random_bits: Callable[[int], int]) -> None:
        self._now_ms = now_ms
        self._random_bits = random_bits
        self._last = 0

    def __call__(self, kind: type[Minted]) -> Minted:
        entropy = self._random_bits(_ENTROPY_BITS)
        at_ms = self._now_ms()
        fresh = at_ms << _ENTROPY_BITS | entropy
        if fresh <= self._last:
            # Within a millisecond a random step keeps the order and stays hard to guess.
            fresh = self._last + 1 + (entropy & _STEP_MASK)
            at_ms, entropy = fresh >> _ENTROPY_BITS, fresh & _ENTROPY_MASK
        self._last = fresh
        return _named(kind, at_ms, entropy)
