"""Claude, over Anthropic's Messages API.

What a model takes is a row of the table of families (`models/families/claude.py`), which its name leads to.
A parameter that its family refuses is not sent: it is reported as ignored, or the nearest thing is asked for.

Three places are marked for the prompt cache: the end of the tools, the end of the instructions and the end of the
request. The conversation's next request reads its common beginning from the cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, Unpack, assert_never
from urllib.parse import urlsplit

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.turns.deltas import Delta
from holdfast.core.turns.events import FORCED_TOOL_CHOICE, Parameters, ToolDefinition
from holdfast.errors import InvalidValue
from holdfast.models.families.claude import (
    EVERY_EFFORT,
    LOW_TO_HIGH,
    NEWEST,
    ClaudeFamily,
    claude_family,
)
from holdfast.models.families.family import nearest
from holdfast.models.http.http_model import Access, HttpModel
from holdfast.models.http.token_counts import CountEndpoint
from holdfast.models.model import AnswerParser, Dialect, Prompt, Wire
from holdfast.models.output_choices import OutputSchema, ToolChoice, read_choice, read_schema
from holdfast.models.providers.chat_body import joined_object, json_of
from holdfast.wire.anthropic.dialect import (
    EPHEMERAL,
    AnthropicDialect,
    AnthropicMessage,
    ToolResultBlock,
    begins_with_answer,
    ends_with_answer,
    with_breakpoint,
    without_blank_end,
    without_thinking,
)
from holdfast.wire.anthropic.stream_parser import AnthropicStreamParser, parse_whole
from holdfast.wire.anthropic.thoughts import (
    RedactedBlock,
    ThinkingBlock,
    ThoughtOrigin,
    without_bound,
)
from holdfast.wire.body_parser import BodyDecoder
from holdfast.wire.headers import ANTHROPIC_BETA, ANTHROPIC_VERSION, API_KEY

ANTHROPIC_URL = "https://api.anthropic.com/v1"
VERSION = "2023-06-01"
INTERLEAVED = "interleaved-thinking-2025-05-14"
FALLBACKS = "fallbacks"
TASK_BUDGET = "task_budget"
BETAS = {FALLBACKS: "server-side-fallback-2026-06-01", TASK_BUDGET: "task-budgets-2026-03-13"}
"""Options of a model that the API has as betas: the models that answer what this one refuses, and a bound that the model
is told of. The header names each."""
"""Lets models with a thinking budget think between calls, too; later models always do."""

KNOWN = frozenset(
    "max_output_tokens stop reasoning_effort parallel_tool_calls tool_choice user safety_identifier".split()
)

BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768}
"""Effort → tokens, for models that take a budget."""
BUDGET_TOKENS_MIN = 1024

OUTPUT_TOKENS = 32_000
"""The length of an answer, and of the thoughts before it, where the client sets none."""

# ── requests ─────────────────────────────────────────────────────────────────────────────────


class AnthropicStyle(Value):
    """The settings that all requests of one model share."""

    model: str
    thinking_tokens: int | None = None
    """A budget from the agent file: 0 for none, -1 for as many as the model wants."""
    caches: bool = True
    options: tuple[tuple[str, str], ...] = ()
    """Members of every request, as JSON: `BETAS`."""

    @property
    def betas(self) -> str:
        """The header that names the betas of every request; empty without any."""
        named = [BETAS[name] for name, _ in self.options]
        return ",".join([INTERLEAVED] * self.family.interleaved + named)

    @property
    def family(self) -> ClaudeFamily:
        return claude_family(self.model) or NEWEST


def request_body(prompt: Prompt, style: AnthropicStyle) -> bytes:
    """The body of a request. Raises InvalidValue for a part that cannot be sent."""
    said = prompt.parameters
    choice = choice_for(said, style.family)
    tools = choice.offered(prompt.tools) if choice else prompt.tools
    members: dict[str, bytes] = {"model": _encode(style.model), "stream": b"true"}
    forced = choice is not None and choice.mode == "required"
    how = thinking(said, style, forced=forced or in_unthinking_loop(prompt, style.family))
    members |= {**how.member(), **_parameters(said, style, how)}
    if tools:
        members["tools"] = _tools(tools, caches=style.caches)
        members |= _tool_choice(choice, said.parallel_tool_calls)
    if prompt.system:
        members["system"] = _system(prompt.system, caches=style.caches)
    pieces, _ = closed_pieces(prompt, style.family)
    if pieces and style.caches:
        pieces[-1] = with_breakpoint(pieces[-1])
    return joined_object(members, "messages", pieces)


def opening(prompt: Prompt, style: AnthropicStyle) -> bytes:
    """What a request says before its messages, without the marks for the cache: no provider compares those."""
    choice = choice_for(prompt.parameters, style.family)
    tools = choice.offered(prompt.tools) if choice else prompt.tools
    offered = _tools(tools, caches=False) if tools else b""
    return b"\n".join((style.model.encode(), offered, _encode(prompt.system)))


def choice_for(said: Parameters, family: ClaudeFamily) -> ToolChoice | None:
    """The choice of tools. A family that cannot be made to call a tool is left to choose among all of them."""
    choice = read_choice(said.tool_choice)
    if choice is not None and choice.mode == "required" and family.forced == "never":
        return ToolChoice()
    return choice


def count_body(prompt: Prompt, style: AnthropicStyle) -> bytes:
    """The body of a count request."""
    members: dict[str, bytes] = {"model": _encode(style.model)}
    if prompt.tools:
        members["tools"] = _tools(prompt.tools, caches=False)
    if prompt.system:
        members["system"] = _system(prompt.system, caches=False)
    pieces, _ = closed_pieces(prompt, style.family)
    counted = (without_bound(piece) for piece in pieces)
    return joined_object(members, "messages", filter(None, counted))


def _told(words: str) -> bytes:
    """A note to the model, as a message of the user's: the API has no other role for it."""
    return _encode({"role": "user", "content": [{"type": "text", "text": f"[{words}]"}]})


