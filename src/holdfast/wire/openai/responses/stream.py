"""A turn as the events of a streamed Response: a pure writer over the turn's own events.

1. The first event is `response.created`; `queued` follows for a background request, and `in_progress`
   once the turn runs. The last event is `completed`, `incomplete` or `failed`; `[DONE]` follows.
2. Every item is added, filled and done, in that order, with one id and one `output_index`, before the next item is
   added; the last event's output is the items that were done, in the order of their indexes.
   If a turn is discarded, its unfinished item stays open, and only `failed` follows.
3. `sequence_number` counts every event from 0. The same events of a turn make the same bytes, so a stream can be
   repeated, and joined in the middle: events that a client has seen already are left out by their number.

An item that was shown and then set aside, because its step is tried again, is done as incomplete and stays in the
output: the new answer is a new item. An item whose growth was not seen comes in one piece: of a plain turn that is
watched from another node or requested after its end; or of an old journal whose items grew at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from holdfast.core.history.log import Log
from holdfast.core.items import (
    AssistantMessage,
    Item,
    Items,
    Opaques,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.draft import DraftItem
from holdfast.core.turns.journal import Record
from holdfast.ids import CallId, ItemId, MessageId, ReasoningId
from holdfast.wire.openai.responses.answer import (
    ResponseEnd,
    ResponseHead,
    Status,
    error_object,
    functions_in,
    picture_objects,
    response_object,
)
from holdfast.wire.openai.responses.item_addresses import ItemAddress
from holdfast.wire.openai.responses.items import (
    ItemObject,
    approval_request_object,
    call_object,
    cut,
    is_output,
    message_object,
    reasoning_object,
    served_call_object,
    summary_part,
    text_part,
    with_cuts,
)
from holdfast.wire.problems import Problem
from holdfast.wire.sse import DONE, event_frame, one_line

NOWHERE: Mapping[str, object] = {}

PartKind = Literal["output_text", "refusal"]

_TERMINAL: dict[Status, str] = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
}


class _Place:
    """The item that grows now. It is added with its first piece."""

    def __init__(self, opened: ev.ItemOpened, where: str) -> None:
        self.item = opened.item
        self.opened = opened
        self.where = where
        self.index = -1
        """Its `output_index`; negative until it was added."""
        self.parts: dict[PartKind, int] = {}
        """The added parts, by kind: a message has at most one of each."""
        self.text: list[str] = []
        self.refusal: list[str] = []
        self.before_delta = b""
        """The bytes before the text of each delta that do not change, except the number."""

    @property
    def added(self) -> bool:
        return self.index >= 0

    @property
    def at(self) -> dict[str, object]:
        """The members of an event that say which item it is about."""
        return {"item_id": self.where, "output_index": self.index}

    def whole(self, extras: Opaques) -> Item:
        """The item as it has grown."""
        opened = self.opened
        drafted = DraftItem(
            id=opened.item,
            kind=opened.kind,
            call_id=opened.call_id,
            name=opened.name,
            pieces=Log(self.text),
            refusal=Log(self.refusal),
        )
        return drafted.completed(agent="", path=(), extras=extras)


class _ServedCall:
    """A call of the agent's own tools that is to be shown."""

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.started = False
        self.result: ToolResult | None = None


