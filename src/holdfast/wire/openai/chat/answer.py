"""A turn as a Chat Completions answer: streamed, event by event, or as one object.

A client of this API sees one assistant message: the text of every step, joined, and the calls that the client has
to answer. The agent's own tools, its sub-agents and its reasoning are hidden. With `X-Show-Tools` the tools' progress
is in the `holdfast` field of chunks, which every SDK ignores. With `X-Show-Reasoning` reasoning is shown
in the field that most servers use: `reasoning_content`.

If calls wait for an approval, the server's question about them follows the text, unless the client reads them from
the `holdfast` field (`X-Approvals: fields`). So no answer is empty because something waits.

Streamed or not, now or replayed later: the same turn gives the same text, calls, finish and usage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.core.items import AssistantMessage, Item, Items, Reasoning, Refusal, Text, ToolCall
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.ids import ItemId
from holdfast.wire.openai.chat.messages import url_of
from holdfast.wire.pictures import pictures_in
from holdfast.wire.sse import DONE, HEARTBEAT, data_frame, one_line
from holdfast.wire.turn_answers import (
    STEP_BREAK,
    AnswerEnd,
    AnswerHead,
    about_answer,
    goes_on,
    is_said,
    is_thought,
    question_for,
    tool_progress,
    trail_of,
    waiting_for_client,
)


class ChatForm:
    """The form of one answer. See `wire.turn_answers.AnswerForm`."""

    heartbeat = HEARTBEAT

    def __init__(self, head: AnswerHead) -> None:
        self._head = head

    def whole(self, end: AnswerEnd) -> bytes:
        return completion(self._head, end)

    def stream(
        self, *, set_aside: frozenset[ItemId] = frozenset(), before: Items = ()
    ) -> ChatStream:
        return ChatStream(self._head, set_aside=set_aside, before=before)


def finish_reason(end: AnswerEnd) -> str:
    if end.limited:
        return "length"
    if waiting_for_client(end.items):
        return "tool_calls"
    return "content_filter" if end.filtered else "stop"


def usage_object(usage: ev.Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


# ── as one object ────────────────────────────────────────────────────────────────────────────


def completion(head: AnswerHead, end: AnswerEnd) -> bytes:
    """The answer as one JSON object."""
    text = STEP_BREAK.join(filter(None, (whole_text(end.items), question_for(head, end))))
    refusal = "".join(_refusal(each) for each in end.items if is_said(each))
    about = about_answer(head, end)
    if head.options.show_tools:
        about["tools"] = trail_of(end.items)
    calls = [_call_object(each) for each in waiting_for_client(end.items)]
    message: dict[str, object] = {
        "role": "assistant",
        "content": text if text or not calls else None,
        "refusal": refusal or None,
    }
    if calls:
        message["tool_calls"] = calls
    if images := _images(end.items):
        message["images"] = images
    if head.options.show_reasoning and (thought := _thought(end.items)):
        message["reasoning_content"] = thought
    body = {
        "id": head.turn_id.completion_id,
        "object": "chat.completion",
        "created": head.created_s,
        "model": head.model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": finish_reason(end),
            }
        ],
        "usage": usage_object(end.usage),
        "holdfast": about,
    }
    return msgspec.json.encode(body)


def _call_object(call: ToolCall) -> dict[str, object]:
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _thought(items: Iterable[Item]) -> str:
    return STEP_BREAK.join(each.text for each in items if is_thought(each) and each.text)


def _text(item: AssistantMessage) -> str:
    return "".join(part.text for part in item.content if isinstance(part, Text))


def whole_text(items: Iterable[Item]) -> str:
    """The text of all steps. A message that was cut by its length is joined with the next one without a break."""
    whole, cut = "", False
    for item in items:
        cut = goes_on(item, cut)
        if is_said(item) and (text := _text(item)):
            whole += text if cut or not whole else STEP_BREAK + text
            cut = False
    return whole


def _images(items: Iterable[Item]) -> list[dict[str, object]]:
    """The pictures of the answer. Not part of OpenAI's API; it is the field of the gateways that offer such models, and
    of their clients."""
    pictures = [part for each in items if is_said(each) for part in pictures_in(each)]
    return [
        {"type": "image_url", "index": n, "image_url": {"url": url_of(part.source)}}
        for n, part in enumerate(pictures)
    ]


def _refusal(item: AssistantMessage) -> str:
    return "".join(part.text for part in item.content if isinstance(part, Refusal))


# ── as a stream ──────────────────────────────────────────────────────────────────────────────


class ChatStream:
    """Turns the events of a turn into frames. Feed it every event once, in order, then the end."""

    def __init__(
        self,
        head: AnswerHead,
        *,
        set_aside: frozenset[ItemId] = frozenset(),
        before: Items = (),
    ) -> None:
        """`set_aside` are items that do not count: nothing of them is shown. `before` are items of earlier turns that
        this turn continues: the answer begins with their text."""
        self._head = head
        self._set_aside = set_aside
        self._before, self._after = _template(head)
        # The frame of a token is prepared once, except for its text.
        self._content = b"data: " + self._before + b'{"content":'
        self._content_end = b'},"logprobs":null,"finish_reason":null' + self._after + b"}\n\n"
        self._kinds: dict[ItemId, ev.DraftKind] = {}
        self._shown: set[ItemId] = set()
        self._call_index: dict[ItemId, int] = {}
        self._trail: dict[ItemId, ToolCall] = {}
        self._last_said: ItemId | None = None
        self._last_thought: ItemId | None = None
        self._thought: set[ItemId] = set()
        """The items whose reasoning was shown. Reasoning of a step that was set aside is not taken back."""
        self._broken = False
        self._cut = False
        """The text so far was cut by its length, and the next text continues it."""
        self._first = self._beginning(before)

    def first(self) -> bytes:
        """The frames that begin every stream."""
        return self._first

    def _beginning(self, before: Items) -> bytes:
        return self._frame(b'{"role":"assistant","content":""}') + self._retold(before)

    def frames(self, record: Record) -> bytes:
        """The frames that show this event to the client; empty if it shows nothing."""
        event = record.event
        match event:
            case ev.Grew() if event.item == self._last_said and event.text and not event.refusal:
                return self._words(event.text)  # nearly always
            case ev.Grew() if not event.path:
                return self._grew(event)
            case ev.ItemOpened() if not event.path:
                return self._opened(event)
            case ev.Answered():
                return self._answered(event)
            case ev.StepBroken() if not event.path:
                # Its text was shown, and does not count: only an error can tell the client so.
                self._broken = self._broken or any(
                    each.state == "set_aside" and each.id in self._shown for each in event.items
                )
                return b""
            case ev.ToolStarted() | ev.ToolFinished() if self._head.options.show_tools:
                shown = tool_progress(event, self._trail)
                return self._frame(b"{}", extra=msgspec.json.encode(shown)) if shown else b""
            case ev.Began():  # with calls of earlier turns that a person has approved meanwhile
                self._trail.update((each.id, each) for each in event.request.carried)
                return b""
            case _:
                return b""

    @property
    def took_back(self) -> bool:
        """Whether text was shown that is not part of the answer: then the stream must end with an error."""
        return self._broken

    def end(self, end: AnswerEnd) -> bytes:
        """The frames that end a successful stream: what was not shown yet, the finish, usage."""
        waiting = waiting_for_client(end.items)
        rest = self._retold(end.items, waiting)
        about = msgspec.json.encode(about_answer(self._head, end))
        if images := _images(end.items):
            rest += self._frame(_encode({"images": images}))
        if words := question_for(self._head, end):
            rest += self._words(STEP_BREAK + words if self._last_said else words)
        finish = self._frame(b"{}", finish=finish_reason(end), extra=about)
        usage = self._usage_frame(end.usage) if self._head.include_usage else b""
        return rest + finish + usage + DONE

    # ── pieces ──

    def _retold(self, items: Items, waiting: Sequence[ToolCall] = ()) -> bytes:
        """Frames for the parts of these items that belong to the answer and were not shown yet."""
        frames: list[bytes] = []
        for each in items:
            self._cut = goes_on(each, self._cut)
            if is_said(each) or is_thought(each) or each in waiting:
                frames.append(self._whole(each))
        return b"".join(frames)

    def _opened(self, event: ev.ItemOpened) -> bytes:
        if event.item in self._set_aside:
            return b""
        self._kinds[event.item] = event.kind
        if event.kind != "call" or event.name not in self._head.client_tools:
            return b""
        return self._call_begins(event.item, event.call_id, event.name)

    def _grew(self, event: ev.Grew) -> bytes:
        kind = self._kinds.get(event.item)
        if kind == "message":
            return self._says(event.item, event.text, refusal=event.refusal)
        if kind == "call" and event.item in self._call_index:
            return self._call_grows(event.item, event.text)
        if kind == "reasoning" and self._head.options.show_reasoning:
            return self._thinks(event.item, event.text)
        return b""

    def _answered(self, event: ev.Answered) -> bytes:
        """Frames for the parts of a whole answer that were not shown while it grew."""
        self._trail.update((each.id, each) for each in event.items if isinstance(each, ToolCall))
        if event.path:
            return b""
        frames = b"".join(map(self._whole, event.items))
        self._cut = False
        return frames

    def _whole(self, item: Item) -> bytes:
        """Frames for an item in one piece; empty if it was shown."""
        if item.id in self._shown:
            return b""
        if isinstance(item, AssistantMessage):
            return b"".join(
                self._says(item.id, part.text, refusal=isinstance(part, Refusal))
                for part in item.content
                if isinstance(part, Text | Refusal)
            )
        if isinstance(item, Reasoning) and self._head.options.show_reasoning:
            return b"" if item.id in self._thought else self._thinks(item.id, item.text)
        if isinstance(item, ToolCall) and item.waits_for == "client":
            begins = self._call_begins(item.id, item.call_id, item.name)
            return begins + self._call_grows(item.id, item.arguments)
        return b""

    def _says(self, item: ItemId, text: str, *, refusal: bool) -> bytes:
        if not text:
            return b""
        if refusal:
            self._shown.add(item)
            return self._frame(b'{"refusal":' + _encode(text) + b"}")
        self._shown.add(item)
        before, self._last_said = self._last_said, item
        continues, self._cut = self._cut or before in (None, item), False
        return self._words(text) if continues else self._words(STEP_BREAK) + self._words(text)

    def _thinks(self, item: ItemId, text: str) -> bytes:
        if not text:
            return b""
        before, self._last_thought = self._last_thought, item
        between = STEP_BREAK if before not in (None, item) else ""
        self._thought.add(item)
        return self._frame(b'{"reasoning_content":' + _encode(between + text) + b"}")

    def _words(self, text: str) -> bytes:
        """A frame with a piece of the text. This runs for every token."""
        return self._content + one_line(_encode(text)) + self._content_end

    def _call_begins(self, item: ItemId, call_id: str, name: str) -> bytes:
        self._shown.add(item)
        index = self._call_index[item] = len(self._call_index)
        return self._frame(
            b'{"tool_calls":[{"index":%d,"id":%b,"type":"function",'
            b'"function":{"name":%b,"arguments":""}}]}' % (index, _encode(call_id), _encode(name))
        )

    def _call_grows(self, item: ItemId, text: str) -> bytes:
        return self._frame(
            b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}'
            % (self._call_index[item], _encode(text))
        )

    def _frame(self, delta: bytes, *, finish: str | None = None, extra: bytes = b"") -> bytes:
        reason = b"null" if finish is None else _encode(finish)
        holdfast = b',"holdfast":' + extra if extra else b""
        return data_frame(
            self._before
            + delta
            + b',"logprobs":null,"finish_reason":'
            + reason
            + self._after
            + holdfast
            + b"}"
        )

    def _usage_frame(self, usage: ev.Usage) -> bytes:
        head = self._head
        return data_frame(
            msgspec.json.encode(
                {
                    "id": head.turn_id.completion_id,
                    "object": "chat.completion.chunk",
                    "created": head.created_s,
                    "model": head.model,
                    "choices": [],
                    "usage": usage_object(usage),
                }
            )
        )


_encode = msgspec.json.Encoder().encode


def _template(head: AnswerHead) -> tuple[bytes, bytes]:
    """The bytes before and after the delta of a chunk, the same for the whole stream."""
    before = (
        b'{"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"system_fingerprint":null,'
        b'"choices":[{"index":0,"delta":'
        % (_encode(head.turn_id.completion_id), head.created_s, _encode(head.model))
    )
    return one_line(before), b"}]" + (b',"usage":null' if head.include_usage else b"")
