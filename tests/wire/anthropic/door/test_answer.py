"""An answer of the Messages API, as one object and as a stream: the same blocks, whatever happened on the way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.items import (
    AssistantMessage,
    Item,
    Reasoning,
    Text,
    ToolCall,
    WaitsFor,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.ids import CallId, MessageId, ReasoningId, TurnId, Version
from holdfast.wire.anthropic.door.answer import MARK, MessagesForm, MessagesStream
from holdfast.wire.headers import AnswerOptions
from holdfast.wire.turn_answers import AnswerEnd, AnswerHead
from tests.core.builders import mint

HEAD = AnswerHead(turn_id=mint(TurnId), created_s=1, model="m", client_tools=frozenset({"theirs"}))


def message(text: str, **more: Any) -> AssistantMessage:
    return AssistantMessage(id=mint(MessageId), content=(Text(text=text),), agent="root", **more)


def thought(text: str) -> Reasoning:
    return Reasoning(id=mint(ReasoningId), text=text, agent="root")


def call(name: str, waits_for: WaitsFor | None = None, arguments: str = '{"a":1}') -> ToolCall:
    return ToolCall(
        id=(made := mint(CallId)),
        call_id=f"c_{made}",
        name=name,
        arguments=arguments,
        agent="root",
        waits_for=waits_for,
    )


def ended(*items: Item, limited: bool = False, filtered: bool = False) -> AnswerEnd:
    usage = ev.Usage(input_tokens=9, cached_tokens=4, output_tokens=2)
    return AnswerEnd(
        items=items, usage=usage, version=Version(3), limited=limited, filtered=filtered
    )


def opened(item: Item) -> ev.ItemOpened:
    match item:
        case ToolCall():
            return ev.ItemOpened(item=item.id, kind="call", call_id=item.call_id, name=item.name)
        case Reasoning():
            return ev.ItemOpened(item=item.id, kind="reasoning")
        case _:
            return ev.ItemOpened(item=item.id, kind="message")


def words_of(item: Item) -> str:
    match item:
        case ToolCall():
            return item.arguments
        case Reasoning():
            return item.text
        case AssistantMessage():
            return "".join(each.text for each in item.content if isinstance(each, Text))
        case _:
            return ""


def grown(item: Item) -> list[ev.Event]:
    """The events by which an item came about, in pieces of three characters."""
    text = words_of(item)
    return [
        opened(item),
        *(ev.Grew(item=item.id, text=text[n : n + 3]) for n in range(0, len(text), 3)),
    ]


def step(*items: AssistantMessage | Reasoning | ToolCall) -> list[ev.Event]:
    return [*(event for each in items for event in grown(each)), ev.Answered(items=items)]


def frames(stream: MessagesStream, events: Iterable[ev.Event]) -> bytes:
    return b"".join(stream.frames(Record(n=n, at_ms=0, event=e)) for n, e in enumerate(events))


def read(body: bytes) -> list[Any]:
    events = []
    for frame in filter(None, body.decode().split("\n\n")):
        name, data = frame.split("\n")
        event = msgspec.json.decode(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def told(events: list[Any]) -> dict[str, Any]:
    """The message that a client makes of a stream. Demands that blocks come one after the other."""
    first, *rest = events
    whole: dict[str, Any] = first["message"]
    now: dict[str, Any] | None = None
    for event in rest:
        match event["type"]:
            case "content_block_start":
                assert now is None and event["index"] == len(whole["content"])
                now = {**event["content_block"], "json": ""}
                whole["content"].append(now)
            case "content_block_delta":
                assert now is not None and event["index"] == len(whole["content"]) - 1
                match event["delta"]:
                    case {"type": "text_delta", "text": text}:
                        now["text"] += text
                    case {"type": "thinking_delta", "thinking": text}:
                        now["thinking"] += text
                    case {"type": "signature_delta", "signature": text}:
                        now["signature"] += text
                    case {"partial_json": text}:
                        now["json"] += text
            case "content_block_stop":
                assert now is not None
                arguments = now.pop("json")
                if now["type"] == "tool_use":
                    now["input"] = msgspec.json.decode(arguments or "{}")
                now = None
            case "message_delta":
                whole |= {**event["delta"], "usage": event["usage"], "holdfast": event["holdfast"]}
    assert now is None and rest[-1] == {"type": "message_stop"}
    return whole


own = st.one_of(
    st.builds(message, st.text(min_size=1, max_size=9)),
    st.builds(thought, st.text(min_size=1, max_size=9)),
    st.builds(call, st.just("ours")),
)
items = own | st.builds(lambda: call("theirs", "client"))


@given(st.lists(st.lists(items, min_size=1, max_size=3), max_size=4), st.booleans(), st.booleans())
def test_a_stream_tells_the_same_message_as_one_object(
    steps: list[list[Any]], shows: bool, fine: bool
) -> None:
    """Also if the stream began late, and has only the whole answers of the steps."""
    form = MessagesForm(HEAD, shows_thoughts=shows)
    end = ended(*(each for one in steps for each in one))
    stream = form.stream()
    events = [
        each for one in steps for each in (step(*one) if fine else [ev.Answered(items=tuple(one))])
    ]
    body = stream.first() + frames(stream, events) + stream.end(end)
    assert told(read(body)) == msgspec.json.decode(form.whole(end))


@given(st.lists(own, max_size=3), st.lists(items, max_size=3))
def test_what_the_turn_before_said_comes_first(before: list[Any], said: list[Any]) -> None:
    form = MessagesForm(HEAD, shows_thoughts=True)
    stream = form.stream(before=tuple(before))
    end = ended(*before, *said)
    body = stream.first() + frames(stream, step(*said)) + stream.end(end)
    assert told(read(body)) == msgspec.json.decode(form.whole(end))


def test_two_calls_that_are_told_at_once_are_two_blocks() -> None:
    one, two = call("theirs", "client", '{"n":1}'), call("theirs", "client", '{"n":2}')
    stream = MessagesForm(HEAD).stream()
    mixed: list[ev.Event] = [
        opened(one),
        opened(two),
        ev.Grew(item=two.id, text='{"n"'),
        ev.Grew(item=one.id, text='{"n":'),
        ev.Grew(item=two.id, text=":2}"),
        ev.Grew(item=one.id, text="1}"),
        ev.Answered(items=(one, two)),
    ]
    whole = told(read(stream.first() + frames(stream, mixed) + stream.end(ended(one, two))))
    assert [each["input"] for each in whole["content"]] == [{"n": 1}, {"n": 2}]
    assert whole["stop_reason"] == "tool_use"


def test_a_text_is_one_block_though_the_agent_has_worked_in_between() -> None:
    said = (message("Let me see."), call("ours"), message("Done."))
    whole = msgspec.json.decode(MessagesForm(HEAD).whole(ended(*said)))
    assert whole["content"] == [{"type": "text", "text": "Let me see.\n\nDone."}]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (ended(message("x")), "end_turn"),
        (ended(message("x"), limited=True), "max_tokens"),
        (ended(message("x"), filtered=True), "refusal"),
        (ended(call("theirs", "client")), "tool_use"),
    ],
)
def test_stop_reasons(end: AnswerEnd, reason: str) -> None:
    assert msgspec.json.decode(MessagesForm(HEAD).whole(end))["stop_reason"] == reason


def test_thoughts_are_shown_to_those_who_ask_and_marked_as_ours() -> None:
    (said, shown) = ((thought("Hm."), message("Yes.")), AnswerOptions(show_reasoning=True))
    asked = MessagesForm(HEAD, shows_thoughts=True).whole(ended(*said))
    by_header = MessagesForm(msgspec.structs.replace(HEAD, options=shown)).whole(ended(*said))
    assert asked == by_header
    (block, _) = msgspec.json.decode(asked)["content"]
    assert block == {"type": "thinking", "thinking": "Hm.", "signature": f"{MARK}{said[0].id}"}
    hidden = msgspec.json.decode(MessagesForm(HEAD).whole(ended(*said)))
    assert [each["type"] for each in hidden["content"]] == ["text"]


def test_text_that_was_told_and_does_not_count_is_taken_back() -> None:
    broken = message("Half", state="set_aside")
    stream = MessagesForm(HEAD).stream()
    frames(stream, [*grown(broken), ev.StepBroken(items=(broken,))])
    assert stream.took_back


def test_the_progress_of_the_agents_own_tools_is_in_pings_if_it_is_asked_for() -> None:
    own = call("ours")
    events: list[ev.Event] = [ev.Answered(items=(own,)), ev.ToolStarted(call=own.id)]
    shown = msgspec.structs.replace(HEAD, options=AnswerOptions(show_tools=True))
    (ping,) = read(frames(MessagesForm(shown).stream(), events))
    assert ping["type"] == "ping" and ping["holdfast"]["tool_started"]["name"] == "ours"
    assert frames(MessagesForm(HEAD).stream(), events) == b""
