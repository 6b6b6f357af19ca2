"""Where the time and the tokens of a turn went: its steps and calls, as `GET /api/turns/{id}/trace` shows them.

A journal has the time of every event. A plain turn's journal goes with its commit, and nothing is stored for a trace:
the ids of its items say when each was minted. A model's item is minted with its first piece, a result when its tool is
done. So of such a turn every begin is known, and the end of a step that asked for calls only from below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import structs

from holdfast.core.codec import Unreadable, Value
from holdfast.core.items import (
    AssistantMessage,
    Item,
    Path,
    Reasoning,
    StoredItem,
    Summary,
    ToolCall,
    ToolResult,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.wire.api.objects import AnswerBody, TurnObject, UnreadableItem, UsageObject

BROKEN = "broken_off"

# ── answers ──────────────────────────────────────────────────────────────────────────────────


class TraceSpan(AnswerBody):
    """A step, in which a model was asked, or the run of a tool. Times are seconds since 1970."""

    kind: Literal["step", "call", "summary"]
    name: str
    """The model of a step, empty if that is not known any more; the tool of a call."""
    agent: str
    path: Path
    """The calls that led to the sub-agent in which it happened; empty for the turn's own agent."""
    began_at: float
    first_at: float | None
    """When the first words of a step came."""
    ended_at: float | None
    """Null while it goes on."""
    outcome: str
    """`done`, `running` or `broken_off`; the outcome of a call."""
    step: int | None = None
    """The number of a step, from 1 on; for its prompt."""
    call: str | None = None
    usage: UsageObject | None = None
    """The tokens and the cost of a step; null if only those of the whole turn are known."""


class TurnTrace(AnswerBody):
    """A turn and everything in it that took time, in order of begin."""

    turn: TurnObject
    timed_by: Literal["journal", "ids"]
    """`ids`: the journal is gone with the commit; times are those at which items were minted."""
    currency: str
    """The unit of costs; empty if the server was not told."""
    spans: tuple[TraceSpan, ...]


class StepPrompt(AnswerBody):
    """What the model was told in one step, rebuilt from what is stored and from the agent as it is served now."""

    turn_id: str
    step: int
    agent: str
    instructions: str | None
    """Null if the agent is not served any more."""
    agent_changed: bool
    """The agent's source has changed since, so the instructions may have been others."""
    items: tuple[Item | UnreadableItem, ...]


# ── the fold ─────────────────────────────────────────────────────────────────────────────────


class TracedTurn(Value):
    """The spans of a turn, its items, and how many items there were before each step."""

    spans: tuple[TraceSpan, ...] = ()
    items: tuple[StoredItem, ...] = ()
    before: tuple[int, ...] = ()

    def step(self, number: int) -> TraceSpan | None:
        return next((each for each in self.spans if each.step == number), None)


class _Spans:
    """Spans as they begin and end."""

    def __init__(self) -> None:
        self.made: list[TraceSpan] = []
        self.items: list[StoredItem] = []
        self.before: list[int] = []
        self._open: dict[object, int] = {}

    def begin_step(self, path: Path, at_s: float, *, model: str = "", agent: str = "") -> None:
        self.before.append(len(self.items))
        self._begin(("step", path), "step", model, agent, path, at_s, step=len(self.before))

    def begin_call(self, call: ToolCall | None, call_id: str, at_s: float) -> None:
        name, agent, path = (call.name, call.agent, call.path) if call else ("tool", "", ())
        self._begin(call_id, "call", name, agent, path, at_s, call=call_id)

    def _begin(
        self,
        key: object,
        kind: Literal["step", "call"],
        name: str,
        agent: str,
        path: Path,
        at_s: float,
        *,
        step: int | None = None,
        call: str | None = None,
    ) -> None:
        self._open[key] = len(self.made)
        span = TraceSpan(
            kind=kind,
            name=name,
            agent=agent,
            path=path,
            began_at=at_s,
            first_at=None,
            ended_at=None,
            outcome="running",
            step=step,
            call=call,
        )
        self.made.append(span)

    def is_open(self, key: object) -> bool:
        return key in self._open

    def change(self, key: object, **changes: object) -> None:
        if (at := self._open.get(key)) is not None:
            self.made[at] = structs.replace(self.made[at], **changes)

    def end(self, key: object, at_s: float, outcome: str, **changes: object) -> None:
        if (at := self._open.pop(key, None)) is not None:
            span = self.made[at]
            end_s = max(at_s, span.began_at)
            self.made[at] = structs.replace(span, ended_at=end_s, outcome=outcome, **changes)

    def settle(self, key: object) -> None:
        """End a span at the last time that is known of it."""
        if (at := self._open.get(key)) is not None:
            self.end(key, self.made[at].ended_at or self.made[at].began_at, "done")

    def end_all(self, at_s: float, outcome: str) -> None:
        for key in tuple(self._open):
            self.end(key, at_s, outcome)

    def done(self) -> TracedTurn:
        return TracedTurn(
            spans=tuple(self.made), items=tuple(self.items), before=tuple(self.before)
        )


