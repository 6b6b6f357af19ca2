"""The events of a turn. Events are facts, named in the past tense; they are never taken back.

`Began` is record 0 of every journal: the request as it was decided. From it and the events after it,
any node can tell how far a turn has come, and go on.

Most events are *semantic*: a step answered, a call started, a result. Two are *fine*: `ItemOpened` and
`Grew` let a watcher see an answer grow. The `Answered` or `StepBroken` that closes their step holds the same
text, whole. So a journal may leave the fine events out and still hold the turn.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from holdfast.core.codec import Value
from holdfast.core.exchanges import Followed
from holdfast.core.items import (
    AssistantMessage,
    EndedBy,
    HandOff,
    Interruption,
    Items,
    Opaques,
    Path,
    Reasoning,
    Summary,
    ToolCall,
    ToolResult,
    TurnLimits,
    UserMessage,
)
from holdfast.core.policy import Policy
from holdfast.core.turns.unfinished_turns import Spent
from holdfast.ids import CallId, ItemId, TurnId, Version

# ── the request, as decided ──────────────────────────────────────────────────────────────────


class ToolDefinition(Value):
    """A tool that the client runs. `parameters` is its JSON Schema, as the client wrote it."""

    name: str
    description: str = ""
    parameters: str = "{}"
    strict: bool | None = None


class Parameters(Value):
    """The model parameters that a client asks for. None: the agent's own."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    reasoning_effort: str | None = None
    parallel_tool_calls: bool | None = None
    tool_choice: str | None = None
    """`none`, `auto`, `required`, or the JSON of a choice that names tools."""
    output_schema: str | None = None
    """The JSON of a `response_format` or `text.format` that asks for more than plain text."""
    others: tuple[tuple[str, str], ...] = ()
    """Parameter name → JSON, passed on to models that know it."""


class GivenParameter(Value):
    """A parameter that the client sent, by its own name and by ours."""

    name: str
    ours: str


FORCED_TOOL_CHOICE = "forced_tool_choice"
"""Our name for a `tool_choice` that demands a call: some models obey other choices, and not this one."""


class TurnRequest(Value):
    """Everything that was decided before the turn began. The player uses nothing else of the request."""

    turn_id: TurnId
    base: Version = Version(0)
    """The version that the turn began from, and commits on top of."""
    base_rev: int = 0
    """The annotation revision that the model's view was taken at."""
    base_length: int = 0
    """How many items the history holds at `base`."""
    source_key: str = ""
    source_name: str = ""
    """The name that the operator gave the source, if it has one."""
    source_digest: str = ""
    agent: str = ""
    input: Items = ()
    """The new items as they will be stored: results for waiting calls first, then messages."""
    carried: tuple[ToolCall, ...] = ()
    """Calls of earlier turns that were waiting when this turn began."""
    approved: tuple[CallId, ...] = ()
    """The carried calls that a person has approved: they run now."""
    instructions: tuple[str, ...] = ()
    parameters: Parameters = Parameters()
    client_tools: tuple[ToolDefinition, ...] = ()
    reads_only: bool = False
    """Of the agents' own tools, only those that change nothing are offered, and run."""
    limits: TurnLimits = TurnLimits()
    policy: Policy = Policy()
    deadline_at_ms: int = 0
    """Absolute, by the store's clock. 0 means none."""
    replayable: bool = False
    """The client can come back for the answer (idempotency key, background), or the turn resumes after a crash: every
    event is durable before a watcher sees it."""
    hears: bool = True
    """Whether the player takes steered messages between steps. If not, a steered message begins the next turn."""
    continues: TurnId | None = None
    """The unfinished turn at `base` that this turn continues. A continuation has no input of its own."""
    links: int = 0
    """How many continuations in a row, up to this one, were begun by retries."""
    spent: Spent = Spent()
    """How much of its limits the turns before this continuation have used."""
    came_ms: int = 0
    """When the request arrived, by the store's clock, if it is queued in the store; 0 where that does not matter."""
    chat_key: str | None = None
    """The key whose messages may decide about calls that this turn leaves waiting: see `ToolCall.chat_key`."""
    followed: Followed | None = None
    """For a client that owns its history: how the turn is found later, and from where on the model sees the history."""


# ── small values ─────────────────────────────────────────────────────────────────────────────


class Usage(Value):
    """The tokens and money that a step, or a whole turn, used. Adds up over steps and branches."""

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_micros: int = 0
    """Millionths of the currency that the price list is in."""
    estimated_tokens: int = 0
    """How many of the input and output tokens are an estimate, because a provider has reported none."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_micros=self.cost_micros + other.cost_micros,
            estimated_tokens=self.estimated_tokens + other.estimated_tokens,
        )


NO_USAGE = Usage()


class StepEstimate(Value):
    """How a step is counted as far as its provider does not report it. Prices are per million tokens, in millionths of
    their currency."""

    prompt_tokens: int = 0
    input_price: int = 0
    output_price: int = 0


class StateSet(Value, tag="state_set"):
    """A tool stores a value in the session (a to-do list). JSON; an empty value removes the name."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    value: str


