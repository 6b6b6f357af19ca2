"""A client's `tool_choice` and output schema, parsed once for wires that have their own form of them.

`Parameters` keep both in the form of OpenAI's clients, nested (chat completions) or flat (Responses).
"""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from holdfast.core.codec import DAMAGE, Value
from holdfast.core.turns.events import ToolDefinition
from holdfast.errors import InvalidValue

S = TypeVar("S", bound=msgspec.Struct)


class ToolChoice(Value):
    """Which tools may be called, and whether one must be."""

    mode: Literal["auto", "none", "required"] = "auto"
    only: tuple[str, ...] = ()
    """Tool names; empty means all that are offered."""

    def offered(self, tools: tuple[ToolDefinition, ...]) -> tuple[ToolDefinition, ...]:
        """The tools that may be called."""
        return tuple(each for each in tools if not self.only or each.name in self.only)


_PLAIN = {
    "auto": ToolChoice(),
    "none": ToolChoice(mode="none"),
    "required": ToolChoice(mode="required"),
}


def read_choice(choice: str | None) -> ToolChoice | None:
    """A parsed `tool_choice`; None if it is absent. Raises InvalidValue for one that cannot be understood."""
    if choice is None:
        return None
    if choice in _PLAIN:
        return _PLAIN[choice]
    asked = _read(choice, _Choice, "tool_choice")
    match asked.type:
        case "function" if name := (asked.function or asked).name:
            return ToolChoice(mode="required", only=(name,))
        case "allowed_tools":
            allowed = asked.allowed_tools or asked
            names = tuple((each.function or each).name for each in allowed.tools)
            if names and all(names):
                return ToolChoice(mode=allowed.mode, only=names)
    raise InvalidValue("tool_choice has to be none, auto, required, a function or allowed_tools")


# The client's form: nested for chat completions, flat for Responses.


class _Named(msgspec.Struct):
    name: str = ""


class _Tool(_Named):
    function: _Named | None = None


class _Allowed(msgspec.Struct):
    mode: Literal["auto", "required"] = "auto"
    tools: tuple[_Tool, ...] = ()


class _Choice(_Tool):
    type: str = ""
    mode: Literal["auto", "required"] = "auto"
    tools: tuple[_Tool, ...] = ()
    allowed_tools: _Allowed | None = None


class OutputSchema(Value):
    """The form that an answer must have: JSON, by this schema."""

    name: str = "answer"
    schema: bytes | None = None
    """JSON; None if any object is valid."""
    strict: bool | None = None


def read_schema(output_schema: str | None) -> OutputSchema | None:
    """A parsed `response_format` or `text.format`; None if it is absent. Raises InvalidValue."""
    if output_schema is None:
        return None
    asked = _read(output_schema, _Format, "response_format")
    if asked.type == "json_object":
        return OutputSchema()
    form = asked.json_schema or asked
    schema = bytes(form.schema)
    if asked.type != "json_schema" or not schema.startswith(b"{"):
        raise InvalidValue("response_format has to be json_object, or json_schema with a schema")
    return OutputSchema(
        name=form.name or "answer",
        schema=msgspec.json.encode(msgspec.json.decode(schema)),
        strict=form.strict,
    )


class _Form(msgspec.Struct):
    name: str | None = None
    schema: msgspec.Raw = msgspec.Raw()
    strict: bool | None = None


class _Format(_Form):
    type: str = ""
    json_schema: _Form | None = None


def _read(text: str, kind: type[S], what: str) -> S:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"{what} cannot be understood: {error}") from error
    except DAMAGE as error:
        raise InvalidValue(f"{what} is not valid JSON: {error}") from error
