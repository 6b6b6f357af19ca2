"""Short words for tests of how a history looks on some wire."""

from __future__ import annotations

from typing import Any

from holdfast.core.items import (
    AssistantMessage,
    Inline,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)
from holdfast.ids import CallId, MessageId, ReasoningId, ResultId
from tests.core.builders import new_minter

MINT = new_minter()
DIGEST = "sha256:" + "a" * 64
PNG = Inline(media_type="image/png", data=b"png")
PDF = Inline(media_type="application/pdf", data=b"pdf")


def user(*content: Any, **fields: Any) -> UserMessage:
    parts = tuple(Text(text=each) if isinstance(each, str) else each for each in content)
    return UserMessage(id=MINT(MessageId), content=parts, **fields)


def said(text: str, *extras: Opaque) -> AssistantMessage:
    content = (Text(text=text),) if text else ()
    return AssistantMessage(id=MINT(MessageId), content=content, extras=extras)


def call(name: str, arguments: str = "{}", call_id: str = "call_1", **fields: Any) -> ToolCall:
    return ToolCall(id=MINT(CallId), call_id=call_id, name=name, arguments=arguments, **fields)


def result(of: ToolCall, *content: Any, outcome: Any = "ok") -> ToolResult:
    parts = tuple(Text(text=each) if isinstance(each, str) else each for each in content)
    return ToolResult(
        id=MINT(ResultId), call=of.id, outcome=outcome, content=parts, call_id=of.call_id
    )


def thought(text: str, *extras: Opaque) -> Reasoning:
    return Reasoning(id=MINT(ReasoningId), text=text, extras=extras)