def traced_records(records: Iterable[Record], turn: TurnObject) -> TracedTurn:
    """The trace of a turn by its journal."""
    spans = _Spans()
    calls: dict[str, ToolCall] = {}
    for record in records:
        at_s = _within(record.at_ms / 1000, turn)
        match record.event:
            case ev.Began(request=request):
                spans.items += request.input
                calls.update((each.id, each) for each in request.carried)
            case ev.StepStarted(path=path, model=model):
                spans.begin_step(path, at_s, model=model)
            case ev.Answered(items=items, path=path, usage=usage):
                calls.update((each.id, each) for each in items if isinstance(each, ToolCall))
                spans.items += items
                spans.end(("step", path), at_s, "done", **_said(items, usage, turn))
            case ev.StepBroken(items=items, path=path, usage=usage):
                spans.items += items
                spans.end(("step", path), at_s, BROKEN, **_said(items, usage, turn))
            case ev.ToolStarted(call=call):
                spans.begin_call(calls.get(call), call, at_s)
            case ev.BranchOpened(call=call, task=task):
                spans.begin_call(calls.get(call), call, at_s)
                spans.items.append(task)
            case ev.ToolFinished(result=result):
                spans.items.append(result)
                spans.end(result.call, at_s, result.outcome)
            case ev.Compacted(summary=summary, usage=usage):
                spans.items.append(summary)
                spans.made.append(_summary_span(summary, at_s, usage))
            case ev.HandedOff(item=item):
                spans.items.append(item)
            case ev.Steered(items=items):
                spans.items += items
            case ev.Closed(note=note):
                spans.items.append(note)
            case ev.Interrupted() | ev.Resumed() | ev.Ended():
                spans.end_all(at_s, BROKEN)
            case _:
                pass  # pieces of an answer, which comes whole
    return spans.done()


def _said(items: Sequence[ev.Answer], usage: ev.Usage, turn: TurnObject) -> dict[str, object]:
    first = items[0] if items else None
    return {
        "usage": UsageObject.of(usage),
        "first_at": _within(first.id.minted_at_ms / 1000, turn) if first else None,
        "agent": first.agent if first else "",
    }


def _summary_span(summary: Summary, at_s: float, usage: ev.Usage) -> TraceSpan:
    return TraceSpan(
        kind="summary",
        name="",
        agent="",
        path=summary.path,
        began_at=at_s,
        first_at=None,
        ended_at=at_s,
        outcome="done",
        usage=UsageObject.of(usage),
    )


def traced_items(items: Sequence[StoredItem], turn: TurnObject) -> TracedTurn:
    """The trace of a committed turn whose journal is gone, by the times in the ids of its items."""
    spans = _Spans()
    began_s: dict[Path, float] = {(): turn.began_at}
    calls: dict[str, ToolCall] = {}
    for item in items:
        if not isinstance(item, Unreadable):
            at_s = _within(item.id.minted_at_ms / 1000, turn)
            if isinstance(item, AssistantMessage | Reasoning | ToolCall):
                _spoken(spans, item, at_s, began_s=began_s.get(item.path, at_s))
            else:  # a result, a message or a note: the step before it had ended
                spans.settle(("step", item.path))
                began_s[item.path] = at_s
            if isinstance(item, ToolCall):
                calls[item.id] = item
                began_s[*item.path, item.id] = at_s
            if isinstance(item, ToolResult) and not item.from_client:
                inner = (*item.path, item.call)
                spans.end(("step", inner), at_s, "done")
                spans.begin_call(calls.get(item.call), item.call, began_s.get(inner, turn.began_at))
                spans.end(item.call, at_s, item.outcome)
        spans.items.append(item)
    spans.end_all(turn.ended_at or turn.began_at, "done")
    traced = spans.done()
    in_order = tuple(sorted(traced.spans, key=lambda span: span.began_at))
    return structs.replace(traced, spans=_with_usage(in_order, turn))


def _spoken(
    spans: _Spans, item: AssistantMessage | Reasoning | ToolCall, at_s: float, *, began_s: float
) -> None:
    """An item of a model's step, which begins with it or goes on."""
    key = ("step", item.path)
    if not spans.is_open(key):
        spans.begin_step(item.path, began_s, agent=item.agent)
        spans.change(key, first_at=at_s)
    spans.change(key, ended_at=at_s)
    if item.state != "complete" and not isinstance(item, ToolCall):
        spans.end(key, at_s, BROKEN)


def _within(at_s: float, turn: TurnObject) -> float:
    """A node's time, between the begin and the end by the store's clock."""
    return min(max(at_s, turn.began_at), turn.ended_at or at_s)


def _with_usage(spans: tuple[TraceSpan, ...], turn: TurnObject) -> tuple[TraceSpan, ...]:
    """The usage of a turn is that of its step, if there was one alone."""
    steps = [each for each in spans if each.kind == "step"]
    if len(steps) != 1:
        return spans
    return tuple(
        structs.replace(each, usage=turn.usage) if each is steps[0] else each for each in spans
    )
