"""Every item that OpenAI documents is stored, and listed with all members that its client gave."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
import pytest

from holdfast.core.codec import encode
from holdfast.core.history.checks import check_turn
from holdfast.core.history.reconciliation import Fresh, Incoming, take_in
from holdfast.core.items import ForeignItem, Item, ToolCall, ToolResult, item_decoder
from holdfast.wire.openai.responses.foreign_items import SHOWN_KINDS
from holdfast.wire.openai.responses.items import item_object, read_input
from holdfast.wire.openai.responses.request import read_responses_request
from holdfast.wire.problems import Refused
from tests.core.builders import new_minter
from tests.core.histories import new_session
from tests.wire.openai.documented_types import Json, items, tools

ITEMS = items()
UNKNOWN: Json = {"type": "hologram_call", "id": "holo_1", "beam": [1.50, {"x": None}], "call_id": 3}
ACTED_ON = {"message", "function_call", "function_call_output"}
CALL = {"type": "function_call", "call_id": "words", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "words", "output": "done"}


def stored(*sent: Json) -> tuple[list[Item], list[str]]:
    """The items that are stored for these, as they are read from a store; and the names of those that no model sees."""
    ignored: list[str] = []
    pieces = read_input(msgspec.json.encode(sent), ignored=ignored)
    messages = [each for each in pieces if isinstance(each, Incoming)]
    found = take_in(new_session(), messages, new_minter())
    assert isinstance(found, Fresh), found
    assert check_turn(found.input) == ()
    return [item_decoder.strict(encode(each)) for each in found.input], ignored


def listed(item: Item) -> Json:
    shown: Json = msgspec.json.decode(msgspec.json.encode(item_object(item, None)))
    return shown


def beside(sent: Json) -> tuple[Json, ...]:
    """The item, and its call or result."""
    match sent:
        case {"type": "function_call"}:
            return sent, RESULT
        case {"type": "function_call_output", "call_id": _}:
            return CALL, sent
        case {"type": "function_call_output"}:
            # Without the id of a call, it needs the name of the tool at least.
            return ({**sent, "name": "f"},)
        case _:
            return (sent,)


def as_listed(sent: Json) -> Json:
    """A message's text is listed as a part, as OpenAI does."""
    match sent:
        case {"type": "message", "content": str(text), "role": "assistant"}:
            return {**sent, "content": [{"type": "output_text", "text": text}]}
        case {"type": "message", "content": str(text)}:
            return {**sent, "content": [{"type": "input_text", "text": text}]}
        case _:
            return sent


def is_within(sent: Any, shown: Any) -> bool:
    """Whether all that was sent is shown. More members may be shown, in parts too."""
    match sent, shown:
        case dict(), dict():
            return all(name in shown and is_within(sent[name], shown[name]) for name in sent)
        case list(), list() if len(sent) == len(shown):
            return all(map(is_within, sent, shown))
        case _:
            return bool(sent == shown)


@pytest.mark.parametrize("kind", sorted({*ITEMS, UNKNOWN["type"]} - ACTED_ON - {"item_reference"}))
def test_an_item_that_we_do_not_act_on_is_listed_as_it_came(kind: str) -> None:
    for sent in ITEMS.get(kind, [UNKNOWN]):
        (item,), ignored = stored(sent)
        assert isinstance(item, ForeignItem)
        assert listed(item) == {"id": str(item.id), **sent}
        assert ignored == ([] if kind in SHOWN_KINDS else ["input[0]"])
        assert item.original.text.startswith(f"[{kind}: ") is (kind in SHOWN_KINDS)


@pytest.mark.parametrize("kind", sorted(ACTED_ON))
def test_an_item_that_we_act_on_is_listed_with_all_its_members(kind: str) -> None:
    """But under an id of ours: it may be referred to by that."""
    partners: dict[str, tuple[type, ...]] = {
        "message": (),
        "function_call": (ToolResult,),
        "function_call_output": (ToolCall,),
    }
    for sent in ITEMS[kind]:
        given, _ = stored(*beside(sent))
        (item,) = (each for each in given if not isinstance(each, partners[kind]))
        own_id = {} if isinstance(item, ForeignItem) else {"id": str(item.id)}
        assert is_within({**as_listed(sent), **own_id}, listed(item)), (sent, listed(item))


