"""The order in which providers take a history: what a model said, the results it asked for, then everything else.

A step is what a model said in one go. Its results follow it with nothing in between, whatever else happened
meanwhile: servers refuse a history that says otherwise, and go on refusing it for ever.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias, assert_never

import msgspec

from holdfast.core.codec import Value
from holdfast.core.items import (
    AssistantMessage,
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
Other: TypeAlias = UserMessage | SystemMessage | Interruption | Summary


class Step(Value):
    """What a model said in one go, and what became of the calls in it."""

    said: tuple[Said, ...]
    results: tuple[ToolResult, ...] = ()

    def called(self, result: ToolResult) -> ToolCall | None:
        """The call that a result is for, if it is one of this step's."""
        calls = (each for each in self.said if isinstance(each, ToolCall))
        return next((each for each in calls if each.id == result.call), None)


def in_order(items: Sequence[Item]) -> list[Step | Other]:
    """The same items as steps, with what people said between them. Hand-offs are nobody's words."""
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


# ── words that are the same on every wire ────────────────────────────────────────────────────


def words_of(item: Other) -> Parts:
    """What somebody other than the model said, as a user's words: most wires know no other role here."""
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
        case _:  # pragma: no cover
            assert_never(item)


def result_text(result: ToolResult) -> str:
    """What a tool said, or in what way it said nothing."""
    text = text_of(result.content)
    if not text and result.outcome != "ok":
        return f"[{result.outcome.replace('_', ' ')}]"
    return text


def arguments_object(arguments: str) -> msgspec.Raw:
    """A call's arguments as a JSON object, for wires that take nothing else.

    What a model wrote and is no object is kept, so that it can see what it did.
    """
    try:
        if isinstance(msgspec.json.decode(arguments or "{}"), dict):
            return msgspec.Raw((arguments or "{}").encode())
    except (msgspec.DecodeError, RecursionError):
        pass
    return msgspec.Raw(msgspec.json.encode({"arguments": arguments}))


def extras_of(item: Said, owner: str) -> list[Opaque]:
    """What a provider gave along with an item and wants to see again. Another's is none of its business."""
    return [each for each in item.extras if each.owner == owner]


_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def plain_call_id(call: ToolCall | ToolResult) -> str:
    """The name of a call for a wire that is particular about names: the known one, or else ours."""
    if _PLAIN_ID.fullmatch(call.call_id):
        return call.call_id
    return str(call.id if isinstance(call, ToolCall) else call.call)
