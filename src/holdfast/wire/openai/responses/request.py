"""Parses a Responses request: decoded, checked, and converted for sessions.

As with chat, a parameter with a meaning for us is honoured or refused by name, one that only shapes the model's text
is passed on, and one that the model does not take is named in `X-Ignored-Params`. Fields, tools and items that only
other servers know are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.errors import InvalidId
from holdfast.ids import ResponseId, SessionId
from holdfast.wire.body_parser import (
    NULL,
    PLAIN,
    BodyDecoder,
    TurnBody,
    as_json,
    bad_tool,
    demand_between,
    demand_least,
    given_parameters,
    has_member,
    missing_parameter,
    passed_on,
    read_body,
    read_tools,
    tool_definition,
    unknown_fields,
    unsupported,
)
from holdfast.wire.openai.responses.answer import Echo
from holdfast.wire.openai.responses.items import InputPiece, read_input
from holdfast.wire.openai.tool_choices import read_tool_choice
from holdfast.wire.problems import Refused, bad_request
from holdfast.wire.seal import Seal

SHOW_TOOLS = "holdfast.tool_calls"
"""The value of `include` that asks for the calls of the agent's own tools."""

SEAL_REASONING = "reasoning.encrypted_content"
"""The value of `include` that asks for encrypted reasoning."""

# ── the body ─────────────────────────────────────────────────────────────────────────────────


class ResponsesTool(Struct, frozen=True):
    """A tool; the members are those of a function."""

    type: str = "function"
    name: str = ""
    description: str | None = None
    parameters: Raw = NULL
    strict: bool | None = None


class TextOptions(Struct, frozen=True):
    format: Raw = NULL
    verbosity: str | None = None


class ReasoningOptions(Struct, frozen=True):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ConversationName(Struct, frozen=True):
    id: str


class ResponsesRequest(Struct, frozen=True):
    """The body, as far as we use it. Other fields are ignored, and the answer names them."""

    model: str = ""
    input: Raw = NULL
    instructions: str | None = None
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationName | None = None
    tools: list[Raw] | None = None
    tool_choice: Raw = NULL
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    top_logprobs: int | None = None
    truncation: Literal["auto", "disabled"] | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    metadata: dict[str, str] | None = None
    include: list[str] | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    user: str | None = None
    prompt: Raw = NULL
    moderation: Raw = NULL


_KNOWN = frozenset({*ResponsesRequest.__struct_fields__, "type", "stream_id", "generate"})
"""The fields of a request, and those of a message on a WebSocket that brings one."""

_REFUSED = {
    "prompt": "prompts are not kept here; send what it says as instructions",
    "moderation": "answers are not moderated here; ask a server that does",
}
"""Parameters that an answer would have to obey, and cannot."""

_PASSED_ON = (
    "frequency_penalty",
    "presence_penalty",
    "service_tier",
    "user",
    "safety_identifier",
    "prompt_cache_key",
)


class ResponsesAsk(TurnBody, kw_only=True):
    """A parsed Responses request."""

    input: tuple[InputPiece, ...]
    store: bool
    background: bool
    echo: Echo
    previous: ResponseId | None = None
    conversation: SessionId | None = None
    calls_max: int | None = None
    declares_mcp: bool = False
    """The request declares an MCP server, so its client knows requests for approval."""


_decoder: BodyDecoder[ResponsesRequest] = BodyDecoder(ResponsesRequest)
_tool_decoder: BodyDecoder[ResponsesTool] = BodyDecoder(ResponsesTool)
_members_decoder: BodyDecoder[dict[str, Raw]] = BodyDecoder(dict[str, Raw])


def read_responses_request(
    body: bytes, *, needs_input: bool = True, seal: Seal | None = None
) -> ResponsesAsk:
    """Decode and check a request. Raises Refused, with the parameter at fault."""
    request = read_body(_decoder, body)
    if needs_input and as_json(request.input) is None:
        raise missing_parameter("input")
    _check(request)
    tools, left_alone = read_tools(request.tools or (), _definition)
    shown, unknown = _echoed(request.tools or [])
    unread: list[str] = []
    pieces: tuple[InputPiece, ...] = ()
    if as_json(request.input) is not None:
        pieces = read_input(request.input, seal=seal, ignored=unread)
    choice = read_tool_choice(request.tool_choice, tools, is_chat=False)
    parameters = _parameters(request, choice.choice)
    return ResponsesAsk(
        model=request.model,
        input=pieces,
        instructions=(request.instructions,) if request.instructions else (),
        parameters=parameters,
        client_tools=tools,
        stream=bool(request.stream),
        store=request.store is not False,
        background=bool(request.background),
        echo=_echo(request, shown, parameters),
        previous=_previous(request.previous_response_id),
        conversation=_conversation(request.conversation),
        calls_max=request.max_tool_calls,
        given=given_parameters(_NAMES.items(), parameters),
        declares_mcp=any(_tool_decoder.decode(each).type == "mcp" for each in request.tools or ()),
        left_alone=(
            *unknown_fields(body, _KNOWN),
            *_ignored(request),
            *choice.ignored,
            *left_alone,
            *unknown,
            *unread,
        ),
    )


