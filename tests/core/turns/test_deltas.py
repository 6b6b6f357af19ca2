"""From a provider's deltas to events, and to the items of an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.core.items import (
    AssistantMessage,
    Image,
    Inline,
    Opaque,
    Path,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    text_of,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.deltas import (
    Accumulator,
    Delta,
    ExtraDelta,
    FinishDelta,
    PartDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.draft import Draft
from holdfast.core.turns.events import Answered, Usage
from holdfast.core.turns.journal import Record, decode_records, encode_records
from holdfast.errors import InvalidValue
from holdfast.ids import ItemId
from tests.core.builders import after, asking, call, inside, new_minter

SIGNATURE = Opaque(owner="demo", json='{"signature":"abc"}')


class Hearing:
    """An accumulator and the turn that its events are recorded in."""

    def __init__(self, *deltas: Delta) -> None:
        self.turn = asking()
        self.accumulator = Accumulator(new_minter(), agent="butler")
        self.events: list[ev.Event] = []
        self.hear(*deltas)

    def hear(self, *deltas: Delta) -> list[ev.Event]:
        """The events that these deltas made."""
        heard = len(self.events)
        for delta in deltas:
            happened = self.accumulator.events(delta)
            self.turn = after(self.turn, *happened)
            self.events += happened
        return self.events[heard:]

    def answer(self, **options: object) -> Answered:
        draft = self.turn.root.draft
        assert draft is not None
        answer = self.accumulator.answered(draft, **options)  # type: ignore[arg-type]
        after(self.turn, answer)  # the turn accepts it
        return answer


def words(answer: Answered) -> list[tuple[str, str]]:
    """What was said, in order: the kind of each item and its text."""
    return [_words(each) for each in answer.items]


def _words(item: ev.Answer) -> tuple[str, str]:
    match item:
        case AssistantMessage():
            return "message", text_of(item.content)
        case Reasoning():
            return "reasoning", item.text
        case ToolCall():
            return item.name, item.arguments


# ── hearing ──────────────────────────────────────────────────────────────────────────────────

HEARD: list[tuple[str, list[Delta], list[tuple[str, str]]]] = [
    ("nothing", [], []),
    ("text in pieces", [TextDelta(text="Hel"), TextDelta(text="lo")], [("message", "Hello")]),
    (
        "thinking before speaking",
        [ReasoningDelta(text="Hm"), TextDelta(text="Hi"), ReasoningDelta(text="m")],
        [("reasoning", "Hm"), ("message", "Hi"), ("reasoning", "m")],
    ),
    (
        "a late thought does not cut a text in two",
        [
            ReasoningDelta(text="Hm"),
            TextDelta(text="He"),
            ReasoningDelta(text="m"),
            TextDelta(text="llo"),
        ],
        [("reasoning", "Hm"), ("message", "Hello"), ("reasoning", "m")],
    ),
    (
        "text after a call",
        [
            TextDelta(text="Let me look."),
            ToolCallDelta(index=0, name="look", arguments="{}"),
            TextDelta(text="Done."),
            TextDelta(text="\n"),
            ToolCallDelta(index=0, arguments="{}"),
            ToolCallDelta(index=1, name="fly", arguments="{}"),
            TextDelta(text="\n"),
        ],
        [("message", "Let me look."), ("look", "{}"), ("message", "Done.\n"), ("fly", "{}")],
    ),
    (
        "a call without arguments, and a call behind it",
        [
            ToolCallDelta(index=0, name="look"),
            ToolCallDelta(index=1, name="fly", arguments="{}"),
            TextDelta(text="Off we go."),
        ],
        [("look", ""), ("fly", "{}"), ("message", "Off we go.")],
    ),
    (
        "two messages told apart by their index",
        [TextDelta(text="a", index=0), TextDelta(text="b", index=2), TextDelta(text="A")],
        [("message", "a"), ("message", "b"), ("message", "A")],
    ),
    (
        "two calls side by side",
        [
            ToolCallDelta(index=0, call_id="c0", name="look"),
            ToolCallDelta(index=1, call_id="c1", name="fly", arguments='{"to":'),
            ToolCallDelta(index=0, arguments="{}"),
            ToolCallDelta(index=1, arguments='"Oslo"}'),
        ],
        [("look", "{}"), ("fly", '{"to":"Oslo"}')],
    ),
    (
        "a call whose name comes late",
        [
            ToolCallDelta(index=0, call_id="c0"),
            ToolCallDelta(index=0, arguments='{"a'),
            ToolCallDelta(index=0, name="fly", arguments='":'),
            ToolCallDelta(index=0, arguments="1}"),
        ],
        [("fly", '{"a":1}')],
    ),
    (
        "a call whose name is repeated with every piece",
        [ToolCallDelta(index=0, name="fly"), ToolCallDelta(index=0, name="fly", arguments="{}")],
        [("fly", "{}")],
    ),
    ("empty pieces", [TextDelta(text=""), ReasoningDelta(text="")], []),
    ("a call that never gets a name", [ToolCallDelta(index=0, arguments="{}")], []),
]


@pytest.mark.parametrize(
    ("deltas", "said"), [case[1:] for case in HEARD], ids=[c[0] for c in HEARD]
)
def test_the_answer_is_what_was_heard(deltas: list[Delta], said: list[tuple[str, str]]) -> None:
    assert words(Hearing(*deltas, FinishDelta(finish="stop")).answer()) == said


def test_watchers_see_an_item_opened_once_and_then_grow() -> None:
    hearing = Hearing(TextDelta(text="Hel"), TextDelta(text="lo"))
    (message,) = hearing.answer().items

    assert hearing.events == [
        ev.ItemOpened(item=message.id, kind="message"),
        ev.Grew(item=message.id, text="Hel"),
        ev.Grew(item=message.id, text="lo"),
    ]


def test_a_refusal_is_heard_as_one() -> None:
    (message,) = (
        Hearing(TextDelta(text="Well."), TextDelta(text="No.", refusal=True)).answer().items
    )
    assert isinstance(message, AssistantMessage)
    assert message.content == (Text(text="Well."), Refusal(text="No."))


def test_what_is_heard_lies_in_its_branch_and_names_its_agent() -> None:
    path: Path = inside(call())
    accumulator = Accumulator(new_minter(), agent="helper", path=path)
    opened, grew = accumulator.events(TextDelta(text="Hi"))
    assert isinstance(opened, ev.ItemOpened)
    assert isinstance(grew, ev.Grew)
    draft = Draft().opened(opened).grown(grew)
    assert draft is not None

    answer = accumulator.answered(draft, model="demo/parrot")

    assert (opened.path, grew.path, answer.path, answer.model) == (path, path, path, "demo/parrot")
    (message,) = answer.items
    assert isinstance(message, AssistantMessage)
    assert (message.path, message.agent) == (path, "helper")


def test_two_calls_with_one_id_are_told_apart() -> None:
    """Whoever answers them, a client or the next prompt, could not say which one is meant."""
    first, second = (
        Hearing(
            ToolCallDelta(index=0, call_id="c0", name="look"),
            ToolCallDelta(index=1, call_id="c0", name="look"),
            FinishDelta(finish="tool_calls"),
        )
        .answer()
        .items
    )
    assert isinstance(first, ToolCall) and isinstance(second, ToolCall)
    assert first.call_id == "c0"
    assert second.call_id == f"call_{second.id.body}"


def test_a_provider_that_names_no_call_id_gets_one_made() -> None:
    (made,) = Hearing(ToolCallDelta(index=0, name="fly")).answer().items
    assert isinstance(made, ToolCall)
    assert made.call_id == f"call_{made.id.body}"


# ── pictures ─────────────────────────────────────────────────────────────────────────────────

PICTURE = Image(source=Inline(media_type="image/png", data=b"\x89PNG"))


def test_a_picture_lies_in_its_message_behind_the_text() -> None:
    hearing = Hearing(
        TextDelta(text="Here"),
        PartDelta(part=PICTURE),
        PartDelta(part=PICTURE),
        TextDelta(text=" it is."),
        TextDelta(text="And more.", index=1),
        ToolCallDelta(index=2, name="fly", arguments="{}"),
    )
    first, second, _ = hearing.answer().items
    assert isinstance(first, AssistantMessage) and isinstance(second, AssistantMessage)
    assert first.content == (Text(text="Here it is."), PICTURE, PICTURE)
    assert second.content == (Text(text="And more."),)


def test_a_picture_alone_is_a_message() -> None:
    (message,) = Hearing(PartDelta(part=PICTURE)).answer().items
    assert isinstance(message, AssistantMessage)
    assert message.content == (PICTURE,)


def test_a_picture_behind_a_message_that_has_ended_is_a_message_of_its_own() -> None:
    hearing = Hearing(
        TextDelta(text="One"),
        TextDelta(text="Two", index=1),
        PartDelta(part=PICTURE, index=0),
        FinishDelta(finish="stop"),
    )
    contents = [
        each.content for each in hearing.answer().items if isinstance(each, AssistantMessage)
    ]
    assert sorted(map(len, contents)) == [1, 1, 1]
    assert (PICTURE,) in contents


def test_more_pictures_than_a_message_can_hold_fail_the_step() -> None:
    hearing = Hearing(*[PartDelta(part=PICTURE)] * limits.answer_parts_max)
    with pytest.raises(InvalidValue, match="more than 32 parts"):
        hearing.hear(PartDelta(part=PICTURE))


# ── extras ───────────────────────────────────────────────────────────────────────────────────


def test_extras_lie_with_their_item() -> None:
    hearing = Hearing(
        ReasoningDelta(text="Hm"),
        ExtraDelta(kind="reasoning", extra=SIGNATURE),
        ExtraDelta(kind="reasoning", extra=SIGNATURE),
        TextDelta(text="Hi"),
    )
    thinking, message = hearing.answer().items
    assert thinking.extras == (SIGNATURE, SIGNATURE)
    assert message.extras == ()


def test_thinking_that_is_all_opaque_is_kept() -> None:
    """Redacted reasoning has no text, and its provider wants it back."""
    (thinking,) = Hearing(ExtraDelta(kind="reasoning", extra=SIGNATURE)).answer().items
    assert isinstance(thinking, Reasoning)
    assert (thinking.text, thinking.extras) == ("", (SIGNATURE,))


def test_a_signature_that_comes_before_its_call_does_not_cost_the_call_its_name() -> None:
    hearing = Hearing(
        ExtraDelta(kind="call", extra=SIGNATURE),
        ToolCallDelta(index=0, call_id="c0", name="fly", arguments="{}"),
        ExtraDelta(kind="call", extra=SIGNATURE),
    )
    (made,) = hearing.answer().items
    assert isinstance(made, ToolCall)
    assert (made.call_id, made.name, made.arguments) == ("c0", "fly", "{}")
    assert made.extras == (SIGNATURE, SIGNATURE)


def test_more_extras_than_an_item_can_hold_fail_the_step_and_not_the_history() -> None:
    """Written regardless, the item could never be read back."""
    hearing = Hearing(*[ExtraDelta(kind="reasoning", extra=SIGNATURE)] * limits.opaques_max)
    row = encode_records([Record(n=0, at_ms=0, event=hearing.answer())])
    assert all(isinstance(each, Record) for each in decode_records(row))

    with pytest.raises(InvalidValue, match=f"more than {limits.opaques_max} extras"):
        hearing.hear(ExtraDelta(kind="reasoning", extra=SIGNATURE))
    large = Opaque(owner="demo", json="x" * (limits.opaque_bytes_max + 1))
    with pytest.raises(InvalidValue, match=f"larger than {limits.opaque_bytes_max} bytes"):
        hearing.hear(ExtraDelta(kind="message", extra=large))


# ── how it finished ──────────────────────────────────────────────────────────────────────────

FINISHES: list[tuple[list[Delta], ev.Finish]] = [
    ([TextDelta(text="Hi")], "stop"),
    ([ToolCallDelta(index=0, name="fly")], "tool_calls"),
    ([TextDelta(text="Hi"), FinishDelta(finish="content_filter")], "content_filter"),
    ([ToolCallDelta(index=0, name="fly"), FinishDelta(finish="stop")], "stop"),
]


@pytest.mark.parametrize(("deltas", "finish"), FINISHES)
def test_the_provider_has_the_last_word_on_how_it_finished(
    deltas: list[Delta], finish: ev.Finish
) -> None:
    assert Hearing(*deltas).answer().finish == finish


def test_a_stream_that_merely_ends_has_not_finished() -> None:
    hearing = Hearing(TextDelta(text="Hi"))
    assert not hearing.accumulator.finished
    hearing.hear(FinishDelta(finish="stop"))
    assert hearing.accumulator.finished


def test_the_last_usage_counts() -> None:
    hearing = Hearing(UsageDelta(usage=Usage(input_tokens=7)))
    assert hearing.accumulator.usage == Usage(input_tokens=7)
    hearing.hear(UsageDelta(usage=Usage(input_tokens=7, output_tokens=2)))
    assert hearing.answer().usage == Usage(input_tokens=7, output_tokens=2)


@pytest.mark.parametrize(
    ("arguments", "state"),
    [('{"to":"Os', "set_aside"), ("", "set_aside"), ('{"to":"Oslo"}', "complete")],
)
def test_a_call_that_was_cut_off_for_length_is_not_made(arguments: str, state: str) -> None:
    hearing = Hearing(
        ToolCallDelta(index=0, name="fly", arguments=arguments), FinishDelta(finish="length")
    )
    (made,) = hearing.answer().items
    assert isinstance(made, ToolCall)
    assert (made.state, made.waits_for) == (state, None)


# ── one item after the other ─────────────────────────────────────────────────────────────────


def test_of_calls_that_grow_side_by_side_only_the_first_is_seen_to_grow() -> None:
    hearing = Hearing(
        ToolCallDelta(index=0, name="look", arguments="{"),
        ToolCallDelta(index=1, name="fly", arguments='{"to":'),
    )
    assert [type(each) for each in hearing.events] == [ev.ItemOpened, ev.Grew]
    grew, opened, held = hearing.hear(ToolCallDelta(index=0, arguments='"at":{}}'))
    assert isinstance(grew, ev.Grew) and isinstance(held, ev.Grew)
    assert isinstance(opened, ev.ItemOpened)
    assert (opened.name, opened.ended, held.text) == ("fly", grew.item, '{"to":')

    (live,) = hearing.hear(ToolCallDelta(index=1, arguments='"Oslo"}'))
    assert isinstance(live, ev.Grew)


def test_text_after_a_whole_text_is_seen_at_once() -> None:
    """Reasoning, then an answer: nothing of the answer waits, and the signature comes with the end of the reasoning."""
    hearing = Hearing(ReasoningDelta(text="Hm"), ExtraDelta(kind="reasoning", extra=SIGNATURE))
    opened, grew = hearing.hear(TextDelta(text="Hi"))
    thinking, message = hearing.answer().items
    assert opened == ev.ItemOpened(
        item=message.id, kind="message", ended=thinking.id, ended_extras=(SIGNATURE,)
    )
    assert grew == ev.Grew(item=message.id, text="Hi")


def test_a_cut_call_does_not_end_before_its_answer_does() -> None:
    """Whether a call was cut is known when the answer finishes: until then no event may say that the call is whole."""
    hearing = Hearing(
        ToolCallDelta(index=0, name="look", arguments='{"at'),
        ToolCallDelta(index=1, name="fly", arguments="{}"),
        FinishDelta(finish="length"),
    )
    (_, second) = [each for each in hearing.events if isinstance(each, ev.ItemOpened)]
    assert second.ended is None
    assert [each.state for each in hearing.answer().items] == ["set_aside", "complete"]


def test_no_more_is_held_back_than_a_turn_may_say() -> None:
    large = "x" * (limits.output_chars_max // 2)
    hearing = Hearing(ToolCallDelta(index=0, name="look"), ToolCallDelta(index=1, name="fly"))
    hearing.hear(ToolCallDelta(index=1, arguments=large))
    with pytest.raises(InvalidValue, match="out of order"):
        hearing.hear(ToolCallDelta(index=1, arguments=large), TextDelta(text="!"))


# ── however it is cut ────────────────────────────────────────────────────────────────────────

texts = st.text(st.characters(codec="utf-8"), max_size=6)
indexes = st.integers(0, 2)
deltas: st.SearchStrategy[Delta] = st.one_of(
    st.builds(TextDelta, text=texts, index=indexes, refusal=st.booleans()),
    st.builds(ReasoningDelta, text=texts, index=indexes),
    st.builds(lambda index, named, arguments: ToolCallDelta(
                  index=index, name=f"fly{index}" if named else "", arguments=arguments),
              indexes, st.booleans(), st.one_of(texts, st.sampled_from(["{", "}", "{}"]))),
    st.builds(ExtraDelta, kind=st.sampled_from(["message", "reasoning", "call"]), index=indexes,
              extra=st.just(SIGNATURE)),
)  # fmt: skip


@given(st.lists(deltas, max_size=14), st.sampled_from(["stop", "length", "tool_calls"]))
def test_items_never_interleave(heard: list[Delta], finish: ev.Finish) -> None:
    hearing = Hearing(*heard, FinishDelta(finish=finish))
    current: ItemId | None = None
    opened: list[ItemId] = []
    for event in hearing.events:
        if isinstance(event, ev.ItemOpened):
            assert event.ended in (current, None)
            current = event.item
            opened.append(current)
        else:
            assert isinstance(event, ev.Grew) and event.item == current
    assert opened == [each.id for each in hearing.answer().items]


@given(st.lists(deltas, max_size=14))
def test_deltas_that_come_together_make_the_events_that_they_make_one_by_one(
    heard: list[Delta],
) -> None:
    together: list[ev.Event] = []
    Accumulator(new_minter(), agent="butler").hear(heard, together)
    assert together == Hearing(*heard).events


def test_a_piece_without_text_makes_no_event() -> None:
    heard: list[ev.Event] = []
    said = [TextDelta(text=text) for text in ("so", "", "on")]
    Accumulator(new_minter(), agent="butler").hear(said, heard)
    assert [each.text for each in heard if isinstance(each, ev.Grew)] == ["so", "on"]


def test_what_comes_before_a_delta_that_cannot_be_kept_is_heard() -> None:
    extra = Opaque(owner="demo", json="x" * (limits.opaque_bytes_max + 1))
    heard: list[ev.Event] = []
    with pytest.raises(InvalidValue):
        Accumulator(new_minter(), agent="butler").hear(
            [TextDelta(text="so"), ExtraDelta(kind="message", extra=extra)], heard
        )
    assert [type(each) for each in heard] == [ev.ItemOpened, ev.Grew]


@given(st.lists(deltas, max_size=14))
def test_no_word_is_lost_and_none_is_heard_twice(heard: list[Delta]) -> None:
    answer = Hearing(*heard, FinishDelta(finish="stop")).answer()

    for kind, delta in (("message", TextDelta), ("reasoning", ReasoningDelta)):
        told = "".join(each.text for each in heard if isinstance(each, delta))
        said = "".join(said for name, said in words(answer) if name == kind)
        assert _letters(told) == _letters(said)
    pieces = [each for each in heard if isinstance(each, ToolCallDelta)]
    calls = {each.name: each.arguments for each in answer.items if isinstance(each, ToolCall)}
    assert calls.keys() == {each.name for each in pieces if each.name}
    for index in range(3):
        arguments = "".join(each.arguments for each in pieces if each.index == index)
        assert arguments.startswith(calls.get(f"fly{index}", ""))


def _letters(text: str) -> list[str]:
    return sorted(each for each in text if not each.isspace())
