"""The chunks of a chat completion: read generously, written exactly."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.turns.events import Usage
from holdfast.wire.openai.chat.chunks import (
    ChunkWriter,
    ErrorObject,
    mended,
    read_chunk,
    read_error,
)
from holdfast.wire.sse import SseParser

# ── out ──────────────────────────────────────────────────────────────────────────────────────


def writer(**fields: Any) -> ChunkWriter:
    return ChunkWriter(
        **{"completion_id": "chatcmpl-1", "created_s": 1_750_000_000, "model": "butler", **fields}
    )


def read_back(frame: bytes) -> dict[str, Any]:
    ((data, _),) = SseParser(event_bytes_max=1 << 20).feed(frame)
    read: dict[str, Any] = msgspec.json.decode(data)
    return read


def frames(chunks: ChunkWriter) -> list[bytes]:
    return [
        chunks.opening(),
        chunks.content("Hi"),
        chunks.refusal("No"),
        chunks.reasoning("Hm"),
        chunks.call(0, call_id="call_1", name="look"),
        chunks.arguments(0, "{}"),
        chunks.chunk(finish="tool_calls"),
    ]


@pytest.mark.parametrize("include_usage", [False, True])
def test_every_chunk_has_the_same_head(include_usage: bool) -> None:
    """W-32, W-33: a changing id makes two answers of one; usage is null until the last chunk."""
    for frame in frames(writer(include_usage=include_usage)):
        chunk = read_back(frame)
        assert chunk["id"] == "chatcmpl-1"
        assert chunk["object"] == "chat.completion.chunk"
        assert (chunk["created"], chunk["model"]) == (1_750_000_000, "butler")
        assert [choice["index"] for choice in chunk["choices"]] == [0]
        assert ("usage" in chunk) is include_usage
        assert chunk.get("usage") is None


def test_the_first_chunk_has_the_role_and_the_last_the_reason() -> None:
    first, *middle, last = (read_back(frame)["choices"][0] for frame in frames(writer()))
    assert first["delta"] == {"role": "assistant", "content": ""}
    assert last == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "tool_calls"}
    assert all(each["finish_reason"] is None and "role" not in each["delta"] for each in middle)


def test_the_id_and_name_of_a_call_come_once() -> None:
    """W-36: clients join what they are told twice into `looklook`."""
    chunks = writer()
    begins = read_back(chunks.call(1, call_id="call_1", name="look"))["choices"][0]["delta"]
    goes_on = read_back(chunks.arguments(1, '{"a":'))["choices"][0]["delta"]
    function = {"name": "look", "arguments": ""}
    assert begins == {
        "tool_calls": [{"index": 1, "id": "call_1", "type": "function", "function": function}]
    }
    assert goes_on == {"tool_calls": [{"index": 1, "function": {"arguments": '{"a":'}}]}


def test_usage_comes_last_and_without_choices() -> None:
    usage = Usage(input_tokens=5, cached_tokens=2, output_tokens=7, reasoning_tokens=3)
    chunk = read_back(writer(include_usage=True).usage(usage))
    assert chunk["choices"] == []
    assert chunk["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 3,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


@pytest.mark.parametrize("include_usage", [False, True])
def test_a_finish_can_carry_more(include_usage: bool) -> None:
    chunk = read_back(writer(include_usage=include_usage).chunk(finish="stop", about={"v": 1}))
    assert chunk["holdfast"] == {"v": 1}
    assert chunk["choices"][0]["finish_reason"] == "stop"


@given(
    text=st.text(), name=st.text(), model=st.text(st.sampled_from('%d%s"\\{}\n') | st.characters())
)
def test_whatever_is_said_comes_back(text: str, name: str, model: str) -> None:
    chunks = writer(model=model, include_usage=True)
    said = read_back(chunks.content(text))
    assert said["choices"][0]["delta"] == {"content": text}
    assert said["model"] == model
    call = read_back(chunks.call(2, call_id=name, name=name))["choices"][0]["delta"]["tool_calls"][
        0
    ]
    assert (call["id"], call["function"]["name"]) == (name, name)
    fragment = read_back(chunks.arguments(2, text))["choices"][0]["delta"]["tool_calls"][0]
    assert fragment == {"index": 2, "function": {"arguments": text}}
    for frame in (chunks.content(text), chunks.reasoning(text), chunks.arguments(0, text)):
        assert len(frame.decode().splitlines()) == 2


# ── in ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "failure"),
    [
        (b'{"error":{"message":"no","code":"x"}}', ErrorObject(message="no", code="x")),
        (b'{"error":{"message":"no","code":502}}', ErrorObject(message="no", code=502)),
        (b'{"error":"no","code":7}', ErrorObject(message="no", code=7)),
        (b'{"object":"error","message":"no","type":"t"}', ErrorObject(message="no", type="t")),
        (b'{"error":{}}', ErrorObject()),
        (b'{"error":null,"choices":[]}', None),
        (b'{"choices":[{"delta":{}}]}', None),
        (b"{}", None),
    ],
)
def test_an_error_is_found_in_the_usual_places(data: bytes, failure: ErrorObject | None) -> None:
    assert read_chunk(data).failure() == failure


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (rb"a\ud83d", "a�"),
        (rb"\ude00b", "�b"),
        (rb"\ud83d\ude00", "😀"),
        (rb"\\ud83d\ud83d", "\\ud83d�"),
        (b"caf\xc3", "caf�"),
        (b"\xf0\x9f\x98", "�"),
    ],
)
def test_half_a_character_costs_a_character_and_not_the_answer(text: bytes, read: str) -> None:
    chunk = read_chunk(mended(b'{"choices":[{"delta":{"content":"' + text + b'"}}]}'))
    assert chunk.choices is not None and chunk.choices[0].delta is not None
    assert chunk.choices[0].delta.content == read


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error":{"message":"no","type":"t","code":"c"}}', ("no", "t", "c")),
        (b'{"detail":"not here"}', ("not here", None, None)),
        (b'{"message":"no","code":404}', ("no", None, 404)),
        (b"upstream connect error\n or so", ("upstream connect error or so", None, None)),
        (b"<html><h1>Bad Gateway</h1>", ("", None, None)),
        (b'{"detail":[{"loc":["body"]}]}', ('{"detail":[{"loc":["body"]}]}', None, None)),
        (b"", ("", None, None)),
    ],
)
def test_the_body_of_an_error_is_read_as_far_as_it_goes(
    body: bytes, error: tuple[str, str | None, str | int | None]
) -> None:
    found = read_error(body)
    assert (found.message, found.type, found.code) == error
