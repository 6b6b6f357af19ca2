"""A request has only so many messages, items, parts and tools, and is read before others have waited for long."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import pytest

from holdfast import limits
from holdfast.wire.openai.chat.request import read_chat_request
from holdfast.wire.openai.responses.request import read_context_request, read_responses_request
from holdfast.wire.problems import Refused

MOST = limits.request_items_max
TEXT = {"type": "text", "text": ""}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}


def chat(**body: object) -> bytes:
    return msgspec.json.encode(
        {"model": "m", "messages": [{"role": "user", "content": "x"}], **body}
    )


def responses(**body: object) -> bytes:
    return msgspec.json.encode({"model": "m", "input": "x", **body})


def tool(n: int) -> dict[str, object]:
    return {"type": "function", "function": {"name": f"f{n}"}}


LISTS: dict[str, Callable[[int], object]] = {
    "messages": lambda n: read_chat_request(chat(messages=[{"role": "user"}] * n)),
    "parts": lambda n: read_chat_request(
        chat(
            messages=[
                {"role": "user", "content": [TEXT] * (n // 2)},
                {"role": "user", "content": [TEXT] * (n - n // 2)},
            ]
        )
    ),
    "calls": lambda n: read_chat_request(
        chat(messages=[{"role": "assistant", "tool_calls": [CALL] * n}])
    ),
    "tools": lambda n: read_chat_request(chat(tools=[tool(each) for each in range(n)])),
    "items": lambda n: read_responses_request(
        responses(input=[{"role": "user", "content": "x"}] * n)
    ),
    "item parts": lambda n: read_responses_request(
        responses(
            input=[{"role": "user", "content": [TEXT]}] * (n // 2)
            + [{"role": "user", "content": [TEXT] * (n - n // 2)}]
        )
    ),
    "output parts": lambda n: read_responses_request(
        responses(input=[{"type": "function_call_output", "call_id": "c", "output": [TEXT] * n}])
    ),
    "response tools": lambda n: read_responses_request(
        responses(tools=[{"type": "function", "name": f"f{each}"} for each in range(n)])
    ),
    "counted items": lambda n: read_context_request(
        responses(input=[{"role": "user", "content": "x"}] * n), needs_model=True
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_request_has_only_so_many(name: str) -> None:
    LISTS[name](MOST)
    with pytest.raises(Refused) as refused:
        LISTS[name](MOST + 1)
    problem = refused.value.problem
    assert (problem.status, problem.code) == (400, "array_above_max_length")
    assert str(MOST) in problem.message and problem.param in ("messages", "input", "tools")


def filled(before: bytes, piece: bytes, after: bytes) -> bytes:
    """A body of the largest size, with as many of these pieces as fit."""
    count = (limits.body_bytes_max - len(before) - len(after)) // (len(piece) + 1)
    return before + b",".join([piece] * count) + after


LARGEST: dict[str, bytes] = {
    "messages": filled(b'{"model":"m","messages":[', b'{"role":"user"}', b"]}"),
    "parts": filled(
        b'{"model":"m","messages":[{"role":"user","content":[', b'{"type":"text"}', b"]}]}"
    ),
    "calls": filled(
        b'{"model":"m","messages":[{"role":"assistant","tool_calls":[',
        msgspec.json.encode(CALL),
        b"]}]}",
    ),
    "a text": filled(b'{"model":"m","messages":[{"role":"user","content":"', b"a b", b'"}]}'),
    "items": filled(b'{"model":"m","input":[', b'{"role":"user"}', b"]}"),
    "item parts": filled(
        b'{"model":"m","input":[{"role":"user","content":[', b'{"type":"input_text"}', b"]}]}"
    ),
}


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_body_is_read_within_a_tenth_of_a_second(name: str) -> None:
    """140,000 messages took half a second, in which nobody else was answered."""
    body = LARGEST[name]
    reader = read_chat_request if b'"messages"' in body else read_responses_request

    def once() -> float:
        began = time.thread_time()
        try:
            reader(body)
        except Refused:
            pass
        return time.thread_time() - began

    assert min(once() for _ in range(3)) < 0.1
