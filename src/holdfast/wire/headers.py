"""The headers of requests and answers: each stands once, in this table.

A row says everything about its header: how a request's is parsed, whether pages may send or see it (CORS), what
OpenAPI and docs/reference/headers.md say about it. The check for misspelt names compares with the same rows.
A new header is a row here and, if requests have it, a field of `ConversationHeaders`, or of `AnswerOptions` if the
answer depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from math import ceil
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar, get_args

from msgspec import Meta, Struct

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.policy import Policy, parse_policy
from holdfast.errors import InvalidValue
from holdfast.ids import CallId, IdempotencyKey, SessionId, SessionKey, Version
from holdfast.wire.conversation_names import CHAT_IDS, filled, has_template
from holdfast.wire.problems import Problem, bad_request
from holdfast.wire.trace import TRACEPARENT

T = TypeVar("T")
S = TypeVar("S", bound=str)


class Header(Struct, frozen=True):
    """A header, and what is told of it. Which way it goes is said by the sentences that it has."""

    name: str
    """In lower case, as headers of requests are looked up and those of answers written."""
    aliases: tuple[str, ...] = ()
    """Other names that a request may call it by."""
    request: str = ""
    """What it says in a request. Empty: it is no header of requests."""
    absent: str = ""
    """What a request without it gets."""
    answer: str = ""
    """What it says in an answer. Empty: it is no header of answers."""
    kind: object = str
    """The type of its value, as OpenAPI tells it."""
    example: str | None = None
    of_turn: bool = False
    """It belongs to requests that begin a turn, or to their answers."""
    shapes_answer: bool = False
    """A request that says something else here is another request, also under the same idempotency key."""
    once: bool = False
    """It is about a single request: requests on a socket do not have it from the one that opened the socket."""

    @property
    def title(self) -> str:
        """Its name as people write it."""
        return self.name.title()


class RequestHeader(Header, Generic[T], frozen=True, kw_only=True):
    """A header whose value in a request becomes a value of ours."""

    parse: Callable[[str], T]
    """Raises InvalidValue."""
    default: T
    code: str = "invalid_header"
    """The error of a request whose value cannot be parsed."""

    def read(self, headers: Mapping[str, str]) -> T:
        """The value in a request, or the default. Raises Refused."""
        text = headers.get(self.name)
        return self.default if text is None else self.value_of(text)

    def value_of(self, text: str) -> T:
        try:
            return self.parse(text)
        except InvalidValue as error:
            raise bad_request(self.code, f"{self.name}: {error}", param=self.name) from error


# ── how values are parsed ────────────────────────────────────────────────────────────────────

OnBusy = Literal["wait", "reject", "interrupt", "steer"]
Create: TypeAlias = Literal["auto", "never"]
History: TypeAlias = Literal["append", "follow"]
Flag: TypeAlias = Literal["true", "false"]
AskedBy: TypeAlias = Literal["words", "fields"]
Key: TypeAlias = Annotated[
    str, Meta(pattern=r"^[\x21-\x7e]+$", min_length=1, max_length=limits.session_key_chars_max)
]
Once: TypeAlias = Annotated[
    str, Meta(pattern=r"^[\x21-\x7e]+$", min_length=1, max_length=limits.idempotency_key_chars_max)
]
Etag: TypeAlias = Annotated[str, Meta(pattern='^"(0|[1-9][0-9]{0,17})"$')]
Calls: TypeAlias = Annotated[str, Meta(pattern="^(fc_[0-7][0-9a-hjkmnp-tv-z]{25}(, ?|$))*$")]


def _one_of(known: tuple[S, ...]) -> Callable[[str], S]:
    def parse(text: str) -> S:
        said = text.strip().lower()
        for each in known:
            if each == said:
                return each
        raise InvalidValue(f"{text[:100]!r} is not one of {', '.join(known)}")

    return parse


def _switch(on: str, off: str) -> Callable[[str], bool]:
    parse = _one_of((on, off))
    return lambda text: parse(text) == on


def _conversation(text: str) -> SessionKey | SessionId:
    if has_template(text):
        raise InvalidValue(
            f"{text[:100]!r} is a template that the client has not filled in: all of its chats would be one conversation"
        )
    return SessionId(text) if text.startswith("conv_") else SessionKey(text)


def _calls(text: str) -> tuple[CallId, ...]:
    return tuple(CallId(each) for each in map(str.strip, text.split(",")) if each)


def _count(text: str) -> int:
    """A counter that an SDK keeps. What is no number counts as none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _flag(name: str, request: str, absent: str) -> RequestHeader[bool]:
    return RequestHeader(
        name,
        request=request,
        absent=absent,
        kind=Flag,
        of_turn=True,
        shapes_answer=True,
        parse=_switch(*get_args(Flag)),
        default=False,
    )


