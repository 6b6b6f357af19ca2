"""What is made of the streams of chat-completions servers, well behaved and otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.turns.deltas import (
    Delta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.events import Usage
from holdfast.wire.openai.chat.chunks import ChunkWriter
from holdfast.wire.openai.chat.stream_parser import ChatStreamParser, parse_whole
from holdfast.wire.sse import DONE, data_frame
from holdfast.wire.stream_parser import GarbledStream, StreamFailure


def hearing() -> ChatStreamParser:
    return ChatStreamParser(event_bytes_max=1 << 20)


def heard(*pieces: bytes) -> list[Delta]:
    ear = hearing()
    deltas = [delta for piece in pieces for delta in ear.feed(piece)]
    if ear.failure is not None:
        raise ear.failure
    return deltas


def chunk(delta: dict[str, Any] | None = None, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": delta or {}, **fields.pop("choice", {})}
    return data_frame(msgspec.json.encode({"choices": [choice], **fields}))


def finish(reason: str) -> bytes:
    return chunk(choice={"finish_reason": reason})


def call(index: int | None, **fields: Any) -> dict[str, Any]:
    at = {} if index is None else {"index": index}
    return {"tool_calls": [{**at, **fields}]}


def named(name: str, arguments: str | dict[str, Any] = "") -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}}


# ── a well-behaved stream ────────────────────────────────────────────────────────────────────

WRITER = ChunkWriter(completion_id="c", created_s=1, model="m", include_usage=True)
USAGE = Usage(input_tokens=9, cached_tokens=4, output_tokens=5, reasoning_tokens=2)
STREAM = b"".join(
    (
        WRITER.opening(),
        WRITER.reasoning("Hmm"),
        WRITER.content("Grüße, "),
        WRITER.content("😀"),
        WRITER.call(0, call_id="call_a", name="look"),
        WRITER.call(1, call_id="call_b", name="fly"),
        WRITER.arguments(0, '{"to":'),
        WRITER.arguments(1, "{}"),
        WRITER.arguments(0, '"Oslo"}'),
        WRITER.chunk(finish="tool_calls"),
        WRITER.usage(USAGE),
        DONE,
    )
)
DELTAS: list[Delta] = [
    ReasoningDelta(text="Hmm"),
    TextDelta(text="Grüße, "),
    TextDelta(text="😀"),
    ToolCallDelta(index=0, call_id="call_a", name="look"),
    ToolCallDelta(index=1, call_id="call_b", name="fly"),
    ToolCallDelta(index=0, arguments='{"to":'),
    ToolCallDelta(index=1, arguments="{}"),
    ToolCallDelta(index=0, arguments='"Oslo"}'),
    FinishDelta(finish="tool_calls"),
    UsageDelta(usage=USAGE),
]


def test_a_stream_says_the_same_cut_at_every_byte() -> None:
    for cut in range(len(STREAM) + 1):
        assert heard(STREAM[:cut], STREAM[cut:]) == DELTAS


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=40), crlf=st.booleans())
def test_a_stream_says_the_same_in_any_pieces(cuts: list[int], crlf: bool) -> None:
    stream = STREAM.replace(b"\n", b"\r\n") if crlf else STREAM
    edges = [0, *sorted(cuts), len(stream)]
    assert heard(*(stream[a:b] for a, b in pairwise(edges))) == DELTAS


def test_a_stream_that_breaks_off_is_not_finished_wherever_it_does() -> None:
    said = STREAM.index(WRITER.chunk(finish="tool_calls")) + len(WRITER.chunk(finish="tool_calls"))
    for end in range(len(STREAM) + 1):
        ear = hearing()
        ear.feed(STREAM[:end])
        assert ear.finished is (end >= said)
        assert ear.over is (end == len(STREAM))


def test_nothing_counts_after_the_end() -> None:
    assert heard(STREAM + chunk({"content": "more"}), chunk({"content": "and more"})) == DELTAS


# ── liberties ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pieces", "deltas"),
    [
        ([{"content": ""}], []),
        ([{"content": None, "role": "assistant", "unknown": [1]}], []),
        ([{"reasoning": "Hm"}], [ReasoningDelta(text="Hm")]),
        ([{"reasoning": "Hm", "reasoning_content": "Hm"}], [ReasoningDelta(text="Hm")]),
        ([{"refusal": "No"}], [TextDelta(text="No", refusal=True)]),
        ([{"content": [{"type": "text", "text": "Hi"}]}], [TextDelta(text="Hi")]),
        (
            [
                {
                    "content": [
                        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
                        {"type": "thinking", "thinking": "Oh"},
                        {"type": "image"},
                    ]
                }
            ],
            [ReasoningDelta(text="Hm"), ReasoningDelta(text="Oh")],
        ),
    ],
)
def test_words_come_in_several_spellings(pieces: list[dict[str, Any]], deltas: list[Delta]) -> None:
    assert heard(*map(chunk, pieces)) == deltas


@pytest.mark.parametrize(
    "piece",
    [
        chunk({"content": "and"}, choice={"finish_reason": "stop"}),
        chunk({"content": "and"}, choice={"finish_reason": ""}),
        chunk({"content": "and"}, choice={"index": 1}),
        chunk({"content": "and"}, usage={"prompt_tokens": 3, "completion_tokens": 4}),
        chunk({"content": "and"}, x_groq={"usage": {"prompt_tokens": 3}}),
        chunk({"content": "and", "reasoning_content": "so"}),
        chunk({"content": "and", "reasoning": "so", "refusal": ""}),
        chunk({"content": "and", "refusal": "no"}),
        chunk({"content": "and", "tool_calls": [call(0, id="c", function=named("look"))]}),
        chunk({"content": "and", "tool_calls": []}),
        chunk({"content": "and", "function_call": named("look")}),
        chunk({"content": [{"text": "and"}]}),
        chunk({"content": "and"}, object="text_completion"),
        chunk({"content": ""}),
        data_frame(b'{"choices": [{"message": {"content": "and"}}]}'),
        data_frame(b'{"choices": []}'),
        data_frame(b'{"choices": [{"delta": {"content": "a\xff"}}]}'),
        b"data:\n\n",
    ],
)
def test_a_chunk_says_the_same_after_a_piece_of_text_as_at_the_beginning(piece: bytes) -> None:
    """A chunk that follows a piece of text is first read as another one."""
    text = chunk({"content": "here"})
    before, after = TextDelta(text="here"), TextDelta(text="here")
    assert heard(text, piece, text) == [before, *heard(piece), after]


@pytest.mark.parametrize("failure", [{"error": {"message": "no"}}, {"object": "error"}])
def test_a_failure_with_text_beside_it_is_one(failure: dict[str, Any]) -> None:
    text = {"content": "here"}
    with pytest.raises(StreamFailure):
        heard(chunk(text), chunk(text, **failure))


def calls_of(deltas: Sequence[Delta]) -> list[tuple[str, str]]:
    """Name and arguments of each call, in the order of their numbers."""
    calls: dict[int, tuple[str, str]] = {}
    for delta in deltas:
        assert isinstance(delta, ToolCallDelta)
        name, arguments = calls.get(delta.index, ("", ""))
        calls[delta.index] = (name or delta.name, arguments + delta.arguments)
    return [calls[n] for n in sorted(calls)]


TWO = [("look", '{"a":1}'), ("fly", "{}")]


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(
            [
                call(0, id="a", **named("look")),
                call(1, id="b", **named("fly")),
                call(1, **named("", "{}")),
                call(0, **named("", '{"a":1}')),
            ],
            id="side by side",
        ),
        pytest.param(
            [
                call(None, id="a", **named("look", '{"a"')),
                call(None, **named("", ":1}")),
                call(None, id="b", **named("fly", "{}")),
            ],
            id="without an index",
        ),
        pytest.param(
            [
                call(0, id="a", **named("look", '{"a":1}')),
                call(0, id="b", **named("fly", "{}")),
            ],
            id="all with index 0",
        ),
        pytest.param(
            [
                call(0, id="a", **named("look", '{"a"')),
                call(0, id="a", **named("look", ":1}")),
                call(1, id="b", **named("fly", "{}")),
            ],
            id="names repeated",
        ),
        pytest.param(
            [
                call(0, id="a", **named("look", '{"a"')),
                call(0, id="z", function={"arguments": ":1}"}),
                call(1, id="b", **named("fly", "{}")),
            ],
            id="a new id with every fragment",
        ),
        pytest.param(
            [
                call(3, id="a", **named("look", {"a": 1})),
                call(7, id="b", **named("fly", {})),
            ],
            id="arguments parsed, indices with gaps",
        ),
        pytest.param(
            [{"tool_calls": [named("look", '{"a":1}'), named("fly", "{}")]}],
            id="neither index nor id",
        ),
    ],
)
def test_two_calls_are_two_calls(pieces: list[dict[str, Any]]) -> None:
    assert calls_of(heard(*map(chunk, pieces))) == TWO


def test_the_function_call_of_older_servers_is_a_call() -> None:
    pieces = [{"function_call": {"name": "look"}}, {"function_call": {"arguments": '{"a":1}'}}]
    assert calls_of(heard(*map(chunk, pieces))) == TWO[:1]


@pytest.mark.parametrize(
    ("reason", "finish_reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("function_call", "tool_calls"),
        ("content_filter", "content_filter"),
        ("eos", "stop"),
    ],
)
def test_reasons_to_finish_are_told_apart(reason: str, finish_reason: str) -> None:
    (delta,) = heard(finish(reason))
    assert isinstance(delta, FinishDelta)
    assert delta.finish == finish_reason


def test_a_stop_after_calls_means_the_calls() -> None:
    (*_, last) = heard(chunk(call(0, id="a", **named("look", "{}"))), finish("stop"))
    assert last == FinishDelta(finish="tool_calls")


def test_usage_is_found_wherever_it_is() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_cache_hit_tokens": 1}
    known = UsageDelta(usage=Usage(input_tokens=3, output_tokens=2, cached_tokens=1))
    assert heard(chunk(usage=usage)) == [known]
    assert heard(chunk(x_groq={"id": "1", "usage": usage})) == [known]
    assert heard(data_frame(msgspec.json.encode({"usage": usage}))) == [known]
    assert heard(chunk(usage={"prompt_tokens": None})) == [UsageDelta(usage=Usage())]


def test_another_choice_is_nobodys() -> None:
    assert heard(chunk({"content": "other"}, choice={"index": 1, "finish_reason": "stop"})) == []


# ── failures ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        (b'data: {"error":{"message":"overloaded"}}\n\n', "overloaded"),
        (b'event: error\ndata: {"message":"overloaded"}\n\n', "overloaded"),
        (b'event: error\ndata: {"error":{"message":"overloaded"}}\n\n', "overloaded"),
        (b"event: error\ndata: overloaded\n\n", "overloaded"),
        (finish("abort"), "abort"),
        (finish("error"), "error"),
    ],
)
def test_a_failure_in_a_stream_is_one(piece: bytes, message: str) -> None:
    with pytest.raises(StreamFailure, match=message):
        heard(chunk({"content": "a"}), piece)


@pytest.mark.parametrize("piece", [b"data: nonsense\n\n", b'data: {"choices":"x"}\n\n'])
def test_nonsense_is_not_skipped(piece: bytes) -> None:
    with pytest.raises(GarbledStream, match="cannot be read"):
        heard(piece)


def test_what_was_said_before_a_failure_is_heard_wherever_the_stream_is_cut() -> None:
    failed = chunk({"content": "a"}) + finish("stop") + b'data: {"error":{"message":"no"}}\n\n'
    for cut in range(len(failed) + 1):
        ear = hearing()
        deltas = [*ear.feed(failed[:cut]), *ear.feed(failed[cut:]), *ear.feed(STREAM)]
        assert deltas == [TextDelta(text="a"), FinishDelta(finish="stop")]
        assert ear.failure is not None


# ── answers that are not streamed ────────────────────────────────────────────────────────────


def test_a_whole_answer_is_heard_as_deltas() -> None:
    message = {
        "content": "Hi",
        "tool_calls": [
            {"id": "a", "type": "function", **named("look", '{"a":1}')},
            {"id": "b", "type": "function", **named("fly", "{}")},
        ],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    first, *calls, last, used = parse_whole(
        msgspec.json.encode({"choices": [choice], "usage": usage})
    )
    assert first == TextDelta(text="Hi")
    assert calls_of(calls) == TWO
    assert last == FinishDelta(finish="tool_calls")
    assert used == UsageDelta(usage=Usage(input_tokens=3, output_tokens=2))


@pytest.mark.parametrize("body", [b"{}", b'{"choices":[{"message":{"content":"Hi"}}]}', b"no"])
def test_a_whole_answer_says_how_it_ended(body: bytes) -> None:
    with pytest.raises(GarbledStream):
        parse_whole(body)