@pytest.mark.parametrize("kind", sorted(tools()))
def test_a_tool_is_echoed_with_all_its_members_and_what_we_do_not_use_is_named(kind: str) -> None:
    for sent in tools()[kind]:
        if kind == "function":
            sent = {**sent, "parameters": {"type": "object"}}
        asked = read_responses_request(
            msgspec.json.encode({"model": "m", "input": "Hi", "tools": [sent]})
        )
        (echoed,) = msgspec.json.decode(asked.echo.tools)
        assert is_within(sent, echoed)
        used = {"type", "name", "description", "parameters", "strict"}
        unused = [f"tools[0].{name}" for name in sent if name not in used]
        assert asked.left_alone == (tuple(unused) if kind == "function" else ("tools[0]",))


def test_members_are_listed_byte_for_byte() -> None:
    raw = b'{"type":"hologram_call","n":1.50,"big":123456789012345678901234567890,"s":"\\u00e9"}'
    (piece,) = read_input(b"[" + raw + b"]")
    assert isinstance(piece, Incoming)
    found = take_in(new_session(), [piece], new_minter())
    assert isinstance(found, Fresh)
    (item,) = found.input
    shown = msgspec.json.encode(item_object(item, None))
    assert shown == b'{"id":"' + str(item.id).encode() + b'",' + raw[1:]


def test_the_name_of_a_blob_in_such_an_item_stays_a_text() -> None:
    """Otherwise the bytes of the blob would take its place."""
    name = "blob:sha256:" + 64 * "0" + ";image/png"
    for sent in (
        {"type": "hologram_call", "id": "h", "image_url": name},
        {"type": "message", "role": "user", "content": "x", "image_url": name},
    ):
        (item,), _ = stored(sent)
        shown = msgspec.json.encode(item_object(item, None))
        assert b'"blob:' not in shown and msgspec.json.decode(shown)["image_url"] == name


def test_a_part_of_another_kind_is_listed_and_named_as_ignored() -> None:
    parts: list[Json] = [
        {"type": "input_text", "text": "Look"},
        {"type": "input_smell", "smell": "roses"},
        {"type": "input_text", "text": "!", "prompt_cache_breakpoint": {"type": "default"}},
    ]
    (item,), ignored = stored({"role": "user", "content": parts})
    assert listed(item)["content"] == parts
    assert ignored == ["input[0].content[1]"]


def test_a_model_reads_the_two_ends_of_a_long_text() -> None:
    sent = {
        "type": "image_generation_call",
        "id": "i",
        "result": "a" * 9_000,
        "status": "completed",
    }
    (item,), _ = stored(sent)
    assert isinstance(item, ForeignItem) and listed(item) == sent
    assert len(item.original.text) < 3_000 and "characters left out" in item.original.text


@pytest.mark.parametrize(
    "sent",
    [{"type": 7}, {"type": "hologram_call", "id": 7}, "words", {"type": "message", "content": 7}],
)
def test_a_malformed_item_is_refused(sent: Any) -> None:
    with pytest.raises(Refused) as refused:
        read_input(msgspec.json.encode([sent]))
    assert refused.value.problem.status == 400


def test_members_that_are_too_large_to_be_kept_are_refused() -> None:
    with pytest.raises(Refused) as refused:
        read_input(msgspec.json.encode([{"role": "user", "content": "x", "more": "a" * 300_000}]))
    assert refused.value.problem.param == "input[0]"


def test_a_large_file_as_bare_base64_is_not_kept_twice() -> None:
    data = b64encode(b"%PDF-" + 300_000 * b"x").decode()
    part = {"type": "input_file", "filename": "a.pdf", "file_data": data}
    (piece,) = read_input(msgspec.json.encode([{"role": "user", "content": [part]}]))
    assert isinstance(piece, Incoming) and piece.extras == ()


def test_reasoning_is_kept_with_the_answer_that_follows_it_or_by_itself() -> None:
    sealed = {"type": "reasoning", "id": "rs_a", "summary": [], "encrypted_content": "gAAAA"}
    plain = {"type": "reasoning", "id": "rs_b", "summary": [{"type": "summary_text", "text": "Hm"}]}
    answer: Json = {"role": "assistant", "content": "Yes."}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}
    given, ignored = stored(sealed, plain, search, answer, sealed, {"role": "user", "content": "x"})
    assert ignored == ["input[1]", "input[4]"]
    assert [listed(each) for each in given if each.path == ()][:3] == [sealed, plain, search]
    assert [type(each).__name__ for each in given] == [
        "Reasoning",
        "ForeignItem",
        "ForeignItem",
        "AssistantMessage",
        "ForeignItem",
        "UserMessage",
    ]
