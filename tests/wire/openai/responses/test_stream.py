"""A Response as a stream: order and identity of its events, whatever the turn was like."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import ANY

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.items import (
    AssistantMessage,
    Interruption,
    Item,
    Opaque,
    Parts,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    plain_text,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.deltas import (
    Accumulator,
    Delta,
    ExtraDelta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from holdfast.core.turns.journal import Record
from holdfast.core.turns.turn import advance, advance_all, begin
from holdfast.core.turns.unfinished_turns import CUT
from holdfast.ids import CallId, MessageId, NoteId, ResponseId, ResultId, SessionId, TurnId
from holdfast.wire.openai.responses.answer import Echo, ResponseEnd, ResponseHead, whole_response
from holdfast.wire.openai.responses.stream import ResponseStream
from holdfast.wire.problems import Problem
from tests.core.builders import new_minter

MINT = new_minter()
SESSION = MINT(SessionId)
BEGAN = ev.Began(
    request=ev.TurnRequest(turn_id=MINT(TurnId), client_tools=(ev.ToolDefinition(name="theirs"),))
)


def head(**echo: Any) -> ResponseHead:
    return ResponseHead(
        response_id=MINT(ResponseId), session_id=SESSION, created_s=1, echo=Echo(**echo)
    )


def message(text: str, refusal: str = "", **more: Any) -> AssistantMessage:
    content: Parts = plain_text(text)
    if refusal:
        content = (*content, Refusal(text=refusal))
    return AssistantMessage(id=MINT(MessageId), content=content, agent="root", **more)


def call(name: str, arguments: str = '{"a":1}', **more: Any) -> ToolCall:
    return ToolCall(
        id=MINT(CallId), call_id=f"c_{name}", name=name, arguments=arguments, agent="root", **more
    )


def result(of: ToolCall, outcome: Any = "ok") -> ToolResult:
    content = (Text(text="done"),)
    return ToolResult(id=MINT(ResultId), call=of.id, outcome=outcome, content=content)


def grown(*items: Item, broken: bool = False) -> list[ev.Event]:
    """The events of one step that said these, in pieces of two characters."""
    events: list[ev.Event] = []
    for item in items:
        if isinstance(item, AssistantMessage):
            events.append(ev.ItemOpened(item=item.id, kind="message"))
            for part in item.content:
                assert isinstance(part, Text | Refusal)
                for n in range(0, len(part.text), 2):
                    refusal = isinstance(part, Refusal)
                    piece = part.text[n : n + 2]
                    events.append(ev.Grew(item=item.id, text=piece, refusal=refusal))
        elif isinstance(item, ToolCall):
            events.append(
                ev.ItemOpened(item=item.id, kind="call", call_id=item.call_id, name=item.name)
            )
            events.append(ev.Grew(item=item.id, text=item.arguments))
    spoken: Any = items
    events.append(ev.StepBroken(items=spoken) if broken else ev.Answered(items=spoken))
    return events


def frames_of(stream: ResponseStream, events: list[ev.Event], end: ResponseEnd) -> bytes:
    body = stream.first()
    for n, event in enumerate([BEGAN, *events]):
        body += stream.frames(Record(n=n, at_ms=0, event=event))
    return body + stream.end(end)


def read(body: bytes) -> list[Any]:
    """The events; each has its name twice, and `[DONE]` comes last."""
    *frames, done = [each for each in body.decode().split("\n\n") if each]
    assert done == "data: [DONE]"
    found = []
    for frame in frames:
        name, data = frame.split("\n")
        event = msgspec.json.decode(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def completed(*items: Item) -> ResponseEnd:
    return ResponseEnd(status="completed", items=items, completed_s=2)


def check(events: list[Any]) -> None:
    """Everything that clients rely on (W-43 to W-45)."""
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    assert [each["type"] for each in events[:2]] == ["response.created", "response.in_progress"]
    last = events[-1]["response"]
    assert {each["response"]["id"] for each in events if "response" in each} == {last["id"]}
    open_items: dict[str, Any] = {}
    done: dict[int, Any] = {}
    for event in events[2:-1]:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert not open_items, "an item begins before the one before it is done"
            assert event["output_index"] == len(done)
            open_items[event["item"]["id"]] = {"index": event["output_index"], "parts": {}}
            assert event["item"]["status"] == "in_progress"
        elif kind == "output_item.done":
            place = open_items.pop(event["item"]["id"])
            assert place["index"] == event["output_index"]
            if event["item"]["type"] == "message":
                said = [part.get("text", part.get("refusal")) for part in event["item"]["content"]]
                assert said == [place["parts"][n] for n in range(len(said))]
            elif event["item"]["type"] == "function_call":
                assert event["item"]["arguments"] == place["parts"].get(None, "")
            done[event["output_index"]] = event["item"]
        else:
            place = open_items[event["item_id"]]
            assert place["index"] == event["output_index"]
            at = event.get("content_index")
            if kind == "content_part.added":
                assert at == len(place["parts"])
                place["parts"][at] = ""
            elif kind.endswith(".delta"):
                place["parts"][at] = place["parts"].get(at, "") + event["delta"]
            elif kind in ("output_text.done", "refusal.done"):
                assert place["parts"][at] == event.get("text", event.get("refusal"))
    assert not open_items
    assert last["output"] == [done[n] for n in range(len(done))]


def test_a_plain_answer_is_the_events_that_every_client_waits_for() -> None:
    said = message("Hello")
    events = read(frames_of(ResponseStream(head()), grown(said), completed(said)))
    assert [each["type"].removeprefix("response.") for each in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    check(events)


texts = st.text(alphabet="abc\u2028é\n", max_size=7)
messages = st.builds(message, texts, texts)
calls = st.builds(call, st.sampled_from(["theirs"]), texts, waits_for=st.just("client"))
own_calls = st.builds(call, st.just("ours"))
steps = st.tuples(
    st.lists(st.one_of(messages, own_calls), max_size=3), st.booleans(), st.booleans()
)


@st.composite
def turns(draw: st.DrawFn) -> tuple[list[ev.Event], list[Item]]:
    """What happened, and what it came to. Some steps broke off; of some no piece was seen."""
    events: list[ev.Event] = []
    items: list[Item] = []
    for said, broken, seen in draw(st.lists(steps, max_size=4)):
        spoken: list[Any] = said
        if broken:
            spoken = [msgspec.structs.replace(each, state="set_aside") for each in said]
        step = grown(*spoken, broken=broken)
        events += step if seen else step[-1:]
        items += spoken
        if not broken:
            for each in spoken:
                if isinstance(each, ToolCall):
                    events += [ev.ToolStarted(call=each.id), ev.ToolFinished(result=result(each))]
                    items.append(result(each))
    last: list[Any] = [*draw(st.lists(messages, max_size=1)), *draw(st.lists(calls, max_size=2))]
    items += last
    return [*events, *grown(*last)], items


@given(turns(), st.booleans(), st.integers(-1, 40))
def test_order_and_identity_hold_for_every_turn(
    turn: tuple[list[ev.Event], list[Item]], show_tools: bool, after: int
) -> None:
    events, items = turn
    top = head(show_tools=show_tools)
    end = completed(*items)
    body = frames_of(ResponseStream(top), events, end)
    found = read(body)
    check(found)
    again = ResponseStream(top, after=after)
    assert read(frames_of(again, events, end)) == found[after + 1 :]
    whole: dict[str, Any] = whole_response(top, end)
    shown = {each["id"]: each for each in whole["output"]}
    assert {each["id"] for each in found[-1]["response"]["output"]} == shown.keys()


class Deltas:
    """The pieces of an answer, as a provider may send them: in any order, texts and calls side by side."""

    indexes = st.integers(0, 1)
    texts = st.text(alphabet="ab \n", max_size=4)
    calls = st.builds(
        lambda index, ours, arguments: ToolCallDelta(
            index=index, name="ours" if ours else "theirs", arguments=arguments
        ),
        indexes,
        st.booleans(),
        st.sampled_from(["", "{", "}", "{}", '{"a":']),
    )
    signatures = st.builds(
        ExtraDelta,
        kind=st.sampled_from(["message", "reasoning", "call"]),
        index=indexes,
        extra=st.just(Opaque(owner="demo", json="{}")),
    )
    any = st.one_of(
        st.builds(TextDelta, text=texts, index=indexes),
        st.builds(ReasoningDelta, text=texts, index=indexes),
        calls,
        signatures,
    )
    finishes = st.sampled_from(["stop", "length", "tool_calls"])


@given(st.lists(Deltas.any, max_size=16), Deltas.finishes, st.booleans(), st.integers(-1, 40))
def test_items_come_one_after_the_other_in_whatever_order_the_provider_sends_their_pieces(
    deltas: list[Delta], finish: ev.Finish, thoughts: bool, after: int
) -> None:
    accumulator = Accumulator(MINT, agent="root")
    turn = advance(begin(BEGAN), ev.StepStarted())
    events: list[ev.Event] = []
    for delta in [*deltas, FinishDelta(finish=finish)]:
        events += (happened := accumulator.events(delta))
        turn = advance_all(turn, happened)
    assert turn.root.draft is not None
    items = [_judged(each) for each in accumulator.answered(turn.root.draft).items]
    events.append(ev.Answered(items=tuple(items), finish=finish))
    tools = '[{"type":"function","name":"theirs"}]'
    top = head(reasoning_summary="auto" if thoughts else None, tools=tools)
    note = Interruption(id=MINT(NoteId), ended_by="limit", detail=CUT)
    end = completed(*items, *([note] if finish == "length" else []))
    found = read(frames_of(ResponseStream(top), events, end))
    check(found)
    assert found[-1]["response"]["output"] == whole_response(top, end)["output"]
    assert read(frames_of(ResponseStream(top), [], end))[-1] == {
        **found[-1],
        "sequence_number": ANY,
    }
    again = ResponseStream(top, after=after)
    assert read(frames_of(again, events, end)) == found[after + 1 :]


def _judged(item: ev.Answer) -> ev.Answer:
    """The item as the loop records it: a call of the client's tool waits for the client."""
    if isinstance(item, ToolCall) and item.name == "theirs" and item.state == "complete":
        return msgspec.structs.replace(item, waits_for="client")
    return item


