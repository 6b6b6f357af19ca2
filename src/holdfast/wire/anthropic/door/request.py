"""Parses a Messages request: decoded, checked, and converted for sessions.

We accept much: blocks that only other servers know are kept beside their message, and named as ignored, as are fields,
betas and tools that Anthropic's own servers run. `cache_control` may stand wherever the API allows it; providers are
asked to cache by their own rules. Messages of the role `system` are instructions, as `system` is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw, Struct

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.history.reconciliation import Incoming, IncomingCall
from holdfast.core.history.reconciliation import Thought as ReturnedThought
from holdfast.core.items import File, Image, Inline, Link, Opaque, Part, Text, text_of
from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.errors import InvalidValue
from holdfast.wire.anthropic.door.answer import MARK
from holdfast.wire.anthropic.thoughts import kept_thought
from holdfast.wire.body_parser import (
    IGNORED_MAX,
    NULL,
    PLAIN,
    BodyDecoder,
    ManyMessages,
    TurnBody,
    as_json,
    demand_between,
    demand_few_messages,
    demand_known,
    demand_least,
    given_parameters,
    missing_parameter,
    plain_names,
    read_body,
    read_tools,
    tool_definition,
    unknown_fields,
    unsupported,
)
from holdfast.wire.openai.chat.messages import source_of
from holdfast.wire.openai.kept_members import (
    CLIENT,
    KeptPart,
    opaque_members,
    strict_type,
    untold_members,
    with_messages,
)
from holdfast.wire.problems import Refused, bad_request

# ── the body ─────────────────────────────────────────────────────────────────────────────────


class RequestMessage(Struct, frozen=True):
    """A message of a request. Its blocks are decoded one by one, since others than ours are kept as they are."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Raw]


