"""A turn as an answer of the Messages API: streamed, event by event, or as one object.

A client sees one assistant message. Its blocks are the text of all steps, joined, the calls that the client has to
answer (`tool_use`), and, for a client that asked for thinking, the agent's thoughts. The agent's own tools and its
sub-agents are hidden: no client could answer their calls. With `X-Show-Tools` their progress is in the `holdfast` field
of pings.

1. Blocks are told one after the other. Text stays in one block until a thought or a call comes between.
2. A call's block ends with its arguments: if a provider tells two calls at once, the second waits for the first.
3. A thought has no signature of its provider's: it is known only after the block has to end. The mark in its place says
   that the thought is one of ours, which the conversation's history has in full.
4. Streamed or not, now or replayed later: the same turn gives the same blocks, stop reason and usage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias, assert_never

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core.codec import DAMAGE
from holdfast.core.items import AssistantMessage, Item, Items, Reasoning, ToolCall, text_of
from holdfast.core.turns import events as ev
from holdfast.ids import ItemId, TurnId
from holdfast.wire.anthropic.dialect import TextBlock, ToolUseBlock
from holdfast.wire.anthropic.thoughts import ThinkingBlock
from holdfast.wire.history_order import arguments_object
from holdfast.wire.sse import event_frame, one_line
from holdfast.wire.streamed_answer import StreamedAnswer
from holdfast.wire.turn_answers import (
    STEP_BREAK,
    AnswerEnd,
    AnswerHead,
    about_answer,
    about_turn,
    finish_of,
    goes_on,
    is_said,
    is_thought,
    question_for,
    trail_of,
    waiting_for_client,
)

MARK = "hft_"
"""Begins the signature of a thought that we have shown; the id of the item follows."""

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "tool_use", "refusal"]
AnswerBlock: TypeAlias = TextBlock | ThinkingBlock | ToolUseBlock

# ── the object ───────────────────────────────────────────────────────────────────────────────


class MessageUsage(Struct, frozen=True):
    """Tokens, as Anthropic counts them: those that came from a cache are not in `input_tokens`."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


class MessageObject(Struct, frozen=True):
    """An answer of the Messages API."""

    id: str
    model: str
    content: list[AnswerBlock]
    stop_reason: StopReason | None
    usage: MessageUsage
    holdfast: Raw
    """Our additions, which every client ignores, as on chat."""
    stop_sequence: str | None = None
    role: Literal["assistant"] = "assistant"
    type: Literal["message"] = "message"


def message_id(turn_id: TurnId) -> str:
    return f"msg_{turn_id.body}"


def usage_of(usage: ev.Usage) -> MessageUsage:
    cached, written = usage.cached_tokens, usage.cache_write_tokens
    return MessageUsage(
        input_tokens=max(0, usage.input_tokens - cached - written),
        cache_creation_input_tokens=written,
        cache_read_input_tokens=cached,
        output_tokens=usage.output_tokens,
    )


