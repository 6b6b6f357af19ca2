"""Which live source of agents continues a stored session.

A session stores the exact key of the source that it began with (a file, a directory entry, a `module:agent`, or a
URL) and the name that the operator gave the source (`NAME=REF`), if any. Addresses change between deploys (a version in
the query, a token in the user part) and files move; the session must still find its agent. It continues with, in this
order:

1. the source with exactly that key, compared percent-decoded on both sides;
2. else the only live source with the same given name;
3. else the only live source with the same host and path, for URLs, or the same file name, for files; two sources with
   different given names are never the same;
4. else none: a clear refusal, never a guess among several. The operator can rebind the session.

Exports, feeds and errors show the given name and the part of a key that rule 3 needs, and no more: no directory of a
machine, no token.

A malformed key (a bad escape, a broken URL) is compared only as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import compress
from typing import TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from holdfast.core.codec import Value

_DEFAULT_PORTS = {"http": 80, "https": 443}
_WEB = "web"
"""HTTP and HTTPS: a server that begins to encrypt serves the same agents."""
NO_NAMES: Mapping[str, str] = {}


class FoundSource(Value):
    """The session continues with this live source. `exact` is False if its address is another one by now."""

    key: str
    exact: bool


class Ambiguous(Value):
    """Several live sources have this identity; the operator has to choose one."""

    keys: tuple[str, ...]


class NotFound(Value):
    """No live source has this identity."""

    key: str


Match: TypeAlias = FoundSource | Ambiguous | NotFound


def find_source(
    wanted: str, live: Iterable[str], *, name: str = "", names: Mapping[str, str] = NO_NAMES
) -> Match:
    """Find the live source that a session with source key `wanted`, and given `name`, continues with. `names` are the
    given names of live sources, by their keys."""
    keys = tuple(dict.fromkeys(live))
    if wanted in keys:
        return FoundSource(key=wanted, exact=True)
    given = {key: names.get(key, "") for key in keys}
    rules = (
        (exact_identity(key) == exact_identity(wanted) for key in keys),
        (name != "" and given[key] == name for key in keys),
        (
            not (name and given[key]) and stable_identity(key) == stable_identity(wanted)
            for key in keys
        ),
    )
    for n, rule in enumerate(rules):
        same = tuple(compress(keys, rule))
        if len(same) == 1:
            return FoundSource(key=same[0], exact=n == 0)
        if same:
            return Ambiguous(keys=same)
    return NotFound(key=wanted)


def exact_identity(key: str) -> str:
    """The key, percent-decoded once; a key with a bad escape, as it is."""
    return _decoded(key) or key


def stable_identity(key: str) -> tuple[str, ...]:
    """The part of a key that stays the same between deploys: a URL's host and path; a file's name without its
    directories; any other key as a whole.

    A host compares without case, HTTP and HTTPS are the same with their default ports; the user part is volatile, since
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
    is_default = port is None or port == _DEFAULT_PORTS.get(parts.scheme)
    scheme = _WEB if parts.scheme in _DEFAULT_PORTS else parts.scheme
    return ("url", scheme, host, "" if is_default else str(port), path or "/")


def portable_key(key: str) -> str:
    """The part of a key that is valid on another machine and safe to show: a file's name, and a URL without its user
    part, query and fragment. It has the same stable identity. Of a malformed URL nothing but its scheme is safe: where
    its secrets are cannot be told."""
    match stable_identity(key):
        case ("url", *_):
            parts = urlsplit(key)
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        case ("file", _) if key.startswith("/"):
            return key.rpartition("/")[2]
        case ("key", _) if _MAY_HOLD_SECRETS.search(key):
            found = _SCHEME.match(key)
            return f"{found[0] if found else ''}…"
        case _:
            return key


def source_called(*, key: str, name: str | None) -> str:
    """A session's source as clients see it: the name that the operator gave it, else the portable part of its key."""
    return name or portable_key(key)


def is_called(text: str, *, key: str, name: str | None) -> bool:
    """Whether a text means this source: by its given name, its key, or the portable part of its key."""
    return text != "" and text in (name, key, portable_key(key))


def split_name(text: str) -> tuple[str, str]:
    """The given name and the reference of `[NAME=]REF`; the name is empty without one."""
    given, equals, reference = text.partition("=")
    return (given, reference) if equals and _GIVEN_NAME.fullmatch(given) else ("", text)


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)
_MAY_HOLD_SECRETS = re.compile(r"://|[@?#]")
_GIVEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
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
