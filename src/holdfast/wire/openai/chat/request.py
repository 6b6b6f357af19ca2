"""Parses a Chat Completions request: decoded, checked, and converted for sessions.

A parameter with a meaning for us is honoured or refused by name. A parameter that only shapes the model's text is
passed on; one that the model does not take is named in `X-Ignored-Params`.
"""

from __future__ import annotations

from collections.abc import Set
from functools import cache

import msgspec
from msgspec import Raw, Struct

from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import text_of
from holdfast.core.turns.events import GivenParameter, Parameters, ToolDefinition
from holdfast.errors import InvalidValue
from holdfast.wire.body_parser import (
    IGNORED_MAX,
    NULL,
    BodyDecoder,
    TurnBody,
    as_json,
    bad_tool,
    demand_between,
    demand_few_messages,
    demand_least,
    given_parameters,
    has_member,
    passed_on,
    read_body,
    read_tools,
    tool_definition,
    unknown_fields,
    unsupported,
)
from holdfast.wire.openai.chat.messages import ChatMessage, ResentMessage, incoming_of
from holdfast.wire.openai.chat.unknown_parts import known_request, with_kept
from holdfast.wire.openai.kept_members import strict_type, with_messages
from holdfast.wire.openai.tool_choices import read_tool_choice
from holdfast.wire.problems import Refused, bad_request

# ── the body ─────────────────────────────────────────────────────────────────────────────────


class FunctionDefinition(Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: Raw = NULL
    strict: bool | None = None


class RequestTool(Struct, frozen=True):
    type: str = "function"
    function: FunctionDefinition | None = None


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class ChatRequest(Struct, frozen=True):
    """The body, as far as we use it. Other fields are ignored, and the answer names them."""

    model: str
    messages: list[ChatMessage]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[Raw] | None = None
    tool_choice: Raw = NULL
    parallel_tool_calls: bool | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    response_format: Raw = NULL
    logprobs: bool | None = None
    top_logprobs: int | None = None
    modalities: list[str] | None = None
    functions: Raw = NULL
    function_call: Raw = NULL
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: Raw = NULL
    verbosity: str | None = None
    service_tier: str | None = None
    prediction: Raw = NULL
    web_search_options: Raw = NULL
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


_KNOWN = frozenset(ChatRequest.__struct_fields__)

_FIELDS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "stop": "stop",
    "seed": "seed",
    "reasoning_effort": "reasoning_effort",
    "parallel_tool_calls": "parallel_tool_calls",
    "tool_choice": "tool_choice",
    "response_format": "output_schema",
}
"""The client's name of a parameter → our name."""

_PASSED_ON = (
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "verbosity",
    "service_tier",
    "prediction",
    "web_search_options",
    "user",
    "safety_identifier",
    "prompt_cache_key",
)
"""Parameters that we pass on without looking at them."""

_NO_WISH = frozenset({"user", "safety_identifier", "prompt_cache_key", "service_tier"})
"""Parameters without effect on the answer: a model that lacks them has ignored nothing."""

_BINDING = frozenset({"stop", "output_schema", "max_output_tokens", "tool_choice"})
"""Parameters that an answer must obey: without them it would be wrong, not merely different."""


class ChatAsk(TurnBody, kw_only=True):
    """A parsed chat request."""

    messages: tuple[Incoming, ...]
    include_usage: bool


_decoder: BodyDecoder[ChatRequest] = BodyDecoder(ChatRequest)
_tool_decoder: BodyDecoder[RequestTool] = BodyDecoder(RequestTool)


@cache
def _whole_decoder() -> BodyDecoder[ChatRequest]:
    """Takes requests without parts and members of messages that we do not know, which are nearly all."""
    return BodyDecoder(with_messages(ChatRequest, strict_type(ResentMessage)))


def read_chat_request(body: bytes) -> ChatAsk:
    """Decode and check a request. Raises Refused, with the parameter at fault."""
    demand_few_messages(body)
    sent: list[dict[str, Raw]] = []
    try:
        request = read_body(_whole_decoder(), body)
    except Refused:
        known = known_request(body)
        if known is None:
            raise
        request, sent = read_body(_decoder, known.body), known.sent
    _check(request)
    ignored: list[str] = []
    messages = _messages(request.messages, sent, ignored)
    tools, left_alone = read_tools(request.tools or (), _definition)
    choice = read_tool_choice(request.tool_choice, tools, is_chat=True)
    parameters = _parameters(request, choice.choice)
    unheard = ("modalities",) if request.modalities and request.modalities != ["text"] else ()
    return ChatAsk(
        model=request.model,
        messages=messages,
        instructions=tuple(
            text for each in messages if each.role == "system" and (text := text_of(each.content))
        ),
        parameters=parameters,
        client_tools=tools,
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        given=given_parameters(_sent_names(request), parameters),
        left_alone=(
            *unknown_fields(body, _KNOWN),
            *unheard,
            *choice.ignored,
            *left_alone,
            *ignored[:IGNORED_MAX],
        ),
    )


