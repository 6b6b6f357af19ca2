"""Parameters that several routes share: of queries, headers and paths; and the headers of answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from holdfast import limits
from holdfast.server.openapi import error_codes as errors
from holdfast.wire import headers
from holdfast.wire.headers import HEADERS, IDEMPOTENCY_KEY, TURN_POLICY, Header

Kind: TypeAlias = Any
"""A type that msgspec can describe."""


class Parameter(Struct, frozen=True):
    """A parameter of a request, in its query, headers or path."""

    name: str
    words: str
    kind: Kind = str
    where: Literal["query", "header", "path"] = "query"
    example: object = None
    codes: tuple[str, ...] = ()
    """Errors that every route with this parameter can answer with."""


Flag: TypeAlias = Literal["true", "false"]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=limits.page_size_max)]
After: TypeAlias = Annotated[int, Meta(ge=-1, le=999_999_999)]
AfterRecord: TypeAlias = Annotated[int, Meta(ge=-1, le=999_999_999_999_999)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, lt=1e12)]
Words: TypeAlias = Annotated[str, Meta(max_length=limits.query_chars_max)]

LIMIT = Parameter("limit", "How many at most.", Limit)
PAGE = (
    LIMIT,
    Parameter("order", "`desc`: the newest first.", Literal["asc", "desc"]),
    Parameter("after", "Continue after the item with this id."),
)

# ── headers ──────────────────────────────────────────────────────────────────────────────────


def _header(header: Header) -> Parameter:
    return Parameter(header.title, header.request, header.kind, "header", header.example)


ONCE = _header(IDEMPOTENCY_KEY)
IF_MATCH = _header(headers.IF_MATCH)
ON_BUSY = _header(headers.ON_BUSY)
POLICY = _header(TURN_POLICY)
NARROW = _header(headers.READ_ONLY)
TURN = tuple(_header(each) for each in HEADERS if each.request and each.of_turn)
ANSWER_HEADERS = {each.name: each.answer for each in HEADERS if each.answer}
ABOUT_TURN = tuple(each.name for each in HEADERS if each.answer and each.of_turn)
"""Headers of an answer that say which turn it is."""

# ── places of paths ──────────────────────────────────────────────────────────────────────────

_PLACE_CODES = {"sessions": errors.SESSION, "a2a": ("model_not_found",)}

PLACES: Mapping[str, Parameter] = {
    word: Parameter(
        name,
        words,
        where="path",
        example=example,
        codes=_PLACE_CODES.get(word, (f"{word[:-1]}_not_found",)),
    )
    for word, name, words, example in (
        ("models", "id", "An agent, as `GET /v1/models` names it.", "root"),
        ("sessions", "name", "A session: its key, or its id.", "trip-to-oslo"),
        ("turns", "id", "A turn's id.", "turn_01jd0000000000000000000000"),
        ("approvals", "call", "The id of a waiting call.", "fc_01jd0000000000000000000000"),
        ("grants", "grant", "A remembered approval's id.", "grant_01jd0000000000000000000000"),
        ("responses", "response", "A response's id.", "resp_01jd0000000000000000000000"),
        ("conversations", "conversation", "A session's id.", "conv_01jd0000000000000000000000"),
        (
            "blobs",
            "digest",
            "A digest, as an item names it.",
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
        ("items", "item", "An item's id.", "msg_01jd0000000000000000000000"),
        ("a2a", "agent", "An agent, as `GET /v1/models` names it.", "root"),
        ("tasks", "id", "A task's id: that of its turn.", "turn_01jd0000000000000000000000"),
    )
}
"""The parameters of paths, by the word before them."""