_STOPS: dict[ev.Finish, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


def stop_reason(end: AnswerEnd) -> StopReason:
    return _STOPS[finish_of(end)]


class MessagesForm:
    """The form of one answer. See `wire.turn_answers.AnswerForm`."""

    def __init__(self, head: AnswerHead, *, shows_thoughts: bool = False) -> None:
        self._head = head
        self._shows_thoughts = shows_thoughts or head.options.show_reasoning

    @property
    def heartbeat(self) -> bytes:
        return PING

    def whole(self, end: AnswerEnd) -> bytes:
        about = about_answer(self._head, end)
        if self._head.options.show_tools:
            about["tools"] = trail_of(end.items)
        return _encode(
            MessageObject(
                id=message_id(self._head.turn_id),
                model=self._head.model,
                content=list(self._blocks(end)),
                stop_reason=stop_reason(end),
                usage=usage_of(end.usage),
                holdfast=_raw(about),
            )
        )

    def stream(
        self, *, set_aside: frozenset[ItemId] = frozenset(), before: Items = ()
    ) -> MessagesStream:
        return MessagesStream(
            self._head, shows_thoughts=self._shows_thoughts, set_aside=set_aside, before=before
        )

    def _blocks(self, end: AnswerEnd) -> Iterator[AnswerBlock]:
        text, cut = "", False
        waiting = waiting_for_client(end.items)
        for item in end.items:
            cut = goes_on(item, cut)
            if is_said(item) and (words := text_of(item.content)):
                text += words if cut or not text else STEP_BREAK + words
                cut = False
            elif block := self._other(item, waiting):
                if text:
                    yield TextBlock(text=text)
                text = ""
                yield block
        text = STEP_BREAK.join(filter(None, (text, question_for(self._head, end))))
        if text:
            yield TextBlock(text=text)

    def _other(self, item: Item, waiting: list[ToolCall]) -> AnswerBlock | None:
        """The block of a thought that is shown, or of a call that the client has to answer."""
        if is_thought(item) and item.text and self._shows_thoughts:
            return ThinkingBlock(thinking=item.text, signature=_mark(item.id))
        if isinstance(item, ToolCall) and item in waiting:
            return ToolUseBlock(
                id=item.call_id, name=item.name, input=arguments_object(item.arguments)
            )
        return None


def _mark(item: ItemId) -> str:
    return f"{MARK}{item}"


# ── the events of a stream ───────────────────────────────────────────────────────────────────


class TextGrew(Struct, frozen=True, tag="text_delta"):
    text: str


class ThoughtGrew(Struct, frozen=True, tag="thinking_delta"):
    thinking: str


class ThoughtSigned(Struct, frozen=True, tag="signature_delta"):
    signature: str


class ArgumentsGrew(Struct, frozen=True, tag="input_json_delta"):
    partial_json: str


BlockGrowth: TypeAlias = TextGrew | ThoughtGrew | ThoughtSigned | ArgumentsGrew


class MessageStopDelta(Struct, frozen=True):
    stop_reason: StopReason
    stop_sequence: str | None = None


class MessageStartEvent(Struct, frozen=True, tag="message_start"):
    message: MessageObject


class BlockStartEvent(Struct, frozen=True, tag="content_block_start"):
    index: int
    content_block: AnswerBlock


class BlockGrowthEvent(Struct, frozen=True, tag="content_block_delta"):
    index: int
    delta: BlockGrowth


class BlockStopEvent(Struct, frozen=True, tag="content_block_stop"):
    index: int


class MessageEndEvent(Struct, frozen=True, tag="message_delta"):
    delta: MessageStopDelta
    usage: MessageUsage
    holdfast: Raw


class MessageStopEvent(Struct, frozen=True, tag="message_stop"):
    pass


class PingEvent(Struct, frozen=True, tag="ping"):
    holdfast: Raw | UnsetType = UNSET


MessagesEvent: TypeAlias = (
    MessageStartEvent
    | BlockStartEvent
    | BlockGrowthEvent
    | BlockStopEvent
    | MessageEndEvent
    | MessageStopEvent
    | PingEvent
)

_encode = msgspec.json.Encoder().encode


def _raw(value: object) -> Raw:
    return Raw(_encode(value))


def _frame(event: MessagesEvent) -> bytes:
    return event_frame(str(event.__struct_config__.tag), _encode(event))


PING = _frame(PingEvent())

# ── the stream ───────────────────────────────────────────────────────────────────────────────


class _OpenBlock(Struct):
    """The block that is told now."""

    kind: ev.DraftKind
    item: ItemId | None
    """The item whose growth is told now; the text of several items may be in one block. None: a question of ours."""
    told: str = ""
    """The arguments of a call, as far as they were told."""


class MessagesStream(StreamedAnswer):
    """The events of an answer: its blocks one after the other."""

    def __init__(
        self,
        head: AnswerHead,
        *,
        shows_thoughts: bool = False,
        set_aside: frozenset[ItemId] = frozenset(),
        before: Items = (),
    ) -> None:
        super().__init__(head, self._says, set_aside=set_aside)
        self._shows_thoughts = shows_thoughts
        self._calls: dict[ItemId, tuple[str, str]] = {}
        """The client's calls: their ids and names."""
        self._held: dict[ItemId, str] = {}
        """Growth that waits until the arguments of another call are complete."""
        self._open: _OpenBlock | None = None
        self._index = -1
        self._text = b""
        """The beginning of a frame with text, for the open block."""
        self._first = self._start() + self._retold(before)

    def end(self, end: AnswerEnd) -> bytes:
        """The frames that end a successful stream: what was not told yet, the stop reason, usage."""
        rest = self._retold(end.items, waiting_for_client(end.items))
        if words := question_for(self._head, end):
            rest += self._text_of(None, words)
        rest += self._close()
        last = MessageEndEvent(
            delta=MessageStopDelta(stop_reason=stop_reason(end)),
            usage=usage_of(end.usage),
            holdfast=_raw(about_answer(self._head, end)),
        )
        return rest + _frame(last) + _frame(MessageStopEvent())

    # ── events ──

    def _start(self) -> bytes:
        head = self._head
        message = MessageObject(
            id=message_id(head.turn_id),
            model=head.model,
            content=[],
            stop_reason=None,
            usage=MessageUsage(),
            holdfast=_raw(about_turn(head.turn_id)),
        )
        return _frame(MessageStartEvent(message=message))

    def _call_begins(self, item: ItemId, call_id: str, name: str) -> bytes:
        self._calls[item] = call_id, name
        return self._more(item, "")

    def _grew(self, event: ev.Grew) -> bytes:
        return self._more(event.item, event.text)

    def _more(self, item: ItemId, text: str) -> bytes:
        """Frames that tell more of an item, unless it has to wait."""
        kind = self._kinds.get(item)
        if kind is None or (kind == "call" and item not in self._calls):
            return b""
        if kind == "reasoning" and not self._shows_thoughts:
            return b""
        if item in self._held or not self._may_leave(item):
            self._held[item] = self._held.get(item, "") + text
            return b""
        return self._tell(item, kind, text)

    def _progress(self, shown: dict[str, object]) -> bytes:
        return _frame(PingEvent(holdfast=_raw(shown)))

    def _whole(self, item: Item) -> bytes:
        held = self._held.pop(item.id, None)
        if item.id in self._told:
            return self._tell(item.id, self._kinds[item.id], held) if held else b""
        match item:
            case AssistantMessage():
                return self._text_of(item.id, text_of(item.content))
            case Reasoning() if self._shows_thoughts and item.text:
                return self._tell(item.id, "reasoning", item.text)
            case ToolCall() if item.waits_for == "client":
                self._calls[item.id] = item.call_id, item.name
                return self._tell(item.id, "call", item.arguments)
            case _:
                return b""

    # ── blocks ──

    def _may_leave(self, item: ItemId) -> bool:
        """Whether another block than this item's may be begun: not before the arguments of the open call are complete."""
        now = self._open
        if now is None or now.kind != "call" or now.item == item:
            return True
        try:
            msgspec.json.decode(now.told)
        except DAMAGE:
            return False
        return True

    def _tell(self, item: ItemId, kind: ev.DraftKind, text: str) -> bytes:
        """Frames that tell more of an item, in the open block or in one of its own."""
        match kind:
            case "message":
                return self._text_of(item, text)
            case "reasoning":
                begins = self._begin("reasoning", item, ThinkingBlock(thinking="", signature=""))
                self._told.add(item)
                return begins + (self._delta(ThoughtGrew(thinking=text)) if text else b"")
            case "call":
                call_id, name = self._calls[item]
                block = ToolUseBlock(id=call_id, name=name, input=Raw(b"{}"))
                begins = self._begin("call", item, block)
                self._told.add(item)
                assert self._open is not None
                self._open.told += text
                return begins + (self._delta(ArgumentsGrew(partial_json=text)) if text else b"")
            case _:  # pragma: no cover
                assert_never(kind)

    def _text_of(self, item: ItemId | None, text: str) -> bytes:
        """Frames with text: after a break, if it is not the rest of what the open block has."""
        if not text:
            return b""
        now = self._open
        if now is None or now.kind != "message":
            begins = self._begin("message", item, TextBlock(text=""))
        else:
            begins = b"" if self._cut or now.item == item else self._says(STEP_BREAK)
            now.item = self._saying = item
        self._cut = False
        if item is not None:
            self._told.add(item)
        return begins + self._says(text)

    def _says(self, text: str) -> bytes:
        """A frame with a piece of the text. This runs for every token."""
        return self._text + one_line(_encode(text)) + b"}}\n\n" if text else b""

    def _begin(self, kind: ev.DraftKind, item: ItemId | None, block: AnswerBlock) -> bytes:
        now = self._open
        if now is not None and now.kind == kind and now.item == item:
            return b""
        closes = self._close()
        self._index += 1
        self._open = _OpenBlock(kind=kind, item=item)
        if kind == "message":
            self._saying = item
            self._text = (
                b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
                b'"delta":{"type":"text_delta","text":' % self._index
            )
        return closes + _frame(BlockStartEvent(index=self._index, content_block=block))

    def _close(self) -> bytes:
        now, self._open, self._saying = self._open, None, None
        if now is None:
            return b""
        signs = b""
        if now.kind == "reasoning" and now.item is not None:
            signs = self._delta(ThoughtSigned(signature=_mark(now.item)))
        return signs + _frame(BlockStopEvent(index=self._index))

    def _delta(self, delta: BlockGrowth) -> bytes:
        return _frame(BlockGrowthEvent(index=self._index, delta=delta))
