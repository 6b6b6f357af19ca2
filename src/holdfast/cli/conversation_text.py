"""Conversations and turns as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from holdfast.core.codec import Unreadable, encode
from holdfast.core.history.conversation import Snapshot, TurnMark, seen_by_model, summary_seen
from holdfast.core.items import Item, StoredItem, Summary, UserMessage, item_id
from holdfast.core.transcript import entry_of
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.wire.api import objects as api
from holdfast.wire.api.traces import TraceSpan, TurnTrace

UNREADABLE = "   [this cannot be read; `holdfast db verify` says more]"


def when(at_s: float) -> str:
    """A moment, for people: 2026-11-15 16:53, in UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M")


# ── a conversation ───────────────────────────────────────────────────────────────────────────


def turn_lines(snapshot: Snapshot) -> Iterator[str]:
    """The whole conversation, turn by turn, and where the model's full view of it begins."""
    summary = summary_seen(snapshot)
    hidden = snapshot.notes.hidden_from_people
    for mark in snapshot.marks:
        if summary is not None and mark.start == summary.covers_to:
            yield from _boundary(summary)
        yield _heading(mark)
        for item in snapshot.items[mark.start : mark.end]:
            if item_id(item) not in hidden and not isinstance(item, Summary):
                yield from _said(item)
        yield ""
    if summary is not None and summary.covers_to == len(snapshot.items):
        yield from _boundary(summary)


def model_lines(snapshot: Snapshot) -> Iterator[str]:
    """The part of the conversation that the model sees."""
    for item in seen_by_model(snapshot):
        yield from _said(item)


def flat_lines(items: api.Items) -> Iterator[str]:
    """The conversation as a server returns it: items without turns."""
    yield f"── version {items.version}"
    for item in items.items:
        if isinstance(item, UserMessage) and not item.path:
            yield ""
        yield from [UNREADABLE] if isinstance(item, api.UnreadableItem) else _said(item)


def _heading(mark: TurnMark) -> str:
    ended = "" if mark.ended_by == "completed" else f", {mark.ended_by}"
    at = when(mark.turn_id.minted_at_ms / 1000)
    return f"── version {int(mark.version)}, {at}, {mark.turn_id}{ended}"


def _boundary(summary: Summary) -> Iterator[str]:
    yield "══ what is above, the model knows by this summary:"
    yield from (f"   {line}" for line in summary.text.splitlines())
    yield "══ what is below, it sees in full"
    yield ""


def _said(item: StoredItem) -> Iterator[str]:
    if isinstance(item, Unreadable):
        yield UNREADABLE
        return
    indent = "   " * (1 + len(item.path))
    yield from (indent + line for line in entry_of(item).splitlines())


# ── a turn ───────────────────────────────────────────────────────────────────────────────────


def fate_of(turn: api.TurnObject) -> str:
    """The outcome of a turn, in one line."""
    why = f" ({turn.detail})" if turn.detail else ""
    match turn.state:
        case "committed":
            how = "" if turn.ended_by == "completed" else f", {turn.ended_by}{why}"
            return f"committed as version {turn.version}{how}"
        case "discarded":
            return f"discarded: {turn.ended_by}{why}"
        case "open":
            node = turn.node if isinstance(turn, api.ListedTurn) else None
            return f"open, on {node}" if node else "open"
        case "queued":
            return "queued"


def trace_lines(trace: TurnTrace) -> Iterator[str]:
    """What took how long in a turn: the steps and calls with their begin, time, tokens and cost."""
    mark = "" if trace.timed_by == "journal" else "~"
    for span in trace.spans:
        indent = "  " * len(span.path)
        name = f"{span.kind} {span.name}".rstrip()
        took = "…" if span.ended_at is None else f"{mark}{span.ended_at - span.began_at:.3f} s"
        first = "" if span.first_at is None else f", first words after {_since(span):.3f} s"
        used = "" if span.usage is None else f", {_used(span.usage, trace.currency)}"
        ended = "" if span.outcome in ("done", "ok") else f", {span.outcome.replace('_', ' ')}"
        after_s = span.began_at - trace.turn.began_at
        yield f"{after_s:+10.3f} s  {indent}{name}: {took}{first}{used}{ended}"


def _since(span: TraceSpan) -> float:
    return max(0.0, (span.first_at or span.began_at) - span.began_at)


def _used(usage: api.UsageObject, currency: str) -> str:
    tokens = f"{usage.input_tokens:,} → {usage.output_tokens:,} tokens"
    cost = f", {usage.cost_micros / 1e6:.6f} {currency}".rstrip() if usage.cost_micros else ""
    return tokens + cost


def journal_lines(records: Iterable[Record]) -> Iterator[str]:
    """The events of a turn. Pieces of an answer are left out: the whole answer follows them."""
    for record in records:
        if not ev.is_fine(record.event):
            at = datetime.fromtimestamp(record.at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
            yield f"{record.n:5}  {at}  {_happened(record.event)}"


def _happened(event: ev.Event) -> str:
    match event:
        case ev.Began(request=request):
            return f"began, from version {int(request.base)}: {_entries(request.input)}"
        case ev.StepStarted(model=model):
            return f"asked {model or 'the model'}"
        case ev.Answered(items=items):
            return f"answered: {_entries(items)}"
        case ev.StepBroken(why=why):
            return f"the answer broke off: {why}"
        case ev.ToolStarted(call=call):
            return f"started {call}"
        case ev.ToolFinished(result=result):
            return f"finished {result.call}: {entry_of(result)}"
        case ev.Interrupted(by=by, detail=detail):
            return f"interrupted: {by} {detail}".rstrip()
        case ev.Closed(note=note):
            return f"closed: {entry_of(note)}"
        case ev.Ended(by=by, kept=kept):
            return f"ended: {by}, {'kept' if kept else 'discarded'}"
        case _:
            return encode(event).decode()


def _entries(items: Iterable[Item]) -> str:
    return " / ".join(filter(None, (" ".join(entry_of(each).split()) for each in items)))
