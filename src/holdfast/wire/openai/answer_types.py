"""The answers of `/v1` as types, for the document at `/openapi.json`.

Answers that grow token by token are written by templates, not from these types (`openai/chat/answer.py`,
`openai/responses/stream.py`). Tests check that both agree: they decode real answers with these types and OpenAI's.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, get_args

from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.core.codec import Value
from holdfast.wire.api.objects import AnswerBody
from holdfast.wire.openai.responses.answer import Status

Json: TypeAlias = dict[str, Raw]
"""A JSON object from a client or another server, repeated as it came."""

# ── models ───────────────────────────────────────────────────────────────────────────────────


class ModelObject(AnswerBody):
    """An agent, as OpenAI's clients list models."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(AnswerBody):
    object: Literal["list"]
    data: tuple[ModelObject, ...]


# ── beside every answer ──────────────────────────────────────────────────────────────────────


class CallShown(Value):
    """A call of the agent's own tools, or a call that waits for a person's approval."""

    id: str
    name: str
    arguments: str
    agent: str = ""
    outcome: str | UnsetType | None = UNSET


class AboutTurn(AnswerBody):
    """Our additions to an answer, beside OpenAI's fields."""

    turn_id: str | UnsetType = UNSET
    version: int | UnsetType = UNSET
    """The version of the conversation that the turn made."""
    approvals: tuple[CallShown, ...] | UnsetType = UNSET
    """Calls that wait for a person's approval."""
    tools: tuple[CallShown, ...] | UnsetType = UNSET
    """The calls of the agent's own tools, if the request asked for them."""
    estimated_tokens: int | UnsetType = UNSET
    """How many tokens of `usage` are an estimate, if a provider has not reported what it used."""
    tool_started: CallShown | UnsetType = UNSET
    tool_finished: CallShown | UnsetType = UNSET


# ── chat completions ─────────────────────────────────────────────────────────────────────────


class PromptTokens(AnswerBody):
    cached_tokens: int
    audio_tokens: int


class CompletionTokens(AnswerBody):
    reasoning_tokens: int
    audio_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class ChatUsage(AnswerBody):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokens
    completion_tokens_details: CompletionTokens


class CalledFunction(AnswerBody):
    name: str
    arguments: str


class AnswerCall(AnswerBody):
    """A call that the client has to answer."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class ImageAddress(AnswerBody):
    url: str
    """The picture itself, as a `data:` URL."""


class AnswerImage(AnswerBody):
    type: Literal["image_url"]
    index: int
    image_url: ImageAddress


class AnswerMessage(AnswerBody):
    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    tool_calls: tuple[AnswerCall, ...] | UnsetType = UNSET
    images: tuple[AnswerImage, ...] | UnsetType = UNSET
    """Pictures that the model has made."""


FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]


class ChatChoice(AnswerBody):
    index: int
    message: AnswerMessage
    logprobs: None
    finish_reason: FinishReason


class ChatCompletion(AnswerBody):
    """An answer as one object."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: tuple[ChatChoice, ...]
    usage: ChatUsage
    holdfast: AboutTurn


class FunctionDelta(AnswerBody):
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class CallDelta(AnswerBody):
    """A piece of a call: its id and name come once, its arguments in fragments."""

    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class Delta(AnswerBody):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    tool_calls: tuple[CallDelta, ...] | UnsetType = UNSET
    images: tuple[AnswerImage, ...] | UnsetType = UNSET


class ChunkChoice(AnswerBody):
    index: int
    delta: Delta
    logprobs: None
    finish_reason: FinishReason | None


