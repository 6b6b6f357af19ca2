"""The bodies of the Messages API as types, for the document at `/openapi.json`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from holdfast.wire.anthropic.door.request import MessagesRequest, MessagesTool, RequestMessage
from holdfast.wire.openai.request_types import Count, Json, TopP, described

Content: TypeAlias = str | list[Json]
SentMessage: Any = described(RequestMessage, "SentMessage", content=Content)
SentTool: Any = described(MessagesTool, "SentTool", input_schema=Json | None)
_Fraction: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
_REFINED: dict[str, object] = {
    "messages": Annotated[list[SentMessage], Meta(min_length=1)],
    "max_tokens": Count,
    "system": str | list[Json] | None,
    "tools": list[SentTool] | None,
    "temperature": _Fraction | None,
    "top_p": TopP | None,
    "cache_control": Json | None,
}
MessagesBody: Any = described(MessagesRequest, "MessagesBody", "max_tokens", **_REFINED)
CountedBody: Any = described(
    MessagesRequest, "CountedBody", **{**_REFINED, "max_tokens": Count | None}
)


class MessageTokens(Struct, frozen=True):
    """A count of tokens."""

    input_tokens: int


class ModelInfo(Struct, frozen=True):
    """An agent, as Anthropic's clients list models."""

    id: str
    display_name: str
    created_at: str
    type: Literal["model"] = "model"
    lifecycle: Literal["active"] = "active"


class ModelInfoList(Struct, frozen=True):
    """A page of agents."""

    data: list[ModelInfo]
    has_more: bool
    first_id: str | None
    last_id: str | None
