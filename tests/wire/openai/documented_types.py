"""Examples of every type in OpenAI's documents and in OpenResponses, made from the types of the installed SDKs.

A type that a newer SDK adds is tried as soon as that SDK is installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
)

from anthropic.types import ContentBlockParam
from openai.types.chat import ChatCompletionMessageParam
from openai.types.conversations import ConversationItem
from openai.types.responses import ResponseInputItem, ResponseItem, ResponseOutputItem, Tool
from openresponses_types.types import CreateResponseBody, ResponseResource, ResponsesToolParam
from pydantic import AnyUrl, BaseModel, RootModel
from typing_extensions import get_type_hints, is_typeddict

Json = dict[str, Any]

_WORDS = {
    "file_data": "data:text/plain;base64,d29yZHM=",
    "data": "d29yZHM=",
    "image_url": "https://example.com/x.png",
    "url": "https://example.com/x.png",
    "file_url": "https://example.com/x.pdf",
}
"""Texts that have a form."""


def members(union: Any) -> tuple[Any, ...]:
    """The types of a union, also of unions in it."""
    origin = get_origin(union)
    if origin is Annotated:
        return members(get_args(union)[0])
    if origin in (Union, UnionType):
        return tuple(kind for each in get_args(union) for kind in members(each))
    if isinstance(union, type) and issubclass(union, RootModel):
        return members(union.model_fields["root"].annotation)
    return (union,)


def examples(kind: Any) -> Iterator[Json]:
    """Values of one type: with all its members, once for each alternative that its members have; and with as few
    members as it needs."""
    yielded: list[Json] = []
    for choice in range(12):
        for full in (True, False):
            made = _object(kind, choice, full=full)
            if made not in yielded:
                yielded.append(made)
                yield made


def _object(kind: Any, choice: int, *, full: bool) -> Json:
    return {
        name: (str in members(given) and _WORDS.get(name)) or _value(given, choice, full=full)
        for name, given, is_required in _fields(kind)
        if full or is_required or name == "type"
    }


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """The members of a type: their names, their types, and whether they are required."""
    if is_typeddict(kind):
        plain = get_type_hints(kind)
        return tuple(
            (name, plain[name], str(given).startswith("typing.Required"))
            for name, given in get_type_hints(kind, include_extras=True).items()
        )
    return tuple(
        (field.alias or name, field.annotation, field.is_required())
        for name, field in kind.model_fields.items()
    )


def _value(kind: Any, choice: int, *, full: bool) -> Any:
    origin, given = get_origin(kind), get_args(kind)
    if origin in (Annotated, Union, UnionType):
        kinds = [each for each in members(kind) if each is not NoneType]
        return _value(kinds[choice % len(kinds)], choice // len(kinds), full=full)
    if origin is Literal:
        return given[choice % len(given)]
    if origin in (list, Iterable):
        held = members(given[0])
        return [_value(each, choice, full=full) for each in held[choice % len(held) :][:3]]
    if origin is dict:
        return {"any": _value(given[1], choice, full=full)}
    if isinstance(kind, type) and issubclass(kind, RootModel):
        return _value(kind.model_fields["root"].annotation, choice, full=full)
    if is_typeddict(kind) or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return _object(kind, choice, full=full)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)[choice % len(kind)].value
    plain: dict[Any, Any] = {str: "words", int: 7, float: 0.5, bool: True, object: [1, None, "x"]}
    return plain.get(kind, "https://example.com/x" if kind is AnyUrl else [1, None, "x"])


@cache
def items() -> dict[str, list[Json]]:
    """Examples of all items that clients may send or that OpenAI lists, by type."""
    found: dict[str, list[Json]] = {}
    documented = (ResponseInputItem, ResponseOutputItem, ResponseItem, ConversationItem)
    for union in (*documented, *_open_items()):
        for kind in members(union):
            for each in examples(kind):
                kinds = found.setdefault(each["type"], [])
                if each not in kinds:
                    kinds.append(each)
    return found


def chat_messages() -> list[Json]:
    """Examples of the messages of chat that are stored."""
    kinds = members(ChatCompletionMessageParam)
    found = [each for kind in kinds for each in examples(kind)]
    return [each for each in found if each["role"] in ("user", "assistant", "tool")]


def blocks() -> list[Json]:
    """Examples of the blocks of Anthropic's messages."""
    return [each for kind in members(ContentBlockParam) for each in examples(kind)]


def tools() -> dict[str, list[Json]]:
    """Examples of all tools, by type."""
    found: dict[str, list[Json]] = {}
    for kind in (*members(Tool), *members(ResponsesToolParam)):
        for each in examples(kind):
            found.setdefault(each["type"], []).append(each)
    return found


def _open_items() -> Iterator[Any]:
    """The items of OpenResponses: those that a request may bring, and those that a response may have."""
    for body, name in ((CreateResponseBody, "input"), (ResponseResource, "output")):
        for each in members(body.model_fields[name].annotation):
            yield from get_args(each) if get_origin(each) is list else ()