class ChatChunk(AnswerBody):
    """One event of a streamed answer."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    system_fingerprint: UnsetType | None = UNSET
    usage: ChatUsage | UnsetType | None = UNSET
    holdfast: AboutTurn | UnsetType = UNSET


# ── items ────────────────────────────────────────────────────────────────────────────────────

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class OutputText(AnswerBody, tag="output_text"):
    text: str
    annotations: tuple[Json, ...]
    logprobs: tuple[Json, ...]


class OutputRefusal(AnswerBody, tag="refusal"):
    refusal: str


class InputText(AnswerBody, tag="input_text"):
    text: str


class InputImage(AnswerBody, tag="input_image"):
    image_url: str | None
    detail: Literal["auto", "low", "high", "original"]
    file_id: str | None


class InputFile(AnswerBody, tag="input_file"):
    filename: str | None
    file_data: str | UnsetType = UNSET
    file_url: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET


ContentPart: TypeAlias = OutputText | OutputRefusal | InputText | InputImage | InputFile


class MessageItem(AnswerBody, tag="message"):
    id: str
    status: ItemStatus
    role: Literal["user", "assistant", "system", "developer"]
    content: tuple[ContentPart, ...]


class FunctionCallItem(AnswerBody, tag="function_call"):
    """A call that the client has to answer, or has answered."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


class FunctionOutputItem(AnswerBody, tag="function_call_output"):
    id: str
    call_id: str
    output: str | tuple[ContentPart, ...]
    status: ItemStatus


class PictureItem(AnswerBody, tag="image_generation_call"):
    """A picture that the model has made."""

    id: str
    status: Literal["in_progress", "completed"]
    result: str | None
    """Its bytes, in base64."""


class ServedCallItem(AnswerBody, tag="mcp_call"):
    """A call of the agent's own tools; shown if the request asked for it."""

    id: str
    status: Literal["in_progress", "completed", "failed"]
    server_label: str
    name: str
    arguments: str
    output: str | None
    error: str | None
    approval_request_id: None


class ApprovalRequestItem(AnswerBody, tag="mcp_approval_request"):
    """A call of the agent's own tools that waits, or has waited, for an approval."""

    id: str
    server_label: str
    """The agent's name."""
    name: str
    arguments: str


class ApprovalResponseItem(AnswerBody, tag="mcp_approval_response"):
    """A decision about such a call."""

    id: str
    approval_request_id: str
    approve: bool
    reason: str | None


class SummaryText(AnswerBody, tag="summary_text"):
    text: str


class ReasoningItem(AnswerBody, tag="reasoning"):
    """A model's reasoning, as far as the request asked for it; encrypted content is to be sent back unchanged."""

    id: str
    status: ItemStatus
    summary: tuple[SummaryText, ...]
    encrypted_content: str | None


class CompactionItem(AnswerBody, tag="compaction"):
    """An encrypted summary: to be sent back unchanged."""

    id: str
    encrypted_content: str


OutputItem: TypeAlias = (
    MessageItem
    | FunctionCallItem
    | FunctionOutputItem
    | ServedCallItem
    | ApprovalRequestItem
    | ApprovalResponseItem
    | ReasoningItem
    | CompactionItem
    | PictureItem
)


ListedItem: TypeAlias = Annotated[
    Raw,
    Meta(
        extra_json_schema={
            "anyOf": [
                *(
                    {"$ref": f"#/components/schemas/{kind.__name__}"}
                    for kind in get_args(OutputItem)
                ),
                {
                    "type": "object",
                    "description": "An item of another type, or with other parts, as a client sent it.",
                    "required": ["id", "type"],
                    "properties": {"id": {"type": "string"}, "type": {"type": "string"}},
                },
            ]
        }
    ),
]


