"""Claude, over Anthropic's Messages API.

What a model accepts depends on its generation, which is read from its name (`Generation`). Up to 4.5 a budget of
tokens switches thinking on; from 4.6 on the model decides how much it thinks, and takes an effort.
From 4.7 on `temperature` and `top_p` are refused; there they are reported as ignored.

Three places are marked for the prompt cache: the end of the tools, the end of the instructions and the end of the
request. The conversation's next request reads its common beginning from the cache.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, Unpack
from urllib.parse import urlsplit

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.turns.deltas import Delta
from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.errors import InvalidValue
from holdfast.models.http.http_model import Access, HttpModel
from holdfast.models.http.token_counts import CountEndpoint
from holdfast.models.model import AnswerParser, Dialect, Prompt
from holdfast.models.output_choices import OutputSchema, ToolChoice, read_choice, read_schema
from holdfast.models.providers.chat_body import joined_object, json_of
from holdfast.wire.anthropic.dialect import (
    EPHEMERAL,
    AnthropicDialect,
    with_breakpoint,
    without_blank_end,
)
from holdfast.wire.anthropic.stream_parser import AnthropicStreamParser, parse_whole
from holdfast.wire.openai.chat.chunks import ErrorObject, read_error

ANTHROPIC_URL = "https://api.anthropic.com/v1"
VERSION = "2023-06-01"
INTERLEAVED = "interleaved-thinking-2025-05-14"
"""Lets models with a thinking budget think between calls, too; later models always do."""

KNOWN = frozenset(
    "max_output_tokens stop reasoning_effort parallel_tool_calls tool_choice user safety_identifier".split()
)

BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768}
"""Effort → tokens, for models that take a budget."""
BUDGET_TOKENS_MIN = 1024

EFFORTS = ("low", "medium", "high", "xhigh", "max")

# ── what a model takes ───────────────────────────────────────────────────────────────────────


class Generation(Value):
    """A model's generation, read from its name. An unknown name counts as a new model."""

    version: tuple[int, int] = (99, 0)

    @property
    def thinks_by_budget(self) -> bool:
        return self.version < (4, 6)

    @property
    def takes_sampling(self) -> bool:
        return self.version < (4, 7)

    @property
    def takes_schema(self) -> bool:
        return self.version >= (4, 5)

    @property
    def output_tokens(self) -> int:
        """The output limit where the client sets none: the API requires one."""
        return 8_192 if self.version < (4, 0) else 32_000


_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2})(?!\d))?")


def generation_of(model: str) -> Generation:
    """`claude-opus-4-5-20251101` is 4.5, `claude-3-7-sonnet-latest` 3.7, `claude-sonnet-4-20250514` 4.0."""
    found = _VERSION.search(model)
    return Generation(version=(int(found[1]), int(found[2] or 0))) if found else Generation()


# ── requests ─────────────────────────────────────────────────────────────────────────────────


class AnthropicStyle(Value):
    """The settings that all requests of one model share."""

    model: str
    thinking_tokens: int | None = None
    """A budget from the agent file: 0 for none, -1 for as many as the model wants."""
    caches: bool = True

    @property
    def generation(self) -> Generation:
        return generation_of(self.model)


def request_body(prompt: Prompt, style: AnthropicStyle) -> bytes:
    """The body of a request. Raises InvalidValue for a part that cannot be sent."""
    said = prompt.parameters
    choice = read_choice(said.tool_choice)
    tools = choice.offered(prompt.tools) if choice else prompt.tools
    members: dict[str, bytes] = {"model": _encode(style.model), "stream": b"true"}
    how = thinking(said, style, forced=choice is not None and choice.mode == "required")
    members |= {**how.member(), **_parameters(said, style, how)}
    if tools:
        members["tools"] = _tools(tools, caches=style.caches)
        members |= _tool_choice(choice, said.parallel_tool_calls)
    if prompt.system:
        members["system"] = _system(prompt.system, caches=style.caches)
    pieces = _pieces(prompt)
    if pieces and style.caches:
        pieces[-1] = with_breakpoint(pieces[-1])
    return joined_object(members, "messages", pieces)