@given(turns(), st.randoms(use_true_random=False))
def test_items_of_an_old_journal_that_grew_side_by_side_are_told_one_after_the_other(
    turn: tuple[list[ev.Event], list[Item]], random: Random
) -> None:
    """Older versions recorded the pieces as they came, and no record says when an item was whole."""
    events, items = turn
    steps: list[list[ev.Event]] = [[]]
    for event in events:
        steps[-1].append(event)
        if not isinstance(event, ev.ItemOpened | ev.Grew):
            steps.append([])
    mixed = [each for step in steps for each in _side_by_side(step, random)]
    check(read(frames_of(ResponseStream(head()), mixed, completed(*items))))


def _side_by_side(step: list[ev.Event], random: Random) -> list[ev.Event]:
    """The fine events of a step in another order: every item is still opened first, and grows piece by piece."""
    lines: dict[str, list[ev.Event]] = {}
    rest = [each for each in step if not isinstance(each, ev.ItemOpened | ev.Grew)]
    for each in step:
        if isinstance(each, ev.ItemOpened | ev.Grew):
            lines.setdefault(each.item, []).append(each)
    mixed = [line.pop(0) for line in lines.values()]
    while any(lines.values()):
        mixed.append(random.choice([line for line in lines.values() if line]).pop(0))
    return mixed + rest


