"""The headers of requests to a model: ours, the API key's, and those that the operator adds."""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.core.codec import Value
from holdfast.errors import InvalidValue
from holdfast.models.model import KeyMissing

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e\t\x80-\xff]{0,8192}")
_SECRET_NAME = re.compile(r"auth|cookie|key|secret|token", re.IGNORECASE)
_OURS = frozenset(
    "accept accept-encoding connection content-length content-type host transfer-encoding".split()
)

SECRET_CHARS_MIN = 6
"""A shorter value is a word, not a secret."""


class Headers(Value):
    """Headers to send with every request. Their values appear in no repr or error."""

    pairs: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    """The parts of their values that came from the environment."""

    def beneath(self, others: Headers) -> Headers:
        """These headers, overridden by others of the same name; case is ignored."""
        taken = {name.lower() for name, _ in others.pairs}
        kept = tuple(pair for pair in self.pairs if pair[0].lower() not in taken)
        return Headers(pairs=(*kept, *others.pairs), secrets=(*self.secrets, *others.secrets))

    def __repr__(self) -> str:
        return f"<Headers {', '.join(name for name, _ in self.pairs)}>"


def header_problem(name: str, value: str) -> str | None:
    """Why a header cannot be sent; None if it can."""
    if not _NAME.fullmatch(name) or name.lower() in _OURS:
        return f"{name!r} cannot be sent as an extra header"
    if not _VALUE.fullmatch(value):
        return f"the value of the header {name!r} cannot be sent"
    return None


def request_headers(
    extra: Mapping[str, str],
    token_key: str,
    environ: Mapping[str, str],
    *,
    key_header: str,
    secrets: tuple[str, ...] = (),
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The headers of every request, and the values that must not be shown: `secrets`, the API key, and values
    whose names suggest one. Raises KeyMissing, or InvalidValue for a header that cannot be sent.
    """
    headers = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        # A compressed stream is held back until enough data has gathered.
        "Accept-Encoding": "identity",
        "User-Agent": "holdfast",
    }
    hidden = [*secrets]
    if token_key:
        key = environ.get(token_key, "").strip()
        if not key:
            raise KeyMissing(token_key)
        if not re.fullmatch(r"[\x21-\x7e]+", key):
            raise InvalidValue(f"what the environment variable {token_key} holds is no API key")
        bearer = key_header.lower() == "authorization"
        headers[key_header] = f"Bearer {key}" if bearer else key
        hidden.append(key)
    for name, value in extra.items():
        if (words := header_problem(name, value)) is not None:
            raise InvalidValue(words)
        headers = {known: said for known, said in headers.items() if known.lower() != name.lower()}
        headers[name] = value
        if _SECRET_NAME.search(name):
            hidden += (value, value.partition(" ")[2])
    # The longest first, so that no secret is left in pieces.
    long = {each for each in hidden if len(each) >= SECRET_CHARS_MIN}
    return headers, tuple(sorted(long, key=len, reverse=True))
