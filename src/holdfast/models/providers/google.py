"""Gemini, over Google's own API.

Schemas of tools and answers are sent as JSON Schema (`parametersJsonSchema`,
`responseJsonSchema`), and not in the older subset of OpenAPI, which would lose parts of them.

From Gemini 3 on thinking has a level, before it had a number of tokens; models before 2.5 do not think.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Unpack
from urllib.parse import quote, urlsplit

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.turns.deltas import Delta
from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.models.http.http_model import Access, HttpModel
from holdfast.models.http.token_counts import CountEndpoint
from holdfast.models.model import AnswerParser, Dialect, Prompt
from holdfast.models.output_choices import OutputSchema, ToolChoice, read_choice, read_schema
from holdfast.models.providers.chat_body import joined_object, json_of
from holdfast.wire.google.dialect import GoogleDialect
from holdfast.wire.google.stream_parser import GoogleStreamParser, parse_whole, read_error
from holdfast.wire.openai.chat import chunks
from holdfast.wire.openai.chat.chunks import ErrorObject

GOOGLE_URL = "https://generativelanguage.googleapis.com/v1beta"

KNOWN = frozenset(
    """
    temperature top_p max_output_tokens stop seed tool_choice output_schema frequency_penalty presence_penalty
    """.split()
)

BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24576}
"""Effort → tokens, for models that take a budget."""


class GoogleStyle(Value):
    """The settings that all requests of one model share."""

    model: str
    thinking_tokens: int | None = None
    """A budget from the agent file: 0 for none, -1 for as many as the model wants."""

    @property
    def version(self) -> tuple[int, int]:
        """`gemini-2.5-pro` is 2.5, `gemini-3-flash-preview` 3.0. An unknown name counts as a new model."""
        found = re.search(r"gemini-(\d+)(?:\.(\d+))?", self.model)
        if found is None:
            return (0, 0) if self.model.startswith("gemma") else (99, 0)
        return int(found[1]), int(found[2] or 0)

    @property
    def thinks(self) -> bool:
        return self.version >= (2, 5)

    @property
    def thinks_by_level(self) -> bool:
        return self.version >= (3, 0)


def request_body(prompt: Prompt, style: GoogleStyle) -> bytes:
    """The body of a request. Raises InvalidValue for a part that cannot be sent."""
    said = prompt.parameters
    members: dict[str, bytes] = {}
    config = _config(said, style)
    if config:
        members["generationConfig"] = _encode(config)
    if prompt.system:
        members["systemInstruction"] = _encode({"parts": [{"text": prompt.system}]})
    if prompt.tools:
        members["tools"] = _encode([{"functionDeclarations": list(map(_tool, prompt.tools))}])
        choice = read_choice(said.tool_choice)
        if choice is not None:
            members["toolConfig"] = _encode(
                {"functionCallingConfig": _calling(choice, prompt.tools)}
            )
    return joined_object(members, "contents", [piece for piece in prompt.messages if piece])


def count_body(prompt: Prompt, style: GoogleStyle) -> bytes:
    """The body of a count request: it contains the request as it would be sent."""
    members: dict[str, bytes] = {"model": _encode(f"models/{style.model}")}
    if prompt.system:
        members["systemInstruction"] = _encode({"parts": [{"text": prompt.system}]})
    if prompt.tools:
        members["tools"] = _encode([{"functionDeclarations": list(map(_tool, prompt.tools))}])
    asked = joined_object(members, "contents", [piece for piece in prompt.messages if piece])
    return b'{"generateContentRequest":' + asked + b"}"


_encode = msgspec.json.Encoder().encode


def _tool(tool: ToolDefinition) -> dict[str, object]:
    schema = json_of(tool.parameters or "{}", f"the schema of the tool {tool.name!r}")
    described: dict[str, object] = {"name": tool.name, "description": tool.description}
    if schema != b"{}":  # the API refuses an empty object
        described["parametersJsonSchema"] = msgspec.Raw(schema)
    return described


def _calling(choice: ToolChoice, tools: Sequence[ToolDefinition]) -> dict[str, object]:
    """The calling mode. Only a forced call can be restricted to some of the tools: `AUTO` takes no names."""
    if choice.mode == "none":
        return {"mode": "NONE"}
    if choice.mode == "auto" and not choice.only:
        return {"mode": "AUTO"}
    names = [each.name for each in choice.offered(tuple(tools))]
    only = {"allowedFunctionNames": names} if choice.only else {}
    return {"mode": "ANY" if choice.mode == "required" else "VALIDATED", **only}


def _config(said: Parameters, style: GoogleStyle) -> dict[str, object]:
    others = dict(said.others)
    plain: dict[str, object] = {
        "temperature": said.temperature,
        "topP": said.top_p,
        "maxOutputTokens": said.max_output_tokens,
        "stopSequences": list(said.stop) or None,
        "seed": said.seed,
        "thinkingConfig": _thinking(said, style),
        **_output(read_schema(said.output_schema)),
    }
    for theirs, ours in (
        ("frequencyPenalty", "frequency_penalty"),
        ("presencePenalty", "presence_penalty"),
    ):
        if ours in others:
            plain[theirs] = msgspec.Raw(json_of(others[ours], ours))
    return {name: value for name, value in plain.items() if value is not None}


def _output(schema: OutputSchema | None) -> dict[str, object]:
    if schema is None:
        return {}
    by = {"responseJsonSchema": msgspec.Raw(schema.schema)} if schema.schema is not None else {}
    return {"responseMimeType": "application/json", **by}


def _thinking(said: Parameters, style: GoogleStyle) -> dict[str, object] | None:
    """How much the model thinks, and that its thoughts are sent; None for models that do not think."""
    if not style.thinks:
        return None
    effort, tokens = said.reasoning_effort, style.thinking_tokens
    if style.thinks_by_level:
        level = _level(effort, tokens, flash="flash" in style.model)
        return {"includeThoughts": True, **({"thinkingLevel": level} if level else {})}
    if effort is not None:
        tokens = BUDGETS.get(effort, BUDGETS["high"])
    budget = {} if tokens is None else {"thinkingBudget": tokens}
    return {"includeThoughts": tokens != 0, **budget}


def _level(effort: str | None, tokens: int | None, *, flash: bool) -> str | None:
    """The level for an effort or a budget. Thinking cannot be switched off entirely."""
    if effort is None:
        if tokens is None or tokens < 0:
            return None
        effort = next((name for name, most in BUDGETS.items() if tokens <= most), "high")
    if effort in ("none", "minimal"):
        return "minimal" if flash else "low"
    return effort if effort in ("low", "medium") else "high"


class GoogleWire:
    """`streamGenerateContent`, as a `Wire`."""

    def __init__(self, style: GoogleStyle) -> None:
        self.dialect: Dialect = GoogleDialect(signed=style.thinks_by_level)
        self.knows = KNOWN | ({"reasoning_effort"} if style.thinks else frozenset())
        self._style = style

    def body(self, prompt: Prompt) -> bytes:
        return request_body(prompt, self._style)

    def parser(self) -> AnswerParser:
        return GoogleStreamParser(event_bytes_max=limits.upstream_event_bytes_max)

    def whole(self, body: bytes) -> Sequence[Delta]:
        return parse_whole(body)

    def error(self, body: bytes) -> tuple[ErrorObject, float | None]:
        return read_error(body) or (chunks.read_error(body), None)


class GoogleModel(HttpModel):
    """A model at Google, or at a server with the same API."""

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        base_url: str = GOOGLE_URL,
        token_key: str | None = None,
        thinking_tokens: int | None = None,
        headers: Mapping[str, str] | None = None,
        **access: Unpack[Access],
    ) -> None:
        """`token_key` names the environment variable that holds the API key; it defaults to `GOOGLE_API_KEY` for
        Google's own server, to none elsewhere. For the rest see `HttpModel`
        and `Access`.

        Raises InvalidValue, with the way out, for settings that cannot work.
        """
        base_url = base_url.rstrip("/")
        if not re.search(r"/v\d\w*$", urlsplit(base_url).path):
            base_url += "/v1beta"
        if token_key is None:
            token_key = "GOOGLE_API_KEY" if base_url == GOOGLE_URL else ""
        style = GoogleStyle(model=model, thinking_tokens=thinking_tokens)
        wire, place = GoogleWire(style), f"/models/{quote(model, safe='')}"
        super().__init__(
            wire,
            name=name or f"google/{model}",
            base_url=base_url,
            path=f"{place}:streamGenerateContent?alt=sse",
            token_key=token_key,
            key_header="x-goog-api-key",
            headers=headers,
            counting=CountEndpoint(
                wire.dialect, f"{place}:countTokens", partial(count_body, style=style)
            ),
            **access,
        )