def test_parallel_calls_of_the_agents_own_tools_are_shown_one_after_the_other() -> None:
    first, second = call("look"), call("listen")
    events = [
        *grown(first, second),
        ev.ToolStarted(call=first.id),
        ev.ToolStarted(call=second.id),
        ev.ToolFinished(result=result(second)),
        ev.ToolFinished(result=result(first)),
    ]
    end = completed(first, second, result(second), result(first))
    found = read(frames_of(ResponseStream(head(show_tools=True)), events, end))
    check(found)
    assert [each["name"] for each in found[-1]["response"]["output"]] == ["look", "listen"]


@given(turns())
def test_a_turn_that_nobody_saw_is_told_whole(
    turn: tuple[list[ev.Event], list[Item]],
) -> None:
    """After its journal is gone, a Response can still be had as a stream: in larger pieces."""
    top, end = head(), completed(*turn[1])
    found = read(frames_of(ResponseStream(top), [], end))
    check(found)
    whole = msgspec.json.decode(msgspec.json.encode(whole_response(top, end)))
    assert found[-1]["response"] == whole


def test_an_agents_own_call_is_shown_on_request_only() -> None:
    look, said = call("look"), message("Cold.")
    events = [*grown(look), ev.ToolStarted(call=look.id), ev.ToolFinished(result=result(look))]
    end = completed(look, result(look), said)
    hidden = read(frames_of(ResponseStream(head()), [*events, *grown(said)], end))
    shown = read(frames_of(ResponseStream(head(show_tools=True)), [*events, *grown(said)], end))
    assert [each["type"] for each in hidden[-1]["response"]["output"]] == ["message"]
    made, _ = shown[-1]["response"]["output"]
    assert (made["type"], made["name"], made["output"]) == ("mcp_call", "look", "done")
    check(shown)


def test_background_says_that_it_was_queued() -> None:
    events = read(frames_of(ResponseStream(head(background=True)), [], completed()))
    assert [each["type"] for each in events[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert events[0]["response"]["status"] == "queued"


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (502, "upstream_error", "server_error"),
        (400, "context_length_exceeded", "invalid_prompt"),
        (429, "rate_limit_exceeded", "rate_limit_exceeded"),
    ],
)
def test_a_failure_is_told_under_a_code_that_clients_know(
    status: int, code: str, told: str
) -> None:
    stream = ResponseStream(head())
    problem = Problem(status=status, code=code, message="no")
    body = stream.first() + stream.end(ResponseEnd(status="failed", error=problem))
    *_, last = read(body)
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"] == {"code": told, "message": "no"}


def test_a_stream_that_breaks_off_says_so_and_takes_no_number() -> None:
    stream = ResponseStream(head())
    before = len(stream.first().split(b"\n\n")) - 1
    frame = stream.failed(Problem(status=503, code="server_shutting_down", message="later"))
    name, data = frame.decode().strip().split("\n")
    told = msgspec.json.decode(data.removeprefix("data: "))
    assert name == "event: error" and "sequence_number" not in told
    assert told["error"]["code"] == told["code"] == "server_shutting_down"
    *_, last = read(stream.first() + stream.end(ResponseEnd(status="completed")))
    assert last["sequence_number"] == before
