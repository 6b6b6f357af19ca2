"""Items: the messages, calls, results and notes that a history is made of; and the settings of a session.

Items are facts: a turn's commit appends them, and they never change afterwards; flags, titles and summaries
that people add later are annotations beside them (`history/conversation.py`).

Text, images, audio and files are `Part`s. Large bytes are not in the item but in a blob that it names.
Data that only one provider understands (signatures, encrypted reasoning) is an `Opaque`: kept byte for byte,
bounded, never interpreted.

`path` says which agent an item belongs to. The turn's own agent has the empty path; a sub-agent's items carry the
ids of the calls that led to it, outermost first. So a sub-agent's work lies inside its parent's turn.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from holdfast import limits
from holdfast.core.codec import Decoder, Unreadable, Value
from holdfast.ids import CallId, ItemId, MessageId, Minter, NoteId, ReasoningId, ResultId

Path: TypeAlias = tuple[CallId, ...]

# ── opaque values ────────────────────────────────────────────────────────────────────────────


class Opaque(Value):
    """JSON that belongs to a provider or an evaluation: kept exactly as it came, never interpreted."""

    owner: Annotated[str, Meta(min_length=1, max_length=64)]
    """The name of the provider or evaluation that understands it."""
    json: Annotated[str, Meta(max_length=limits.opaque_bytes_max)]


Opaques: TypeAlias = Annotated[tuple[Opaque, ...], Meta(max_length=limits.opaques_max)]

# ── parts ────────────────────────────────────────────────────────────────────────────────────


class Inline(Value, tag="inline"):
    """Bytes small enough to lie inside the item."""

    media_type: str
    data: Annotated[bytes, Meta(max_length=limits.inline_bytes_max)]


class Blob(Value, tag="blob"):
    """Bytes that lie in the store under their digest, written before the item that names them."""

    media_type: str
    digest: Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]
    size_bytes: int


class Link(Value, tag="link"):
    """Bytes that lie elsewhere. We pass the address on and do not fetch it."""

    url: str


Source: TypeAlias = Inline | Blob | Link


class Text(Value, tag="text"):
    text: str


class Refusal(Value, tag="refusal"):
    """The text in which a model declines; clients show it apart from other text."""

    text: str


class Image(Value, tag="image"):
    source: Source
    detail: Literal["auto", "low", "high", "original"] = "auto"


class Audio(Value, tag="audio"):
    source: Source
    format: str = ""
    transcript: str = ""


class File(Value, tag="file"):
    source: Source
    name: str = ""


Part: TypeAlias = Text | Refusal | Image | Audio | File
Parts: TypeAlias = tuple[Part, ...]

# ── items ────────────────────────────────────────────────────────────────────────────────────


class CallDecision(Value):
    """A person's decision about a call that waited for an approval."""

    call: CallId
    approve: bool
    reason: str = ""


class UserMessage(Value, tag="user"):
    id: MessageId
    content: Parts
    name: str = ""
    path: Path = ()
    extras: Opaques = ()
    decisions: tuple[CallDecision, ...] = ()
    """The message decided about calls of the turn before. People see such a message; models see the calls' results."""


class SystemMessage(Value, tag="system"):
    """Instructions that belong to the history (Responses, Conversations); those of Chat Completions are per request."""

    id: MessageId
    content: Parts
    path: Path = ()
    extras: Opaques = ()


Completeness = Literal["complete", "interrupted", "set_aside"]
"""`interrupted`: the turn ended here; the model sees the text, and a note that it broke off.
`set_aside`: the step was tried again; people see the text, the model does not."""


class AssistantMessage(Value, tag="assistant"):
    id: MessageId
    content: Parts
    agent: str = ""
    state: Completeness = "complete"
    path: Path = ()
    extras: Opaques = ()


class Reasoning(Value, tag="reasoning"):
    """The model's reasoning, as far as its provider shows it; signatures are in `extras`."""

    id: ReasoningId
    text: str = ""
    summary: tuple[str, ...] = ()
    state: Completeness = "complete"
    path: Path = ()
    extras: Opaques = ()
    agent: str = ""
    """The agent whose model thought it; empty for reasoning that a request brought along."""


