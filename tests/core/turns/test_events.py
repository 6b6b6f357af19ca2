"""Events as values: what they add up to, and how they come back from bytes."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import Decoder, encode
from holdfast.core.turns import events as ev
from holdfast.ids import MessageId
from tests.core.builders import (
    answered,
    asked,
    branch_opened,
    call,
    finished,
    handed_off,
    interrupted,
    mint,
    note,
    request,
    said,
    started,
    steered,
    summary,
    thought,
)

event_decoder: Decoder[ev.Event] = Decoder(ev.Event)

FLY = call("fly", waits_for="approval")
ONE_OF_EACH: tuple[ev.Event, ...] = (
    ev.Began(request=request(carried=(FLY,), approved=(FLY.id,), base=7)),
    asked(),
    ev.ItemOpened(item=mint(MessageId), kind="message"),
    ev.Grew(item=mint(MessageId), text="Hello", refusal=True),
    answered(thought(), said(), FLY, finish="tool_calls", cost_micros=3),
    ev.StepBroken(items=(said(state="set_aside"),), why="model_error"),
    started(FLY, idempotent=True),
    finished(FLY, changes=(ev.StateSet(name="todo", value="[]"),)),
    branch_opened(FLY),
    handed_off(),
    steered("Louder"),
    ev.Compacted(summary=summary()),
    interrupted("deadline"),
    ev.Resumed(attempt=2),
    ev.Closed(note=note()),
    ev.Ended(by="cancelled", kept=True),
)
TAGS = (
    "began step_started item_opened grew answered step_broken tool_started tool_finished "
    "branch_opened handed_off steered compacted interrupted resumed closed ended"
).split()


def test_there_is_one_of_each() -> None:
    assert {type(each) for each in ONE_OF_EACH} == set(get_args(ev.Event))


@pytest.mark.parametrize(("event", "tag"), list(zip(ONE_OF_EACH, TAGS, strict=True)), ids=TAGS)
def test_an_event_comes_back_from_its_bytes_under_a_tag_that_never_changes(
    event: ev.Event, tag: str
) -> None:
    assert msgspec.json.decode(encode(event))["type"] == tag
    assert event_decoder.strict(encode(event)) == event


def test_only_the_growing_of_an_answer_is_fine() -> None:
    assert {type(each) for each in ONE_OF_EACH if ev.is_fine(each)} == {ev.Grew, ev.ItemOpened}


counts = st.integers(0, 1 << 40)
usages = st.builds(ev.Usage, **dict.fromkeys(ev.Usage.__struct_fields__, counts))


@given(usages, usages)
def test_usage_adds_up_field_by_field(one: ev.Usage, other: ev.Usage) -> None:
    total = one + other
    for field in ev.Usage.__struct_fields__:
        assert getattr(total, field) == getattr(one, field) + getattr(other, field)
