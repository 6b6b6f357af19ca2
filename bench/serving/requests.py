"""Requests as bytes: how a turn of a conversation is asked for, on each wire that a measured system speaks.

A function here takes the model, the name of the conversation and whether the answer is streamed, and gives the whole
HTTP request. `past` is for systems that keep no conversations: as many messages the client has to send again.
A system names its function as `module:function`, since the client runs in another process; `module:function:word`
is a function that makes one of a word. What is said names the answer that the upstream is to give.
"""

from __future__ import annotations

import importlib
import itertools
from functools import cache
from typing import Protocol

import msgspec

_numbers = itertools.count(1)


class Asking(Protocol):
    def __call__(self, model: str, conversation: str, stream: bool, *, past: int = 0) -> bytes: ...


def named(name: str) -> Asking:
    """The function that a system has named."""
    module, function, *word = name.split(":", 2)
    found = getattr(importlib.import_module(module), function)
    asking: Asking = found(*word) if word else found
    return asking


def post(path: str, body: bytes, **headers: str) -> bytes:
    """A request on a connection that stays open. Underscores in the names of headers are dashes."""
    head = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    head += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


def words(model: str) -> str:
    """Something new to say, which this model answers."""
    return f"bench:{model} Tell me about number {next(_numbers)}, please."


@cache
def _past(messages: int) -> list[dict[str, str]]:
    return [
        {"role": "assistant", "content": " token0" * 20}
        if number % 2
        else {"role": "user", "content": f"bench:short Tell me about number {number}, please."}
        for number in range(messages)
    ]


def chat(model: str, conversation: str, stream: bool, *, past: int = 0) -> bytes:
    """OpenAI's chat completions, with the conversation in a header: Holdfast, the bare proxy, LiteLLM."""
    messages = [*_past(past), {"role": "user", "content": words(model)}]
    body = msgspec.json.encode({"model": model, "stream": stream, "messages": messages})
    return post(
        "/v1/chat/completions",
        body,
        Authorization="Bearer bench",
        X_Conversation_Id=conversation,
    )
