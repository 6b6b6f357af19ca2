"""An answer while it is still growing. Its cost is linear in its size, however many pieces it comes in.

A `Draft` is a value like everything else in the turn, so each piece makes a new draft; the text is a shared
`Log` of pieces, so that a new draft costs the piece and not the text.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.codec import Value
from holdfast.core.history.log import Log
from holdfast.core.items import (
    AssistantMessage,
    Completeness,
    Opaques,
    Part,
    Path,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
)
from holdfast.core.turns.estimates import counted, text_bytes
from holdfast.core.turns.events import Answer, DraftKind, Grew, ItemOpened, StepEstimate, Usage
from holdfast.ids import CallId, ItemId, MessageId, ReasoningId

ID_KIND: dict[DraftKind, type[MessageId | ReasoningId | CallId]] = {
    "message": MessageId,
    "reasoning": ReasoningId,
    "call": CallId,
}
"""The type of id that an item gets when it is opened, and keeps."""


class DraftItem(Value):
    """One item that the model has begun."""

    id: ItemId
    kind: DraftKind
    call_id: str = ""
    name: str = ""
    pieces: Log[str] = Log()
    refusal: Log[str] = Log()

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def size_bytes(self) -> int:
        return text_bytes((self.name, *self.pieces, *self.refusal))

    def completed(
        self,
        *,
        agent: str,
        path: Path,
        state: Completeness = "complete",
        extras: Opaques = (),
    ) -> Answer:
        """The item made of this draft."""
        if self.kind == "message":
            return AssistantMessage(
                id=MessageId(self.id),
                content=self._parts(),
                agent=agent,
                state=state,
                path=path,
                extras=extras,
            )
        if self.kind == "reasoning":
            return Reasoning(
                id=ReasoningId(self.id),
                text=self.text,
                agent=agent,
                state=state,
                path=path,
                extras=extras,
            )
        return ToolCall(
            id=CallId(self.id),
            call_id=self.call_id,
            name=self.name,
            arguments=self.text,
            agent=agent,
            # A call whose arguments broke off was never made: no model may see it again.
            state="complete" if state == "complete" else "set_aside",
            path=path,
            extras=extras,
        )

    def _parts(self) -> tuple[Part, ...]:
        text, refusal = self.text, "".join(self.refusal)
        said: tuple[Part, ...] = (Text(text=text),) if text else ()
        return (*said, Refusal(text=refusal)) if refusal else said


class Draft(Value):
    """The items of a step so far, in the order in which the model began them."""

    items: tuple[DraftItem, ...] = ()
    chars: int = 0
    estimate: StepEstimate | None = None
    reported: Usage = Usage()

    def opened(self, event: ItemOpened) -> Draft:
        fresh = DraftItem(id=event.item, kind=event.kind, call_id=event.call_id, name=event.name)
        return Draft(
            items=(*self.items, fresh),
            chars=self.chars,
            estimate=self.estimate,
            reported=event.usage,
        )

    def find(self, item: ItemId) -> DraftItem | None:
        for each in self.items:
            if each.id == item:
                return each
        return None

    def grown(self, event: Grew, more: Sequence[str] = ()) -> Draft | None:
        """The draft with this piece of an item and `more` pieces of it; None if the item is not open."""
        items = self.items
        at = len(items) - 1
        while at >= 0 and items[at].id != event.item:  # nearly always, it is the last
            at -= 1
        if at < 0:
            return None
        grown = _grown(items[at], event, more)
        return Draft(
            items=(grown,) if len(items) == 1 else (*items[:at], grown, *items[at + 1 :]),
            chars=self.chars + len(event.text) + sum(map(len, more)),
            estimate=self.estimate,
            reported=self.reported,
        )

    def usage(self, *, failed: bool, reported: Usage | None = None) -> Usage:
        """The usage of the step if it breaks off here. A model that has `failed` before it said anything has, most
        likely, read nothing: then only what it has reported counts. `reported` is the last report, where it is known:
        the draft knows those that came before its last item."""
        reported = self.reported if reported is None else reported
        if self.estimate is None or (failed and not self.items):
            return reported
        thought = [each for each in self.items if each.kind == "reasoning"]
        said = [each for each in self.items if each.kind != "reasoning"]
        return counted(
            reported,
            self.estimate,
            said_bytes=sum(each.size_bytes for each in said),
            thought_bytes=sum(each.size_bytes for each in thought),
        )

    def broken(self, *, agent: str, path: Path, state: Completeness) -> tuple[Answer, ...]:
        """The items of a step that broke off, without items that have no text yet."""
        said = (each for each in self.items if each.pieces or each.refusal or each.kind == "call")
        return tuple(each.completed(agent=agent, path=path, state=state) for each in said)


def _grown(item: DraftItem, piece: Grew, more: Sequence[str]) -> DraftItem:
    log = item.refusal if piece.refusal else item.pieces
    log = log.extended((piece.text, *more)) if more else log.appended(piece.text)
    if piece.refusal:
        return msgspec.structs.replace(item, refusal=log)
    return msgspec.structs.replace(item, pieces=log)
