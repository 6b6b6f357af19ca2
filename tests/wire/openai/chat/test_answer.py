"""An answer as one object and as a stream: the same text, calls and finish, whatever happened on the way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.items import (
    AssistantMessage,
    Item,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    WaitsFor,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.ids import CallId, MessageId, Minter, ResultId, TurnId, Version
from holdfast.wire.headers import AnswerOptions
from holdfast.wire.openai.chat.answer import ChatStream, completion
from holdfast.wire.turn_answers import AnswerEnd, AnswerHead

mint = Minter(now_ms=lambda: 1_700_000_000_000, random_bits=lambda bits: 7)
HEAD = AnswerHead(turn_id=mint(TurnId), created_s=1, model="m", client_tools=frozenset({"theirs"}))


def message(text: str, *, agent: str = "root", **more: Any) -> AssistantMessage:
    content = (Text(text=text),) if text else ()
    return AssistantMessage(id=mint(MessageId), content=content, agent=agent, **more)


def call(name: str, waits_for: WaitsFor | None = None) -> ToolCall:
    return ToolCall(
        id=mint(CallId),
        call_id=f"c_{name}",
        name=name,
        arguments='{"a":1}',
        agent="root",
        waits_for=waits_for,
    )


def result(of: ToolCall) -> ToolResult:
    return ToolResult(id=mint(ResultId), call=of.id, outcome="ok", content=(Text(text="done"),))


def ended(*items: Item, limited: bool = False, filtered: bool = False) -> AnswerEnd:
    return AnswerEnd(
        items=items, usage=ev.Usage(), version=Version(3), limited=limited, filtered=filtered
    )


def played(*items: Item) -> list[ev.Event]:
    """The events by which these items came about, in pieces of three characters."""
    events: list[ev.Event] = []
    for item in items:
        if isinstance(item, AssistantMessage):
            text = "".join(part.text for part in item.content if isinstance(part, Text))
            events.append(ev.ItemOpened(item=item.id, kind="message"))
        elif isinstance(item, ToolCall):
            text = item.arguments
            events.append(
                ev.ItemOpened(item=item.id, kind="call", call_id=item.call_id, name=item.name)
            )
        else:
            continue
        events += [ev.Grew(item=item.id, text=text[n : n + 3]) for n in range(0, len(text), 3)]
        events.append(ev.Answered(items=(item,)))
    return events


def frames(stream: ChatStream, *events: ev.Event) -> bytes:
    return b"".join(stream.frames(Record(n=n, at_ms=0, event=e)) for n, e in enumerate(events))


def read(body: bytes) -> list[Any]:
    lines = [each.removeprefix("data: ") for each in body.decode().split("\n\n") if each]
    return [each if each == "[DONE]" else msgspec.json.decode(each) for each in lines]


def told(body: bytes) -> tuple[str, list[tuple[str, str, str]], str]:
    """Text, calls and finish of a stream."""
    *chunks, done = read(body)
    assert done == "[DONE]"
    text, finish = "", ""
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        delta = chunk["choices"][0]["delta"]
        text += delta.get("content") or ""
        finish = chunk["choices"][0]["finish_reason"] or finish
        for each in delta.get("tool_calls", []):
            known = calls.setdefault(each["index"], ["", "", ""])
            known[0] += each.get("id", "")
            known[1] += each["function"].get("name", "")
            known[2] += each["function"]["arguments"]
    return text, [(a, b, c) for a, b, c in calls.values()], finish


CASES: list[tuple[Item, ...]] = [
    (message("Hello."),),
    (message(""),),
    (message("Let me see."), call("ours"), message("Done.")),
    (message("Let me see."), message(""), message("Done.")),
    (message("Look:"), call("theirs", "client"), call("theirs", "client")),
    (call("theirs", "client"),),
    (message("brought along", agent=""), message("Said now.")),
    (message("inside", path=(mint(CallId),)), message("Outside.")),
    (message("broken", state="set_aside"), message("Whole.")),
    (UserMessage(id=mint(MessageId), content=(Text(text="q"),)), message("Line\u2028break")),
]


@pytest.mark.parametrize("items", CASES, ids=range(len(CASES)))
@pytest.mark.parametrize("live", [True, False])
def test_streamed_or_not_live_or_from_the_store_it_is_the_same_answer(
    items: tuple[Item, ...], live: bool
) -> None:
    end = ended(*items)
    choice = msgspec.json.decode(completion(HEAD, end))["choices"][0]
    stream = ChatStream(HEAD)
    body = stream.first()
    if live:
        ours = [
            each
            for each in items
            if isinstance(each, AssistantMessage | ToolCall)
            and each.agent
            and not each.path
            and each.state == "complete"
        ]
        body += frames(stream, *played(*ours))
    text, calls, finish = told(body + stream.end(end))
    assert text == (choice["message"]["content"] or "")
    assert finish == choice["finish_reason"]
    assert calls == [
        (each["id"], each["function"]["name"], each["function"]["arguments"])
        for each in choice["message"].get("tool_calls", [])
    ]


def test_how_an_answer_finishes() -> None:
    def finish(end: AnswerEnd) -> str:
        said: str = msgspec.json.decode(completion(HEAD, end))["choices"][0]["finish_reason"]
        return said

    waiting = call("theirs", "client")
    assert finish(ended(message("x"))) == "stop"
    assert finish(ended(message("x"), limited=True)) == "length"
    assert finish(ended(message("x"), filtered=True)) == "content_filter"
    assert finish(ended(waiting)) == "tool_calls"
    assert finish(ended(waiting, result(waiting))) == "stop"


def test_an_answer_that_began_anew_has_taken_something_back() -> None:
    shown = message("Half an", state="set_aside")
    stream = ChatStream(HEAD)
    frames(
        stream, ev.ItemOpened(item=shown.id, kind="message"), ev.Grew(item=shown.id, text="Half")
    )
    assert not stream.took_back
    frames(stream, ev.StepBroken(items=(shown,)))
    assert stream.took_back


def test_an_answer_that_merely_broke_off_has_not() -> None:
    shown = message("Half an", state="interrupted")
    stream = ChatStream(HEAD)
    frames(
        stream, ev.ItemOpened(item=shown.id, kind="message"), ev.Grew(item=shown.id, text="Half")
    )
    frames(stream, ev.StepBroken(items=(shown,)))
    assert not stream.took_back


def test_what_is_known_not_to_count_is_not_shown() -> None:
    """Who comes after an answer has begun anew sees the new one only, as if there were no other."""
    broken, whole = message("Half an", state="set_aside"), message("A whole one")
    stream = ChatStream(HEAD, set_aside=frozenset({broken.id}))
    said = frames(
        stream,
        ev.ItemOpened(item=broken.id, kind="message"),
        ev.Grew(item=broken.id, text="Half an"),
        ev.StepBroken(items=(broken,)),
        ev.ItemOpened(item=whole.id, kind="message"),
        ev.Grew(item=whole.id, text="A whole one"),
    )
    assert not stream.took_back
    assert told(said + stream.end(ended(whole)))[0] == "A whole one"


def test_what_was_not_shown_cannot_be_taken_back() -> None:
    stream = ChatStream(HEAD)
    frames(stream, ev.StepBroken(items=(message("x", state="set_aside"),)))
    assert not stream.took_back


def test_an_answer_that_is_not_stored_has_no_version() -> None:
    end = msgspec.structs.replace(ended(message("x")), version=None)
    assert "version" not in msgspec.json.decode(completion(HEAD, end))["holdfast"]


def test_a_call_of_an_earlier_turn_that_was_allowed_is_on_the_trail() -> None:
    asked = call("pay", waits_for="approval")
    request = ev.TurnRequest(turn_id=HEAD.turn_id, carried=(asked,), approved=(asked.id,))
    stream = ChatStream(msgspec.structs.replace(HEAD, options=AnswerOptions(show_tools=True)))
    events: list[ev.Event] = [ev.Began(request=request), ev.ToolStarted(call=asked.id)]
    frames = [stream.frames(Record(n=n, at_ms=0, event=each)) for n, each in enumerate(events)]
    assert frames[0] == b""
    assert b'"tool_started":{"id":"%b","name":"pay"' % asked.id.encode() in frames[1]
