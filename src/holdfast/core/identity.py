"""Which live source of agents continues a stored session.

A session stores the exact key of the source that it began with: a file, a directory entry, a `module:agent`, or a
URL. Addresses change between deploys (a version in the query, a token in the user part) and files move; the session
must still find its agent. It continues with, in this order:

1. the source with exactly that key, compared percent-decoded on both sides;
2. else the only live source with the same scheme, host and path, for URLs, or the same name, for files;
3. else none: a clear refusal, never a guess among several.

Exports, feeds and errors show the part of a key that rule 2 needs, and no more: no directory of a machine, no token.

A malformed key (a bad escape, a broken URL) is compared only as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from holdfast.core.codec import Value

_DEFAULT_PORTS = {"http": 80, "https": 443}


class FoundSource(Value):
    """The session continues with this live source. `exact` is False if it was found by rule 2."""

    key: str
    exact: bool


class Ambiguous(Value):
    """Several live sources have this identity; the operator has to choose one."""

    keys: tuple[str, ...]


class NotFound(Value):
    """No live source has this identity."""

    key: str


Match: TypeAlias = FoundSource | Ambiguous | NotFound


def find_source(wanted: str, live: Iterable[str]) -> Match:
    """Find the live source that a session with source key `wanted` continues with."""
    keys = tuple(dict.fromkeys(live))
    if wanted in keys:
        return FoundSource(key=wanted, exact=True)
    for identity, is_exact in ((exact_identity, True), (stable_identity, False)):
        same = tuple(key for key in keys if identity(key) == identity(wanted))
        if len(same) == 1:
            return FoundSource(key=same[0], exact=is_exact)
        if same:
            return Ambiguous(keys=same)
    return NotFound(key=wanted)


def exact_identity(key: str) -> str:
    """The key, percent-decoded once; a key with a bad escape, as it is."""
    return _decoded(key) or key


def stable_identity(key: str) -> tuple[str, ...]:
    """The part of a key that stays the same between deploys: a URL's scheme, host and path; a file's name without its
    directories; any other key as a whole.

    Host and scheme compare without case and with their default port; the user part is volatile, since
    that is where tokens are.
    """
    itself = ("key", exact_identity(key))
    try:
        parts = urlsplit(key)
        host, port = parts.hostname, parts.port
    except ValueError:
        return itself
    # urlsplit ignores control characters and leading space; a key with those is malformed.
    if key != key.strip() or not key.isprintable():
        return itself
    if key.startswith("/") or ":" not in key:
        name = (_decoded(key) or "").rpartition("/")[2]
        return ("file", name) if name else itself
    if not parts.scheme or not host:
        return itself
    path = _decoded(parts.path)
    if path is None:
        return itself
    if port is None:
        port = _DEFAULT_PORTS.get(parts.scheme)
    return ("url", parts.scheme, host, "" if port is None else str(port), path or "/")


def portable_key(key: str) -> str:
    """The part of a key that is valid on another machine and safe to show: a file's name, and a URL without its user
    part, query and fragment. It has the same stable identity."""
    match stable_identity(key):
        case ("url", *_):
            parts = urlsplit(key)
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        case ("file", _) if key.startswith("/"):
            return key.rpartition("/")[2]
        case _:
            return key


_DIRECTORIES = re.compile(r"(?<![\w.:/-])/(?:[^\s/:;,'\"]+/)+")


def portable_text(text: str, *, of: str) -> str:
    """A text about the source with key `of`, safe to show: each path on this machine is cut to its last name."""
    folder = of.rpartition("/")[0]
    own = text.replace(f"{folder}/", "") if folder.startswith("/") else text
    return _DIRECTORIES.sub("", own)


def _decoded(text: str) -> str | None:
    """Percent-decoded once; None if an escape is bad or does not decode to text."""
    pieces = text.split("%")
    if any(not _is_escape(piece[:2]) for piece in pieces[1:]):
        return None
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        return None


def _is_escape(pair: str) -> bool:
    return len(pair) == 2 and all(char in "0123456789abcdefABCDEF" for char in pair)
