"""A request's `tool_choice`, which chat completions and Responses write alike but for the place of a function's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from holdfast.core.codec import Value
from holdfast.core.turns.events import ToolDefinition
from holdfast.wire.body_parser import NULL, as_json, demand_known
from holdfast.wire.problems import bad_request

_CHAT_FORM = '{"type": "function", "function": {"name": …}}'
_RESPONSES_FORM = '{"type": "function", "name": …}'


class ReadChoice(Value):
    """A choice as it is passed on, and what no agent can obey in it."""

    choice: str | None = None
    """A word, or JSON in the client's form; None if the model chooses."""
    ignored: tuple[str, ...] = ()


class _NamedTool(Struct, frozen=True):
    name: str


class _Allowed(Struct, frozen=True):
    mode: Literal["auto", "required"] = "auto"
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list)


class _ToolChoice(_Allowed, frozen=True):
    type: str = ""
    name: str | None = None
    """In the form of Responses."""
    function: Raw = NULL
    """In the form of chat completions, as is the next."""
    allowed_tools: _Allowed | None = None


def read_tool_choice(raw: Raw, tools: Iterable[ToolDefinition], *, is_chat: bool) -> ReadChoice:
    """A request's `tool_choice`. A tool that only other servers have cannot be chosen here, and is ignored. Raises
    Refused."""
    said = as_json(raw)
    if said is None:
        return ReadChoice()
    if said in ('"none"', '"auto"', '"required"'):
        return ReadChoice(choice=said.strip('"'))
    form = _CHAT_FORM if is_chat else _RESPONSES_FORM
    try:
        choice = msgspec.json.decode(said, type=_ToolChoice)
        function = msgspec.json.decode(choice.function, type=_NamedTool | None)
    except msgspec.DecodeError as error:
        raise bad_request(
            "invalid_value",
            f'tool_choice is "none", "auto", "required" or {form}',
            param="tool_choice",
        ) from error
    match choice.type:
        case "function":
            name = (function.name if function else None) if is_chat else choice.name
            if name is None:
                other = choice.name if is_chat else function
                api = "Responses" if is_chat else "Chat Completions"
                what = f"has the form of {api}; here" if other else "of a function"
                raise bad_request(
                    "invalid_value", f"tool_choice {what} is {form}", param="tool_choice"
                )
            demand_known(name, tools)
            return ReadChoice(choice=said)
        case "allowed_tools":
            allowed = (choice.allowed_tools if is_chat else None) or choice
            return _allowed(allowed, said, is_chat=is_chat)
        case _:
            return ReadChoice(ignored=("tool_choice",))


def _allowed(choice: _Allowed, said: str, *, is_chat: bool) -> ReadChoice:
    """The functions among the tools that a request allows. The agent's own tools may be among them."""
    others = [n for n, each in enumerate(choice.tools) if not _is_function(each, is_chat=is_chat)]
    if not others and choice.tools:
        return ReadChoice(choice=said)
    functions = [each for n, each in enumerate(choice.tools) if n not in others]
    if not functions:
        return ReadChoice(ignored=("tool_choice",))
    inner = {"mode": choice.mode, "tools": functions}
    asked = {"type": "allowed_tools", **({"allowed_tools": inner} if is_chat else inner)}
    return ReadChoice(
        choice=msgspec.json.encode(asked).decode(),
        ignored=tuple(f"tool_choice.tools[{n}]" for n in others),
    )


def _is_function(tool: Mapping[str, Any], *, is_chat: bool) -> bool:
    named = tool.get("function") if is_chat else tool
    is_named = isinstance(named, dict) and isinstance(named.get("name"), str)
    return tool.get("type") == "function" and is_named
