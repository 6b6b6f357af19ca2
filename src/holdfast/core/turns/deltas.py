"""A provider's stream of deltas as events, and in the end as the items of one answer.

Providers number what they stream (a content block, a tool call); we mint an item id at the first delta of each
number, and keep it. The text accumulates in the turn's draft, so no text is collected twice.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.items import Opaque, Path, ToolCall
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
    TextDelta | ReasoningDelta | ToolCallDelta | ExtraDelta | UsageDelta | FinishDelta
)

# ── the accumulator ──────────────────────────────────────────────────────────────────────────


class Accumulator:
    """Builds one answer. Feed it deltas, record the events it returns, then call `answered`."""

    def __init__(self, mint: Minter, *, agent: str, path: Path = ()) -> None:
        self._mint = mint
        self._agent = agent
        self._path = path
        self._names: dict[tuple[ev.DraftKind, int], ItemId] = {}
        self._call_ids: set[str] = set()
        self._nameless: dict[int, ToolCallDelta] = {}
        self._extras: dict[tuple[ev.DraftKind, int], tuple[Opaque, ...]] = {}
        self._usage = ev.Usage()
        self._finish: ev.Finish | None = None

    def events(self, delta: Delta) -> tuple[ev.Event, ...]:
        """The events that this delta makes; none if watchers see nothing of it."""
        match delta:
            case TextDelta():
                return self._grown("message", delta.index, delta.text, refusal=delta.refusal)
            case ReasoningDelta():
                return self._grown("reasoning", delta.index, delta.text)
            case ToolCallDelta():
                return self._call(delta)
            case ExtraDelta():
                return self._extra(delta)
            case UsageDelta():
                self._usage = delta.usage
            case FinishDelta():
                self._finish = delta.finish
            case _:  # pragma: no cover
                assert_never(delta)
        return ()

    def answered(self, draft: Draft, *, model: str = "") -> ev.Answered:
        """The whole answer, from the draft that the events have grown. `waits_for` of its calls is not decided yet."""
        extras = {self._names.get(place): held for place, held in self._extras.items()}
        items = tuple(
            self._checked(
                each.completed(agent=self._agent, path=self._path, extras=extras.get(each.id, ()))
            )
            for each in draft.items
        )
        return ev.Answered(
            items=items,
            path=self._path,
            finish=self._finish or ("tool_calls" if self._asked_for_tools else "stop"),
            usage=self._usage,
            model=model,
        )

    @property
    def usage(self) -> ev.Usage:
        """The usage so far: for a step that breaks off."""
        return self._usage

    @property
    def finished(self) -> bool:
        """Whether the provider has sent a finish reason. A stream that merely ends is not finished."""
        return self._finish is not None

    @property
    def _asked_for_tools(self) -> bool:
        return any(kind == "call" for kind, _ in self._names)

    def _grown(
        self, kind: ev.DraftKind, index: int, text: str, *, refusal: bool = False
    ) -> tuple[ev.Event, ...]:
        if not text:
            return ()
        known = self._names.get((kind, index))
        if known is not None:
            return (ev.Grew(item=known, text=text, path=self._path, refusal=refusal),)
        opened = self._opened(kind, index)
        return (opened, ev.Grew(item=opened.item, text=text, path=self._path, refusal=refusal))

    def _call(self, delta: ToolCallDelta) -> tuple[ev.Event, ...]:
        if ("call", delta.index) in self._names:
            return self._grown("call", delta.index, delta.arguments)
        held = self._nameless.pop(delta.index, ToolCallDelta(index=delta.index))
        so_far = ToolCallDelta(
            index=delta.index,
            call_id=held.call_id or delta.call_id,
            name=held.name or delta.name,
            arguments=held.arguments + delta.arguments,
        )
        if not so_far.name:
            self._nameless[delta.index] = so_far
            return ()
        opened = self._opened("call", delta.index, call_id=so_far.call_id, name=so_far.name)
        return (opened, *self._grown("call", delta.index, so_far.arguments))

    def _extra(self, delta: ExtraDelta) -> tuple[ev.Event, ...]:
        place = (delta.kind, delta.index)
        held = (*self._extras.get(place, ()), delta.extra)
        # The decoder checks these bounds: an item beyond them could be written, but never read again.
        if len(held) > limits.opaques_max:
            raise InvalidValue(f"one item comes with more than {limits.opaques_max} extras")
        if len(delta.extra.json) > limits.opaque_bytes_max:
            raise InvalidValue(f"an extra is larger than {limits.opaque_bytes_max} bytes")
        self._extras[place] = held
        if place in self._names or delta.kind == "call":  # a call is opened by its name
            return ()
        return (self._opened(delta.kind, delta.index),)

    def _opened(
        self, kind: ev.DraftKind, index: int, *, call_id: str = "", name: str = ""
    ) -> ev.ItemOpened:
        item = self._mint(ID_KIND[kind])
        self._names[kind, index] = item
        if kind == "call" and (not call_id or call_id in self._call_ids):
            call_id = f"call_{item.body}"  # some providers leave it out, or give two calls the same
        self._call_ids.add(call_id)
        return ev.ItemOpened(item=item, kind=kind, path=self._path, call_id=call_id, name=name)

    def _checked(self, item: ev.Answer) -> ev.Answer:
        """The item; a call whose arguments were cut off is set aside, since it was never made."""
        if not isinstance(item, ToolCall) or self._finish != "length" or _is_json(item.arguments):
            return item
        return msgspec.structs.replace(item, state="set_aside")


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True
