"""What turns say: small items with minted ids, and the commits that they make."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import limits
from holdfast.core.codec import encode
from holdfast.core.history import chain
from holdfast.core.history.conversation import Commit
from holdfast.core.items import (
    AssistantMessage,
    EndedBy,
    Interruption,
    Item,
    Outcome,
    ToolCall,
    ToolResult,
    UserMessage,
    WaitsFor,
    plain_text,
)
from holdfast.core.turns.events import Change, Usage
from holdfast.ids import CallId, MessageId, Minter, NoteId, ResultId, TurnId, Version


class Words:
    """Makes items, each with an id of its own."""

    def __init__(self, mint: Minter) -> None:
        self._mint = mint

    def user(self, text: str = "") -> UserMessage:
        made = self._mint(MessageId)
        return UserMessage(id=made, content=plain_text(text or f"Hello {made.body[-6:]}"))

    def answer(self) -> AssistantMessage:
        return AssistantMessage(id=self._mint(MessageId), content=plain_text("Hi"))

    def note(self, by: EndedBy) -> Interruption:
        return Interruption(id=self._mint(NoteId), ended_by=by)

    def call(self, *, waits_for: WaitsFor | None = None) -> ToolCall:
        made = self._mint(CallId)
        return ToolCall(id=made, call_id="c", name="look", arguments="{}", waits_for=waits_for)

    def result(self, call: ToolCall, outcome: Outcome = "ok") -> ToolResult:
        return ToolResult(id=self._mint(ResultId), call=call.id, outcome=outcome)


def commit_of(
    turn_id: TurnId,
    items: Sequence[Item],
    *,
    version: Version,
    after: bytes,
    by: EndedBy = "completed",
    agent: str = "butler",
    changes: tuple[Change, ...] = (),
    continues: TurnId | None = None,
    links: int = 0,
) -> Commit:
    """These items as the commit of a turn, linked to what came before it."""
    encoded = tuple(map(encode, items))
    header = chain.LinkHeader(
        turn_id=turn_id, version=version, ended_by=by, agent=agent, continues=continues
    )
    calls = (each for each in items if isinstance(each, ToolCall))
    return Commit(
        turn_id=turn_id,
        version=version,
        ended_by=by,
        source_key="agents.yaml",
        source_name="",
        entry_agent=agent,
        agent=agent,
        items=tuple(items),
        encoded=encoded,
        changes=changes,
        waiting=tuple(each for each in calls if each.waits_for),
        usage=Usage(output_tokens=len(items)),
        link=chain.link(after, header, items=encoded, changes=map(encode, changes)),
        detail="" if by == "completed" else "somebody said stop",
        continues=continues,
        links=links if continues else None,
        retries_left=max(0, limits.continuations_max - links) if by == "model_error" else None,
    )
