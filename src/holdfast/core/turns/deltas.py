"""A provider's stream of deltas as events, and in the end as the items of one answer.

Providers number what they stream (a content block, a tool call); we mint an item id at the first delta of each
number, and keep it. The text accumulates in the turn's draft, so no text is collected twice.

1. Items do not interleave, in any order of the deltas: an item grows until the next one is opened, and never
   after that.
2. One item is *current*: its deltas become events at once. Deltas of others wait until the current item has ended.
   A text has ended when an item with a new number begins, a call when its arguments are a whole JSON object; and
   everything has ended when the provider says how the answer finished.
3. A delta for an item that has ended is *late*. Late text begins another item, which waits for its turn. Late
   white space, and text after the whole arguments of a call, is noise, and dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias, assert_never

import msgspec

from holdfast import limits
from holdfast.core.codec import DAMAGE, Value
from holdfast.core.items import AssistantMessage, Opaque, Part, Path, ToolCall
from holdfast.core.turns import events as ev
from holdfast.core.turns.draft import ID_KIND, Draft
from holdfast.errors import InvalidValue
from holdfast.ids import ItemId, Minter

# ── deltas ───────────────────────────────────────────────────────────────────────────────────


class TextDelta(Value):
    text: str
    index: int = 0
    refusal: bool = False


class ReasoningDelta(Value):
    text: str
    index: int = 0


class ToolCallDelta(Value):
    """A fragment of a tool call. The name comes whole, with the first fragment that has one."""

    index: int
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class PartDelta(Value):
    """A part of a message that comes whole, such as a picture."""

    part: Part
    index: int = 0


class ExtraDelta(Value):
    """An opaque value that belongs to an item: a signature, encrypted reasoning."""

    kind: ev.DraftKind
    extra: Opaque
    index: int = 0


class UsageDelta(Value):
    """The usage of the step as the provider reports it so far. The last report counts."""

    usage: ev.Usage


class FinishDelta(Value):
    finish: ev.Finish


Delta: TypeAlias = (
    TextDelta | ReasoningDelta | ToolCallDelta | PartDelta | ExtraDelta | UsageDelta | FinishDelta
)

# ── the accumulator ──────────────────────────────────────────────────────────────────────────


class _Growing:
    """An item that the provider has begun. Its events wait in `held` until it becomes the current item."""

    __slots__ = (
        "arguments",
        "call_id",
        "ended",
        "held",
        "id",
        "index",
        "kind",
        "late",
        "name",
        "unfinished",
    )

    def __init__(self, kind: ev.DraftKind, index: int, item: ItemId, *, late: bool = False) -> None:
        self.kind = kind
        self.index = index
        self.id = item
        self.late = late
        self.ended = False
        self.call_id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.unfinished = 0
        """How many pieces of the arguments are known to be no whole object."""
        self.held: list[ev.Grew] = []

    def has_whole_arguments(self) -> bool:
        """Whether the arguments so far are a JSON object. No object is the beginning of another: nothing can follow."""
        if len(self.arguments) == self.unfinished:
            return False
        self.unfinished = len(self.arguments)
        if not self.arguments[-1].rstrip().endswith("}"):
            return False  # nearly always, and cheaper than parsing
        try:
            msgspec.json.decode("".join(self.arguments), type=dict[str, msgspec.Raw])
        except DAMAGE:
            return False
        self.unfinished = -1
        return True


class Accumulator:
    """Builds one answer. Feed it deltas, record the events it returns, then call `answered`."""

    def __init__(self, mint: Minter, *, agent: str, path: Path = ()) -> None:
        self._mint = mint
        self._agent = agent
        self._path = path
        self._numbered: dict[tuple[ev.DraftKind, int], _Growing] = {}
        """The newest item of each of the provider's numbers."""
        self._current: _Growing | None = None
        self._waiting: deque[_Growing] = deque()
        """Items that were begun and not opened, in order."""
        self._held_chars = 0
        self._extras: dict[ItemId, tuple[Opaque, ...]] = {}
        self._call_ids: set[str] = set()
        self._parts: dict[ItemId, tuple[Part, ...]] = {}
        self._usage = ev.Usage()
        self._finish: ev.Finish | None = None

    def hear(self, deltas: Sequence[Delta], events: list[ev.Event]) -> None:
        """Add the events that these deltas make. Raises InvalidValue at the first delta that cannot be kept; the events
        of those before it are added then."""
        path, current = self._path, self._growing_text
        for delta in deltas:
            if type(delta) is TextDelta and current is not None and delta.index == current.index:
                if text := delta.text:  # nearly always, and this runs for every token
                    events.append(
                        ev.Grew(item=current.id, text=text, path=path, refusal=delta.refusal)
                    )
            else:
                events += self.events(delta)
                current = self._growing_text

    def events(self, delta: Delta) -> tuple[ev.Event, ...]:
        """The events that this delta makes; none if watchers see nothing of it yet."""
        match delta:
            case TextDelta():
                return self._grown("message", delta.index, delta.text, refusal=delta.refusal)
            case FinishDelta():
                self._finish = delta.finish
                return self._due()
            case UsageDelta():
                self._usage = delta.usage
            case ReasoningDelta():
                return self._grown("reasoning", delta.index, delta.text)
            case ToolCallDelta():
                return self._call(delta)
            case PartDelta():
                return self._part(delta)
            case ExtraDelta():
                return self._extra(delta)
            case _:  # pragma: no cover
                assert_never(delta)
        return ()

    def answered(self, draft: Draft, *, model: str = "") -> ev.Answered:
        """The whole answer, from the draft that the events have grown. `waits_for` of its calls is not decided yet."""
        items = tuple(
            self._checked(
                each.completed(
                    agent=self._agent, path=self._path, extras=self._extras.get(each.id, ())
                )
            )
            for each in draft.items
        )
        return ev.Answered(
            items=items,
            path=self._path,
            finish=self._finish or ("tool_calls" if self.asked_for_tools else "stop"),
            usage=self._usage,
            model=model,
        )

    @property
    def usage(self) -> ev.Usage:
        """The usage so far: for a step that breaks off."""
        return self._usage

    @property
    def finish(self) -> ev.Finish | None:
        """The provider's finish reason; None while it has sent none."""
        return self._finish

    @property
    def finished(self) -> bool:
        """Whether the provider has sent a finish reason. A stream that merely ends is not finished."""
        return self.finish is not None

    @property
    def asked_for_tools(self) -> bool:
        """Whether the model has called a tool in this answer."""
        return any(kind == "call" for kind, _ in self._numbered)

    # ── deltas ──

    def _grown(
        self, kind: ev.DraftKind, index: int, text: str, *, refusal: bool = False
    ) -> tuple[ev.Event, ...]:
        """The events of a piece of text. This runs for every token."""
        if not text:
            return ()
        item = self._numbered.get((kind, index))
        if item is not None and item is self._current:  # nearly always
            grew = ev.Grew(item=item.id, text=text, path=self._path, refusal=refusal)
            if kind != "call":
                return (grew,)
            item.arguments.append(text)
            return (grew, *self._due()) if self._waiting else (grew,)
        if item is None or item.ended:
            if item is not None and (kind == "call" or text.isspace()):
                return ()
            item = self._begun(kind, index)
        self._hold(item, text, refusal=refusal)
        return self._due()

    def _call(self, delta: ToolCallDelta) -> tuple[ev.Event, ...]:
        item = self._numbered.get(("call", delta.index)) or self._noted("call", delta.index)
        if item.name:
            return self._grown("call", delta.index, delta.arguments)
        item.call_id = item.call_id or delta.call_id
        if delta.arguments:
            self._hold(item, delta.arguments)
        if not delta.name:
            return ()  # a call is opened by its name
        item.name = delta.name
        self._waiting.append(item)
        return self._due()

    def _part(self, delta: PartDelta) -> tuple[ev.Event, ...]:
        item = self._numbered.get(("message", delta.index))
        begins = item is None or item.ended
        if item is None or begins:
            item = self._begun("message", delta.index)
        held = self._parts.get(item.id, ())
        if len(held) == limits.answer_parts_max:
            raise InvalidValue(f"one message comes with more than {limits.answer_parts_max} parts")
        self._parts[item.id] = (*held, delta.part)
        return self._due() if begins else ()

    def _extra(self, delta: ExtraDelta) -> tuple[ev.Event, ...]:
        # The decoder checks these bounds: an item beyond them could be written, but never read again.
        if len(delta.extra.json) > limits.opaque_bytes_max:
            raise InvalidValue(f"an extra is larger than {limits.opaque_bytes_max} bytes")
        begins = False
        item = self._numbered.get((delta.kind, delta.index))
        if item is None:
            begins = delta.kind != "call"
            make = self._begun if begins else self._noted
            item = make(delta.kind, delta.index)
        held = self._extras.get(item.id, ())
        if len(held) == limits.opaques_max:
            raise InvalidValue(f"one item comes with more than {limits.opaques_max} extras")
        self._extras[item.id] = (*held, delta.extra)
        return self._due() if begins else ()

    # ── one after the other ──

    @property
    def _growing_text(self) -> _Growing | None:
        """The current item, if it is a message."""
        current = self._current
        return current if current is not None and current.kind == "message" else None

    def _noted(self, kind: ev.DraftKind, index: int) -> _Growing:
        """A new item under this number, which cannot be opened yet."""
        late = (kind, index) in self._numbered
        item = self._numbered[kind, index] = _Growing(
            kind, index, self._mint(ID_KIND[kind]), late=late
        )
        return item

    def _begun(self, kind: ev.DraftKind, index: int) -> _Growing:
        """A new item under this number, which is opened when its turn comes."""
        item = self._noted(kind, index)
        self._waiting.append(item)
        return item

    def _hold(self, item: _Growing, text: str, *, refusal: bool = False) -> None:
        self._held_chars += len(text)
        if self._held_chars > limits.output_chars_max:
            raise InvalidValue(f"more than {limits.output_chars_max} characters came out of order")
        item.held.append(ev.Grew(item=item.id, text=text, path=self._path, refusal=refusal))
        if item.kind == "call":
            item.arguments.append(text)

    def _due(self) -> tuple[ev.Event, ...]:
        """The events of the waiting items whose turn has come."""
        events: list[ev.Event] = []
        while self._waiting and (self._finish is not None or self._may_end(self._current)):
            item = self._waiting.popleft()
            events += (self._opened(item), *item.held)
            self._held_chars -= sum(len(each.text) for each in item.held)
            item.held = []
        return tuple(events)

    def _may_end(self, item: _Growing | None) -> bool:
        """Whether the next item may be opened after this one."""
        if item is None:
            return True
        if item.kind == "call":
            return item.has_whole_arguments()
        # Late text must not cut the current text in two.
        return not all(each.late for each in self._waiting)

    def _opened(self, item: _Growing) -> ev.ItemOpened:
        before, self._current = self._current, item
        if before is not None:
            before.ended = True
            if self._is_cut(before):
                before = None  # only the answer as a whole can tell its state
        call_id = item.call_id
        if item.kind == "call" and (not call_id or call_id in self._call_ids):
            call_id = (
                f"call_{item.id.body}"  # some providers leave it out, or give two calls the same
            )
        self._call_ids.add(call_id)
        return ev.ItemOpened(
            item=item.id,
            kind=item.kind,
            path=self._path,
            call_id=call_id,
            name=item.name,
            ended=before.id if before else None,
            ended_extras=self._extras.get(before.id, ()) if before else (),
            usage=self._usage,
        )

    def _is_cut(self, item: _Growing) -> bool:
        return (
            self._finish == "length"
            and item.kind == "call"
            and not _is_json("".join(item.arguments))
        )

    def _checked(self, item: ev.Answer) -> ev.Answer:
        """The item with its whole parts; a call whose arguments were cut off is set aside, since it was never made."""
        if isinstance(item, AssistantMessage) and self._parts:
            parts = self._parts.get(item.id, ())
            return msgspec.structs.replace(item, content=(*item.content, *parts))
        if not isinstance(item, ToolCall) or self._finish != "length" or _is_json(item.arguments):
            return item
        return msgspec.structs.replace(item, state="set_aside")


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True