def count_body(prompt: Prompt, style: AnthropicStyle) -> bytes:
    """The body of a count request."""
    members: dict[str, bytes] = {"model": _encode(style.model)}
    if prompt.tools:
        members["tools"] = _tools(prompt.tools, caches=False)
    if prompt.system:
        members["system"] = _system(prompt.system, caches=False)
    return joined_object(members, "messages", _pieces(prompt))


def _pieces(prompt: Prompt) -> list[bytes]:
    pieces = [piece for piece in prompt.messages if piece]
    if pieces:
        pieces[-1] = without_blank_end(pieces[-1])
    return pieces


_encode = msgspec.json.Encoder().encode


def _system(text: str, *, caches: bool) -> bytes:
    mark = b"," + EPHEMERAL if caches else b""
    return b'[{"type":"text","text":' + _encode(text) + mark + b"}]"


def _tools(tools: Sequence[ToolDefinition], *, caches: bool) -> bytes:
    described = list(map(_tool, tools))
    if caches:
        described[-1] = described[-1].removesuffix(b"}") + b"," + EPHEMERAL + b"}"
    return b"[" + b",".join(described) + b"]"


def _tool(tool: ToolDefinition) -> bytes:
    schema = json_of(tool.parameters or "{}", f"the schema of the tool {tool.name!r}")
    if (
        b'"type"' not in schema
    ):  # the API requires a schema, and a tool without arguments may have none
        schema = _encode({"type": "object", **msgspec.json.decode(schema, type=dict)})
    described: dict[str, object] = {"name": tool.name}
    if tool.description:
        described["description"] = tool.description
    if tool.strict:
        described["strict"] = True
    described["input_schema"] = msgspec.Raw(schema)
    return _encode(described)


def _tool_choice(choice: ToolChoice | None, parallel: bool | None) -> Mapping[str, bytes]:
    if choice is None and parallel is not False:
        return {}
    choice = choice or ToolChoice()
    asked: dict[str, object] = {"type": "any" if choice.mode == "required" else choice.mode}
    if choice.mode == "required" and len(choice.only) == 1:
        asked = {"type": "tool", "name": choice.only[0]}
    if parallel is False and choice.mode != "none":
        asked["disable_parallel_tool_use"] = True
    return {"tool_choice": _encode(asked)}


class Thinking(Value):
    """How much a model shall think. The default leaves it to the model."""

    mode: Literal["", "enabled", "adaptive", "disabled"] = ""
    tokens: int = 0
    """The budget, if `enabled`."""
    effort: str | None = None

    def member(self) -> Mapping[str, bytes]:
        if not self.mode:
            return {}
        budget = {"budget_tokens": self.tokens} if self.mode == "enabled" else {}
        return {"thinking": _encode({"type": self.mode, **budget})}


def thinking(said: Parameters, style: AnthropicStyle, *, forced: bool) -> Thinking:
    """The thinking for an effort, or else for a budget. A forced tool call excludes thinking: the API refuses both."""
    effort, tokens = said.reasoning_effort, style.thinking_tokens
    if effort is None and tokens is None:
        return Thinking()
    none = effort == "none" or (effort is None and tokens == 0)
    if not style.generation.thinks_by_budget:
        if none:
            return Thinking(mode="disabled")
        return Thinking(mode="" if forced else "adaptive", effort=_effort(effort, tokens))
    if none or forced:
        return Thinking()
    if effort is not None:
        budget = BUDGETS.get(effort, BUDGETS["high"])
    else:
        budget = BUDGETS["medium"] if tokens is None or tokens < 0 else tokens
    return Thinking(mode="enabled", tokens=max(BUDGET_TOKENS_MIN, budget))


def _effort(effort: str | None, tokens: int | None) -> str | None:
    """The effort, in the values of models that take one."""
    if effort is not None:
        return effort if effort in EFFORTS else "low"
    if tokens is None or tokens < 0:
        return None
    return next((name for name in ("low", "medium") if tokens <= BUDGETS[name]), "high")