class ItemList(AnswerBody):
    object: Literal["list"]
    data: tuple[ListedItem, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool


# ── responses ────────────────────────────────────────────────────────────────────────────────


class InputTokens(AnswerBody):
    cached_tokens: int
    cache_write_tokens: int


class OutputTokens(AnswerBody):
    reasoning_tokens: int


class ResponseUsage(AnswerBody):
    input_tokens: int
    input_tokens_details: InputTokens
    output_tokens: int
    output_tokens_details: OutputTokens
    total_tokens: int


class ConversationId(AnswerBody):
    id: str


class ResponseError(AnswerBody):
    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str


class IncompleteDetails(AnswerBody):
    reason: Literal["max_output_tokens", "content_filter"]


class ReasoningShown(AnswerBody):
    effort: str | None
    summary: str | None


class TextShown(AnswerBody):
    format: Json
    verbosity: str | UnsetType = UNSET


class ResponseObject(AnswerBody):
    """A response, in any state of its turn."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Status
    background: bool
    conversation: ConversationId | None
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    model: str
    output: tuple[OutputItem, ...]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: ReasoningShown
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    text: TextShown
    tool_choice: str | Json
    tools: tuple[Json, ...]
    top_logprobs: int
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None
    user: str | None
    metadata: dict[str, str]
    holdfast: AboutTurn


class ResponseDeleted(AnswerBody):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class TokenCount(AnswerBody):
    object: Literal["response.input_tokens"]
    input_tokens: int


class Compaction(AnswerBody):
    """A summary of a context, to continue from."""

    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: tuple[OutputItem, ...]
    usage: ResponseUsage
    holdfast: AboutTurn


# ── the events of a streamed response ────────────────────────────────────────────────────────


class LifecycleEvent(AnswerBody):
    """The response itself, at its beginning and its end."""

    type: Literal[
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    sequence_number: int
    response: ResponseObject


class ItemEvent(AnswerBody):
    """An item begins, or is done."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    sequence_number: int
    output_index: int
    item: OutputItem


class PartEvent(AnswerBody):
    """A part of a message begins, or is done."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    part: OutputText | OutputRefusal


class SummaryPartEvent(AnswerBody):
    """A part of a reasoning summary begins, or is done."""

    type: Literal["response.reasoning_summary_part.added", "response.reasoning_summary_part.done"]
    sequence_number: int
    item_id: str
    output_index: int
    summary_index: int
    part: SummaryText


class DeltaEvent(AnswerBody):
    """A fragment of an item."""

    type: Literal[
        "response.output_text.delta",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
        "response.reasoning_summary_text.delta",
    ]
    sequence_number: int
    item_id: str
    output_index: int
    delta: str
    content_index: int | UnsetType = UNSET
    summary_index: int | UnsetType = UNSET
    logprobs: tuple[Json, ...] | UnsetType = UNSET


class DoneEvent(AnswerBody):
    """The whole text that was sent in fragments."""

    type: Literal[
        "response.output_text.done",
        "response.refusal.done",
        "response.function_call_arguments.done",
        "response.mcp_call_arguments.done",
        "response.reasoning_summary_text.done",
    ]
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int | UnsetType = UNSET
    summary_index: int | UnsetType = UNSET
    logprobs: tuple[Json, ...] | UnsetType = UNSET
    text: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class ServedCallEvent(AnswerBody):
    """The progress of a call of the agent's own tools."""

    type: Literal[
        "response.image_generation_call.completed",
        "response.mcp_call.in_progress",
        "response.mcp_call.completed",
        "response.mcp_call.failed",
    ]
    sequence_number: int
    item_id: str
    output_index: int


class StreamError(AnswerBody):
    """Why a stream cannot continue."""

    type: str
    code: str
    message: str
    param: str | None


class StreamFailedEvent(AnswerBody):
    """The last event of a stream that breaks off, though its response may still be completed."""

    type: Literal["error"]
    status: int
    code: str
    message: str
    param: str | None
    error: StreamError


RESPONSE_EVENTS: tuple[type[AnswerBody], ...] = (
    LifecycleEvent,
    ItemEvent,
    PartEvent,
    SummaryPartEvent,
    DeltaEvent,
    DoneEvent,
    ServedCallEvent,
    StreamFailedEvent,
)

# ── conversations ────────────────────────────────────────────────────────────────────────────


class Conversation(AnswerBody):
    """A session, as the Conversations API shows it."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class ConversationDeleted(AnswerBody):
    id: str
    object: Literal["conversation.deleted"]
    deleted: Literal[True]


# ── for operators ────────────────────────────────────────────────────────────────────────────


class Health(AnswerBody):
    status: str
    failing: list[str] | UnsetType = UNSET
    """Background tasks of the server whose last round failed."""
