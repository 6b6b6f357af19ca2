"""What a request's headers say about its conversation. Parsed once, into values; a bad one is a 400."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Literal, TypeVar

from holdfast.core.codec import Value
from holdfast.core.policy import Policy, parse_policy
from holdfast.errors import InvalidId, InvalidPolicy
from holdfast.ids import CallId, IdempotencyKey, SessionId, SessionKey, Version
from holdfast.wire.problems import bad_request

CONVERSATION_ID = "x-conversation-id"
NAMES = (CONVERSATION_ID, "x-openclaw-session-key")
"""The headers that name a session. Others, that clients send unasked, never do."""

APPROVE, DENY = "x-approve", "x-deny"
"""Calls that wait for a person's leave, by their ids, with commas between them."""

OnBusy = Literal["wait", "reject", "interrupt", "steer"]
BUSY: tuple[OnBusy, ...] = ("wait", "reject", "interrupt", "steer")


T = TypeVar("T", bound=str)


class Naming(Value):
    """How a request names its conversation, and how it wants to be treated."""

    name: SessionKey | SessionId | None
    create: bool = True
    if_match: Version | None = None
    on_busy: OnBusy = "wait"
    policy: Policy = Policy()
    idempotency_key: IdempotencyKey | None = None
    client_attempt: int = 0
    show_tools: bool = False
    show_reasoning: bool = False
    approvals: tuple[tuple[CallId, bool], ...] = ()
    """A person's answers to calls of the conversation that wait for one."""


OURS = ("x-conversation-", "x-turn-")
ASKED = (
    CONVERSATION_ID,
    "x-conversation-create",
    "x-turn-policy",
    "x-on-busy",
    "x-show-tools",
    "x-show-reasoning",
    APPROVE,
    DENY,
    "idempotency-key",
    "if-match",
)
TOLD = (
    "x-conversation-base",
    "x-conversation-version",
    "x-conversation-created",
    "x-conversation-diverged",
    "x-turn-id",
)
"""What answers say. A request that says it, too, means nothing by it."""
THEIRS = ("x-approved", "x-approver")
"""A slip away from ours, and words that others may mean something by."""


def read_naming(headers: Mapping[str, str], *, names: tuple[str, ...] = NAMES) -> Naming:
    """Read the headers, given by lower-case name. Raises Refused."""
    _refuse_unknown(headers, names)
    return Naming(
        name=_read_name(headers, names),
        create=_one_of(headers, "x-conversation-create", ("auto", "never"), "auto") == "auto",
        if_match=_read_if_match(headers),
        on_busy=_one_of(headers, "x-on-busy", BUSY, "wait"),
        policy=_read_policy(headers),
        idempotency_key=_read_key(headers),
        client_attempt=_read_count(headers.get("x-stainless-retry-count", "0")),
        show_tools=_one_of(headers, "x-show-tools", ("true", "false"), "false") == "true",
        show_reasoning=_one_of(headers, "x-show-reasoning", ("true", "false"), "false") == "true",
        approvals=(*_read_calls(headers, APPROVE, True), *_read_calls(headers, DENY, False)),
    )


def _refuse_unknown(headers: Mapping[str, str], names: tuple[str, ...]) -> None:
    """A header of ours that we do not know is a mistake, and one that would go unnoticed: a conversation
    that is not named is not continued, and nobody is told."""
    for name in headers:
        # Where no conversation is named by a header, what names one elsewhere is sent all the same.
        comparable = names and len(name) < _LONG
        wrong = _is_mistake(name) if comparable else _is_unknown(name)
        if wrong and name not in names:
            known = dict.fromkeys((*ASKED, *names))
            near = get_close_matches(name, known, n=1, cutoff=0.0)[0]
            raise bad_request(
                "unknown_header",
                f"there is no header {name[:100]}; did you mean {near}? There are: {', '.join(known)}",
                param=name[:100],
            )


_LONG = 64
"""Characters of a name that is neither compared nor remembered."""


@lru_cache(maxsize=1024)  # a client sends the same names with every request
def _is_mistake(name: str) -> bool:
    """Whether a name begins like ours, or is one of them but for a slip, and is none."""
    if _is_unknown(name):
        return True
    known = name in ASKED or name in TOLD or name in THEIRS
    return not known and any(_is_slip(name, each) for each in ASKED)


def _is_unknown(name: str) -> bool:
    return name.startswith(OURS) and name not in ASKED and name not in TOLD


def _is_slip(name: str, ours: str) -> bool:
    """Whether a letter too many, too few or another, or two in the wrong order, is all that is between them.

    No more than that: gateways put their own name into such names, as in `x-ms-conversationid`.
    """
    unlike = (n for n, (a, b) in enumerate(zip(name, ours, strict=False)) if a != b)
    same = next(unlike, min(len(name), len(ours)))
    rest, our_rest = name[same:], ours[same:]
    swapped = rest[:2] == our_rest[:2][::-1] and rest[2:] == our_rest[2:]
    return swapped or rest[1:] == our_rest or rest == our_rest[1:] or rest[1:] == our_rest[1:]


def _read_name(headers: Mapping[str, str], names: tuple[str, ...]) -> SessionKey | SessionId | None:
    given = {headers[name] for name in names if name in headers}
    if not given:
        return None
    if len(given) > 1:
        raise bad_request(
            "invalid_conversation_key",
            f"the conversation is named twice, and differently: use {names[0]} alone",
            param=names[0],
        )
    (text,) = given
    try:
        return SessionId(text) if text.startswith("conv_") else SessionKey(text)
    except InvalidId as error:
        raise bad_request("invalid_conversation_key", str(error), param=names[0]) from error


def _read_if_match(headers: Mapping[str, str]) -> Version | None:
    text = headers.get("if-match")
    if text is None:
        return None
    try:
        return Version.from_etag(text)
    except InvalidId as error:
        raise bad_request("invalid_version", str(error), param="if-match") from error


def _read_policy(headers: Mapping[str, str]) -> Policy:
    try:
        return parse_policy(headers.get("x-turn-policy", ""))
    except InvalidPolicy as error:
        raise bad_request("invalid_turn_policy", str(error), param="x-turn-policy") from error


def _read_key(headers: Mapping[str, str]) -> IdempotencyKey | None:
    text = headers.get("idempotency-key")
    if text is None:
        return None
    try:
        return IdempotencyKey.from_header(text)
    except InvalidId as error:
        raise bad_request("invalid_idempotency_key", str(error), param="idempotency-key") from error


def _read_calls(
    headers: Mapping[str, str], name: str, allowed: bool
) -> Iterator[tuple[CallId, bool]]:
    for text in filter(None, map(str.strip, headers.get(name, "").split(","))):
        try:
            yield CallId(text), allowed
        except InvalidId as error:
            raise bad_request("invalid_header", f"{name}: {error}", param=name) from error


def _read_count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _one_of(headers: Mapping[str, str], name: str, known: tuple[T, ...], default: T) -> T:
    text = headers.get(name, default).strip().lower()
    for each in known:
        if each == text:
            return each
    raise bad_request("invalid_header", f"{name} is one of {', '.join(known)}", param=name)
