"""What can happen during a turn. Events are facts, named in the past tense; they are never taken back.

`Began` is record 0 of every journal: the request as it was decided. With it, and the events after it,
any node can tell how far a turn has come, and go on.

Most events are *semantic*: a step answered, a call started, a result. Two are *fine*: `ItemOpened` and
`Grew` let a watcher see an answer grow. Everything that they say is said again, whole, by the `Answered`
or `StepBroken` that closes their step. So a journal may leave the fine ones out and still hold the turn.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from holdfast.core.codec import Value
from holdfast.core.items import (
    AssistantMessage,
    EndedBy,
    HandOff,
    Interruption,
    Items,
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
    """How the client wants the model to speak. None leaves it to the agent."""

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


class TurnRequest(Value):
    """Everything that was decided before the turn began. Nothing else may influence how it is played."""

    turn_id: TurnId
    base: Version = Version(0)
    """The version that the turn began from, and commits on top of."""
    base_rev: int = 0
    """The annotation revision that the model's view was taken at."""
    base_length: int = 0
    """How many items the history holds at `base`."""
    source_key: str = ""
    source_digest: str = ""
    agent: str = ""
    input: Items = ()
    """What is new, as it will be stored: results for waiting calls first, then messages."""
    carried: tuple[ToolCall, ...] = ()
    """Calls of earlier turns that were waiting when this turn began."""
    approved: tuple[CallId, ...] = ()
    """Those of them that a person has allowed to run now."""
    instructions: tuple[str, ...] = ()
    parameters: Parameters = Parameters()
    client_tools: tuple[ToolDefinition, ...] = ()
    limits: TurnLimits = TurnLimits()
    policy: Policy = Policy()
    deadline_at_ms: int = 0
    """Absolute, by the store's clock. 0 means none."""
    replayable: bool = False
    """The client has said how it will come back, or the turn is to be resumed after a crash: every event is durable
    before it is shown."""
    hears: bool = True
    """Whether its player listens between two steps. If not, what is said to the turn begins the next one."""
    continues: TurnId | None = None
    """The unfinished turn at `base` that this one goes on with. Then it brings nothing of its own."""
    links: int = 0
    """How many continuations in a row, up to this one, were begun by retries."""
    spent: Spent = Spent()
    """What those before it have used of its limits."""
    came_ms: int = 0
    """When the request came, by the store's clock, if it waits in the store for its session; 0 if nothing rests on it."""


# ── small values ─────────────────────────────────────────────────────────────────────────────


class Usage(Value):
    """What a step, or a whole turn, consumed. Adds up over steps and branches."""

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_micros: int = 0
    """Millionths of the currency that the price list is in."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_micros=self.cost_micros + other.cost_micros,
        )


class StateSet(Value, tag="state_set"):
    """A tool remembers something in the session (a to-do list). JSON; empty forgets it."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    value: str


class MemoryAdded(Value, tag="memory_added"):
    """A tool remembers something for its agent, across sessions."""

    memory_id: str
    agent: str
    text: str


class MemoryDeleted(Value, tag="memory_deleted"):
    memory_id: str
    agent: str


Change: TypeAlias = StateSet | MemoryAdded | MemoryDeleted
"""Staged by a tool's result, applied by the turn's commit: a discarded turn remembers nothing."""

Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]
Answer: TypeAlias = AssistantMessage | Reasoning | ToolCall
DraftKind: TypeAlias = Literal["message", "reasoning", "call"]

# ── events ───────────────────────────────────────────────────────────────────────────────────


class Began(Value, tag="began"):
    request: TurnRequest


class StepStarted(Value, tag="step_started"):
    """A model is being asked to speak next in this branch."""

    path: Path = ()
    model: str = ""


class ItemOpened(Value, tag="item_opened"):
    """Fine. The model has begun an item; `Grew` fills it."""

    item: ItemId
    kind: DraftKind
    path: Path = ()
    call_id: str = ""
    name: str = ""


class Grew(Value, tag="grew"):
    """Fine. An open item has more text: a message's, a reasoning's, or a call's arguments."""

    item: ItemId
    text: str
    path: Path = ()
    refusal: bool = False


class Answered(Value, tag="answered"):
    """A model has spoken: its whole answer for this step, under the ids that were opened."""

    items: tuple[Answer, ...]
    path: Path = ()
    finish: Finish = "stop"
    usage: Usage = Usage()
    model: str = ""


class StepBroken(Value, tag="step_broken"):
    """A step ended without an answer. What it had said so far is kept for people to see.

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
    """A call has its result; what the tool wants remembered comes with it, or not at all."""

    result: ToolResult
    changes: tuple[Change, ...] = ()


class BranchOpened(Value, tag="branch_opened"):
    """A sub-agent takes on a call. Its items carry the call's path extended by the call."""

    call: CallId
    agent: str
    task: UserMessage


class HandedOff(Value, tag="handed_off"):
    """Another agent speaks from the next step on."""

    item: HandOff


class Steered(Value, tag="steered"):
    """A person's words reached the turn between two steps. `signals` are the numbers they came under."""

    items: tuple[UserMessage, ...]
    signals: tuple[int, ...] = ()


class Compacted(Value, tag="compacted"):
    """From here on the model sees a summary in place of older history. `usage` is what writing it took."""

    summary: Summary
    usage: Usage = Usage()


class Interrupted(Value, tag="interrupted"):
    """The turn will not complete. No model or tool is started after this; the first one decides."""

    by: EndedBy
    detail: str = ""
    code: str = ""
    """A stable error code for clients, where there is one."""

    @property
    def told(self) -> str:
        """Why, as a turn's row tells it: with the code in front, where there is one."""
        return f"{self.code}: {self.detail}" if self.code else self.detail


class Resumed(Value, tag="resumed"):
    """A node goes on with the turn from its journal. `attempt` counts from 2."""

    attempt: int
    after: EndedBy = "crash"


class Closed(Value, tag="closed"):
    """The turn is well formed again after an interruption, and says where it broke off."""

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
