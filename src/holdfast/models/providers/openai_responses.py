"""OpenAI's models over the Responses API; nothing is stored there (`store` is false).

Reasoning models do better over this API: it keeps their reasoning across the calls of a turn, and across turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Unpack

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.turns.deltas import Delta
from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.models.families.gpt import (
    GptFamily,
    effort_for,
    ignored_by,
    length_max,
    rules_for,
    taken_for,
    takes_sampling,
)
from holdfast.models.http.http_model import Access, HttpModel
from holdfast.models.http.token_counts import CountEndpoint
from holdfast.models.model import AnswerParser, CountRequest, Dialect, Prompt, Wire
from holdfast.models.output_choices import OutputSchema, ToolChoice, read_choice, read_schema
from holdfast.models.providers.chat_body import joined_object, json_of
from holdfast.models.providers.openai_chat import OPENAI_URL
from holdfast.wire.openai.responses.dialect import ResponsesDialect, without_reasoning
from holdfast.wire.openai.responses.stream_parser import ResponsesStreamParser, parse_whole

PASSED_ON = frozenset("user safety_identifier prompt_cache_key service_tier".split())
"""The names of `Parameters.others` that this API has, too. `verbosity` is part of `text`."""

KNOWN = PASSED_ON | frozenset(
    """
    temperature top_p max_output_tokens reasoning_effort parallel_tool_calls tool_choice forced_tool_choice
    output_schema verbosity
    """.split()
)
"""This API has no `stop`, `seed` and penalties."""


class ResponsesStyle(Value):
    """The settings that all requests of one model share."""

    model: str

    @property
    def family(self) -> GptFamily | None:
        """The row of the model; None for a model that is not OpenAI's, of which nothing is known."""
        return rules_for(self.model)


def request_body(prompt: Prompt, style: ResponsesStyle) -> bytes:
    """The body of a request. Raises InvalidValue for a part that cannot be sent."""
    said = prompt.parameters
    members: dict[str, bytes] = {
        "model": _encode(style.model),
        "stream": b"true",
        "store": b"false",
    }
    family = style.family
    if family is not None and family.reasons:
        members["include"] = b'["reasoning.encrypted_content"]'
    if prompt.system:
        members["instructions"] = _encode(prompt.system)
    members |= _parameters(said, family)
    if prompt.tools:
        members["tools"] = b"[" + b",".join(map(_tool, prompt.tools)) + b"]"
        choice = read_choice(said.tool_choice)
        if choice is not None:
            members["tool_choice"] = _encode(_choice(choice))
        if said.parallel_tool_calls is not None:
            members["parallel_tool_calls"] = _encode(said.parallel_tool_calls)
    return joined_object(members, "input", [piece for piece in prompt.messages if piece])


def count_body(prompt: Prompt, model: str) -> bytes:
    """The body of a count request."""
    members: dict[str, bytes] = {"model": _encode(model)}
    if prompt.system:
        members["instructions"] = _encode(prompt.system)
    if prompt.tools:
        members["tools"] = b"[" + b",".join(map(_tool, prompt.tools)) + b"]"
    return joined_object(members, "input", [piece for piece in prompt.messages if piece])


def openai_counting(model: str) -> CountRequest:
    """OpenAI's token count for this model, whichever of its APIs the model is called over."""
    return CountEndpoint(
        ResponsesDialect(), "/responses/input_tokens", partial(count_body, model=model)
    )


_encode = msgspec.json.Encoder().encode


def _tool(tool: ToolDefinition) -> bytes:
    schema = json_of(tool.parameters or "{}", f"the schema of the tool {tool.name!r}")
    return _encode(
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": msgspec.Raw(schema),
            "strict": bool(tool.strict),  # the default, true, would refuse most schemas
        }
    )


def _choice(choice: ToolChoice) -> object:
    if not choice.only:
        return choice.mode
    tools = [{"type": "function", "name": name} for name in choice.only]
    if choice.mode == "required" and len(tools) == 1:
        return tools[0]
    return {"type": "allowed_tools", "mode": choice.mode, "tools": tools}


def _parameters(said: Parameters, family: GptFamily | None) -> Mapping[str, bytes]:
    others = dict(said.others)
    effort = effort_for(said.reasoning_effort, family)
    plain: dict[str, object] = {
        "temperature": said.temperature if takes_sampling(family, effort) else None,
        "top_p": said.top_p if takes_sampling(family, effort) else None,
        "max_output_tokens": length_max(said.max_output_tokens, family),
        "reasoning": None if effort is None else {"effort": effort},
        "text": _text(read_schema(said.output_schema), others.get("verbosity")),
    }
    members = {name: _encode(value) for name, value in plain.items() if value is not None}
    return members | {name: json_of(text, name) for name, text in said.others if name in PASSED_ON}


def _text(schema: OutputSchema | None, verbosity: str | None) -> dict[str, object] | None:
    text: dict[str, object] = {}
    if verbosity is not None:
        text["verbosity"] = msgspec.Raw(json_of(verbosity, "verbosity"))
    if schema is not None and schema.schema is None:
        text["format"] = {"type": "json_object"}
    elif schema is not None and schema.schema is not None:
        strict = {} if schema.strict is None else {"strict": schema.strict}
        by: dict[str, object] = {"name": schema.name, "schema": msgspec.Raw(schema.schema)}
        text["format"] = {"type": "json_schema", **by, **strict}
    return text or None


class ResponsesWire(Wire):
    """Responses, as a `Wire`."""

    def __init__(self, style: ResponsesStyle) -> None:
        self.dialect: Dialect = ResponsesDialect()
        self.knows = KNOWN - ignored_by(style.family)
        self._style = style

    def body(self, prompt: Prompt) -> bytes:
        return request_body(prompt, self._style)

    def without_thoughts(self, prompt: Prompt) -> Prompt | None:
        plain = without_reasoning(b",".join(filter(None, prompt.messages)))
        return msgspec.structs.replace(prompt, messages=(plain,))

    def parser(self, prompt: Prompt) -> AnswerParser:
        return ResponsesStreamParser(event_bytes_max=limits.upstream_event_bytes_max)

    def whole(self, body: bytes, prompt: Prompt) -> Sequence[Delta]:
        return parse_whole(body)


class ResponsesModel(HttpModel):
    """A model on a server with the Responses API."""

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        base_url: str = OPENAI_URL,
        token_key: str | None = None,
        key_header: str = "Authorization",
        headers: Mapping[str, str] | None = None,
        counts: bool | None = None,
        **access: Unpack[Access],
    ) -> None:
        """`token_key` names the environment variable that holds the API key; it defaults to `OPENAI_API_KEY` for
        OpenAI's own server, to none elsewhere. `counts`: the server counts prompts,
        as OpenAI's own does. For the rest see `HttpModel` and `Access`.

        Raises InvalidValue, with the way out, for settings that cannot work.
        """
        base_url = base_url.rstrip("/")
        if token_key is None:
            token_key = "OPENAI_API_KEY" if base_url == OPENAI_URL else ""
        style = ResponsesStyle(model=model)
        super().__init__(
            ResponsesWire(style),
            name=name or f"openai/{model}",
            base_url=base_url,
            path="/responses",
            token_key=token_key,
            key_header=key_header,
            headers=headers,
            counting=openai_counting(model)
            if (base_url == OPENAI_URL if counts is None else counts)
            else None,
            taken_for=taken_for(model),
            **access,
        )