def closed_pieces(prompt: Prompt, family: ClaudeFamily) -> tuple[list[bytes], bool]:
    """The messages as they can be sent, and whether their end had to be changed for that.

    The first message is the user's, also if a part of the history is hidden. A request may end with an answer to go on
    with, but not with white space; and some families refuse that answer: they are asked to go on with it.
    """
    pieces = [piece for piece in prompt.messages if piece]
    if pieces and begins_with_answer(pieces[0]):
        pieces.insert(0, _told("What came before is not shown."))
    if not pieces or not ends_with_answer(pieces[-1]):
        return pieces, False
    last = pieces[-1]
    pieces[-1] = without_blank_end(last)
    if not family.prefill:
        return [*pieces, _told("Go on with your answer where it ends.")], True
    return pieces, pieces[-1] != last


def in_unthinking_loop(prompt: Prompt, family: ClaudeFamily) -> bool:
    """Whether results go back to an answer that began without a thought, such as another model's.

    A family with a budget refuses to begin thinking there.
    """
    if family.thinking != "budget" or not prompt.messages:
        return False
    try:
        messages = _messages_decoder.decode(b"[" + prompt.messages[-1] + b"]")
    except msgspec.DecodeError:
        return False
    answers = [each.content for each in messages if each.role == "assistant"]
    return bool(
        answers
        and isinstance(messages[-1].content[0], ToolResultBlock)
        and not isinstance(answers[-1][0], ThinkingBlock | RedactedBlock)
    )


_messages_decoder: BodyDecoder[list[AnthropicMessage]] = BodyDecoder(list[AnthropicMessage])
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
    schema = object_schema(tool)
    described: dict[str, object] = {"name": tool.name}
    if tool.description:
        described["description"] = tool.description
    if tool.strict:
        described["strict"] = True
    described["input_schema"] = msgspec.Raw(schema)
    return _encode(described)