def _parameters(said: Parameters, style: AnthropicStyle, how: Thinking) -> Mapping[str, bytes]:
    # The API counts the thinking budget as output, while a client limits only the answer.
    most = (said.max_output_tokens or style.generation.output_tokens) + how.tokens
    plain: dict[str, object] = {"max_tokens": most, "stop_sequences": list(said.stop) or None}
    if style.generation.takes_sampling and how.mode not in ("enabled", "adaptive"):
        # Only one of the two: newer models refuse both together.
        plain["temperature"] = None if said.temperature is None else min(1.0, said.temperature)
        plain["top_p"] = said.top_p if said.temperature is None else None
    plain["output_config"] = _output(read_schema(said.output_schema), how.effort)
    others = dict(said.others)
    user = others.get("safety_identifier") or others.get("user")
    if user is not None:
        plain["metadata"] = {"user_id": msgspec.Raw(json_of(user, "user"))}
    return {name: _encode(value) for name, value in plain.items() if value is not None}


def _output(schema: OutputSchema | None, effort: str | None) -> dict[str, object] | None:
    config: dict[str, object] = {}
    if effort is not None:
        config["effort"] = effort
    if schema is not None:
        if schema.schema is None:
            raise InvalidValue("this model answers in JSON by a schema only: send a json_schema")
        config["format"] = {"type": "json_schema", "schema": msgspec.Raw(schema.schema)}
    return config or None


class AnthropicWire:
    """Messages, as a `Wire`."""

    def __init__(self, style: AnthropicStyle) -> None:
        self.dialect: Dialect = AnthropicDialect()
        generation = style.generation
        self.knows = (
            KNOWN
            | (frozenset({"temperature", "top_p"}) if generation.takes_sampling else frozenset())
            | (frozenset({"output_schema"}) if generation.takes_schema else frozenset())
        )
        self._style = style

    def body(self, prompt: Prompt) -> bytes:
        return request_body(prompt, self._style)

    def parser(self) -> AnswerParser:
        return AnthropicStreamParser(event_bytes_max=limits.upstream_event_bytes_max)

    def whole(self, body: bytes) -> Sequence[Delta]:
        return parse_whole(body)

    def error(self, body: bytes) -> tuple[ErrorObject, float | None]:
        return read_error(body), None


class AnthropicModel(HttpModel):
    """A model at Anthropic, or at a server with the same API."""

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        base_url: str = ANTHROPIC_URL,
        token_key: str | None = None,
        thinking_tokens: int | None = None,
        caches: bool = True,
        headers: Mapping[str, str] | None = None,
        **access: Unpack[Access],
    ) -> None:
        """`token_key` names the environment variable that holds the API key; it defaults to `ANTHROPIC_API_KEY`
        for Anthropic's own server, to none elsewhere. For the rest see `HttpModel`
        and `Access`.

        Raises InvalidValue, with the way out, for settings that cannot work.
        """
        base_url = base_url.rstrip("/")
        if not urlsplit(base_url).path.endswith("/v1"):
            base_url += "/v1"  # as in Anthropic's SDK
        if token_key is None:
            token_key = "ANTHROPIC_API_KEY" if base_url == ANTHROPIC_URL else ""
        style = AnthropicStyle(model=model, thinking_tokens=thinking_tokens, caches=caches)
        generation = style.generation
        beta = {"anthropic-beta": INTERLEAVED} if (4, 0) <= generation.version < (4, 6) else {}
        wire = AnthropicWire(style)
        super().__init__(
            wire,
            name=name or f"anthropic/{model}",
            base_url=base_url,
            path="/messages",
            token_key=token_key,
            key_header="x-api-key",
            headers={"anthropic-version": VERSION, **beta, **(headers or {})},
            counting=CountEndpoint(
                wire.dialect, "/messages/count_tokens", partial(count_body, style=style)
            ),
            **access,
        )