def _messages(
    messages: list[ChatMessage], sent: list[dict[str, Raw]], ignored: list[str]
) -> tuple[Incoming, ...]:
    """The messages as sessions take them; if they were `sent` with more than we know, with all that."""
    try:
        found = tuple(map(incoming_of, messages))
    except InvalidValue as error:
        raise bad_request("invalid_content", str(error), param="messages") from error
    if not sent:
        return found
    return tuple(
        with_kept(f"messages[{n}]", each, messages[n], sent[n], ignored)
        for n, each in enumerate(found)
    )


def ignored(given: tuple[GivenParameter, ...], knows: Set[str]) -> tuple[str, ...]:
    """The given parameters that a model with these known parameters ignores.

    Raises Refused for a parameter that an answer must obey.
    """
    unknown = [each for each in given if each.ours not in knows]
    for each in unknown:
        if each.ours in _BINDING:
            raise bad_request(
                "unsupported_parameter",
                f"this agent's model cannot keep to {each.name}; leave it out, or ask another agent",
                param=each.name,
            )
    return tuple(each.name for each in unknown if each.ours not in _NO_WISH)


# ── checks ───────────────────────────────────────────────────────────────────────────────────


def _check(request: ChatRequest) -> None:
    """Refuse parameters that we would otherwise have to ignore."""
    if not request.messages:
        raise bad_request("no_new_user_message", "messages is empty: send one", param="messages")
    if request.n not in (None, 1):
        raise unsupported("n", "n must be 1: a conversation has one history")
    if request.logprobs or request.top_logprobs:
        raise unsupported("logprobs", "logprobs are not offered by agents")
    if request.modalities and "text" not in request.modalities:
        raise unsupported("modalities", 'agents answer in text: add "text" to modalities')
    for name in ("functions", "function_call"):
        if as_json(getattr(request, name)) not in (None, "[]"):
            raise unsupported(name, f"{name} is long deprecated: use tools and tool_choice")
    demand_between("temperature", request.temperature, 0, 2)
    demand_between("top_p", request.top_p, 0, 1)
    demand_between("frequency_penalty", request.frequency_penalty, -2, 2)
    demand_between("presence_penalty", request.presence_penalty, -2, 2)
    demand_least("max_tokens", request.max_tokens, 1)
    demand_least("max_completion_tokens", request.max_completion_tokens, 1)


# ── parameters ───────────────────────────────────────────────────────────────────────────────


def _parameters(request: ChatRequest, tool_choice: str | None) -> Parameters:
    stop = request.stop
    return Parameters(
        temperature=request.temperature,
        top_p=request.top_p,
        max_output_tokens=request.max_completion_tokens or request.max_tokens,
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        seed=request.seed,
        reasoning_effort=request.reasoning_effort,
        parallel_tool_calls=request.parallel_tool_calls,
        tool_choice=tool_choice,
        output_schema=_output_schema(request.response_format),
        others=tuple(passed_on(request, _PASSED_ON)),
    )


def _sent_names(request: ChatRequest) -> list[tuple[str, str]]:
    """The pairs of `_FIELDS` that the request has: two of their names mean one parameter."""
    return [
        (name, ours)
        for name, ours in _FIELDS.items()
        if (value := getattr(request, name)) is not None and as_json(value) not in (None, "[]")
    ]


class _JsonSchema(Struct, frozen=True):
    name: str
    schema: dict[str, Raw] | None = None


class _ResponseFormat(Struct, frozen=True):
    type: str
    json_schema: _JsonSchema | None = None


def _output_schema(raw: Raw) -> str | None:
    said = as_json(raw)
    if said is None:
        return None
    try:
        asked = msgspec.json.decode(said, type=_ResponseFormat)
    except msgspec.DecodeError as error:
        raise bad_request(
            "invalid_value", f"response_format does not fit: {error}", param="response_format"
        ) from error
    match asked.type:
        case "text":
            return None
        case "json_object":
            return said
        case "json_schema" if asked.json_schema is not None:
            return said
        case "json_schema":
            other = "response_format has the form of Responses; here " * has_member(said, "schema")
            raise bad_request(
                "missing_required_parameter",
                f"{other}response_format.json_schema is missing",
                param="response_format.json_schema",
            )
        case _:
            raise unsupported(
                "response_format", f"response_format of type {asked.type!r} is not offered"
            )


# ── tools ────────────────────────────────────────────────────────────────────────────────────


def _definition(where: str, raw: Raw) -> ToolDefinition | None:
    tool = _tool_decoder.decode(raw)
    if tool.type != "function":
        return None
    if tool.function is None:
        form = "it has the form of Responses; here it" if has_member(raw, "name") else "a function"
        raise bad_tool(where, f'{form} is {{"type": "function", "function": {{"name": …}}}}')
    said = tool.function
    return tool_definition(where, said.name, said.description, said.parameters, said.strict)
