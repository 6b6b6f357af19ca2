"""What is recorded is folded: at once or when somebody looks, it comes to the same turn and the same refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.items import AssistantMessage, plain_text
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.core.turns.turn import Turn, advance
from holdfast.errors import IllegalEvent, Superseded
from holdfast.ids import CallId, MessageId, SessionId, Tenant, TurnId
from holdfast.sessions.turns.feed import Feed
from holdfast.sessions.turns.recorder import Recorder
from holdfast.store.memory_store import MemoryStore
from holdfast.store.outcomes import Fence
from tests.core.builders import after, answered, asked, asking, mint

ONE, OTHER, CALL = mint(MessageId), mint(MessageId), mint(CallId)


def recorder_of(turn: Turn, store: MemoryStore | None = None) -> Recorder:
    fence = Fence(
        tenant=Tenant("local"),
        session_id=mint(SessionId),
        turn_id=mint(TurnId),
        token=1,
        nonce="n",
    )
    return Recorder(
        store or MemoryStore(),
        fence,
        turn,
        Feed(events_max=1000),
        now_ms=lambda: 0,
        on_failure=lambda _: None,
    )


async def watched(feed: Feed) -> list[Sequence[Record]]:
    return [some async for some in feed.watch()]


pieces = st.builds(
    ev.Grew,
    item=st.sampled_from([ONE, ONE, OTHER, CALL]),
    text=st.sampled_from(["a", "b", "cd"]),
    refusal=st.sampled_from([False, False, True]),
)
openings = st.sampled_from(
    [
        ev.ItemOpened(item=ONE, kind="message"),
        ev.ItemOpened(item=OTHER, kind="message"),
        ev.ItemOpened(item=CALL, kind="call", call_id="1", name="look"),
    ]
)
answers = st.sampled_from(
    [
        answered(AssistantMessage(id=ONE, content=plain_text("whole"))),
        answered(
            AssistantMessage(id=ONE, content=plain_text("whole")),
            AssistantMessage(id=OTHER, content=plain_text("too")),
        ),
        ev.StepBroken(items=(), why="model_error"),
        asked(),
    ]
)
single = st.tuples(st.one_of(pieces, pieces, pieces, pieces, openings, answers))
batches = st.one_of(single, single, single, st.lists(pieces, min_size=2, max_size=4).map(tuple))


@given(happened=st.lists(batches, min_size=8, max_size=30), looks=st.sets(st.integers(0, 30)))
async def test_looking_seldom_shows_the_same_turn_as_looking_always(
    happened: list[tuple[ev.Event, ...]], looks: set[int]
) -> None:
    expected = after(asking(), ev.ItemOpened(item=ONE, kind="message"))
    recorder = recorder_of(expected)
    shown: list[ev.Event] = []
    for n, events in enumerate(happened):
        try:
            then = expected
            for event in events:
                then = advance(then, event)
        except IllegalEvent:
            with pytest.raises(IllegalEvent):
                recorder.note(events)
        else:
            assert recorder.note(events) is False
            expected = then
            shown += events
        if n in looks:
            assert recorder.turn == expected
    assert recorder.turn == expected
    recorder.feed.end()
    assert [each.event for some in await watched(recorder.feed) for each in some] == shown


def test_pieces_of_several_texts_are_folded_in_their_places_though_nobody_looks() -> None:
    recorder = recorder_of(asking())
    for item in (ONE, OTHER):
        recorder.note((ev.ItemOpened(item=item, kind="message"),))
    for item, text in ((ONE, "a"), (ONE, "b"), (OTHER, "x"), (ONE, "c"), (OTHER, "y")):
        recorder.note((ev.Grew(item=item, text=text),))
    recorder.note((ev.Grew(item=ONE, text="no", refusal=True),))
    draft = recorder.turn.root.draft
    assert draft is not None
    assert [(each.text, *each.refusal) for each in draft.items] == [("abc", "no"), ("xy",)]


def test_an_answer_closes_what_grew_unseen() -> None:
    recorder = recorder_of(asking())
    recorder.note((ev.ItemOpened(item=ONE, kind="message"),))
    for text in ("Once ", "upon ", "a time"):
        recorder.note((ev.Grew(item=ONE, text=text),))
    dropped = AssistantMessage(id=OTHER, content=plain_text("Something else"))
    with pytest.raises(IllegalEvent, match="drops items"):
        recorder.note((answered(dropped),))
    draft = recorder.turn.root.draft
    assert draft is not None and draft.items[0].text == "Once upon a time"
    recorder.note((answered(AssistantMessage(id=ONE, content=plain_text("Once upon a time"))),))
    assert recorder.turn.root.draft is None
    with pytest.raises(IllegalEvent):
        recorder.note((ev.Grew(item=ONE, text=" more"),))


async def test_who_records_what_is_refused_is_told_why_also_while_an_append_is_under_way() -> None:
    reached = asyncio.Event()

    class Slow(MemoryStore):
        async def append(self, *_: object, **__: object) -> None:
            reached.set()
            await asyncio.get_running_loop().create_future()

    why = Superseded(mint(TurnId), token=1)
    recorder = recorder_of(asking(), Slow())
    recorder.note((answered(AssistantMessage(id=ONE, content=plain_text("whole"))),))
    flushing = asyncio.create_task(recorder.flush())
    async with asyncio.timeout(30):
        await reached.wait()
        recorder.refuse(why)
        await asyncio.wait({flushing})
    with pytest.raises(Superseded) as told:
        recorder.check()
    assert told.value is why