_history = _one_of(get_args(History))


def _message_id(text: str) -> str:
    """An id that a client has given one of its messages. Empty means absent."""
    if len(text) > limits.client_message_id_chars_max:
        raise InvalidValue(f"an id has at most {limits.client_message_id_chars_max} characters")
    return filled(text)


def _client_id(name: str, request: str) -> RequestHeader[str]:
    return RequestHeader(
        name,
        request=request,
        absent="It is found by content.",
        of_turn=True,
        once=True,
        parse=_message_id,
        default="",
    )


def _decision(name: str, words: str) -> RequestHeader[tuple[CallId, ...]]:
    return RequestHeader(
        name,
        request=f"Ids of calls that wait for a decision, with commas: {words}.",
        absent="A message closes them as refused, or decides about them where a person may decide in the chat.",
        kind=Calls,
        of_turn=True,
        shapes_answer=True,
        once=True,
        parse=_calls,
        default=(),
    )


# ── the table ────────────────────────────────────────────────────────────────────────────────

AUTHORIZATION = Header(
    "authorization",
    request="The API key: `Bearer hf_…`.",
    absent="It is refused, unless keys are off.",
)
API_KEY = Header(
    "x-api-key",
    request="The API key, as Anthropic's clients send it: `hf_…`.",
    absent="The key in `Authorization` counts.",
)
CONVERSATION_ID = RequestHeader[SessionKey | SessionId | None](
    "x-conversation-id",
    aliases=("x-openclaw-session-key",),
    request="The conversation: a key of your own choosing (1–200 visible ASCII characters), or an id that begins with "
    "`conv_` and must exist.",
    absent="The name in the base URL (`/c/{name}/v1`), in a chat program's own header, or in the body as the API key "
    "says. Without any name chat stores nothing; a response begins a line of its own.",
    answer="What the request called the conversation.",
    kind=Key,
    example="trip-to-oslo",
    of_turn=True,
    parse=_conversation,
    default=None,
    code="invalid_conversation_key",
)
HISTORY = RequestHeader[History | None](
    "x-history",
    request="`follow`: the request has the client's whole history, and the conversation follows it, also where the client "
    "has edited or regenerated something. `append`: what is new is added to the end.",
    absent="`append`; `follow` if the base URL, a chat program's own header or the body names the conversation.",
    kind=History,
    of_turn=True,
    shapes_answer=True,
    parse=lambda text: _history(text) if text.strip() else None,
    default=None,
)
HISTORY_PARENT = _client_id(
    "x-history-parent", "With `follow`: the client's id of the answer that this request replies to."
)
HISTORY_ANSWER = _client_id(
    "x-history-answer", "With `follow`: the client's id for the answer to this request."
)
HISTORY_TASK = RequestHeader[str](
    "x-history-task",
    request="With `follow`: the request is a task beside the conversation, such as a title. Nothing is stored.",
    absent="It belongs to the conversation.",
    of_turn=True,
    shapes_answer=True,
    once=True,
    parse=filled,
    default="",
)
CONVERSATION_CREATE = RequestHeader(
    "x-conversation-create",
    request="`never`: an unknown key is a 404.",
    absent="It begins a conversation.",
    kind=Create,
    of_turn=True,
    parse=_switch(*get_args(Create)),
    default=True,
)
IDEMPOTENCY_KEY = RequestHeader[IdempotencyKey | None](
    "idempotency-key",
    request="This is one request, however often it arrives.",
    absent="A retry is a new request, unless an SDK's own counter shows that it is one.",
    kind=Once,
    example="4f9c0d1e",
    of_turn=True,
    once=True,
    parse=IdempotencyKey.from_header,
    default=None,
    code="invalid_idempotency_key",
)
IF_MATCH = RequestHeader[Version | None](
    "if-match",
    request='Only if the conversation is at this version, in quotes: `"7"`.',
    absent="At any version.",
    kind=Etag,
    of_turn=True,
    once=True,
    parse=Version.from_etag,
    default=None,
    code="invalid_version",
)
TURN_POLICY = RequestHeader(
    "x-turn-policy",
    request="What becomes of a turn that does not complete: `cancel=keep, disconnect=finish`.",
    absent="The agent's policy, then the server's.",
    of_turn=True,
    shapes_answer=True,
    parse=parse_policy,
    default=Policy(),
    code="invalid_turn_policy",
)
ON_BUSY = RequestHeader[OnBusy](
    "x-on-busy",
    request="What to do when another turn runs.",
    absent="`wait`, for 30 s.",
    kind=OnBusy,
    of_turn=True,
    parse=_one_of(get_args(OnBusy)),
    default="wait",
)
SHOW_TOOLS = _flag("x-show-tools", "Show the agent's own calls as well.", "They stay inside.")
READ_ONLY = _flag(
    "x-read-only",
    "Offer and run only those of the agents' own tools that change nothing.",
    "The agents have all of their tools.",
)
SHOW_REASONING = _flag(
    "x-show-reasoning",
    "On chat: show what the agent's model thinks, as `reasoning_content` of the message and of deltas.",
    "It stays inside.",
)
APPROVALS = RequestHeader(
    "x-approvals",
    request="`fields`: calls that wait for a decision are told in the field `holdfast` and in items, not in words; then "
    "no message decides about them, and any message refuses them.",
    absent="The answer ends with a question in words.",
    kind=AskedBy,
    of_turn=True,
    parse=_switch(*get_args(AskedBy)),
    default=True,
)
APPROVE = _decision("x-approve", "they may run")
DENY = _decision("x-deny", "they may not")
RETRY_COUNT = RequestHeader(
    "x-stainless-retry-count",
    request="How often an SDK has sent this request before; OpenAI's SDKs say it by themselves.",
    absent="It is the first attempt.",
    once=True,
    parse=_count,
    default=0,
)
MCP_PROTOCOL_VERSION = Header(
    "mcp-protocol-version",
    request="On `/mcp`, the revision of the protocol; since 2026-07-28 it repeats the body's.",
    absent="The client has begun with `initialize`.",
)
MCP_METHOD = Header(
    "mcp-method",
    request="On `/mcp`, the method of the body, for routers; since 2026-07-28.",
    absent="A request of 2026-07-28 is refused.",
)
MCP_NAME = Header(
    "mcp-name",
    request="On `/mcp`, the tool, resource or task that the body names, for routers; since 2026-07-28.",
    absent="A request of 2026-07-28 that names one is refused.",
)
MCP_SESSION_ID = Header(
    "mcp-session-id",
    request="On `/mcp`, what `initialize` has answered; before 2026-07-28.",
    absent="The server does not ask the client's user anything.",
    answer="What the client declared in `initialize`, to be sent with later requests; every replica understands it.",
)
ANTHROPIC_VERSION = Header(
    "anthropic-version",
    request="The version of Anthropic's API: on `/v1` the answer is then in its form, errors and lists of models too.",
    absent="The answer is in OpenAI's form, except under `/v1/messages`.",
)
ANTHROPIC_BETA = Header(
    "anthropic-beta",
    request="Betas of Anthropic's API, with commas. Those that change nothing here are named in `X-Ignored-Params`.",
    absent="It has none.",
)
TRACE = Header(
    TRACEPARENT,
    request="The trace that the request belongs to, as W3C Trace Context has it.",
    absent="It begins a trace.",
)
REQUEST_ID = Header("x-request-id", answer="What the server's log knows this request by.")
ANTHROPIC_REQUEST_ID = Header(
    "request-id", answer="The same, as Anthropic's clients look for it; in answers in its form."
)
TURN_ID = Header(
    "x-turn-id", answer="The turn; `resp_…` with the same letters is the response.", of_turn=True
)
TURN_CONTINUES = Header(
    "x-turn-continues", answer="The unfinished turn that this one goes on with.", of_turn=True
)
SESSION_ID = Header("x-session-id", answer="The conversation's id.", of_turn=True)
CONVERSATION_BASE = Header(
    "x-conversation-base", answer="The version that the turn began from.", of_turn=True
)
CONVERSATION_VERSION = Header(
    "x-conversation-version", answer="The version that the turn made; on JSON.", of_turn=True
)
CONVERSATION_CREATED = Header(
    "x-conversation-created", answer="`true`: the conversation is new with this turn.", of_turn=True
)
CONVERSATION_DIVERGED = Header(
    "x-conversation-diverged",
    answer="`true`: the request told a history that is not ours; only what came after its last answer was taken, "
    "or without any answer what the conversation has not begun with.",
    of_turn=True,
)
IGNORED_PARAMS = Header(
    "x-ignored-params",
    answer="Parameters that the agent's model does nothing about, and what only other servers know: fields, tools, "
    "items, parts, values of `include`.",
    of_turn=True,
)
A2A_VERSION = Header(
    "a2a-version",
    request="The version of the A2A protocol that the client speaks; on `/a2a`.",
    absent="the version whose method or path the request has",
    kind=Literal["1.0", "0.3"],
)
TOKEN_COUNT = Header(
    "x-token-count",
    answer="Who has counted the tokens: the model's `provider`, or this server as an `estimate`.",
)
SHOULD_RETRY = Header(
    "x-should-retry", answer="Whether sending the same request again makes sense."
)
RETRY_AFTER = Header("retry-after", answer="When it makes sense, in seconds.")
RETRY_AFTER_MS = Header("retry-after-ms", answer="The same, in milliseconds.")
RATE_LIMIT = Header(
    "x-ratelimit-limit-requests",
    answer="How many requests a minute the tenant or the key may make, where they are counted.",
)
RATE_REMAINING = Header("x-ratelimit-remaining-requests", answer="How many of them are left.")
RATE_RESET = Header(
    "x-ratelimit-reset-requests", answer="When all of them are there again: `12.500s`."
)
ETAG = Header("etag", answer="The conversation's version, in quotes.")
DISPOSITION = Header("content-disposition", answer="The name of the file that an export makes.")
OPENAI_VERSION = Header("openai-version", answer="The version of OpenAI's API; on `/v1`.")
OPENAI_PROCESSING_MS = Header(
    "openai-processing-ms", answer="How long the answer took to begin; on `/v1`."
)

