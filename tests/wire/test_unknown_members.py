"""Every member that a client sends comes back, at any depth and byte for byte, through every API that stores messages.

An unknown member is added to every object of every documented type: under a name of its own each time, and under one
name that all of them share, so that no two can be taken for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from holdfast.core.codec import encode
from holdfast.core.history.reconciliation import Fresh, Incoming, take_in
from holdfast.core.items import item_decoder
from holdfast.wire.anthropic.door.request import read_messages_request
from holdfast.wire.openai.chat.request import read_chat_request
from holdfast.wire.openai.responses.items import item_object, read_input
from tests.core.builders import new_minter
from tests.core.histories import new_session
from tests.wire.openai.documented_types import Json, blocks, chat_messages, items

HELLO: Json = {"role": "user", "content": "Hello"}
NAMES: dict[str, Callable[[int], str]] = {"one name": lambda n: "extra", "names": "extra_{}".format}


class Marked:
    """A value with an unknown member in each of its objects."""

    def __init__(self, value: Json, name: Callable[[int], str]) -> None:
        self.marks: list[bytes] = []
        self._name = name
        self.value: Json = self._marked(value)

    def _marked(self, value: Any) -> Any:
        match value:
            case dict():
                inner = {name: self._marked(each) for name, each in value.items()}
                mark = b'{"n":%d,"v":1.50,"s":"\\u00e9"}' % len(self.marks)
                self.marks.append(mark)
                return {**inner, self._name(len(self.marks)): Raw(mark)}
            case list():
                return [*map(self._marked, value)]
            case _:
                return value


def listed(messages: Sequence[object]) -> bytes:
    """The items that are stored for these messages of a request, as they are listed."""
    said = [each for each in messages if isinstance(each, Incoming)]
    found = take_in(new_session(), said, new_minter())
    assert isinstance(found, Fresh), found
    stored = [item_decoder.strict(encode(each)) for each in found.input]
    return msgspec.json.encode([item_object(each, None) for each in stored])


def demand_all(marked: Marked, shown: bytes) -> None:
    """Fail unless each mark is shown, in an object or in the arguments of a call, which are a text."""
    within = shown.replace(b'\\"', b'"').replace(b"\\\\", b"\\")
    missing = [each for each in marked.marks if each not in shown and each not in within]
    assert not missing, (missing, marked.value, shown)


def each_item() -> Iterator[Json]:
    for kind, examples in items().items():
        if kind != "item_reference":  # it names an item, and is none
            yield from examples


@pytest.mark.parametrize("name", NAMES)
def test_of_items(name: str) -> None:
    """Responses and Conversations read items by the same function."""
    call = {"type": "function_call", "call_id": "words", "name": "f", "arguments": "{}"}
    for sent in each_item():
        marked = Marked(sent, NAMES[name])
        before: list[Json] = [call] if sent["type"] == "function_call_output" else []
        if before and "call_id" not in sent:
            before, marked.value["name"] = [], "f"
        demand_all(marked, listed(read_input(msgspec.json.encode([*before, marked.value, HELLO]))))


@pytest.mark.parametrize("name", NAMES)
def test_of_chat_messages(name: str) -> None:
    call = {"id": "words", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for sent in chat_messages():
        sent = {each: value for each, value in sent.items() if each != "function_call"}
        marked = Marked(sent, NAMES[name])
        before: list[Json] = [{"role": "assistant", "tool_calls": [call]}]
        whole = [*(before if sent["role"] == "tool" else []), marked.value, HELLO]
        asked = read_chat_request(msgspec.json.encode({"model": "m", "messages": whole}))
        demand_all(marked, listed(asked.messages))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_of_blocks_of_messages(name: str, role: str) -> None:
    call = {"type": "tool_use", "id": "words", "name": "f", "input": {}}
    of_the_other = "tool_result" if role == "assistant" else "tool_use"
    for sent in blocks():
        if sent["type"] == of_the_other or "'file_id'" in str(sent.get("source")):
            continue  # files by their ids are refused by name
        marked = Marked({"role": role, "content": [sent]}, NAMES[name])
        before = [{"role": "assistant", "content": [call]}] if sent["type"] == "tool_result" else []
        body = {"model": "m", "max_tokens": 9, "messages": [*before, marked.value, HELLO]}
        demand_all(marked, listed(read_messages_request(msgspec.json.encode(body)).messages))


@pytest.mark.parametrize("name", ["a\r\nb", "é", "日本", ""])
def test_a_name_that_no_header_can_hold_is_kept_and_not_told(name: str) -> None:
    """An answer names in a header what it leaves alone: it ended in a 500 instead."""
    part = {"type": "text", "text": "x", name: 1}
    said: Json = {"model": "m", "messages": [{"role": "user", "content": [part], name: 1}]}
    chat = read_chat_request(msgspec.json.encode(said))
    messages = read_messages_request(msgspec.json.encode({**said, "max_tokens": 1}))
    assert not chat.left_alone and not messages.left_alone
    for read in (chat, messages):
        assert listed(read.messages).count(msgspec.json.encode(name) + b":1") == 2


def test_a_custom_call_may_have_a_function_that_is_none() -> None:
    call = {"id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}, "function": "zz"}
    said: Json = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = {
        "model": "m",
        "messages": [HELLO, said, {"role": "tool", "tool_call_id": "a", "content": "y"}],
    }
    assert b'"zz"' in listed(read_chat_request(msgspec.json.encode(body)).messages)
