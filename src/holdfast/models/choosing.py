"""What a client asks of tools and of the form of an answer, read once for wires that word it in their own way.

`Parameters` keep both as OpenAI's clients write them, nested (chat completions) or flat (Responses).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.core.codec import Value
from holdfast.core.events import ToolDefinition
from holdfast.errors import InvalidValue


class ToolChoice(Value):
    """Which tools may be called, and whether one has to be."""

    mode: Literal["auto", "none", "required"] = "auto"
    only: tuple[str, ...] = ()
    """Names; empty means all that are offered."""

    def offered(self, tools: tuple[ToolDefinition, ...]) -> tuple[ToolDefinition, ...]:
        """Those of these tools that may be called at all."""
        return tuple(each for each in tools if not self.only or each.name in self.only)


_PLAIN = {
    "auto": ToolChoice(),
    "none": ToolChoice(mode="none"),
    "required": ToolChoice(mode="required"),
}


def read_choice(choice: str | None) -> ToolChoice | None:
    """A `tool_choice`; None if there is none. Raises InvalidValue for one that cannot be understood."""
    if choice is None:
        return None
    if choice in _PLAIN:
        return _PLAIN[choice]
    asked = _object(choice, "tool_choice")
    if asked.get("type") == "function":
        name = _inner(asked, "function").get("name")
        if isinstance(name, str):
            return ToolChoice(mode="required", only=(name,))
    if asked.get("type") == "allowed_tools":
        allowed = _inner(asked, "allowed_tools")
        mode: Any = allowed.get("mode", "auto")
        tools: Any = allowed.get("tools")
        names = tuple(map(_tool_name, tools)) if isinstance(tools, list) else ()
        if names and all(names) and mode in ("auto", "required"):
            return ToolChoice(mode=mode, only=names)
    raise InvalidValue("tool_choice has to be none, auto, required, a function or allowed_tools")


def _tool_name(tool: Any) -> str:
    name = _inner(tool, "function").get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else ""


class OutputSchema(Value):
    """The form that an answer has to have: JSON, and by which schema."""

    name: str = "answer"
    schema: bytes | None = None
    """JSON; None if any object will do."""
    strict: bool | None = None


def read_schema(output_schema: str | None) -> OutputSchema | None:
    """A `response_format` or `text.format`; None if there is none. Raises InvalidValue."""
    if output_schema is None:
        return None
    asked = _object(output_schema, "response_format")
    if asked.get("type") == "json_object":
        return OutputSchema()
    inner = _inner(asked, "json_schema")
    schema = inner.get("schema")
    if asked.get("type") != "json_schema" or not isinstance(schema, dict):
        raise InvalidValue("response_format has to be json_object, or json_schema with a schema")
    strict = inner.get("strict")
    return OutputSchema(
        name=str(inner.get("name") or "answer"),
        schema=msgspec.json.encode(schema),
        strict=strict if isinstance(strict, bool) else None,
    )


def _inner(asked: dict[str, Any], member: str) -> dict[str, Any]:
    """Nested as chat completions write it, or flat as Responses do."""
    inner = asked.get(member)
    return inner if isinstance(inner, dict) else asked


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        asked = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidValue(f"{what} is not valid JSON: {error}") from error
    if not isinstance(asked, dict):
        raise InvalidValue(f"{what} has to be an object")
    return asked