HEADERS: tuple[Header, ...] = tuple(each for each in globals().values() if isinstance(each, Header))
"""The rows, in the order in which they stand above, which is that of every list and page."""

CLIENT_REQUEST_ID = "x-client-request-id"
SENT_BY_SDKS = (
    CLIENT_REQUEST_ID,
    *"""
    content-type openai-beta openai-organization openai-project x-stainless-timeout x-stainless-lang
    x-stainless-package-version x-stainless-os x-stainless-arch x-stainless-runtime x-stainless-runtime-version
    x-stainless-helper-method anthropic-dangerous-direct-browser-access
    """.split(),
)
"""Headers that OpenAI's and Anthropic's SDKs send by themselves, in pages too, and that say nothing about a turn."""

NAMES = (CONVERSATION_ID.name, *CONVERSATION_ID.aliases)
"""The headers that name a session, unless the operator has chosen others."""

ASKED = tuple(each.name for each in HEADERS if each.request and each.of_turn)
"""What a request for a turn can say."""

EXPOSED = ", ".join(each.name for each in HEADERS if each.answer)
"""What pages may see of an answer (CORS)."""


def allowed(names: Iterable[str]) -> str:
    """What pages may send (CORS): headers of ours, these that name a conversation, and what SDKs send."""
    ours = (each.name for each in HEADERS if each.request)
    return ", ".join(dict.fromkeys((*ours, *names, *CHAT_IDS, *SENT_BY_SDKS)))


