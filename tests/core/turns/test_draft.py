"""An answer while it grows, and what becomes of it."""

from __future__ import annotations

import pytest

from holdfast.core.items import (
    AssistantMessage,
    Completeness,
    Opaque,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
)
from holdfast.core.turns.draft import Draft
from holdfast.core.turns.events import DraftKind, Grew, ItemOpened
from holdfast.ids import CallId, ItemId, MessageId, ReasoningId
from tests.core.builders import frozen, mint

MESSAGE, THOUGHT, CALL = mint(MessageId), mint(ReasoningId), mint(CallId)


def opened(item: ItemId, kind: DraftKind) -> ItemOpened:
    named = kind == "call"
    return ItemOpened(
        item=item, kind=kind, call_id="call_1" if named else "", name="fly" if named else ""
    )


def grown(draft: Draft, item: ItemId, *pieces: str, refusal: bool = False) -> Draft:
    for text in pieces:
        after = draft.grown(Grew(item=item, text=text, refusal=refusal))
        assert after is not None
        draft = after
    return draft


def three_items() -> Draft:
    """Reasoning, a message and a call, all open and still empty."""
    draft = Draft()
    draft = draft.opened(opened(THOUGHT, "reasoning"))
    draft = draft.opened(opened(MESSAGE, "message"))
    return draft.opened(opened(CALL, "call"))


def test_pieces_go_to_their_own_item_in_whatever_order_they_come() -> None:
    draft = three_items()
    draft = grown(draft, CALL, '{"to":')
    draft = grown(draft, MESSAGE, "Let me ")
    draft = grown(draft, THOUGHT, "Oslo?")
    draft = grown(draft, CALL, '"Oslo"}')
    draft = grown(draft, MESSAGE, "see.")

    assert [each.text for each in draft.items] == ["Oslo?", "Let me see.", '{"to":"Oslo"}']
    assert draft.chars == len("Oslo?" + "Let me see." + '{"to":"Oslo"}')


def test_growing_leaves_the_draft_before_as_it_was() -> None:
    before = grown(three_items(), MESSAGE, "Let me ")
    bytes_before = frozen(before)
    grown(before, MESSAGE, "see.")
    grown(before, MESSAGE, "think.")

    assert frozen(before) == bytes_before


def test_an_item_that_is_not_open_cannot_grow() -> None:
    assert three_items().grown(Grew(item=mint(MessageId), text="?")) is None
    assert three_items().find(mint(MessageId)) is None


def test_each_kind_becomes_its_own_item() -> None:
    draft = grown(grown(grown(three_items(), THOUGHT, "Hmm"), MESSAGE, "Hi"), CALL, "{}")
    extras = (Opaque(owner="demo", json='"signed"'),)
    items = [each.completed(agent="butler", path=(), extras=extras) for each in draft.items]

    assert items == [
        Reasoning(id=THOUGHT, text="Hmm", agent="butler", extras=extras),
        AssistantMessage(id=MESSAGE, content=(Text(text="Hi"),), agent="butler", extras=extras),
        ToolCall(
            id=CALL, call_id="call_1", name="fly", arguments="{}", agent="butler", extras=extras
        ),
    ]


def test_a_refusal_is_a_part_of_its_own() -> None:
    draft = grown(three_items(), MESSAGE, "I can't ", "do that", refusal=True)
    (message,) = draft.broken(agent="butler", path=(), state="set_aside")[:1]

    assert isinstance(message, AssistantMessage)
    assert message.content == (Refusal(text="I can't do that"),)

    draft = grown(draft, MESSAGE, "Well. ")
    (message,) = draft.broken(agent="butler", path=(), state="set_aside")[:1]
    assert isinstance(message, AssistantMessage)
    assert message.content == (Text(text="Well. "), Refusal(text="I can't do that"))


@pytest.mark.parametrize("state", ["interrupted", "set_aside"])
def test_a_broken_step_keeps_what_was_said(state: Completeness) -> None:
    """A call whose arguments broke off was never made, whatever becomes of the words around it."""
    draft = grown(grown(grown(three_items(), THOUGHT, "Hm"), MESSAGE, "Let"), CALL, '{"to')

    broken = draft.broken(agent="butler", path=(), state=state)

    assert [(each.id, each.state) for each in broken] == [
        (THOUGHT, state),
        (MESSAGE, state),
        (CALL, "set_aside"),
    ]


def test_items_that_said_nothing_leave_nothing_but_a_named_call_does() -> None:
    (only,) = three_items().broken(agent="butler", path=(), state="interrupted")
    assert isinstance(only, ToolCall)
    assert (only.name, only.arguments) == ("fly", "")
