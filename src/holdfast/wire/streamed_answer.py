"""The base of answers that are streamed as text: which event of a turn is shown, and what is told at the end.

1. Nothing is told twice: neither an item that is whole after it grew, nor one of a turn that this one continues.
2. Text that was told is not taken back. If it turns out to be no part of the answer, the stream ends with an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from holdfast.core.items import Item, Items, Reasoning, ToolCall
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.ids import ItemId
from holdfast.wire.turn_answers import AnswerHead, goes_on, is_said, is_thought, tool_progress


class StreamedAnswer(ABC):
    """Turns the events of a turn into frames. Feed it every event once, in order, then the end."""

    _first: bytes
    """Set by a subclass: it may have to tell what earlier turns have said."""

    def __init__(
        self,
        head: AnswerHead,
        words: Callable[[str], bytes],
        *,
        set_aside: frozenset[ItemId] = frozenset(),
    ) -> None:
        """`words` makes a frame with more of the text that was told last; it runs for every token. `set_aside` are items
        that do not count: nothing of them is shown."""
        self._head = head
        self._words = words
        self._set_aside = set_aside
        self._kinds: dict[ItemId, ev.DraftKind] = {}
        self._told: set[ItemId] = set()
        """Items of which something was told."""
        self._trail: dict[ItemId, ToolCall] = {}
        self._saying: ItemId | None = None
        """The item whose text was told last."""
        self._broken = False
        self._cut = False
        """The text so far was cut by its length, and the next text continues it."""

    def first(self) -> bytes:
        """The frames that begin every stream."""
        return self._first

    def frames(self, record: Record) -> bytes:
        """The frames that show this event to the client; empty if it shows nothing."""
        event = record.event
        match event:
            case ev.Grew() if event.item == self._saying and event.text and not event.refusal:
                return self._words(event.text)  # nearly always
            case ev.Grew() if not event.path:
                return self._grew(event)
            case ev.ItemOpened() if not event.path and event.item not in self._set_aside:
                self._kinds[event.item] = event.kind
                is_clients = event.kind == "call" and event.name in self._head.client_tools
                return (
                    self._call_begins(event.item, event.call_id, event.name) if is_clients else b""
                )
            case ev.Answered():
                return self._answered(event)
            case ev.StepBroken() if not event.path:
                self._broken = self._broken or any(map(self._is_taken_back, event.items))
                return b""
            case ev.ToolStarted() | ev.ToolFinished() if self._head.options.show_tools:
                shown = tool_progress(event, self._trail)
                return self._progress(shown) if shown else b""
            case ev.Began():  # with calls of earlier turns that a person has approved meanwhile
                self._trail.update((each.id, each) for each in event.request.carried)
                return b""
            case _:
                return b""

    @property
    def took_back(self) -> bool:
        """Whether text was told that is not part of the answer: then the stream must end with an error."""
        return self._broken

    def _is_taken_back(self, item: ev.Answer) -> bool:
        """Whether an item of a broken step was told. Reasoning of such a step is not taken back."""
        told = item.id in self._told and not isinstance(item, Reasoning)
        return told and item.state == "set_aside"

    def _answered(self, event: ev.Answered) -> bytes:
        """Frames for the parts of a whole answer that were not told while it grew."""
        self._trail.update((each.id, each) for each in event.items if isinstance(each, ToolCall))
        if event.path:
            return b""
        frames = b"".join(map(self._whole, event.items))
        self._cut = False
        return frames

    def _retold(self, items: Items, waiting: Sequence[ToolCall] = ()) -> bytes:
        """Frames for the parts of these items that belong to the answer and were not told yet."""
        frames: list[bytes] = []
        for each in items:
            self._cut = goes_on(each, self._cut)
            if is_said(each) or is_thought(each) or each in waiting:
                frames.append(self._whole(each))
        return b"".join(frames)

    # ── how an API writes it ──

    @abstractmethod
    def _grew(self, event: ev.Grew) -> bytes:
        """A piece of an item."""

    @abstractmethod
    def _call_begins(self, item: ItemId, call_id: str, name: str) -> bytes:
        """A call that the client has to answer."""

    @abstractmethod
    def _whole(self, item: Item) -> bytes:
        """An item in one piece, or the rest of it; empty if it was told."""

    @abstractmethod
    def _progress(self, shown: dict[str, object]) -> bytes:
        """The progress of one of the agent's own tools."""