# ── the headers of a request ─────────────────────────────────────────────────────────────────


class AnswerOptions(Value):
    """How a request wants its answer told."""

    show_tools: bool = False
    show_reasoning: bool = False
    asks_in_words: bool = True


class ConversationHeaders(Value):
    """How a request names its conversation, and how it wants to be treated."""

    name: SessionKey | SessionId | None
    create: bool = True
    if_match: Version | None = None
    on_busy: OnBusy = "wait"
    policy: Policy = Policy()
    idempotency_key: IdempotencyKey | None = None
    client_attempt: int = 0
    answer: AnswerOptions = AnswerOptions()
    reads_only: bool = False
    """The request narrows its agents' own tools to those that change nothing."""
    approvals: tuple[tuple[CallId, bool], ...] = ()
    """A person's answers to calls of the conversation that wait for one."""
    implied: bool = False
    """No header of ours names the conversation: what the body says about it counts for more."""
    history: History = "append"
    parent: str = ""
    """With `follow`: the client's id of the answer that the request replies to."""
    answer_id: str = ""
    """With `follow`: the client's id for the answer to come."""


def read_naming(
    headers: Mapping[str, str], *, names: tuple[str, ...] = NAMES, other_name: str | None = None
) -> ConversationHeaders:
    """Read the headers, given by lower-case name. Raises Refused.

    `other_name` is what names the conversation if none of `names` does; the conversation then follows the client's
    history.
    """
    _refuse_unknown(headers, names)
    approved = ((each, True) for each in APPROVE.read(headers))
    denied = ((each, False) for each in DENY.read(headers))
    name, history = _read_name(headers, names), HISTORY.read(headers)
    implied = name is None and other_name is not None
    if implied and other_name is not None:
        name, history = CONVERSATION_ID.value_of(other_name), history or "follow"
    on_busy, reads_only = ON_BUSY.read(headers), READ_ONLY.read(headers)
    if reads_only and on_busy == "steer":
        raise bad_request(
            READ_ONLY.code,
            f"{READ_ONLY.name}: a steered message joins a turn as that turn is; use another {ON_BUSY.name}",
            param=READ_ONLY.name,
        )
    follows = history == "follow"
    if follows and HISTORY_TASK.read(headers):
        name = None
    return ConversationHeaders(
        name=name,
        create=CONVERSATION_CREATE.read(headers),
        if_match=IF_MATCH.read(headers),
        on_busy=on_busy,
        policy=TURN_POLICY.read(headers),
        idempotency_key=IDEMPOTENCY_KEY.read(headers),
        client_attempt=RETRY_COUNT.read(headers),
        answer=AnswerOptions(
            show_tools=SHOW_TOOLS.read(headers),
            show_reasoning=SHOW_REASONING.read(headers),
            asks_in_words=APPROVALS.read(headers),
        ),
        reads_only=reads_only,
        approvals=(*approved, *denied),
        implied=implied,
        history="append" if name is None else history or "append",
        parent=HISTORY_PARENT.read(headers) if follows else "",
        answer_id=HISTORY_ANSWER.read(headers) if follows else "",
    )


