"""Policies: what becomes of a turn for each way it can end.

How a turn ended is a fact (`EndedBy`). What becomes of it is decided by its policy in one function of
values (`decide`), never by which exception was caught where.

    keep     commit it, closed into a well-formed turn, marked interrupted
    discard  leave everything as it was before the turn, byte for byte
    auto     discard, unless the turn has acted; then keep, so that the agent does not deny what it did
    finish   go on without the client (a disconnect only)
    resume   go on from the journal, on this node or another (a crash or shutdown only)

Policies come in layers (server, tenant, agent, request); of the layers that have a choice for an end, the one
nearest to the request wins. If none has, the default depends on whether the client can come back for the answer: with
an idempotency key or in the background, a turn is finished and resumed; otherwise it is `auto`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.codec import Value
from holdfast.core.items import EndedBy
from holdfast.errors import InvalidPolicy

Choice: TypeAlias = Literal["keep", "discard", "auto", "finish", "resume"]
Verdict: TypeAlias = Literal["keep", "discard", "finish", "resume"]

_PLAIN: tuple[Choice, ...] = ("keep", "discard", "auto")


class Policy(Value):
    """One layer: a choice for each end. None: this layer leaves it to the others."""

    cancel: Choice | None = None
    disconnect: Choice | None = None
    deadline: Choice | None = None
    error: Choice | None = None
    """A model or tool error that the turn could not get past."""
    limit: Choice | None = None
    crash: Choice | None = None
    """A crash, a lost lease, or a shutdown past its grace time."""


allowed: dict[str, tuple[Choice, ...]] = {
    "cancel": _PLAIN,
    "disconnect": (*_PLAIN, "finish"),
    "deadline": _PLAIN,
    "error": _PLAIN,
    "limit": _PLAIN,
    "crash": (*_PLAIN, "resume"),
}
"""The choices that each end can have."""

_DEFAULTS = Policy(
    cancel="keep", disconnect="auto", deadline="auto", error="auto", limit="keep", crash="auto"
)
_SILENT = Policy()
_PROMISED = Policy(disconnect="finish", crash="resume")

_DECIDES: dict[EndedBy, str] = {
    "cancelled": "cancel",
    "disconnected": "disconnect",
    "deadline": "deadline",
    "model_error": "error",
    "tool_error": "error",
    "limit": "limit",
    "crash": "crash",
    "shutdown": "crash",
}


def parse_policy(text: str) -> Policy:
    """Read `cancel=keep, disconnect=finish`, as in `X-Turn-Policy` and in config files.

    Raises InvalidPolicy for an unknown end or choice, and for an end that is named twice.
    """
    said: dict[str, Choice] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        end, equals, choice = (part.strip() for part in pair.partition("="))
        if not equals or end not in allowed:
            raise InvalidPolicy(f"{pair!r}: {_suggest(end, allowed, 'name an end')}")
        if end in said:
            raise InvalidPolicy(f"{end!r} is given twice; say it once")
        match = next((each for each in allowed[end] if each == choice), None)
        if match is None:
            raise InvalidPolicy(f"{pair!r}: {_suggest(choice, allowed[end], f'{end} can be')}")
        said[end] = match
    return Policy(**said)


def resolve_policy(*layers: Policy, promised_return: bool) -> Policy:
    """Fold layers, the furthest from the request first, over the defaults. The result has a choice for every end."""
    base = _overlaid(_DEFAULTS, _PROMISED) if promised_return else _DEFAULTS
    for layer in layers:
        base = _overlaid(base, layer)
    return base


def decide(policy: Policy, ended_by: EndedBy, *, acted: bool) -> Verdict:
    """What becomes of a turn that ended this way. `policy` is a resolved one.

    `superseded` and `deleted` leave nothing to decide: another node has the turn, or its session is gone.
    """
    if ended_by == "completed":
        return "keep"
    if ended_by in ("superseded", "deleted"):
        return "discard"
    choice: Choice | None = getattr(policy, _DECIDES[ended_by])
    assert choice is not None, f"the policy says nothing about {ended_by}"
    if choice == "auto":
        return "keep" if acted else "discard"
    return choice


def _overlaid(base: Policy, layer: Policy) -> Policy:
    if layer == _SILENT:  # nearly always, and this runs for every turn
        return base
    said = {
        name: value for name, value in msgspec.structs.asdict(layer).items() if value is not None
    }
    return msgspec.structs.replace(base, **said)


def _suggest(word: str, known: Iterable[str], lead: str) -> str:
    names = list(known)
    close = get_close_matches(word, names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{lead}: {', '.join(names)}{hint}"