WaitsFor = Literal["client", "approval"]


class ToolCall(Value, tag="call"):
    """A call of a tool by the model. `id` is its stable key, `call_id` the provider's or client's name for it.

    `waits_for`: the turn commits with the call unanswered, and the next turn's input answers it.
    """

    id: CallId
    call_id: str
    name: str
    arguments: str
    agent: str = ""
    waits_for: WaitsFor | None = None
    state: Completeness = "complete"
    path: Path = ()
    extras: Opaques = ()
    fingerprint: str = ""
    """The fingerprint of its tool when a person was asked about the call."""
    chat_key: str | None = None
    """The id of the API key whose messages may decide about the call, empty on a server without keys; None: no message
    in the chat may."""


Outcome = Literal["ok", "error", "not_run", "unknown", "refused", "not_answered"]
"""`not_run`: the call never started. `unknown`: it started, and its result was not recorded.
`refused`: a rule or a person refused it. `not_answered`: the client sent a message instead of a result."""


class ToolResult(Value, tag="result"):
    """The result of a call. Every call in a committed turn has exactly one, unless it still waits."""

    id: ResultId
    call: CallId
    outcome: Outcome
    content: Parts = ()
    call_id: str = ""
    """The provider's or client's name for the call."""
    from_client: bool = False
    """The call waited for the client, so the client knows of it."""
    idempotent: bool = False
    """Of an `unknown` result: the tool is idempotent, so the call may be run again under the same key."""
    path: Path = ()
    extras: Opaques = ()


def result_for(
    call: ToolCall, outcome: Outcome, content: Parts, mint: Minter, *, from_client: bool = False
) -> ToolResult:
    """A result for this call, in the call's branch."""
    return ToolResult(
        id=mint(ResultId),
        call=call.id,
        outcome=outcome,
        content=content,
        call_id=call.call_id,
        from_client=from_client,
        path=call.path,
    )


EndedBy = Literal[
    "completed",
    "cancelled",
    "disconnected",
    "deadline",
    "model_error",
    "tool_error",
    "limit",
    "crash",
    "superseded",
    "shutdown",
    "deleted",
]


class Interruption(Value, tag="interruption"):
    """Where a kept turn broke off, and why. The model reads it in plain words."""

    id: NoteId
    ended_by: EndedBy
    detail: str = ""
    path: Path = ()


class HandOff(Value, tag="handoff"):
    """From here on another agent of the same source answers."""

    id: NoteId
    from_agent: str
    to_agent: str
    path: Path = ()


class Summary(Value, tag="summary"):
    """The model sees this in place of everything before `covers_to`; people still see everything.

    `covers_to` is a position in the session's history: the first that the model still sees in full.
    """

    id: NoteId
    text: str
    covers_to: Annotated[int, Meta(ge=0)]
    path: Path = ()


class ForeignContent(Value):
    """An item that only other servers act on, as a client sent it."""

    kind: str
    """Its type."""
    json: str
    """The item, exactly as it came."""
    given_id: str = ""
    """Its own id, if it has one."""
    text: str = ""
    """The text that a model reads in place of it; empty for an item that no model is shown."""


class ForeignItem(Value, tag="foreign"):
    """An item that only other servers act on: stored, listed and exported as it came."""

    id: NoteId
    original: ForeignContent
    path: Path = ()
    extras: Opaques = ()


Item: TypeAlias = (
    UserMessage
    | SystemMessage
    | AssistantMessage
    | Reasoning
    | ToolCall
    | ToolResult
    | Interruption
    | HandOff
    | Summary
    | ForeignItem
)
Items: TypeAlias = tuple[Item, ...]

StoredItem: TypeAlias = Item | Unreadable

item_decoder: Decoder[Item] = Decoder(Item)

# ── questions about items ────────────────────────────────────────────────────────────────────


_WORDS = (Text, Refusal)


