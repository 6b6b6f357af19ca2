"""Orders a history as providers require it: a model's step, then the results of its calls, then everything else.

A step is what a model said in one answer. Its results follow it directly, even if other items came
in between: servers refuse any other order, and would go on refusing this history for ever.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias, assert_never

import msgspec

from holdfast.core.codec import DAMAGE, Value
from holdfast.core.items import (
    AssistantMessage,
    ForeignItem,
    HandOff,
    Interruption,
    Item,
    Opaque,
    Parts,
    Reasoning,
    Summary,
    SystemMessage,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    plain_text,
    text_of,
)
from holdfast.core.turns.closure import note_for_model

Said: TypeAlias = AssistantMessage | Reasoning | ToolCall
Other: TypeAlias = UserMessage | SystemMessage | Interruption | Summary | ForeignItem


class Step(Value):
    """One answer of a model, and the results of its calls."""

    said: tuple[Said, ...]
    results: tuple[ToolResult, ...] = ()

    def called(self, result: ToolResult) -> ToolCall | None:
        """The call of this step that a result belongs to; None if it is another step's."""
        calls = (each for each in self.said if isinstance(each, ToolCall))
        return next((each for each in calls if each.id == result.call), None)


def in_order(items: Sequence[Item]) -> list[Step | Other]:
    """The items as steps, with other items between them. Hand-offs are left out."""
    ordered: list[Step | Other] = []
    said: list[Said] = []
    results: list[ToolResult] = []
    held: list[Other] = []

    def close() -> None:
        if said or results:
            ordered.append(Step(said=tuple(said), results=tuple(results)))
        ordered.extend(held)
        said.clear()
        results.clear()
        held.clear()

    for item in items:
        match item:
            case HandOff():
                continue
            case ToolResult():
                results.append(item)
            case AssistantMessage() | Reasoning() | ToolCall():
                if results or held:
                    close()
                said.append(item)
            case _:
                held.append(item)
    close()
    return ordered


# ── texts that are the same on every wire ────────────────────────────────────────────────────


def words_of(item: Other) -> Parts:
    """An item that is not the model's, as a user's message: most wires have no other role for it."""
    match item:
        case UserMessage():
            whose = (Text(text=f"[From {item.name}:]"),) if item.name else ()
            return (*whose, *item.content)
        case SystemMessage():
            text = text_of(item.content)
            return plain_text(f"[Instructions: {text}]" if text else "")
        case Interruption():
            return plain_text(note_for_model(item))
        case Summary():
            return plain_text(f"[Summary of the conversation so far: {item.text}]")
        case ForeignItem():
            return plain_text(item.original.text)
        case _:  # pragma: no cover
            assert_never(item)


def result_text(result: ToolResult) -> str:
    """A result's text, or a sentence that says why it has none."""
    text = text_of(result.content)
    if not text and result.outcome != "ok":
        return f"[{result.outcome.replace('_', ' ')}]"
    return text


def arguments_object(arguments: str) -> msgspec.Raw:
    """A call's arguments as a JSON object, for wires that take nothing else.

    If the model wrote something else, it is kept inside an object, so that the model can see what it did.
    """
    try:
        if isinstance(msgspec.json.decode(arguments or "{}"), dict):
            return msgspec.Raw((arguments or "{}").encode())
    except DAMAGE:
        pass
    return msgspec.Raw(msgspec.json.encode({"arguments": arguments}))


def extras_of(item: Said, owner: str) -> list[Opaque]:
    """The data that this provider sent with an item and wants back. Other providers' data is left out."""
    return [each for each in item.extras if each.owner == owner]


_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def plain_call_id(call: ToolCall | ToolResult) -> str:
    """The id of a call for a wire with strict rules: the provider's if it is valid, otherwise ours."""
    if _PLAIN_ID.fullmatch(call.call_id):
        return call.call_id
    return str(call.id if isinstance(call, ToolCall) else call.call)