def object_schema(tool: ToolDefinition) -> bytes:
    """The schema of a tool's arguments, which the API requires to be an object's. Raises InvalidValue.

    A tool without arguments may have none, and a schema that is made of others may not say that it is an object's.
    """
    what = f"the schema of the tool {tool.name!r}"
    schema = json_of(tool.parameters or "{}", what)
    try:
        stated = msgspec.json.decode(schema, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        raise InvalidValue(f"{what} has to be an object") from error
    if stated.get("type") == b'"object"':
        return schema
    return _encode({"type": "object"} | {k: v for k, v in stated.items() if k != "type"})


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

    mode: Literal["", "enabled", "adaptive", "disabled", "between_tools"] = ""
    tokens: int = 0
    """The budget, if `enabled`."""
    effort: str | None = None
    shown: bool = False
    """Ask for a summary of the thoughts, where the model would send empty ones."""

    def member(self) -> Mapping[str, bytes]:
        if not self.mode:
            return {}
        asked: dict[str, object] = {"type": self.mode}
        if self.mode == "enabled":
            asked["budget_tokens"] = self.tokens
        if self.shown:
            asked["display"] = "summarized"
        return {"thinking": _encode(asked)}


def thinking(said: Parameters, style: AnthropicStyle, *, forced: bool) -> Thinking:
    """The thinking for an effort, or else for a budget. A forced tool call excludes thinking: the API refuses both."""
    effort, tokens, family = said.reasoning_effort, style.thinking_tokens, style.family
    none = forced or effort == "none" or (effort is None and tokens == 0)
    asked = effort is not None or tokens is not None
    match family.thinking:
        case "none":
            return Thinking()
        case "budget":
            if none or not asked:
                return Thinking()
            return Thinking(mode="enabled", tokens=_budget(effort, tokens, family))
        case "adaptive":
            if none and family.off != "never":
                return _unthinking(family)
            if not asked and not family.thinks_unasked:
                return Thinking()
            shown, wanted = family.hides_thoughts, _effort(effort, tokens, family)
            return Thinking(mode="adaptive", effort=wanted, shown=shown)
        case _:  # pragma: no cover
            assert_never(family.thinking)


def _unthinking(family: ClaudeFamily) -> Thinking:
    match family.off:
        case "disabled" | "between_tools" as word:
            return Thinking(mode=word)
        case _:
            return Thinking()


def _budget(effort: str | None, tokens: int | None, family: ClaudeFamily) -> int:
    """The budget, so that there is room for an answer below the family's bound."""
    if effort is not None:
        wanted = BUDGETS.get(effort, BUDGETS["xhigh"])
    else:
        wanted = BUDGETS["medium"] if tokens is None or tokens < 0 else tokens
    return max(BUDGET_TOKENS_MIN, min(wanted, family.output_max // 2))


def _effort(effort: str | None, tokens: int | None, family: ClaudeFamily) -> str | None:
    """The effort in the family's words: the nearest that it has, and not more than was asked for."""
    if effort is None:
        if tokens is None or tokens < 0:
            return None
        effort = next((name for name in LOW_TO_HIGH[:2] if tokens <= BUDGETS[name]), "high")
    return nearest(effort, EVERY_EFFORT, family.efforts, unknown=0)


def _parameters(said: Parameters, style: AnthropicStyle, how: Thinking) -> Mapping[str, bytes]:
    plain: dict[str, object] = {
        "max_tokens": length_max(said, style.family, how),
        "stop_sequences": list(said.stop) or None,
    }
    if style.family.sampling and how.mode not in ("enabled", "adaptive"):
        # Only one of the two: newer models refuse both together.
        plain["temperature"] = None if said.temperature is None else min(1.0, said.temperature)
        plain["top_p"] = said.top_p if said.temperature is None else None
        if (top_k := dict(said.others).get("top_k")) is not None:
            plain["top_k"] = msgspec.Raw(json_of(top_k, "top_k"))
    output = _output(read_schema(said.output_schema), how.effort)
    for name, text in style.options:
        if name == TASK_BUDGET:
            output[name] = msgspec.Raw(text.encode())
        else:
            plain[name] = msgspec.Raw(text.encode())
    plain["output_config"] = output or None
    others = dict(said.others)
    user = others.get("safety_identifier") or others.get("user")
    if user is not None:
        plain["metadata"] = {"user_id": msgspec.Raw(json_of(user, "user"))}
    return {name: _encode(value) for name, value in plain.items() if value is not None}


def length_max(said: Parameters, family: ClaudeFamily, how: Thinking) -> int:
    """The output limit, which the API requires. A budget is on top of it: the client limits only the answer."""
    asked = said.max_output_tokens or min(OUTPUT_TOKENS, family.output_max)
    budget = how.tokens if family.length_counts_thoughts else 0
    return max(1, min(asked + budget, family.output_max))


def _output(schema: OutputSchema | None, effort: str | None) -> dict[str, object]:
    config: dict[str, object] = {}
    if effort is not None:
        config["effort"] = effort
    if schema is not None:
        if schema.schema is None:
            raise InvalidValue("this model answers in JSON by a schema only: send a json_schema")
        config["format"] = {"type": "json_schema", "schema": msgspec.Raw(schema.schema)}
    return config


class AnthropicWire(Wire):
    """Messages, as a `Wire`."""

    def __init__(self, style: AnthropicStyle) -> None:
        family = style.family
        self.dialect: Dialect = AnthropicDialect(bound_to=style.model if family.bound else "")
        self.knows = (
            KNOWN
            | (frozenset({"temperature", "top_p", "top_k"}) if family.sampling else frozenset())
            | (frozenset({"output_schema"}) if family.schema else frozenset())
            | (frozenset() if family.forced == "never" else frozenset({FORCED_TOOL_CHOICE}))
        )
        self._style = style

    def body(self, prompt: Prompt) -> bytes:
        return request_body(prompt, self._style)

    def opening(self, prompt: Prompt) -> bytes | None:
        return opening(prompt, self._style) if self.dialect.binds else None

    def without_thoughts(self, prompt: Prompt) -> Prompt | None:
        plain = without_thinking(b",".join(filter(None, prompt.messages)))
        return msgspec.structs.replace(prompt, messages=(plain,), prefixes=())

    def parser(self, prompt: Prompt) -> AnswerParser:
        return AnthropicStreamParser(
            event_bytes_max=limits.upstream_event_bytes_max, origin=self._origin(prompt)
        )

    def whole(self, body: bytes, prompt: Prompt) -> Sequence[Delta]:
        return parse_whole(body, self._origin(prompt))

    def _origin(self, prompt: Prompt) -> ThoughtOrigin | None:
        if not self.dialect.binds:
            return None
        # Thoughts about an end that no later request will have fit nowhere.
        _, changed = closed_pieces(prompt, self._style.family)
        prefix = "" if changed else dict(prompt.prefixes).get(self.dialect.name, "")
        return ThoughtOrigin(model=self._style.model, prefix=prefix)


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
        options: tuple[tuple[str, str], ...] = (),
        headers: Mapping[str, str] | None = None,
        key_header: str = API_KEY.name,
        counts: bool = True,
        **access: Unpack[Access],
    ) -> None:
        """`key_header`: the header that carries the API key. `counts`: whether the server counts prompts.
        `token_key` names the environment variable that holds the API key; it defaults to `ANTHROPIC_API_KEY`
        for Anthropic's own server, to none elsewhere. For the rest see `HttpModel`
        and `Access`.

        Raises InvalidValue, with the way out, for settings that cannot work.
        """
        base_url = base_url.rstrip("/")
        if not urlsplit(base_url).path.endswith("/v1"):
            base_url += "/v1"  # as in Anthropic's SDK
        if token_key is None:
            token_key = "ANTHROPIC_API_KEY" if base_url == ANTHROPIC_URL else ""
        style = AnthropicStyle(
            model=model, thinking_tokens=thinking_tokens, caches=caches, options=options
        )
        beta = {ANTHROPIC_BETA.name: style.betas} if style.betas else {}
        wire = AnthropicWire(style)
        super().__init__(
            wire,
            name=name or f"anthropic/{model}",
            base_url=base_url,
            path="/messages",
            token_key=token_key,
            key_header=key_header,
            headers={ANTHROPIC_VERSION.name: VERSION, **beta, **(headers or {})},
            counting=CountEndpoint(
                wire.dialect, "/messages/count_tokens", partial(count_body, style=style)
            )
            if counts
            else None,
            taken_for="" if claude_family(model) else NEWEST.names[0],
            **access,
        )
