"""The request bodies of `/v1` as types, for the document at `/openapi.json`.

They are derived from the types that decode bodies. Those leave a field undecoded (`Raw`) where it can have many
types, and check numbers in code for better error messages; here the types say both.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from holdfast import limits
from holdfast.wire.openai.chat.messages import ChatMessage
from holdfast.wire.openai.chat.request import ChatRequest, FunctionDefinition, RequestTool
from holdfast.wire.openai.conversations import ConversationBody
from holdfast.wire.openai.responses.items import InputItem
from holdfast.wire.openai.responses.request import (
    ContextRequest,
    ResponsesRequest,
    ResponsesTool,
    TextOptions,
)

Json: TypeAlias = dict[str, Raw]


def described(
    kind: type[Struct], name: str = "", /, *needed: str, **refined: object
) -> type[Struct]:
    """A type with the same members, some of them required, or typed more exactly."""
    infos = msgspec.structs.fields(kind)
    assert not refined.keys() - {each.name for each in infos}, "only what is there can be refined"
    members: list[Any] = [
        (each.name, kinds) if each.required or each.name in needed else (each.name, kinds, None)
        for each in infos
        for kinds in (refined.get(each.name, each.type),)
    ]
    members.sort(key=len)  # required members come first
    body = msgspec.defstruct(name or kind.__name__, members)
    body.__doc__ = kind.__doc__
    return body


Count = Annotated[int, Meta(ge=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
TopP = Annotated[float, Meta(ge=0, le=1)]
ToolName = Annotated[
    str, Meta(pattern="^[a-zA-Z0-9_-]+$", min_length=1, max_length=limits.tool_name_chars_max)
]
Metadata = Annotated[
    dict[
        Annotated[str, Meta(min_length=1, max_length=limits.attribute_name_chars_max)],
        Annotated[str, Meta(max_length=limits.attribute_value_chars_max)],
    ],
    Meta(max_length=limits.attributes_max),
]
Choice: TypeAlias = Literal["none", "auto", "required"] | Json

# ── chat completions ─────────────────────────────────────────────────────────────────────────


class ResponseFormat(Struct):
    """The form that an answer must have."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Json | None = None


ChatFunction: Any = described(FunctionDefinition, name=ToolName, parameters=Json | None)
ChatTool: Any = described(RequestTool, "ChatTool", function=ChatFunction | None)
ChatBody: Any = described(
    ChatRequest,
    messages=Annotated[list[ChatMessage], Meta(min_length=1)],
    tools=list[ChatTool] | None,
    tool_choice=Choice | None,
    n=Literal[1] | None,
    max_tokens=Count | None,
    max_completion_tokens=Count | None,
    temperature=Temperature | None,
    top_p=TopP | None,
    response_format=ResponseFormat | None,
    logprobs=Literal[False] | None,
    top_logprobs=Literal[0] | None,
    modalities=list[Literal["text"]] | None,
    functions=Annotated[list[Json], Meta(max_length=0, description="Deprecated: use tools.")]
    | None,
    function_call=Annotated[None, Meta(description="Deprecated: use tool_choice.")],
    frequency_penalty=Penalty | None,
    presence_penalty=Penalty | None,
)

# ── responses and conversations ──────────────────────────────────────────────────────────────

Input: TypeAlias = str | list[InputItem]
ResponseTool: Any = described(ResponsesTool, "ResponseTool", parameters=Json | None)
ResponseText: Any = described(TextOptions, format=Json | None)
ResponsesBody: Any = described(
    ResponsesRequest,
    "",
    "model",
    "input",
    input=Input,
    tools=list[ResponseTool] | None,
    tool_choice=Choice | None,
    max_output_tokens=Annotated[int, Meta(ge=16)] | None,
    max_tool_calls=Count | None,
    temperature=Temperature | None,
    top_p=TopP | None,
    presence_penalty=Penalty | None,
    frequency_penalty=Penalty | None,
    top_logprobs=Literal[0] | None,
    text=ResponseText | None,
    metadata=Metadata | None,
)
ContextBody: Any = described(ContextRequest, input=Input | None)
CompactBody: Any = described(
    ContextRequest, "CompactRequest", "model", model=str, input=Input | None
)

Items = Annotated[list[InputItem], Meta(max_length=limits.conversation_items_max)]
SomeItems = Annotated[list[InputItem], Meta(min_length=1, max_length=limits.conversation_items_max)]
NewConversation: Any = described(
    ConversationBody, "NewConversation", items=Items | None, metadata=Metadata | None
)
AddedItems: Any = described(
    ConversationBody, "AddedItems", "items", items=SomeItems, metadata=Metadata | None
)
NewMetadata: Any = described(
    ConversationBody, "NewMetadata", "metadata", items=Items | None, metadata=Metadata
)
