"""Gemini, over Google's own API.

Schemas of tools and answers are sent as JSON Schema (`parametersJsonSchema`,
`responseJsonSchema`), and not in the older subset of OpenAPI, which would lose parts of them.

What a model takes is a row of the table of families (`models/families/gemini.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Unpack, assert_never
from urllib.parse import quote, urlsplit

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.turns.deltas import Delta
from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.models.families.family import nearest
from holdfast.models.families.gemini import NEWEST, GeminiFamily, gemini_family
from holdfast.models.http.http_model import Access, HttpModel
from holdfast.models.http.token_counts import CountEndpoint
from holdfast.models.model import AnswerParser, Dialect, Prompt, Wire
from holdfast.models.output_choices import OutputSchema, ToolChoice, read_choice, read_schema
from holdfast.models.providers.chat_body import joined_object, json_of
from holdfast.wire.google.dialect import GoogleDialect, connected, without_signatures
from holdfast.wire.google.stream_parser import GoogleStreamParser, parse_whole, read_error
from holdfast.wire.openai.chat import chunks
from holdfast.wire.openai.chat.chunks import ErrorObject

GOOGLE_URL = "https://generativelanguage.googleapis.com/v1beta"

KNOWN = frozenset(
    """
    temperature top_p max_output_tokens stop seed tool_choice forced_tool_choice output_schema
    frequency_penalty presence_penalty top_k
    """.split()
)

OWN_TOOLS: Mapping[str, str] = {
    "google_search": "googleSearch",
    "google_maps": "googleMaps",
    "code_execution": "codeExecution",
}
"""Tools that run at Google, by the names of docker-agent's options → their names on this wire."""

BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24576}
"""Effort → tokens, for models that take a budget."""


class GoogleStyle(Value):
    """The settings that all requests of one model share."""

    model: str
    thinking_tokens: int | None = None
    """A budget from the agent file: 0 for none, -1 for as many as the model wants."""
    own_tools: tuple[str, ...] = ()
    """Tools that run at Google."""

    @property
    def family(self) -> GeminiFamily:
        return gemini_family(self.model) or NEWEST


def request_body(prompt: Prompt, style: GoogleStyle) -> bytes:
    """The body of a request. Raises InvalidValue for a part that cannot be sent."""
    said = prompt.parameters
    members: dict[str, bytes] = {}
    config = _config(said, style)
    if config:
        members["generationConfig"] = _encode(config)
    members |= _told(prompt, style)
    if prompt.tools:
        choice = read_choice(said.tool_choice)
        if choice is not None:
            members["toolConfig"] = _encode(
                {"functionCallingConfig": _calling(choice, prompt.tools)}
            )
    return joined_object(members, "contents", connected(filter(None, prompt.messages)))


def count_body(prompt: Prompt, style: GoogleStyle) -> bytes:
    """The body of a count request: it contains the request as it would be sent."""
    members = {"model": _encode(f"models/{style.model}"), **_told(prompt, style)}
    asked = joined_object(members, "contents", connected(filter(None, prompt.messages)))
    return b'{"generateContentRequest":' + asked + b"}"


_encode = msgspec.json.Encoder().encode


def _told(prompt: Prompt, style: GoogleStyle) -> dict[str, bytes]:
    """The instructions and the tools, as far as there are any."""
    told: dict[str, bytes] = {}
    if prompt.system:
        told["systemInstruction"] = _encode({"parts": [{"text": prompt.system}]})
    if tools := _tools(prompt, style):
        told["tools"] = _encode(tools)
    return told


def _tools(prompt: Prompt, style: GoogleStyle) -> list[dict[str, object]]:
    declared = list(map(_tool, prompt.tools))
    own: list[dict[str, object]] = [{OWN_TOOLS[name]: {}} for name in style.own_tools]
    return [{"functionDeclarations": declared}, *own] if declared else own


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
        "maxOutputTokens": said.max_output_tokens
        and min(said.max_output_tokens, style.family.output_max),
        "stopSequences": list(said.stop) or None,
        "seed": said.seed,
        "thinkingConfig": _thinking(said, style),
        **_output(read_schema(said.output_schema)),
    }
    for theirs, ours in (
        ("frequencyPenalty", "frequency_penalty"),
        ("presencePenalty", "presence_penalty"),
        ("topK", "top_k"),
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
    effort, tokens, family = said.reasoning_effort, style.thinking_tokens, style.family
    match family.thinking:
        case "none":
            return None
        case "level":
            level = _level(effort, tokens, family)
            return {"includeThoughts": True, **({"thinkingLevel": level} if level else {})}
        case "budget":
            if effort is not None:
                tokens = BUDGETS.get(effort, BUDGETS["high"])
            if tokens is None or tokens < 0:
                return {
                    "includeThoughts": True,
                    **({} if tokens is None else {"thinkingBudget": -1}),
                }
            if tokens or not family.off:
                tokens = max(family.budget_min, min(tokens, family.budget_max))
            return {"includeThoughts": tokens != 0, "thinkingBudget": tokens}
        case _:  # pragma: no cover
            assert_never(family.thinking)


def _level(effort: str | None, tokens: int | None, family: GeminiFamily) -> str | None:
    """The level for an effort or a budget: the nearest that the family has. Thinking cannot be switched off."""
    if effort is None:
        if tokens is None or tokens < 0:
            return None
        effort = next((name for name, most in BUDGETS.items() if tokens <= most), "high")
    return nearest(effort, ("none", "minimal", "low", "medium", "high"), family.levels)


class GoogleWire(Wire):
    """`streamGenerateContent`, as a `Wire`."""

    def __init__(self, style: GoogleStyle) -> None:
        self.dialect: Dialect = GoogleDialect(signed=style.family.signed, model=style.model)
        thinks = style.family.thinking != "none"
        self.knows = KNOWN | (frozenset({"reasoning_effort"}) if thinks else frozenset())
        self._style = style

    def body(self, prompt: Prompt) -> bytes:
        return request_body(prompt, self._style)

    def without_thoughts(self, prompt: Prompt) -> Prompt | None:
        plain = without_signatures(b",".join(filter(None, prompt.messages)))
        return msgspec.structs.replace(prompt, messages=(plain,))

    def parser(self, prompt: Prompt) -> AnswerParser:
        return GoogleStreamParser(
            event_bytes_max=limits.upstream_event_bytes_max, model=self._style.model
        )

    def whole(self, body: bytes, prompt: Prompt) -> Sequence[Delta]:
        return parse_whole(body, self._style.model)

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
        own_tools: tuple[str, ...] = (),
        headers: Mapping[str, str] | None = None,
        **access: Unpack[Access],
    ) -> None:
        """`token_key` names the environment variable that holds the API key; it defaults to `GOOGLE_API_KEY` for
        Google's own server, to none elsewhere. `own_tools` are keys of `OWN_TOOLS`. For the rest see `HttpModel`
        and `Access`.

        Raises InvalidValue, with the way out, for settings that cannot work.
        """
        base_url = base_url.rstrip("/")
        if not re.search(r"/v\d\w*$", urlsplit(base_url).path):
            base_url += "/v1beta"
        if token_key is None:
            token_key = "GOOGLE_API_KEY" if base_url == GOOGLE_URL else ""
        style = GoogleStyle(model=model, thinking_tokens=thinking_tokens, own_tools=own_tools)
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
            taken_for="" if gemini_family(model) else NEWEST.names[0],
            **access,
        )
