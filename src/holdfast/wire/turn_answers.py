"""What an answer is made of, on every API that answers a request with a turn: its head, its end, and what is shown.

A client sees the text of the turn's own agent and the calls that the client has to answer. The agent's own tools and
its sub-agents are hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeGuard

from holdfast.core.approval_questions import question_in
from holdfast.core.codec import Value
from holdfast.core.items import (
    AssistantMessage,
    Item,
    Items,
    Reasoning,
    ToolCall,
    ToolResult,
    WaitsFor,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.core.turns.unfinished_turns import is_cut
from holdfast.ids import ItemId, TurnId, Version
from holdfast.wire.headers import AnswerOptions

STEP_BREAK = "\n\n"
"""Between an agent's text before a tool call and its text after it."""


class AnswerHead(Value):
    """The fields that all chunks of an answer share."""

    turn_id: TurnId
    created_s: int
    model: str
    client_tools: frozenset[str] = frozenset()
    include_usage: bool = False
    options: AnswerOptions = AnswerOptions()
    """A question about calls that wait for an approval is part of the text."""


class AskedAgain(Value):
    """The question of an earlier turn, asked again after a message that did not decide."""

    turn_id: TurnId
    text: str


class AnswerEnd(Value):
    """The end of an answer: the facts that are known once the turn is committed."""

    items: tuple[Item, ...]
    usage: ev.Usage
    version: Version | None
    """The version that the turn made; None if nothing is stored."""
    limited: bool
    """The turn reached a limit, so the answer is cut short."""
    filtered: bool = False
    again: AskedAgain | None = None
    """The answer is only a question that is asked again; the items are the calls that it is about."""


class FrameWriter(Protocol):
    """Turns the events of a turn into frames of a stream. It is given every event once, in order."""

    def first(self) -> bytes:
        """The frames that begin every stream."""
        ...

    def frames(self, record: Record) -> bytes:
        """The frames that show this event to a client; empty if none do."""
        ...


class AnswerFrames(FrameWriter, Protocol):
    """The frames of an answer, up to its end."""

    @property
    def took_back(self) -> bool:
        """Whether text was shown that is not part of the answer: then the stream must end with an error."""
        ...

    def end(self, end: AnswerEnd) -> bytes:
        """The frames that end a successful stream."""
        ...


class AnswerForm(Protocol):
    """How an API shows the answer to one request."""

    @property
    def heartbeat(self) -> bytes:
        """Written to a stream in quiet times."""
        ...

    def whole(self, end: AnswerEnd) -> bytes:
        """The answer as one JSON object."""
        ...

    def stream(
        self, *, set_aside: frozenset[ItemId] = frozenset(), before: Items = ()
    ) -> AnswerFrames:
        """The answer as a stream. `set_aside` are items that do not count: nothing of them is shown. `before` are items
        of earlier turns that this turn continues: the answer begins with them."""
        ...


# ── what of a turn is shown ──────────────────────────────────────────────────────────────────


def waiting_for_client(items: Iterable[Item]) -> list[ToolCall]:
    """The calls that the client has to answer next."""
    return unanswered(tuple(items), "client")


def unanswered(items: tuple[Item, ...], by: WaitsFor) -> list[ToolCall]:
    # `isinstance` takes four times as long to find that something is no call.
    calls = [each for each in items if type(each) is ToolCall and each.waits_for == by]
    if not calls:  # nearly always
        return []
    answered = {each.call for each in items if isinstance(each, ToolResult)}
    return [each for each in calls if each.id not in answered]


def finish_of(end: AnswerEnd) -> ev.Finish:
    if end.limited:
        return "length"
    if waiting_for_client(end.items):
        return "tool_calls"
    return "content_filter" if end.filtered else "stop"


def question_for(head: AnswerHead, end: AnswerEnd) -> str:
    """The question that ends the text; empty if nothing is asked."""
    if not head.options.asks_in_words:
        return ""
    if end.again is not None:
        return end.again.text
    found = question_in(end.items, head.turn_id, is_kept=end.version is not None)
    return found.text if found else ""


def about_answer(head: AnswerHead, end: AnswerEnd) -> dict[str, object]:
    asking = end.again.turn_id if end.again else head.turn_id
    return about_turn(asking, end.version, end.items, end.usage)


def about_turn(
    turn_id: TurnId,
    version: Version | None = None,
    items: tuple[Item, ...] = (),
    usage: ev.Usage = ev.Usage(),  # noqa: B008
) -> dict[str, object]:
    """Our additions to an answer, in the field `holdfast`, which every client ignores."""
    about: dict[str, object] = {"turn_id": str(turn_id)}
    if version is not None:
        about["version"] = int(version)
    asked = unanswered(items, "approval")
    if asked:
        about["approvals"] = [call_shown(each) for each in asked]
    return about | estimate_shown(usage)


def estimate_shown(usage: ev.Usage) -> dict[str, object]:
    """The mark on usage that is an estimate, for the field `holdfast`; nothing if providers have reported all of it."""
    return {"estimated_tokens": usage.estimated_tokens} if usage.estimated_tokens else {}


def is_thought(item: Item) -> TypeGuard[Reasoning]:
    """Whether this is reasoning of the turn's own agent, in a step that counts."""
    return type(item) is Reasoning and not item.path and item.state != "set_aside"


def is_said(item: Item) -> TypeGuard[AssistantMessage]:
    """Whether an agent of this turn said this. A message that the request brought along has no agent."""
    return (
        type(item) is AssistantMessage
        and bool(item.agent)
        and not item.path
        and item.state != "set_aside"
    )


def trail_of(items: tuple[Item, ...]) -> list[dict[str, object]]:
    """The calls of the agent's own tools, in order, with their outcomes."""
    outcomes = {each.call: each.outcome for each in items if isinstance(each, ToolResult)}
    return [
        {**call_shown(each), "outcome": outcomes.get(each.id)}
        for each in items
        if isinstance(each, ToolCall) and each.agent and each.waits_for != "client"
    ]


def call_shown(call: ToolCall) -> dict[str, object]:
    """A call in the form for people and for the trail of the agent's own tools."""
    return {"id": str(call.id), "name": call.name, "arguments": call.arguments, "agent": call.agent}


def goes_on(item: Item, before: bool) -> bool:
    """Whether the next text continues the message before this item; `before` is the answer for the item before."""
    if type(item) is ToolCall and item.state == "complete" and not item.path:
        return False
    return before or is_cut(item)


def tool_progress(
    event: ev.ToolStarted | ev.ToolFinished, trail: Mapping[ItemId, ToolCall]
) -> dict[str, object] | None:
    """The progress of one of the agent's own tools; None for a call of the client's. `trail` has the calls so far."""
    started = isinstance(event, ev.ToolStarted)
    call = trail.get(event.call if isinstance(event, ev.ToolStarted) else event.result.call)
    if call is None or call.waits_for == "client":
        return None
    shown = call_shown(call)
    if isinstance(event, ev.ToolFinished):
        shown["outcome"] = event.result.outcome
    return {"tool_started" if started else "tool_finished": shown}
