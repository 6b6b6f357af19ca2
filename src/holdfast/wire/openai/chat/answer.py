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

from collections.abc import Iterable

from holdfast.core.items import AssistantMessage, Item, Items, Reasoning, Refusal, Text, ToolCall
from holdfast.core.turns import events as ev
from holdfast.ids import ItemId
from holdfast.wire.openai.chat.chunks import ChunkWriter, encode_json, usage_object
from holdfast.wire.openai.chat.messages import url_of
from holdfast.wire.pictures import pictures_in
from holdfast.wire.sse import DONE, HEARTBEAT
from holdfast.wire.streamed_answer import StreamedAnswer
from holdfast.wire.turn_answers import (
    STEP_BREAK,
    AnswerEnd,
    AnswerHead,
    about_answer,
    finish_of,
    goes_on,
    is_said,
    is_thought,
    question_for,
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


# ── as one object ────────────────────────────────────────────────────────────────────────────


def completion(head: AnswerHead, end: AnswerEnd) -> bytes:
    """The answer as one JSON object."""
    text = STEP_BREAK.join(filter(None, (whole_text(end.items), question_for(head, end))))
    said = list(filter(is_said, end.items))
    refusal = "".join(map(_refusal, said))
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
    if images := _images(said):
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
                "finish_reason": finish_of(end),
            }
        ],
        "usage": usage_object(end.usage),
        "holdfast": about,
    }
    return encode_json(body)


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


def _images(said: Iterable[AssistantMessage]) -> list[dict[str, object]]:
    """The pictures of the answer. Not part of OpenAI's API; it is the field of the gateways that offer such models, and
    of their clients."""
    pictures = [part for each in said for part in pictures_in(each)]
    return [
        {"type": "image_url", "index": n, "image_url": {"url": url_of(part.source)}}
        for n, part in enumerate(pictures)
    ]


def _refusal(item: AssistantMessage) -> str:
    return "".join(part.text for part in item.content if isinstance(part, Refusal))


# ── as a stream ──────────────────────────────────────────────────────────────────────────────


class ChatStream(StreamedAnswer):
    """The chunks of an answer, and `[DONE]`."""

    def __init__(
        self,
        head: AnswerHead,
        *,
        set_aside: frozenset[ItemId] = frozenset(),
        before: Items = (),
    ) -> None:
        """`set_aside` are items that do not count: nothing of them is shown. `before` are items of earlier turns that
        this turn continues: the answer begins with their text."""
        self._chunks = ChunkWriter(
            completion_id=head.turn_id.completion_id,
            created_s=head.created_s,
            model=head.model,
            include_usage=head.include_usage,
        )
        super().__init__(head, self._chunks.content, set_aside=set_aside)
        self._call_index: dict[ItemId, int] = {}
        self._last_thought: ItemId | None = None
        self._first = self._chunks.opening() + self._retold(before)

    def end(self, end: AnswerEnd) -> bytes:
        """The frames that end a successful stream: what was not shown yet, the finish, usage."""
        waiting = waiting_for_client(end.items)
        rest = self._retold(end.items, waiting)
        if images := _images(filter(is_said, end.items)):
            rest += self._chunks.chunk(encode_json({"images": images}))
        if words := question_for(self._head, end):
            rest += self._words(STEP_BREAK + words if self._saying else words)
        finish = self._chunks.chunk(finish=finish_of(end), about=about_answer(self._head, end))
        usage = self._chunks.usage(end.usage) if self._head.include_usage else b""
        return rest + finish + usage + DONE

    # ── pieces ──

    def _grew(self, event: ev.Grew) -> bytes:
        kind = self._kinds.get(event.item)
        if kind == "message":
            return self._says(event.item, event.text, refusal=event.refusal)
        if kind == "call" and event.item in self._call_index:
            return self._call_grows(event.item, event.text)
        if kind == "reasoning" and self._head.options.show_reasoning:
            return self._thinks(event.item, event.text)
        return b""

    def _whole(self, item: Item) -> bytes:
        if item.id in self._told:
            return b""
        if isinstance(item, AssistantMessage):
            return b"".join(
                self._says(item.id, part.text, refusal=isinstance(part, Refusal))
                for part in item.content
                if isinstance(part, Text | Refusal)
            )
        if isinstance(item, Reasoning) and self._head.options.show_reasoning:
            return self._thinks(item.id, item.text)
        if isinstance(item, ToolCall) and item.waits_for == "client":
            begins = self._call_begins(item.id, item.call_id, item.name)
            return begins + self._call_grows(item.id, item.arguments)
        return b""

    def _says(self, item: ItemId, text: str, *, refusal: bool) -> bytes:
        if not text:
            return b""
        self._told.add(item)
        if refusal:
            return self._chunks.refusal(text)
        before, self._saying = self._saying, item
        continues, self._cut = self._cut or before in (None, item), False
        return self._words(text) if continues else self._words(STEP_BREAK) + self._words(text)

    def _thinks(self, item: ItemId, text: str) -> bytes:
        if not text:
            return b""
        before, self._last_thought = self._last_thought, item
        between = STEP_BREAK if before not in (None, item) else ""
        self._told.add(item)
        return self._chunks.reasoning(between + text)

    def _call_begins(self, item: ItemId, call_id: str, name: str) -> bytes:
        self._told.add(item)
        index = self._call_index[item] = len(self._call_index)
        return self._chunks.call(index, call_id=call_id, name=name)

    def _call_grows(self, item: ItemId, text: str) -> bytes:
        return self._chunks.arguments(self._call_index[item], text)

    def _progress(self, shown: dict[str, object]) -> bytes:
        return self._chunks.chunk(about=shown)