def _read_name(headers: Mapping[str, str], names: tuple[str, ...]) -> SessionKey | SessionId | None:
    given = {name: headers[name] for name in names if name in headers}
    if len(set(given.values())) > 1:
        raise bad_request(
            CONVERSATION_ID.code,
            f"{' and '.join(given)} name different conversations; send one of these headers, "
            f"{names[0]} if you can choose",
            param=names[0],
        )
    return CONVERSATION_ID.value_of(next(iter(given.values()))) if given else None


# ── names that are misspelt ──────────────────────────────────────────────────────────────────

_PREFIXES = ("x-conversation-", "x-turn-", "x-history-")
_KNOWN = frozenset(each.name for each in HEADERS) | {"x-approved", "x-approver"}
"""Names that are no mistake: ours, also those of answers, and two a slip away that others may mean something by."""

_LONG = 64
"""Characters of a name that is not compared, and of which no more is remembered."""


def _refuse_unknown(headers: Mapping[str, str], names: tuple[str, ...]) -> None:
    """Refuse a header that begins like ours and is none, or is one but for a slip.

    It would go unnoticed otherwise: a conversation that is not named is not continued, with status 200.
    """
    # Where no conversation is named by a header, what names one elsewhere is sent all the same.
    mistake = _is_mistake if names else _is_unknown
    for name in headers:
        if mistake(name[:_LONG]) and name not in names:
            known = dict.fromkeys((*ASKED, *names))
            near = get_close_matches(name, known, n=1, cutoff=0.0)[0]
            raise bad_request(
                "unknown_header",
                f"there is no header {name[:100]}; did you mean {near}? There are: {', '.join(known)}",
                param=name[:100],
            )


@lru_cache(maxsize=1024)  # a client sends the same names with every request
def _is_mistake(name: str) -> bool:
    near = len(name) < _LONG and name not in _KNOWN and any(_is_slip(name, each) for each in ASKED)
    return near or _is_unknown(name)


def _is_unknown(name: str) -> bool:
    return name.startswith(_PREFIXES) and name not in _KNOWN


def _is_slip(name: str, ours: str) -> bool:
    """Whether a letter too many, too few or another, or two in the wrong order, is all that is between them.

    No more than that: gateways put their own name into such names, as in `x-ms-conversationid`.
    """
    unlike = (n for n, (a, b) in enumerate(zip(name, ours, strict=False)) if a != b)
    same = next(unlike, min(len(name), len(ours)))
    rest, our_rest = name[same:], ours[same:]
    swapped = rest[:2] == our_rest[:2][::-1] and rest[2:] == our_rest[2:]
    return swapped or rest[1:] == our_rest or rest == our_rest[1:] or rest[1:] == our_rest[1:]


# ── the headers of a refusal ─────────────────────────────────────────────────────────────────


def problem_headers(problem: Problem) -> dict[str, str]:
    """What tells a client whether, and when, to come back."""
    found = dict(problem.more_headers)
    if problem.retry_after_s is not None:
        found[RETRY_AFTER.name] = str(max(1, ceil(problem.retry_after_s)))
        found[RETRY_AFTER_MS.name] = str(round(problem.retry_after_s * 1000))
    if problem.should_retry is not None:
        found[SHOULD_RETRY.name] = "true" if problem.should_retry else "false"
    return found