# ── requests about a context ─────────────────────────────────────────────────────────────────


class ContextRequest(Struct, frozen=True):
    """The context that a model would get: a history, and new input."""

    model: str | None = None
    input: Raw = NULL
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationName | None = None
    tools: list[Raw] | None = None


class ContextAsk(Value):
    """A parsed context, to be counted or summarised."""

    model: str
    input: tuple[InputPiece, ...] = ()
    instructions: str = ""
    tools: tuple[ToolDefinition, ...] | None = ()
    """None if not all of them are functions: only other servers know the size of their own tools."""
    tools_bytes: int = 0
    previous: ResponseId | None = None
    conversation: SessionId | None = None


_context_decoder: BodyDecoder[ContextRequest] = BodyDecoder(ContextRequest)


def read_context_request(body: bytes, *, needs_model: bool, seal: Seal | None = None) -> ContextAsk:
    """Decode and check a context. Raises Refused."""
    said = read_body(_context_decoder, body)
    if needs_model and not said.model:
        raise missing_parameter("model")
    _demand_one_line(said.conversation, said.previous_response_id)
    return ContextAsk(
        model=said.model or "",
        input=() if as_json(said.input) is None else read_input(said.input, seal=seal),
        instructions=said.instructions or "",
        tools=_functions(said.tools or []),
        tools_bytes=sum(len(bytes(each)) for each in said.tools or ()),
        previous=_previous(said.previous_response_id),
        conversation=_conversation(said.conversation),
    )


def _functions(tools: list[Raw]) -> tuple[ToolDefinition, ...] | None:
    try:
        functions, left_alone = read_tools(tools, _definition)
    except Refused:
        return None
    return None if left_alone else functions


# ── checks ───────────────────────────────────────────────────────────────────────────────────


def _check(request: ResponsesRequest) -> None:
    if not request.model:
        raise missing_parameter("model")
    _demand_one_line(request.conversation, request.previous_response_id)
    if request.background and request.store is False:
        raise bad_request(
            "invalid_value", "background needs store: true, to be found again", param="background"
        )
    for name, why in _REFUSED.items():
        if as_json(getattr(request, name)) is not None:
            raise unsupported(name, why)
    if request.top_logprobs:
        raise unsupported("top_logprobs", "log probabilities are not offered by agents")
    demand_between("temperature", request.temperature, 0, 2)
    demand_between("top_p", request.top_p, 0, 1)
    demand_between("presence_penalty", request.presence_penalty, -2, 2)
    demand_between("frequency_penalty", request.frequency_penalty, -2, 2)
    demand_least("max_output_tokens", request.max_output_tokens, 16)
    demand_least("max_tool_calls", request.max_tool_calls, 1)
    demand_metadata(request.metadata or {})


def _ignored(request: ResponsesRequest) -> Iterator[str]:
    for each in request.include or ():
        if each not in (SHOW_TOOLS, SEAL_REASONING) and PLAIN.fullmatch(each):
            yield f"include.{each}"


def _demand_one_line(conversation: object, previous: str | None) -> None:
    if conversation is not None and previous is not None:
        raise bad_request(
            "invalid_request",
            "'previous_response_id' and 'conversation' cannot be used together: a conversation knows "
            "its last response",
            param="previous_response_id",
        )


def demand_metadata(metadata: dict[str, str]) -> None:
    """Raises Refused unless the metadata are few and short enough to be stored."""
    name_max, value_max = limits.attribute_name_chars_max, limits.attribute_value_chars_max
    fits = len(metadata) <= limits.attributes_max and all(
        0 < len(name) <= name_max and len(value) <= value_max for name, value in metadata.items()
    )
    if not fits:
        raise bad_request(
            "invalid_value",
            f"metadata has at most {limits.attributes_max} pairs, names of 1 to {name_max} characters "
            f"and values of at most {value_max}",
            param="metadata",
        )


def _previous(text: str | None) -> ResponseId | None:
    if text is None:
        return None
    try:
        return ResponseId(text)
    except InvalidId as error:
        raise unknown_previous(text) from error


def unknown_previous(name: str) -> Refused:
    return bad_request(
        "previous_response_not_found",
        f"Previous response with id '{name[:100]}' not found.",
        param="previous_response_id",
    )


def _conversation(name: str | ConversationName | None) -> SessionId | None:
    text = name.id if isinstance(name, ConversationName) else name
    if text is None:
        return None
    try:
        return SessionId(text)
    except InvalidId as error:
        raise bad_request(
            "invalid_value",
            f"conversation is an id that begins with 'conv_': {error}",
            param="conversation",
        ) from error