class ThinkingChoice(Struct, frozen=True):
    """How much the model shall think, and whether its thoughts are shown."""

    type: Literal["enabled", "adaptive", "disabled", "between_tools"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class SchemaFormat(Struct, frozen=True):
    """The JSON Schema that an answer must fit."""

    type: Literal["json_schema"]
    schema: dict[str, Raw]


class OutputChoice(Struct, frozen=True):
    effort: str | None = None
    format: SchemaFormat | None = None


class ToolChoiceMember(Struct, frozen=True):
    """Which tools may, or must, be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class RequestMetadata(Struct, frozen=True):
    user_id: str | None = None


class MessagesRequest(Struct, frozen=True):
    """The body, as far as we use it. Other fields are ignored, and the answer names them."""

    model: str
    messages: list[RequestMessage]
    max_tokens: int | None = None
    system: Raw = NULL
    stream: bool | None = None
    tools: list[Raw] | None = None
    tool_choice: ToolChoiceMember | None = None
    thinking: ThinkingChoice | None = None
    output_config: OutputChoice | None = None
    output_format: SchemaFormat | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    metadata: RequestMetadata | None = None
    service_tier: str | None = None
    cache_control: Raw = NULL


class MessagesTool(Struct, frozen=True):
    """A tool of the client's own, or one with a type of Anthropic's, which is ignored."""

    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: Raw = NULL
    strict: bool | None = None


class MessagesAsk(TurnBody, kw_only=True):
    """A parsed Messages request."""

    messages: tuple[Incoming, ...]
    tools_bytes: int = 0
    shows_thoughts: bool = False


_KNOWN = frozenset(MessagesRequest.__struct_fields__)
_decoder: BodyDecoder[MessagesRequest] = BodyDecoder(MessagesRequest)
_sent_decoder: BodyDecoder[ManyMessages] = BodyDecoder(ManyMessages)
_tool_decoder: BodyDecoder[MessagesTool] = BodyDecoder(MessagesTool)


@cache
def _whole_decoder() -> BodyDecoder[MessagesRequest]:
    """Takes requests without members of messages that we do not know, which are nearly all."""
    return BodyDecoder(with_messages(MessagesRequest, strict_type(RequestMessage)))


def read_messages_request(body: bytes, *, is_counted: bool = False) -> MessagesAsk:
    """Decode and check a request. Raises Refused, with the parameter at fault.

    A request that `is_counted` is no turn: it has no `max_tokens`.
    """
    demand_few_messages(body)
    request, untold = _read(body)
    _check(request, is_counted=is_counted)
    ignored: list[str] = []
    messages = tuple(
        each
        for n, (message, members) in enumerate(zip(request.messages, untold, strict=True))
        for each in _incoming(f"messages[{n}]", message, members, ignored)
    )
    tools, left_alone = read_tools(request.tools or (), _definition)
    parameters = _parameters(request, tools)
    system = (*_system(request.system), *(each for each in messages if each.role == "system"))
    thinking = request.thinking
    return MessagesAsk(
        model=request.model,
        messages=messages,
        instructions=tuple(filter(None, (text_of(each.content) for each in system))),
        parameters=parameters,
        client_tools=tools,
        stream=bool(request.stream),
        given=given_parameters(_names(request, parameters), parameters),
        left_alone=(*unknown_fields(body, _KNOWN), *left_alone, *ignored[:IGNORED_MAX]),
        tools_bytes=sum(len(bytes(each)) for each in request.tools or ()),
        shows_thoughts=thinking is not None
        and thinking.type != "disabled"
        and thinking.display != "omitted",
    )


def _read(body: bytes) -> tuple[MessagesRequest, list[dict[str, Raw]]]:
    """The request, and the members of each message that we do not know."""
    try:
        request = read_body(_whole_decoder(), body)
    except Refused:
        request = read_body(_decoder, body)
        sent = _sent_decoder.decode(body).messages
        return request, [*map(untold_members, sent, request.messages)]
    return request, [{} for _ in request.messages]


_members_decoder: BodyDecoder[dict[str, Raw]] = BodyDecoder(dict[str, Raw])


def same_request(body: bytes) -> bytes:
    """The body without `stream`: Claude Code sends a request whose stream broke off again as a plain one, and both are
    the same request, whose answer is shown in two ways."""
    members = _members_decoder.decode(body)
    members.pop("stream", None)
    return msgspec.json.encode(members)


# ── betas ────────────────────────────────────────────────────────────────────────────────────

HEEDED_BETAS = frozenset(
    """
    effort fine-grained-tool-streaming interleaved-thinking mid-conversation-system prompt-caching prompt-caching-scope
    structured-outputs token-counting extended-cache-ttl
    """.split()
)
"""Betas, without their dates, whose parameters we take, or that ask for nothing which is not the case anyway."""


def unheeded_betas(header: str, query: str) -> tuple[str, ...]:
    """The betas that change nothing here, and `beta=true` of the address, by names for `X-Ignored-Params`."""
    betas = [each for each in map(str.strip, header.split(",")) if PLAIN.fullmatch(each)]
    unheeded = [f"anthropic-beta:{each}" for each in betas if _undated(each) not in HEEDED_BETAS]
    asked = ["?beta"] if query == "true" else []
    return tuple([*asked, *unheeded][:IGNORED_MAX])


def _undated(beta: str) -> str:
    return beta.rstrip("0123456789-")


# ── checks ───────────────────────────────────────────────────────────────────────────────────


def _check(request: MessagesRequest, *, is_counted: bool) -> None:
    if not request.messages:
        raise bad_request("no_new_user_message", "messages is empty: send one", param="messages")
    if request.max_tokens is None and not is_counted:
        raise missing_parameter("max_tokens")
    demand_least("max_tokens", request.max_tokens, 1)
    demand_between("temperature", request.temperature, 0, 1)
    demand_between("top_p", request.top_p, 0, 1)


# ── parameters ───────────────────────────────────────────────────────────────────────────────

_NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "stop_sequences": "stop",
    "tool_choice": "tool_choice",
    "tool_choice.disable_parallel_tool_use": "parallel_tool_calls",
    "output_config.format": "output_schema",
}
"""The client's name of a parameter → our name. `max_tokens` is not here: the API demands it, so that it is no wish."""

_USER_CHARS = 64
"""A longer `user_id` is not passed on: providers refuse it, and Claude Code's says more than who asks."""

_EFFORTS = ((2048, "low"), (8192, "medium"), (16384, "high"))
"""A budget of thoughts → the effort that comes nearest."""


def _parameters(request: MessagesRequest, tools: tuple[ToolDefinition, ...]) -> Parameters:
    choice = request.tool_choice
    output = request.output_config or OutputChoice()
    user = request.metadata.user_id if request.metadata else None
    is_told = user is not None and len(user) <= _USER_CHARS
    others = (("top_k", as_json(request.top_k)), ("user", as_json(user) if is_told else None))
    return Parameters(
        temperature=request.temperature,
        top_p=request.top_p,
        max_output_tokens=request.max_tokens,
        stop=tuple(request.stop_sequences or ()),
        reasoning_effort=_effort(request.thinking, output.effort),
        parallel_tool_calls=False if choice and choice.disable_parallel_tool_use else None,
        tool_choice=_tool_choice(choice, tools),
        output_schema=_schema(output.format or request.output_format),
        others=tuple((name, said) for name, said in others if said is not None),
    )


def _names(request: MessagesRequest, parameters: Parameters) -> list[tuple[str, str]]:
    """The client's names of parameters, and ours: what a model shall think is said by one of two."""
    asked = request.output_config.effort if request.output_config else None
    effort = "output_config.effort" if parameters.reasoning_effort == asked else "thinking"
    return [*_NAMES.items(), (effort, "reasoning_effort")]


def _effort(thinking: ThinkingChoice | None, effort: str | None) -> str | None:
    if thinking is not None and thinking.type == "disabled":
        return "none"
    if effort is not None or thinking is None or thinking.budget_tokens is None:
        return effort
    budget = thinking.budget_tokens
    return next((name for tokens, name in _EFFORTS if budget <= tokens), "xhigh")


def _tool_choice(choice: ToolChoiceMember | None, tools: tuple[ToolDefinition, ...]) -> str | None:
    match choice:
        case None:
            return None
        case ToolChoiceMember(type="tool", name=name):
            demand_known(name, tools)
            return msgspec.json.encode({"type": "function", "function": {"name": name}}).decode()
        case _:
            return "required" if choice.type == "any" else choice.type


def _schema(asked: SchemaFormat | None) -> str | None:
    if asked is None:
        return None
    schema = {"name": "answer", "schema": asked.schema, "strict": True}
    return msgspec.json.encode({"type": "json_schema", "json_schema": schema}).decode()


# ── tools ────────────────────────────────────────────────────────────────────────────────────


def _definition(where: str, raw: Raw) -> ToolDefinition | None:
    tool = _tool_decoder.decode(raw)
    if tool.type not in (None, "custom"):
        return None
    return tool_definition(where, tool.name, tool.description, tool.input_schema, tool.strict)


# ── blocks ───────────────────────────────────────────────────────────────────────────────────


class GivenSource(Struct, frozen=True):
    """Where the bytes of an image or a document are."""

    type: str
    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    content: str | list[Raw] = ""


class GivenText(Struct, frozen=True, tag="text"):
    text: str


class GivenImage(Struct, frozen=True, tag="image"):
    source: GivenSource


class GivenDocument(Struct, frozen=True, tag="document"):
    source: GivenSource
    title: str | None = None
    context: str | None = None


class GivenSearchResult(Struct, frozen=True, tag="search_result"):
    source: str
    title: str
    content: list[GivenText]


class GivenThought(Struct, frozen=True, tag="thinking"):
    thinking: str
    signature: str = ""


class GivenRedacted(Struct, frozen=True, tag="redacted_thinking"):
    data: str


class GivenCall(Struct, frozen=True, tag="tool_use"):
    id: str
    name: str
    input: Raw = Raw(b"{}")


class GivenResult(Struct, frozen=True, tag="tool_result"):
    tool_use_id: str
    content: str | list[Raw] | None = None
    is_error: bool | None = None


Shown: TypeAlias = GivenText | GivenImage | GivenDocument | GivenSearchResult
Given: TypeAlias = Shown | GivenThought | GivenRedacted | GivenCall | GivenResult


class _BlockHead(Struct, frozen=True):
    type: str


class _Unknown(Value):
    """A block that only other servers know."""


class _Block(NamedTuple):
    """A block, where it stands, as it came, and the members that its type has no field for."""

    place: str
    given: Given | _Unknown
    raw: Raw
    untold: dict[str, Raw]

    @property
    def members(self) -> dict[str, Raw]:
        return _members_decoder.decode(self.raw)


_head_decoder: BodyDecoder[_BlockHead] = BodyDecoder(_BlockHead)
_given_decoder: BodyDecoder[Given] = BodyDecoder(Given)
_KINDS = frozenset(
    "text image document search_result thinking redacted_thinking tool_use tool_result".split()
)
_UNLISTED: dict[type, tuple[str, ...]] = {
    GivenSearchResult: ("source", "title", "content"),
    GivenResult: ("is_error",),
    GivenThought: ("signature",),
    GivenRedacted: ("data",),
}
"""Members that we use, and that lists do not show by themselves."""
_FORM = "messages"
_NO_WISH = frozenset({"cache_control", "citations"})
"""Members that ask a model for nothing: providers cache by their own rules, and citations are about text of the past."""


def _block(raw: Raw, place: str, ignored: list[str]) -> _Block:
    try:
        if _head_decoder.decode(raw).type not in _KINDS:
            ignored.append(place)
            return _Block(place, _Unknown(), raw, {})
        given = _given_decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise bad_request(
            "invalid_type", f"{place}: {str(error).replace('`$', '`')}", param=place
        ) from error
    members = _members_decoder.decode(raw)
    untold = untold_members(members, given)
    ignored += plain_names(place, (name for name in untold if name not in _NO_WISH))
    unlisted = (name for name in _UNLISTED.get(type(given), ()) if name in members)
    return _Block(place, given, raw, untold | {name: members[name] for name in unlisted})


def _blocks(where: str, content: str | list[Raw], ignored: list[str]) -> list[_Block]:
    """The blocks of a message or a result."""
    if isinstance(content, str):
        return [_Block(where, GivenText(text=content), NULL, {})] if content else []
    return [_block(raw, f"{where}.content[{n}]", ignored) for n, raw in enumerate(content)]


def _incoming(
    where: str, message: RequestMessage, members: dict[str, Raw], ignored: list[str]
) -> Iterator[Incoming]:
    """The messages of a request as sessions take them: each result is one, and comes before the user's words. The first
    of them keeps the `members` of the message."""
    blocks = _blocks(where, message.content, ignored)
    ignored += plain_names(where, members)
    if message.role == "assistant":
        yield from _answer(where, blocks, members)
        return
    if message.role == "user":
        for each in blocks:
            if isinstance(each.given, GivenResult):
                yield _result(each, each.given, members, ignored)
                members = {}
        blocks = [each for each in blocks if not isinstance(each.given, GivenResult)]
        if not blocks:
            return
    yield _said(where, message.role, blocks, members)


def _said(
    where: str,
    role: Literal["user", "assistant", "system", "tool"],
    blocks: Sequence[_Block],
    members: dict[str, Raw],
) -> Incoming:
    """A message with the parts of these blocks, and with what we do not know of them."""
    content: list[Part] = []
    kept: list[KeptPart] = []
    for each in _opened(blocks):
        parts = [*_parts(each.place, each.given)]
        content += parts
        kept += _kept(each, len(parts))
    extras = opaque_members(members, kept, form=_FORM, where=where)
    return Incoming(role=role, content=tuple(content), extras=extras)


def _opened(blocks: Iterable[_Block]) -> Iterator[_Block]:
    """The same blocks, with the texts and pictures of a document in its place; its other blocks are only kept. What is
    said about the document comes first."""
    for each in blocks:
        document = each.given
        if not isinstance(document, GivenDocument) or document.source.type != "content":
            yield each
            continue
        about = {name: raw for name, raw in each.members.items() if name != "source"}
        about |= {"source": each.untold["source"]} if "source" in each.untold else {}
        head = GivenText(text=document.context or "")
        yield _Block(each.place, head, Raw(msgspec.json.encode(about)), about)
        for inner in _blocks(each.place, document.source.content, []):
            is_shown = isinstance(inner.given, GivenText | GivenImage)
            yield inner if is_shown else inner._replace(given=_Unknown())


def _kept(block: _Block, parts: int) -> list[KeptPart]:
    """What the parts of a block do not tell. A block without parts, such as an empty text, is kept whole."""
    if parts:
        others = [KeptPart(members={}, whole=False)] * (parts - 1)
        return [KeptPart(members=block.untold, whole=False), *others]
    whole = isinstance(block.given, _Unknown) or bool(block.untold)
    return [KeptPart(members=block.members, whole=True)] if whole else []


def _system(raw: Raw) -> Iterator[Incoming]:
    if as_json(raw) is None:
        return
    try:
        content = msgspec.json.decode(raw, type=str | list[GivenText])
    except msgspec.ValidationError as error:
        raise bad_request("invalid_type", f"system: {error}", param="system") from error
    for each in [GivenText(text=content)] if isinstance(content, str) else content:
        yield Incoming(role="system", content=(Text(text=each.text),))


def _result(
    block: _Block, given: GivenResult, members: dict[str, Raw], ignored: list[str]
) -> Incoming:
    inner = _blocks(block.place, given.content or "", ignored)
    of_message = {
        f"{_FORM}.{name}" if name in block.untold else name: raw for name, raw in members.items()
    }
    said = _said(block.place, "tool", inner, block.untold | of_message)
    return msgspec.structs.replace(said, call_id=given.tool_use_id, failed=bool(given.is_error))


def _answer(where: str, blocks: Sequence[_Block], members: dict[str, Raw]) -> Iterator[Incoming]:
    """An assistant's message, in as many parts as have thoughts, text and calls in this order."""
    part: list[_Block] = []
    for each in blocks:
        if part and _rank(each.given) < _rank(part[-1].given):
            yield _answer_part(where, part, members)
            part, members = [], {}
        part.append(each)
    if part:
        yield _answer_part(where, part, members)


def _rank(block: Given | _Unknown) -> int:
    match block:
        case GivenThought() | GivenRedacted():
            return 0
        case GivenCall():
            return 2
        case _:
            return 1


def _answer_part(where: str, blocks: Sequence[_Block], members: dict[str, Raw]) -> Incoming:
    said = [each for each in blocks if _rank(each.given) == 1]
    return msgspec.structs.replace(
        _said(where, "assistant", said, members),
        thoughts=tuple(thought for each in blocks if (thought := _thought(each)) is not None),
        calls=tuple(
            _call(each, each.given) for each in blocks if isinstance(each.given, GivenCall)
        ),
    )


def _call(block: _Block, given: GivenCall) -> IncomingCall:
    return IncomingCall(
        call_id=given.id,
        name=given.name,
        arguments=bytes(given.input).decode(),
        extras=opaque_members(block.untold, form=_FORM, where=block.place),
    )


def _thought(block: _Block) -> ReturnedThought | None:
    """A thought that goes back to the model. One that we showed has only our mark: the history has the thought itself."""
    match block.given:
        case GivenRedacted(data=data):
            return ReturnedThought(extras=(kept_thought(data=data), *_as_sent(block, "")))
        case GivenThought(thinking=text, signature=signature):
            if signature.startswith(MARK):
                return ReturnedThought(text=text)
            extras = (kept_thought(signature=signature),) if signature else ()
            return ReturnedThought(text=text, extras=(*extras, *_as_sent(block, text)))
        case _:
            return None


def _as_sent(block: _Block, text: str) -> tuple[Opaque, ...]:
    """A thought with further members, or with a signature, as lists show it; none if it has neither, or is too large."""
    if not block.untold:
        return ()
    summary = [{"type": "summary_text", "text": text}] if text else []
    json = msgspec.json.encode({"type": "reasoning", "summary": summary, **block.untold}).decode()
    return (Opaque(owner=CLIENT, json=json),) if len(json) <= limits.opaque_bytes_max else ()


# ── parts ────────────────────────────────────────────────────────────────────────────────────


def _parts(where: str, block: Given | _Unknown) -> Iterator[Part]:
    try:
        match block:
            case GivenText(text=text):
                yield from _texts(text)
            case GivenImage(source=source):
                yield _image(where, source)
            case GivenDocument():
                yield from _document(where, block)
            case GivenSearchResult():
                said = "\n".join(each.text for each in block.content)
                yield Text(text=f"{block.title} ({block.source})\n{said}")
            case _:
                return  # thoughts and calls are told elsewhere, unknown blocks are kept
    except InvalidValue as error:
        raise bad_request("invalid_content", f"{where}: {error}", param=where) from error


def _texts(text: str) -> Iterator[Part]:
    if text:
        yield Text(text=text)


def _image(where: str, source: GivenSource) -> Part:
    match source.type:
        case "base64":
            return Image(source=source_of(f"data:{source.media_type};base64,{source.data}"))
        case "url":
            return Image(source=source_of(source.url))
        case _:
            raise _no_source(where, source)


def _document(where: str, block: GivenDocument) -> Iterator[Part]:
    source, name = block.source, block.title or ""
    yield from _texts(block.context or "")
    match source.type:
        case "base64":
            data = source_of(f"data:{source.media_type};base64,{source.data}")
            yield File(source=data, name=name)
        case "text":
            yield File(source=Inline(media_type="text/plain", data=source.data.encode()), name=name)
        case "url":
            yield File(source=source_of(source.url), name=name)
        case "file":
            yield File(source=Link(url=source.file_id), name=name)
        case _:
            raise _no_source(where, source)


def _no_source(where: str, source: GivenSource) -> Refused:
    return unsupported(
        where, f"{where} has a source of the type {source.type!r}: send base64, or a url"
    )
