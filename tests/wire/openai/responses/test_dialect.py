"""How a history looks to a Responses server, and what is made of odd streams from there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.items import (
    Audio,
    Blob,
    File,
    Image,
    Item,
    Link,
    Refusal,
    SystemMessage,
    Text,
)
from holdfast.core.turns.deltas import (
    Delta,
    ExtraDelta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from holdfast.ids import MessageId
from holdfast.wire.anthropic.thoughts import kept_thought
from holdfast.wire.openai.responses.dialect import ResponsesDialect, kept_reasoning
from holdfast.wire.openai.responses.stream_parser import ResponsesStreamParser, parse_whole
from holdfast.wire.stream_parser import StreamFailure
from tests.wire.histories import DIGEST, MINT, PDF, PNG, call, result, said, thought, user

SEALED = (
    b'{"type":"reasoning","id":"rs_1","summary":[],"status":"completed","encrypted_content":"x"}'
)


def spoken(*items: Item) -> Any:
    return msgspec.json.decode(b"[" + ResponsesDialect().encode(items) + b"]")


# ── histories ────────────────────────────────────────────────────────────────────────────────


def test_a_turn_with_calls_is_items_in_their_order() -> None:
    look = call("look", '{"at":1}')
    kept = kept_reasoning(SEALED)
    assert kept is not None
    assert spoken(
        user("Go"),
        thought("Hm.", kept),
        said("Well."),
        look,
        user("Hurry."),
        result(look, "seen"),
    ) == [
        {"role": "user", "content": "Go"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"role": "assistant", "content": "Well."},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at":1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "seen"},
        {"role": "user", "content": "Hurry."},
    ]


def test_reasoning_that_is_open_or_another_providers_is_left_out() -> None:
    assert kept_reasoning(b'{"type":"reasoning","id":"rs_1","encrypted_content":null}') is None
    foreign = thought("Hm.", kept_thought(signature="s"))
    assert spoken(thought("Hm."), foreign, said(""), said("Hi")) == [
        {"role": "assistant", "content": "Hi"}
    ]


def test_instructions_in_the_history_keep_their_role() -> None:
    system = SystemMessage(id=MINT(MessageId), content=(Text(text="Be kind."),))
    assert spoken(system) == [{"role": "developer", "content": "Be kind."}]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            Image(source=PNG, detail="low"),
            {"type": "input_image", "image_url": "data:image/png;base64,cG5n", "detail": "low"},
        ),
        (
            Image(source=Link(url="https://x/y")),
            {"type": "input_image", "image_url": "https://x/y", "detail": "auto"},
        ),
        (
            File(source=PDF, name="a.pdf"),
            {
                "type": "input_file",
                "filename": "a.pdf",
                "file_data": "data:application/pdf;base64,cGRm",
            },
        ),
        (File(source=Link(url="file_1")), {"type": "input_file", "file_id": "file_1"}),
        (File(source=Link(url="https://x")), {"type": "input_file", "file_url": "https://x"}),
        (Audio(source=PNG, transcript="Hello"), {"type": "input_text", "text": "Hello"}),
        (Refusal(text="No."), {"type": "input_text", "text": "No."}),
    ],
)
def test_what_people_show_is_a_part(part: Any, expected: dict[str, Any]) -> None:
    assert spoken(user(part)) == [{"role": "user", "content": [expected]}]
    look = call("look")
    if not isinstance(part, Refusal):
        [_, told] = spoken(look, result(look, "there:", part))
        assert told["output"] == [{"type": "input_text", "text": "there:"}, expected]


def test_blobs_are_named_until_they_are_sent() -> None:
    dialect = ResponsesDialect()
    blob = Blob(media_type="image/png", digest=DIGEST, size_bytes=3)
    encoded = dialect.encode([user(Image(source=blob), File(source=blob, name="n"))])
    assert dialect.blobs_in(encoded) == {DIGEST}
    shown, file = msgspec.json.decode(dialect.with_blobs(encoded, {DIGEST: b"png"}))["content"]
    assert shown["image_url"] == file["file_data"] == "data:image/png;base64,cG5n"


# ── streams ──────────────────────────────────────────────────────────────────────────────────


def hear(*events: dict[str, Any]) -> tuple[list[Delta], ResponsesStreamParser]:
    ear = ResponsesStreamParser(event_bytes_max=1 << 16)
    body = b"".join(b"data: " + msgspec.json.encode(each) + b"\n\n" for each in events)
    return list(ear.feed(body)), ear


def done(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def delta(kind: str, text: str, index: int = 0) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text}


@pytest.mark.parametrize(
    ("event", "finish"),
    [
        ({"type": "response.completed", "response": {}}, "stop"),
        ({"type": "response.incomplete", "response": {}}, "length"),
        (
            {
                "type": "response.incomplete",
                "response": {"incomplete_details": {"reason": "max_output_tokens"}},
            },
            "length",
        ),
        (
            {
                "type": "response.incomplete",
                "response": {"incomplete_details": {"reason": "content_filter"}},
            },
            "content_filter",
        ),
    ],
)
def test_the_last_event_says_how_it_went(event: dict[str, Any], finish: Any) -> None:
    deltas, ear = hear(event, delta("output_text", "more"))
    assert deltas == [FinishDelta(finish=finish)]
    assert ear.finished and ear.over


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.failed", "response": {"error": {"code": "c", "message": "m"}}},
        {"type": "error", "code": "c", "message": "m", "param": None},
        {"type": "error", "error": {"code": "c", "message": "m"}},
    ],
)
def test_a_failure_is_heard_with_its_words(event: dict[str, Any]) -> None:
    deltas, ear = hear(delta("output_text", "Hi"), event)
    assert deltas == [TextDelta(text="Hi")]
    assert ear.failure is not None and not ear.finished
    assert (ear.failure.error.code, ear.failure.error.message) == ("c", "m")


def test_what_was_not_streamed_is_said_when_it_is_done() -> None:
    deltas, _ = hear(
        done(0, type="reasoning", id="r", summary=[{"text": "Hm."}], encrypted_content="x"),
        done(1, type="message", content=[{"type": "output_text", "text": "Hi"}]),
        done(2, type="function_call", call_id="c", name="look", arguments='{"n":1}'),
    )
    kept = kept_reasoning(
        b'{"type":"reasoning","id":"r","summary":[{"text":"Hm."}],"encrypted_content":"x"}'
    )
    assert kept is not None
    assert deltas == [
        ReasoningDelta(text="Hm."),
        ExtraDelta(kind="reasoning", extra=kept),
        TextDelta(text="Hi", index=1),
        ToolCallDelta(index=2, call_id="c", name="look"),
        ToolCallDelta(index=2, arguments='{"n":1}'),
    ]


def test_what_was_streamed_is_not_said_again() -> None:
    deltas, _ = hear(
        delta("output_text", "Hi"),
        done(0, type="message", content=[{"type": "output_text", "text": "Hi"}]),
        {"type": "response.output_text.done", "text": "Hi"},
    )
    assert deltas == [TextDelta(text="Hi")]


def test_thoughts_and_a_summary_of_them_are_not_both_told() -> None:
    deltas, _ = hear(
        delta("reasoning_text", "Long."),
        delta("reasoning_summary_text", "Short."),
        delta("reasoning_summary_text", "A", 1),
        {
            "type": "response.reasoning_summary_part.added",
            "output_index": 1,
            "summary_index": 1,
        },
        delta("reasoning_summary_text", "B", 1),
    )
    assert deltas == [
        ReasoningDelta(text="Long."),
        ReasoningDelta(text="A", index=1),
        ReasoningDelta(text="\n\n", index=1),
        ReasoningDelta(text="B", index=1),
    ]


def test_what_came_later_than_this_code_is_let_pass() -> None:
    ear = ResponsesStreamParser(event_bytes_max=1 << 16)
    assert not ear.feed(b'data: {"type":"response.web_search_call.searching"}\n\ndata: [DONE]\n\n')
    deltas, ear = hear(delta("audio", "AAAA"), done(0, type="web_search_call"), {"delta": {"a": 1}})
    assert (deltas, ear.failure) == ([], None)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"status":"failed"}', b'{"status":"completed","output":[3]}']
)
def test_a_whole_answer_that_is_none_fails(body: bytes) -> None:
    with pytest.raises(StreamFailure):
        parse_whole(body)