class MemoryAdded(Value, tag="memory_added"):
    """A tool stores a memory for its agent, across sessions."""

    memory_id: str
    agent: str
    text: str


class MemoryDeleted(Value, tag="memory_deleted"):
    memory_id: str
    agent: str


Change: TypeAlias = StateSet | MemoryAdded | MemoryDeleted
"""Staged by a tool's result, applied by the turn's commit: a discarded turn changes nothing."""

Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]
Answer: TypeAlias = AssistantMessage | Reasoning | ToolCall
DraftKind: TypeAlias = Literal["message", "reasoning", "call"]

# ── events ───────────────────────────────────────────────────────────────────────────────────


class Began(Value, tag="began"):
    request: TurnRequest


class StepStarted(Value, tag="step_started"):
    """A model is about to be asked for the next step of this branch."""

    path: Path = ()
    model: str = ""
    estimate: StepEstimate | None = None
    """None: an answer that breaks off is counted as far as its provider has reported its usage."""


class ItemOpened(Value, tag="item_opened"):
    """Fine. The model has begun an item; `Grew` fills it."""

    item: ItemId
    kind: DraftKind
    path: Path = ()
    call_id: str = ""
    name: str = ""
    ended: ItemId | None = None
    """The item before this one, if it is whole now: its text grows no more. Old records do not say so."""
    ended_extras: Opaques = ()
    """The extras of the item that has ended."""
    usage: Usage = Usage()
    """The usage of the step as far as the provider has reported it by now."""


class Grew(Value, tag="grew"):
    """Fine. An open item has more text: a message's, a reasoning's, or a call's arguments."""

    item: ItemId
    text: str
    path: Path = ()
    refusal: bool = False


class Answered(Value, tag="answered"):
    """The model's whole answer for this step, under the ids that were opened."""

    items: tuple[Answer, ...]
    path: Path = ()
    finish: Finish = "stop"
    usage: Usage = Usage()
    model: str = ""
    changes: tuple[Change, ...] = ()
    """What the step has used of its agent's budgets."""


class StepBroken(Value, tag="step_broken"):
    """A step ended without an answer. The text so far is kept for people to see.

    The items are `set_aside` if the step will be tried again, `interrupted` if the turn ends here.
    """

    items: tuple[Answer, ...] = ()
    path: Path = ()
    why: str = ""
    usage: Usage = Usage()


class ToolStarted(Value, tag="tool_started"):
    """The intent. Durable before the tool runs, so that a crash can tell `may have acted` from `did not`."""

    call: CallId
    read_only: bool = False
    idempotent: bool = False


class ToolFinished(Value, tag="tool_finished"):
    """A call has its result. The changes that the tool made come with it, or not at all."""

    result: ToolResult
    changes: tuple[Change, ...] = ()


class BranchOpened(Value, tag="branch_opened"):
    """A sub-agent works on a call from here on. The path of its items is the call's path and the call's id."""

    call: CallId
    agent: str
    task: UserMessage


class HandedOff(Value, tag="handed_off"):
    """Another agent speaks from the next step on."""

    item: HandOff


class Steered(Value, tag="steered"):
    """Steered messages reached the turn between two steps. `signals` are the numbers of their signals."""

    items: tuple[UserMessage, ...]
    signals: tuple[int, ...] = ()


class Compacted(Value, tag="compacted"):
    """From here on the model sees a summary in place of older history. `usage` is the cost of writing it."""

    summary: Summary
    usage: Usage = Usage()


class Interrupted(Value, tag="interrupted"):
    """The turn will not complete. No model or tool is started after this; a turn has at most one interruption."""

    by: EndedBy
    detail: str = ""
    code: str = ""
    """A stable error code for clients, where there is one."""

    @property
    def told(self) -> str:
        """The `detail` of the turn's row: the code, if there is one, and the reason."""
        return f"{self.code}: {self.detail}" if self.code else self.detail


class Resumed(Value, tag="resumed"):
    """A node goes on with the turn from its journal. `attempt` counts from 2."""

    attempt: int
    after: EndedBy = "crash"


class Closed(Value, tag="closed"):
    """The turn is well formed again after an interruption; the note says where it broke off."""

    note: Interruption


class Ended(Value, tag="ended"):
    """The last record. A settled turn accepts nothing more."""

    by: EndedBy
    kept: bool


Event: TypeAlias = (
    Grew
    | ItemOpened
    | Began
    | StepStarted
    | Answered
    | StepBroken
    | ToolStarted
    | ToolFinished
    | BranchOpened
    | HandedOff
    | Steered
    | Compacted
    | Interrupted
    | Resumed
    | Closed
    | Ended
)


def is_fine(event: Event) -> bool:
    """Whether a journal of semantic records may leave this event out."""
    return isinstance(event, Grew | ItemOpened)