class ResponseStream:
    """Turns the events of a turn into frames. Feed it every event once, in order, then the end."""

    def __init__(self, head: ResponseHead, *, after: int = -1, before: Items = ()) -> None:
        """Events up to number `after` are counted and left out. `before` are items of earlier turns that this turn
        continues: the output begins with them."""
        self._said_before = before
        self._head = head
        self._shows = head.shows
        self._client_tools: frozenset[str] = frozenset()
        self._after = after
        self._number = 0
        self._current: _Place | None = None
        self._done: dict[str, ItemObject] = {}
        self._served: dict[ItemId, _ServedCall] = {}
        """The agent's own calls that are not done, in the order of their items."""
        self._waits = head.echo.background
        """The request is in the background, and its turn has not started."""
        self._first = self._beginning()  # they have the first numbers, whenever they are written

    def first(self) -> bytes:
        """The events that begin every stream."""
        return self._first

    def _beginning(self) -> bytes:
        if not self._waits:
            created = self._lifecycle("response.created", "in_progress")
            return created + self._in_progress()
        created = self._lifecycle("response.created", "queued")
        return created + self._lifecycle("response.queued", "queued")

    def _waited(self) -> bytes:
        """The event that ends the waiting, if the turn waited."""
        if not self._waits:
            return b""
        self._waits = False
        return self._in_progress()

    def _in_progress(self) -> bytes:
        begun = self._lifecycle("response.in_progress", "in_progress")
        results = _results_in(self._said_before)
        return begun + b"".join(self._rest(each, results) for each in self._said_before)

    def frames(self, record: Record) -> bytes:
        """The frames that show this event to the client; empty if it shows nothing."""
        event = record.event
        match event:
            case ev.Grew() if not event.path:
                return self._grew(event)
            case ev.ItemOpened() if not event.path:
                return self._opened(event)
            case ev.Began():
                self._client_tools = frozenset(each.name for each in event.request.client_tools)
                return b""
            case ev.StepStarted():
                return self._waited()
            case ev.Answered() if not event.path and event.finish == "length" and event.items:
                return self._step((*event.items[:-1], cut(event.items[-1])))
            case ev.Answered() | ev.StepBroken() if not event.path:
                return self._step(event.items)
            case ev.ToolStarted() if event.call in self._served:
                self._served[event.call].started = True
                return self._served_calls()
            case ev.ToolFinished() if event.result.call in self._served:
                self._served[event.result.call].result = event.result
                return self._served_calls()
            case _:
                return b""

    def end(self, end: ResponseEnd) -> bytes:
        """The parts that were not shown yet, and the last event."""
        results = _results_in(end.items)
        waited = b"" if end.status == "cancelled" else self._waited()
        growing = self._current.item if self._current else None
        items = sorted(with_cuts(end.items), key=lambda each: each.id != growing)
        rest = b"".join(self._rest(each, results) for each in items)
        rest += b"".join(map(self._picture, picture_objects(end.items, self._head.session_id)))
        asked = self._head.question(end)
        question = self._whole_message(asked) if asked is not None else b""
        return waited + rest + question + self._terminal(end)

    def failed(self, problem: Problem) -> bytes:
        """The last event of a stream that cannot be finished, though its response may be: another node runs the
        turn. So it is no event of the response and has no number; a client that comes back with the
        last number that it has seen misses nothing."""
        said = {"code": problem.code, "message": problem.message, "param": None}
        error = {"type": problem.kind, **said}
        body = {**error, "type": "error", "status": problem.status, "error": error}
        return event_frame("error", _encode(body))

    # ── lifecycle ──

    def _lifecycle(self, name: str, status: Status) -> bytes:
        return self._frame(name, response=response_object(self._head, status, None, []))

    def _terminal(self, end: ResponseEnd) -> bytes:
        response = response_object(self._head, end.status, end, list(self._done.values()))
        if end.status == "cancelled":  # the API has no event for it
            stopped = Problem(status=409, code="turn_cancelled", message="the turn was cancelled")
            response["error"] = error_object(stopped)
        name = _TERMINAL.get(end.status, "response.failed")
        return self._frame(name, response=response) + DONE

    # ── items ──

    def _opened(self, event: ev.ItemOpened) -> bytes:
        ended = b""
        if self._current is not None and self._current.item == event.ended:
            ended = self._whole(self._current.whole(event.ended_extras))
        if self._current is not None or not self._is_shown(event):
            return ended
        self._current = self._place(event)
        return ended + (self._add_call(self._current) if event.kind == "call" else b"")

    def _is_shown(self, event: ev.ItemOpened) -> bool:
        if event.kind == "call":
            return event.name in self._client_tools
        return event.kind == "message" or self._shows.reasoning

    def _grew(self, event: ev.Grew) -> bytes:
        """A piece of an item. This runs for every token."""
        place = self._current
        if place is None or place.item != event.item or not event.text:
            return b""
        (place.refusal if event.refusal else place.text).append(event.text)
        if place.before_delta and not event.refusal:
            return self._delta(place, event.text)  # nearly always
        if place.opened.kind == "reasoning":
            added = b"" if place.added else self._add_reasoning(place)
            return added + (self._thinks(place, event.text) if self._shows.thoughts else b"")
        kind: PartKind = "refusal" if event.refusal else "output_text"
        added = b"" if place.added else self._add_message(place)
        added += b"" if kind in place.parts else self._add_part(place, kind)
        return added + self._piece(place, kind, event.text)

    def _step(self, items: Items) -> bytes:
        """The end of a step: the items, or the rest of them."""
        frames = b"".join(map(self._whole, items))
        self._current = (
            None  # a step that broke off leaves items out that have no text, and were not added
        )
        return frames + (self._served_calls() if self._served else b"")

    def _whole(self, item: Item) -> bytes:
        """A finished item: its end, or all of it if its growth was not seen."""
        if item.id in self._done:
            return b""
        growing = self._current is not None and self._current.item == item.id
        if isinstance(item, AssistantMessage):
            return self._whole_message(item)
        if isinstance(item, Reasoning):
            return self._whole_reasoning(item) if self._shows.reasoning else b""
        if isinstance(item, ToolCall) and (
            item.waits_for == "client" or growing or self._is_clients(item)
        ):
            return self._whole_call(item)
        if isinstance(item, ToolCall) and item.state == "complete":
            shown = self._shows.approvals if item.waits_for == "approval" else self._shows.tools
            if shown:
                self._served.setdefault(item.id, _ServedCall(item))
        return b""

    def _is_clients(self, item: ToolCall) -> bool:
        """Whether a call that broke off is one of the client's own tools."""
        if item.state != "set_aside":
            return False
        return item.name in (self._client_tools or functions_in(self._head.echo))

    def _rest(self, item: Item, results: dict[ItemId, ToolResult]) -> bytes:
        """At the end of the turn: the parts of an item that were not shown."""
        if not is_output(item) or item.id in self._done:
            return b""
        shown = self._whole(item)
        served = self._served.get(item.id)
        if served is None:
            return shown
        served.result = results.get(item.id)
        if served.result is None and served.call.waits_for is None:
            del self._served[item.id]  # it would keep the others waiting
        return shown + self._served_calls()

    def _whole_message(self, item: AssistantMessage) -> bytes:
        texts: dict[PartKind, str] = {
            "output_text": "".join(p.text for p in item.content if isinstance(p, Text)),
            "refusal": "".join(p.text for p in item.content if isinstance(p, Refusal)),
        }
        place = self._place_of(item.id, "message")
        frames = b"" if place.added else self._add_message(place)
        for kind, text in texts.items():
            if kind not in place.parts and (
                text or (kind == "output_text" and not texts["refusal"])
            ):
                frames += self._add_part(place, kind) + self._piece(place, kind, text)
        parts = [
            (kind, at, texts[kind])
            for kind, at in sorted(place.parts.items(), key=lambda each: each[1])
        ]
        frames += b"".join(self._part_done(place, kind, text) for kind, at, text in parts)
        shown = message_object(item, place.where)
        shown["content"] = [_part_object(kind, text) for kind, _, text in parts]
        return frames + self._item_done(place, shown)

    def _whole_reasoning(self, item: Reasoning) -> bytes:
        place = self._place_of(item.id, "reasoning")
        frames = b"" if place.added else self._add_reasoning(place)
        if self._shows.thoughts and item.text:
            if not place.before_delta:
                frames += self._thinks(place, item.text)
            at = {**place.at, "summary_index": 0}
            frames += self._frame("response.reasoning_summary_text.done", at, text=item.text)
            part = summary_part(item.text)
            frames += self._frame("response.reasoning_summary_part.done", at, part=part)
        return frames + self._item_done(place, reasoning_object(item, place.where, self._shows))

    def _whole_call(self, item: ToolCall) -> bytes:
        place = self._place_of(item.id, "call", call_id=item.call_id, name=item.name)
        frames = b""
        if not place.added:
            frames = self._add_call(place)
            frames += self._delta(place, item.arguments) if item.arguments else b""
        said = {"name": item.name, "arguments": item.arguments}
        frames += self._frame("response.function_call_arguments.done", place.at, **said)
        return frames + self._item_done(place, call_object(item, place.where))

    # ── adding and ending ──

    def _add_message(self, place: _Place) -> bytes:
        shown = message_object(AssistantMessage(id=MessageId(place.item), content=()), place.where)
        return self._added(place, {**shown, "status": "in_progress", "content": []})

    def _add_call(self, place: _Place) -> bytes:
        opened = place.opened
        call = ToolCall(
            id=CallId(place.item), call_id=opened.call_id, name=opened.name, arguments=""
        )
        added = self._added(place, {**call_object(call, place.where), "status": "in_progress"})
        self._lay_down(place, "response.function_call_arguments.delta", b'"delta":')
        return added

    def _add_reasoning(self, place: _Place) -> bytes:
        shown = reasoning_object(Reasoning(id=ReasoningId(place.item)), place.where, self._shows)
        return self._added(place, {**shown, "status": "in_progress"})

    def _thinks(self, place: _Place, text: str) -> bytes:
        """A piece of reasoning, as the only part of its summary."""
        added = b""
        if not place.before_delta:
            at = {**place.at, "summary_index": 0}
            added = self._frame("response.reasoning_summary_part.added", at, part=summary_part(""))
            name = "response.reasoning_summary_text.delta"
            self._lay_down(place, name, b'"summary_index":0,"delta":')
        return added + self._delta(place, text)

    def _place(self, opened: ev.ItemOpened) -> _Place:
        return _Place(opened, str(ItemAddress(item=opened.item, session_id=self._head.session_id)))

    def _place_of(
        self, item: ItemId, kind: ev.DraftKind, *, call_id: str = "", name: str = ""
    ) -> _Place:
        """The place of an item that is to be done; a new one if the item has not grown here."""
        if self._current is not None and self._current.item == item:
            return self._current
        return self._place(ev.ItemOpened(item=item, kind=kind, call_id=call_id, name=name))

    def _added(self, place: _Place, shown: ItemObject) -> bytes:
        place.index = len(self._done)  # items are done one after the other
        return self._frame("response.output_item.added", output_index=place.index, item=shown)

    def _item_done(self, place: _Place, shown: ItemObject) -> bytes:
        self._current = None
        self._done[place.item] = shown
        return self._frame("response.output_item.done", output_index=place.index, item=shown)

    def _add_part(self, place: _Place, kind: PartKind) -> bytes:
        at = place.parts[kind] = len(place.parts)
        if kind == "output_text":
            self._lay_down(
                place,
                "response.output_text.delta",
                b'"content_index":%d,"logprobs":[],"delta":' % at,
            )
        part = _part_object(kind, "")
        return self._frame("response.content_part.added", place.at, content_index=at, part=part)

    def _part_done(self, place: _Place, kind: PartKind, text: str) -> bytes:
        at = {**place.at, "content_index": place.parts[kind]}
        if kind == "refusal":
            said = self._frame("response.refusal.done", at, refusal=text)
        else:
            said = self._frame("response.output_text.done", at, logprobs=[], text=text)
        part = _part_object(kind, text)
        return said + self._frame("response.content_part.done", at, part=part)

    def _piece(self, place: _Place, kind: PartKind, text: str) -> bytes:
        if not text:
            return b""
        if kind == "output_text":
            return self._delta(place, text)
        at = {**place.at, "content_index": place.parts[kind]}
        return self._frame("response.refusal.delta", at, delta=text)

    def _picture(self, shown: ItemObject) -> bytes:
        """A picture, in one piece."""
        at = {"output_index": len(self._done), "item_id": shown["id"]}
        begun = {**shown, "status": "in_progress", "result": None}
        added = {"output_index": at["output_index"], "item": begun}
        frames = self._frame("response.output_item.added", added)
        frames += self._frame("response.image_generation_call.completed", at)
        self._done[shown["id"]] = shown
        return frames + self._frame("response.output_item.done", {**added, "item": shown})

    # ── the agent's own calls ──

    def _served_calls(self) -> bytes:
        """The frames of the calls whose turn has come. Calls run side by side, and are shown one after the other."""
        frames = b""
        for served in tuple(self._served.values()):
            if served.call.waits_for == "approval":
                frames += self._approval_request(served.call)
                continue
            if served.started or served.result is not None:
                frames += self._served_starts(served.call)
            if served.result is None:
                break
            frames += self._served_ends(served.call, served.result)
        return frames

    def _approval_request(self, call: ToolCall) -> bytes:
        del self._served[call.id]
        place = self._place_of(call.id, "call")
        shown = approval_request_object(call, self._head.session_id)
        return self._added(place, shown) + self._item_done(place, shown)

    def _served_starts(self, call: ToolCall) -> bytes:
        if self._current is not None:
            return b""  # the call is tried again
        place = self._current = self._place_of(call.id, "call")
        added = self._added(place, served_call_object(call, place.where, None))
        said = self._frame("response.mcp_call_arguments.done", place.at, arguments=call.arguments)
        return added + said + self._frame("response.mcp_call.in_progress", place.at)

    def _served_ends(self, call: ToolCall, result: ToolResult) -> bytes:
        place = self._place_of(call.id, "call")
        shown = served_call_object(call, place.where, result)
        name = f"response.mcp_call.{shown['status']}"
        del self._served[call.id]
        return self._frame(name, place.at) + self._item_done(place, shown)

    # ── frames ──

    def _frame(self, name: str, at: Mapping[str, object] = NOWHERE, /, **members: object) -> bytes:
        number = self._number
        self._number += 1
        if number <= self._after:
            return b""
        body = {"type": name, "sequence_number": number, **at, **members}
        return event_frame(name, _encode(body))

    def _lay_down(self, place: _Place, name: str, last: bytes) -> None:
        """Prepare the constant bytes of an item's delta frames, so that a token costs little."""
        place.before_delta = b'event: %b\ndata: {"type":"%b","item_id":%b,"output_index":%d,%b' % (
            name.encode(),
            name.encode(),
            _encode(place.where),
            place.index,
            last,
        )

    def _delta(self, place: _Place, text: str) -> bytes:
        number = self._number
        self._number += 1
        if number <= self._after:
            return b""
        return b'%b%b,"sequence_number":%d}\n\n' % (
            place.before_delta,
            one_line(_encode(text)),
            number,
        )


_encode = msgspec.json.Encoder().encode


def _results_in(items: Items) -> dict[ItemId, ToolResult]:
    return {each.call: each for each in items if isinstance(each, ToolResult)}


def _part_object(kind: PartKind, text: str) -> ItemObject:
    return {"type": "refusal", "refusal": text} if kind == "refusal" else text_part(text)