# ── parameters ───────────────────────────────────────────────────────────────────────────────


def _parameters(request: ResponsesRequest, tool_choice: str | None) -> Parameters:
    text, reasoning = request.text or TextOptions(), request.reasoning or ReasoningOptions()
    return Parameters(
        temperature=request.temperature,
        top_p=request.top_p,
        max_output_tokens=request.max_output_tokens,
        reasoning_effort=reasoning.effort,
        parallel_tool_calls=request.parallel_tool_calls,
        tool_choice=tool_choice,
        output_schema=_output_schema(text.format),
        others=(*passed_on(request, _PASSED_ON), *passed_on(text, ("verbosity",))),
    )


_NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_output_tokens": "max_output_tokens",
    "reasoning.effort": "reasoning_effort",
    "tool_choice": "tool_choice",
    "text.format": "output_schema",
    "parallel_tool_calls": "parallel_tool_calls",
}
"""The client's name of a parameter → our name."""


class _Format(Struct, frozen=True):
    type: str
    name: str | None = None
    schema: dict[str, Raw] | None = None


def _output_schema(raw: Raw) -> str | None:
    said = as_json(raw)
    if said is None:
        return None
    try:
        asked = msgspec.json.decode(said, type=_Format)
    except msgspec.DecodeError as error:
        raise bad_request(
            "invalid_value", f"text.format does not fit: {error}", param="text.format"
        ) from error
    match asked.type:
        case "text":
            return None
        case "json_object":
            return said
        case "json_schema" if asked.name and asked.schema is not None:
            return said
        case "json_schema" if has_member(said, "json_schema"):
            raise bad_request(
                "invalid_value",
                "text.format has the form of Chat Completions; here it is "
                '{"type": "json_schema", "name": …, "schema": …}',
                param="text.format",
            )
        case "json_schema":
            raise missing_parameter("text.format.schema" if asked.name else "text.format.name")
        case _:
            raise unsupported("text.format", f"text.format of type {asked.type!r} is not offered")


# ── tools ────────────────────────────────────────────────────────────────────────────────────


def _definition(where: str, raw: Raw) -> ToolDefinition | None:
    tool = _tool_decoder.decode(raw)
    if tool.type != "function":
        return None
    if not tool.name and has_member(raw, "function"):
        what = "it has the form of Chat Completions; here it"
        raise bad_tool(where, f'{what} is {{"type": "function", "name": …}}')
    return tool_definition(where, tool.name, tool.description, tool.parameters, tool.strict)


def _echoed(tools: list[Raw]) -> tuple[str, list[str]]:
    """All tools as the answer echoes them, and the places of members of functions that we do not know."""
    shown: list[object] = []
    unknown: list[str] = []
    for n, raw in enumerate(tools):
        tool = _tool_decoder.decode(raw)
        if tool.type != "function":
            shown.append(raw)
            continue
        known = _shown(tool)
        others = {k: v for k, v in _members_decoder.decode(raw).items() if k not in known}
        unknown += (f"tools[{n}].{name}" for name in others if PLAIN.fullmatch(name))
        shown.append({**known, **others})
    return msgspec.json.encode(shown).decode(), unknown


def _shown(tool: ResponsesTool) -> dict[str, object]:
    """A function with all its members."""
    return {name: getattr(tool, name) for name in tool.__struct_fields__}


# ── the echo ─────────────────────────────────────────────────────────────────────────────────


def _echo(request: ResponsesRequest, tools: str, parameters: Parameters) -> Echo:
    reasoning = request.reasoning or ReasoningOptions()
    said = {name: value for name in _ECHOED if (value := getattr(request, name)) is not None}
    return Echo(
        **said,
        tools=tools,
        tool_choice=as_json(request.tool_choice) or Echo().tool_choice,
        text=_text_shown(request.text or TextOptions(), parameters),
        reasoning_effort=reasoning.effort,
        reasoning_summary=reasoning.summary or reasoning.generate_summary,
        metadata=tuple(sorted((request.metadata or {}).items())),
        show_tools=SHOW_TOOLS in (request.include or ()),
        seal_reasoning=SEAL_REASONING in (request.include or ()),
    )


def _text_shown(text: TextOptions, parameters: Parameters) -> str:
    format_shown = parameters.output_schema or '{"type":"text"}'
    verbosity = f',"verbosity":{as_json(text.verbosity)}' if text.verbosity else ""
    return f'{{"format":{format_shown}{verbosity}}}'


_ECHOED = """
    model instructions previous_response_id parallel_tool_calls temperature top_p presence_penalty frequency_penalty
    truncation max_output_tokens max_tool_calls store background safety_identifier prompt_cache_key user
    """.split()
"""Parameters that are repeated as they are; one that is absent has the default of `Echo`."""