def text_of(parts: Parts) -> str:
    """All the text in some parts, refusals included, without separators."""
    if len(parts) == 1 and isinstance(parts[0], _WORDS):  # nearly always
        return parts[0].text
    return "".join(part.text for part in parts if isinstance(part, _WORDS))


def end_of(parts: Parts, chars: int) -> Parts:
    """These parts with only the last `chars` characters of their text, without the white space at its end. Pictures and
    files stay; the text comes before them."""
    text = text_of(parts).rstrip()
    others = tuple(each for each in parts if not isinstance(each, _WORDS))
    return (Text(text=text[len(text) - chars :]), *others) if chars else others


def is_substantial(parts: Parts) -> bool:
    """Whether these parts have content: an image or file alone is content, white space is not."""
    return any(map(_says_something, parts))


def _says_something(part: Part) -> bool:
    return not isinstance(part, _WORDS) or bool(part.text.strip())


def path_text(path: Path) -> str:
    """A path as one string, for an index column: empty for the turn's own agent."""
    return "/".join(path)


def plain_text(text: str) -> Parts:
    return (Text(text=text),) if text else ()


def item_id(item: StoredItem) -> ItemId | None:
    """An item's id, or None for one that cannot be read."""
    return None if type(item) is Unreadable else item.id


# ── session settings ─────────────────────────────────────────────────────────────────────────

AttributeName: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=limits.attribute_name_chars_max)
]
AttributeValue: TypeAlias = Annotated[str, Meta(max_length=limits.attribute_value_chars_max)]


class Permissions(Value):
    """Name patterns of tools. `deny` wins over `ask`, `ask` over `allow`.

    An agent's are the operator's. Of a session's only `ask` and `deny` count; see `tools/permissions.py`.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    """Old records have this field; no code uses it. Grants are rows of their own (`core/grants.py`)."""


class TurnLimits(Value):
    """How far a turn may go before it ends as `limit`. None means the server's own bound."""

    steps_max: Annotated[int, Meta(ge=1)] | None = None
    calls_max: Annotated[int, Meta(ge=0)] | None = None
    output_chars_max: Annotated[int, Meta(ge=1)] | None = None
    cost_micros_max: Annotated[int, Meta(ge=0)] | None = None

    def within(self, others: TurnLimits) -> TurnLimits:
        """The tighter limit of the two, for each field."""
        if others == _UNBOUNDED:  # nearly always, and this runs for every turn
            return self
        return TurnLimits(
            **{
                name: min(bounds)
                for name in self.__struct_fields__
                if (
                    bounds := [
                        b for b in (getattr(self, name), getattr(others, name)) if b is not None
                    ]
                )
            }
        )


_UNBOUNDED = TurnLimits()


class SessionSettings(Value):
    """The settings of a session as a whole."""

    attributes: Annotated[
        tuple[tuple[AttributeName, AttributeValue], ...],
        Meta(max_length=limits.attributes_max),
    ] = ()
    """Sorted by name, each name once: see `with_attributes`."""
    permissions: Permissions = Permissions()
    models: tuple[tuple[str, str], ...] = ()
    """Agent name → a model. Old records have this field; no code sets or uses it."""
    limits: TurnLimits = TurnLimits()
    """For every turn of the session, besides the limits of its agent and of the request."""
    working_directory: str = ""
    evaluations: Opaques = ()
    """Evaluation fields and results: kept, never interpreted."""

    def with_attributes(self, /, **changes: str | None) -> SessionSettings:
        """The same settings with some attributes set; None removes one."""
        merged = {**dict(self.attributes), **changes}
        kept = tuple(sorted((name, value) for name, value in merged.items() if value is not None))
        return msgspec.structs.replace(self, attributes=kept)

    def granting(self, *tools: str) -> SessionSettings:
        """The same settings with more tools in `permissions.granted`: for old records."""
        granted = tuple(sorted({*self.permissions.granted, *tools}))
        permissions = msgspec.structs.replace(self.permissions, granted=granted)
        return msgspec.structs.replace(self, permissions=permissions)
