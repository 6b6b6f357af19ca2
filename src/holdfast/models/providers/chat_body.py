"""Builds the body of a chat-completions request from a prompt. Pure.

A history arrives encoded, in pieces, and is never parsed again: a turn on a long conversation costs one copy
of its bytes. Other members that are JSON already (schemas, choices, other parameters) are checked to be one JSON value
and inserted as they are, so that none of them can add members of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.codec import DAMAGE, Value
from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.errors import InvalidValue
from holdfast.models.families.gpt import (
    GptFamily,
    chat_effort,
    ignored_by,
    length_max,
    rules_for,
    takes_sampling,
)
from holdfast.models.model import Prompt
from holdfast.models.output_choices import read_choice
from holdfast.wire.body_parser import BodyDecoder

MaxTokensName: TypeAlias = Literal["max_tokens", "max_completion_tokens"]

KNOWN = frozenset(
    """
    temperature top_p max_output_tokens stop seed reasoning_effort parallel_tool_calls tool_choice forced_tool_choice
    output_schema
    """.split()
)
"""Parameters with a field of their own → their names on this wire."""

OTHERS = frozenset(
    """
    frequency_penalty presence_penalty logit_bias user safety_identifier prompt_cache_key service_tier
    verbosity web_search_options prediction
    """.split()
)
"""The names of `Parameters.others` that change how this API answers, but not the form of the answer."""

OURS = frozenset("model messages stream stream_options tools n store logprobs".split())
"""Members that this module sets on every request; no option may set them."""


class Style(Value):
    """The settings that all requests of one model share."""

    model: str
    max_tokens_name: MaxTokensName = "max_tokens"
    usage_in_stream: bool = True
    """Ask for usage. Some servers refuse an unknown `stream_options`."""
    options: tuple[tuple[str, str], ...] = ()
    """Parameter name → JSON, sent with every request unless the prompt sets the parameter."""
    others: frozenset[str] = OTHERS
    """The names in `Parameters.others` that are sent."""
    leaves_out: frozenset[str] = frozenset()
    """Parameters, by our names, that this server would refuse."""
    reasoning_back: bool = False
    """Send the model's reasoning back together with its calls."""

    @property
    def family(self) -> GptFamily | None:
        """The row of a model of OpenAI's, whichever server it is asked through; None for other models."""
        return rules_for(self.model)


def request_body(prompt: Prompt, style: Style) -> bytes:
    """The body of a request. Raises InvalidValue for a part that is not JSON."""
    members: dict[str, bytes] = {name: json_of(text, name) for name, text in style.options}
    members |= _parameters(prompt.parameters, style, has_tools=bool(prompt.tools))
    if prompt.tools:
        members["tools"] = b"[" + b",".join(map(_tool, prompt.tools)) + b"]"
    if style.usage_in_stream:
        members["stream_options"] = b'{"include_usage":true}'
    head = {"model": _encode(style.model), "stream": b"true"}
    return joined_object(head | members, "messages", _messages(prompt))


def joined_object(members: Mapping[str, bytes], history: str, messages: Iterable[bytes]) -> bytes:
    """One JSON object with these members, and with these messages as the list `history`."""
    pieces: list[bytes] = []
    for name, value in members.items():
        pieces += (b"," if pieces else b"{", _encode(name), b":", value)
    pieces += (b"," if pieces else b"{", _encode(history), b":[")
    for n, message in enumerate(messages):
        pieces += (b",", message) if n else (message,)
    pieces.append(b"]}")
    return b"".join(pieces)  # one copy: a long history is megabytes


def json_of(text: str, what: str) -> bytes:
    """The text as bytes, checked to be one JSON value."""
    try:
        return bytes(_raw_decoder.decode(text))
    except DAMAGE as error:
        raise InvalidValue(f"{what} is not valid JSON: {error}") from error


_encode = msgspec.json.Encoder().encode
_raw_decoder: BodyDecoder[msgspec.Raw] = BodyDecoder(msgspec.Raw)


def _messages(prompt: Prompt) -> Iterable[bytes]:
    if prompt.system:
        yield b'{"role":"system","content":' + _encode(prompt.system) + b"}"
    yield from (piece for piece in prompt.messages if piece)


def _tool(tool: ToolDefinition) -> bytes:
    function: dict[str, object] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    parameters = json_of(tool.parameters or "{}", f"the schema of the tool {tool.name!r}")
    function["parameters"] = msgspec.Raw(parameters)
    if tool.strict is not None:
        function["strict"] = tool.strict
    return _encode({"type": "function", "function": function})


def _parameters(said: Parameters, style: Style, *, has_tools: bool) -> Mapping[str, bytes]:
    family = style.family
    effort = chat_effort(said.reasoning_effort, family, has_tools=has_tools)
    samples = takes_sampling(family, effort)
    # OpenAI's models that reason refuse the old name, whichever server passes it on.
    reasons = family is not None and family.reasons
    length_name = "max_completion_tokens" if reasons else style.max_tokens_name
    plain = {
        "temperature": said.temperature if samples else None,
        "top_p": said.top_p if samples else None,
        length_name: length_max(said.max_output_tokens, family),
        "stop": list(said.stop) or None,
        "seed": None if "seed" in style.leaves_out else said.seed,
        "reasoning_effort": effort,
    }
    taken = style.others - style.leaves_out - ignored_by(family)
    members = {name: json_of(text, name) for name, text in said.others if name in taken}
    members |= {name: _encode(value) for name, value in plain.items() if value is not None}
    if said.output_schema is not None:
        members["response_format"] = _response_format(said.output_schema)
    # Without tools, OpenAI refuses both of these.
    if has_tools and said.tool_choice is not None:
        members["tool_choice"] = _tool_choice(said.tool_choice)
    if has_tools and said.parallel_tool_calls is not None:
        members["parallel_tool_calls"] = _encode(said.parallel_tool_calls)
    return members


def _tool_choice(choice: str) -> bytes:
    if choice in ("none", "auto", "required"):
        return _encode(choice)
    asked = _decoded(choice, "tool_choice")
    if not isinstance(asked, dict):
        return choice.encode()
    # A choice in the form of the Responses API is flat.
    if asked.get("type") == "function" and "function" not in asked:
        return _encode(_function(str(asked.get("name"))))
    if asked.get("type") == "allowed_tools" and "allowed_tools" not in asked:
        found = read_choice(choice)
        assert found is not None, "only an absent choice is none"
        allowed = {"mode": found.mode, "tools": [_function(each) for each in found.only]}
        return _encode({"type": "allowed_tools", "allowed_tools": allowed})
    return choice.encode()


def _function(name: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name}}


def _response_format(schema: str) -> bytes:
    asked = _decoded(schema, "output_schema")
    if (
        isinstance(asked, dict)
        and asked.get("type") == "json_schema"
        and "json_schema" not in asked
    ):
        # In the form of the Responses API: flat.
        inner = {name: value for name, value in asked.items() if name != "type"}
        return _encode({"type": "json_schema", "json_schema": inner})
    return schema.encode()


def _decoded(text: str, what: str) -> object:
    try:
        return msgspec.json.decode(text)
    except DAMAGE as error:
        raise InvalidValue(f"{what} is not valid JSON: {error}") from error
