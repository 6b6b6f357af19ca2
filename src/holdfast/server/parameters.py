"""What a request can say beside its body: the parameters that several routes share, and the places of paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from holdfast import limits
from holdfast.server import openapi_errors as errors

Kind: TypeAlias = Any
"""A type, as msgspec knows them."""


class Parameter(Struct, frozen=True):
    """A part of a request beside its body."""

    name: str
    words: str
    kind: Kind = str
    where: Literal["query", "header", "path"] = "query"
    example: object = None
    codes: tuple[str, ...] = ()
    """Errors that every route with this parameter can answer with."""


Limit: TypeAlias = Annotated[int, Meta(ge=1, le=limits.page_size_max)]
Flag: TypeAlias = Literal["true", "false"]
After: TypeAlias = Annotated[int, Meta(ge=-1, le=999_999_999)]
AfterRecord: TypeAlias = Annotated[int, Meta(ge=-1, le=999_999_999_999_999)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, lt=1e12)]
Words: TypeAlias = Annotated[str, Meta(max_length=limits.query_chars_max)]
Key: TypeAlias = Annotated[
    str, Meta(pattern=r"^[\x21-\x7e]+$", min_length=1, max_length=limits.session_key_chars_max)
]
Once: TypeAlias = Annotated[
    str, Meta(pattern=r"^[\x21-\x7e]+$", min_length=1, max_length=limits.idempotency_key_chars_max)
]
Etag: TypeAlias = Annotated[str, Meta(pattern='^"(0|[1-9][0-9]{0,17})"$')]
Calls: TypeAlias = Annotated[str, Meta(pattern="^(fc_[0-7][0-9a-hjkmnp-tv-z]{25}(, ?|$))*$")]

LIMIT = Parameter("limit", "How many at most.", Limit)
PAGE = (
    LIMIT,
    Parameter("order", "`desc`: the newest first.", Literal["asc", "desc"]),
    Parameter("after", "Go on after the item with this id."),
)

# ── headers ──────────────────────────────────────────────────────────────────────────────────


def _header(name: str, words: str, kind: Kind = str, example: object = None) -> Parameter:
    return Parameter(name, words, kind, "header", example)


ONCE = _header(
    "Idempotency-Key", "This is one request, however often it arrives.", Once, "4f9c0d1e"
)
IF_MATCH = _header(
    "If-Match", 'Only if the conversation is at this version, in quotes: `"7"`.', Etag
)
ON_BUSY = _header(
    "X-On-Busy",
    "What to do when another turn runs.",
    Literal["wait", "reject", "interrupt", "steer"],
)
POLICY = _header(
    "X-Turn-Policy",
    "What becomes of a turn that does not complete: `cancel=keep, disconnect=finish`.",
)
TURN = (
    _header(
        "X-Conversation-Id",
        "The conversation: a key of your own choosing, or an id that begins with `conv_` and must exist.",
        Key,
        "trip-to-oslo",
    ),
    _header("X-Conversation-Create", "`never`: an unknown key is a 404.", Literal["auto", "never"]),
    ONCE,
    IF_MATCH,
    ON_BUSY,
    POLICY,
    _header("X-Show-Tools", "Show the agent's own calls as well.", Flag),
    _header("X-Show-Reasoning", "On chat: show what the agent's model thinks, too.", Flag),
    _header("X-Approve", "Ids of calls that wait, with commas: they may run.", Calls),
    _header("X-Deny", "Ids of calls that wait, with commas: they may not.", Calls),
)

ANSWER_HEADERS: Mapping[str, str] = {
    "x-request-id": "What the server's log knows this request by.",
    "x-turn-id": "The turn.",
    "x-turn-continues": "The unfinished turn that it goes on with.",
    "x-conversation-id": "What the request called the conversation.",
    "x-session-id": "The conversation's id.",
    "x-conversation-base": "The version that the turn began from.",
    "x-conversation-version": "The version that it made; on JSON.",
    "x-conversation-created": "`true`: the conversation is new with this turn.",
    "x-conversation-diverged": "`true`: the request told a history that is not ours.",
    "x-ignored-params": "Parameters that the agent's model does nothing about.",
    "x-token-count": "Who says so many: the model's `provider`, or an `estimate`.",
    "x-should-retry": "Whether sending the same request again makes sense.",
    "retry-after": "When, in seconds.",
    "etag": "The conversation's version, in quotes.",
}

ABOUT_TURN = (
    "x-turn-id",
    "x-turn-continues",
    "x-conversation-id",
    "x-session-id",
    "x-conversation-base",
    "x-conversation-version",
    "x-conversation-created",
    "x-conversation-diverged",
    "x-ignored-params",
)
"""Headers of an answer that say which turn it is."""

# ── places of paths ──────────────────────────────────────────────────────────────────────────

PLACES: Mapping[str, Parameter] = {
    word: Parameter(
        name,
        words,
        where="path",
        example=example,
        codes=errors.SESSION if word == "sessions" else (f"{word[:-1]}_not_found",),
    )
    for word, name, words, example in (
        ("models", "id", "An agent, as `GET /v1/models` names it.", "root"),
        ("sessions", "name", "A session: its key, or its id.", "trip-to-oslo"),
        ("turns", "id", "A turn's id.", "turn_01jd0000000000000000000000"),
        ("approvals", "call", "The id of a call that waits.", "fc_01jd0000000000000000000000"),
        ("grants", "grant", "A remembered approval's id.", "grant_01jd0000000000000000000000"),
        ("responses", "response", "A response's id.", "resp_01jd0000000000000000000000"),
        ("conversations", "conversation", "A session's id.", "conv_01jd0000000000000000000000"),
        ("items", "item", "An item's id.", "msg_01jd0000000000000000000000"),
    )
}
"""What can stand in a path, by the word before it."""
