"""How a history looks to Anthropic, and what is made of odd streams from there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.items import (
    Audio,
    Blob,
    File,
    HandOff,
    Image,
    Inline,
    Interruption,
    Item,
    Link,
    Opaque,
    Refusal,
    Summary,
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
    UsageDelta,
)
from holdfast.core.turns.events import Usage
from holdfast.ids import MessageId, NoteId
from holdfast.wire.anthropic.dialect import AnthropicDialect, with_breakpoint
from holdfast.wire.anthropic.stream_parser import AnthropicStreamParser, parse_whole
from holdfast.wire.anthropic.thoughts import kept_thought
from holdfast.wire.stream_parser import StreamFailure
from tests.wire.histories import DIGEST, MINT, PDF, PNG, call, result, said, thought, user


def spoken(*items: Item) -> Any:
    return msgspec.json.decode(b"[" + AnthropicDialect().encode(items) + b"]")


def texts(*words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": each} for each in words]


# ── histories ────────────────────────────────────────────────────────────────────────────────


def test_a_plain_conversation_is_user_and_assistant_in_turns() -> None:
    assert spoken(user("Hi"), said("Hello."), user("And?")) == [
        {"role": "user", "content": texts("Hi")},
        {"role": "assistant", "content": texts("Hello.")},
        {"role": "user", "content": texts("And?")},
    ]


def test_results_are_one_message_of_the_users_and_the_next_words_join_it() -> None:
    look, fly = call("look", '{"at":1}'), call("fly", call_id="call_2")
    steered = user("Hurry.")
    assert spoken(
        user("Go"), said("Well."), look, fly, result(fly, "flown"), steered, result(look, "seen")
    ) == [
        {"role": "user", "content": texts("Go")},
        {
            "role": "assistant",
            "content": [
                *texts("Well."),
                {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": 1}},
                {"type": "tool_use", "id": "call_2", "name": "fly", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_2", "content": "flown"},
                {"type": "tool_result", "tool_use_id": "call_1", "content": "seen"},
                *texts("Hurry."),
            ],
        },
    ]


def test_thoughts_go_back_unchanged_and_in_their_place() -> None:
    """Between two calls of one turn the API checks them by their signature, in the order it gave them."""
    look = call("look")
    [_, answer, _] = spoken(
        user("Go"),
        thought("Hm.", kept_thought(signature="sig==")),
        thought("", kept_thought(data="c2VjcmV0")),
        said("Well."),
        look,
        result(look, "seen"),
    )
    assert answer["content"][:3] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "c2VjcmV0"},
        *texts("Well."),
    ]


def test_thoughts_of_others_are_left_out() -> None:
    foreign = thought("Hm.", Opaque(owner="google", json='{"thoughtSignature":"x"}'))
    assert spoken(user("Go"), thought("Hm."), foreign, said("Well.")) == spoken(
        user("Go"), said("Well.")
    )


@pytest.mark.parametrize(
    ("outcome", "content", "expected"),
    [
        ("ok", ("fine",), {"content": "fine"}),
        ("ok", (), {}),
        ("error", ("broken",), {"content": "broken", "is_error": True}),
        ("not_run", (), {"content": "[not run]", "is_error": True}),
        ("unknown", (), {"content": "[unknown]", "is_error": True}),
    ],
)
def test_results_say_what_became_of_a_call(
    outcome: str, content: tuple[str, ...], expected: dict[str, Any]
) -> None:
    look = call("look")
    block = spoken(look, result(look, *content, outcome=outcome))[1]["content"][0]
    assert block == {"type": "tool_result", "tool_use_id": "call_1", **expected}


def test_a_picture_in_a_result_stays_in_it() -> None:
    look = call("look")
    picture = Image(source=Inline(media_type="image/png", data=b"png"))
    block = spoken(look, result(look, "there:", picture))[1]["content"][0]
    assert [each["type"] for each in block["content"]] == ["text", "image"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", {}),
        ('{"a": 1}', {"a": 1}),
        ("[1]", {"arguments": "[1]"}),
        ('{"a": ', {"arguments": '{"a": '}),
    ],
)
def test_arguments_are_an_object_whatever_the_model_wrote(
    arguments: str, expected: dict[str, Any]
) -> None:
    look = call("look", arguments)
    assert spoken(look, result(look))[0]["content"][0]["input"] == expected


def test_a_name_that_another_server_gave_a_call_is_replaced_in_both_places() -> None:
    look = call("look", call_id="functions.look:0")
    asked, told = spoken(look, result(look, "seen"))
    assert asked["content"][0]["id"] == told["content"][0]["tool_use_id"] == str(look.id)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            Image(source=PNG),
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"},
            },
        ),
        (
            Image(source=Link(url="https://x/y.png")),
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
        ),
        (
            File(source=PDF, name="a.pdf"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"},
                "title": "a.pdf",
            },
        ),
        (
            File(source=Inline(media_type="text/csv", data=b"a,b"), name="a.csv"),
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "a,b"},
                "title": "a.csv",
            },
        ),
        (
            File(source=Link(url="https://x/y.pdf")),
            {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}},
        ),
        (
            File(source=Link(url="file_1")),
            {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        ),
        (
            File(source=PNG),
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"},
            },
        ),
        (
            File(source=Inline(media_type="application/zip", data=b""), name="a.zip"),
            texts("[the file a.zip (application/zip), which this model cannot read]")[0],
        ),
        (Audio(source=PNG, transcript="Hello"), texts("Hello")[0]),
        (Audio(source=PNG), texts("[a recording, which this model cannot hear]")[0]),
        (Refusal(text="No."), texts("No.")[0]),
    ],
)
def test_what_people_show_is_a_block(part: Any, expected: dict[str, Any]) -> None:
    assert spoken(user(part)) == [{"role": "user", "content": [expected]}]


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (user("Hi", name="ada"), ["[From ada:]", "Hi"]),
        (
            SystemMessage(id=MINT(MessageId), content=(Text(text="Be kind."),)),
            ["[Instructions: Be kind.]"],
        ),
        (
            Summary(id=MINT(NoteId), text="They met.", covers_to=0),
            ["[Summary of the conversation so far: They met.]"],
        ),
    ],
)
def test_words_that_have_no_role_of_their_own_are_the_users(item: Any, words: list[str]) -> None:
    assert spoken(item) == [{"role": "user", "content": texts(*words)}]


def test_an_interruption_is_told_and_a_hand_off_is_not() -> None:
    note = Interruption(id=MINT(NoteId), ended_by="cancelled")
    hand_off = HandOff(id=MINT(NoteId), from_agent="a", to_agent="b")
    [message] = spoken(note, hand_off)
    assert "the user stopped it" in message["content"][0]["text"]


def test_nothing_is_said_with_white_space() -> None:
    """The API refuses blocks without text in them."""
    assert spoken(user(" \n"), said("  ")) == []


def test_blobs_are_named_until_they_are_sent() -> None:
    dialect = AnthropicDialect()
    picture = Image(source=Blob(media_type="image/png", digest=DIGEST, size_bytes=3))
    text = File(source=Blob(media_type="text/plain", digest=DIGEST, size_bytes=3), name="n")
    encoded = dialect.encode([user(picture, text)])
    assert dialect.blobs_in(encoded) == {DIGEST}
    [message] = msgspec.json.decode(b"[" + dialect.with_blobs(encoded, {DIGEST: b'a"b'}) + b"]")
    shown, document = message["content"]
    assert shown["source"]["data"] == "YSJi"
    assert document["source"]["data"] == 'a"b'


@pytest.mark.parametrize(
    "items",
    [
        (user("Hi"),),
        (user(Image(source=PNG)),),
        (look := call("look"), result(look, "seen", outcome="error")),
        (call_ := call("look"), result(call_, Image(source=PNG))),
        (user('{"role":"assistant"}]}'),),
    ],
)
def test_the_last_block_of_a_request_is_marked_for_the_cache(items: tuple[Item, ...]) -> None:
    encoded = AnthropicDialect().encode(items)
    *before, last = msgspec.json.decode(b"[" + with_breakpoint(encoded) + b"]")
    assert last["content"][-1].pop("cache_control") == {"type": "ephemeral"}
    assert [*before, last] == msgspec.json.decode(b"[" + encoded + b"]")


def test_what_does_not_end_with_the_user_is_not_marked() -> None:
    encoded = AnthropicDialect().encode([user("Hi"), said("Hello.")])
    assert with_breakpoint(encoded) == encoded
    assert with_breakpoint(b"") == b""


# ── streams ──────────────────────────────────────────────────────────────────────────────────


def frames(*events: dict[str, Any]) -> bytes:
    return b"".join(
        b"event: " + event["type"].encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"
        for event in events
    )


def hear(*events: dict[str, Any]) -> tuple[list[Delta], AnthropicStreamParser]:
    ear = AnthropicStreamParser(event_bytes_max=1 << 16)
    return list(ear.feed(frames(*events))), ear


def started(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def grew(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def stopped(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ended(reason: str, **fields: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, **fields}


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("refusal", "content_filter"),
        ("tool_use", "tool_calls"),
        ("a later word", "stop"),
    ],
)
def test_every_stop_reason_has_its_meaning(reason: str, finish: Any) -> None:
    deltas, ear = hear(ended(reason))
    assert deltas == [FinishDelta(finish=finish)]
    assert ear.finished and not ear.over


def test_the_message_that_stops_is_the_last_word() -> None:
    deltas, ear = hear(ended("end_turn"), {"type": "message_stop"}, grew(0, text="more"))
    assert ear.over and ear.failure is None
    assert deltas == [FinishDelta(finish="stop")]


@pytest.mark.parametrize(
    ("events", "arguments"),
    [
        ([started(0, type="tool_use", id="a", name="look", input={}), stopped(0)], "{}"),
        ([started(0, type="tool_use", id="a", name="look", input={"n": 1}), stopped(0)], '{"n":1}'),
        (
            [
                started(0, type="tool_use", id="a", name="look", input={}),
                grew(0, type="input_json_delta", partial_json=""),
                grew(0, type="input_json_delta", partial_json='{"n"'),
                grew(0, type="input_json_delta", partial_json=":1}"),
                stopped(0),
            ],
            '{"n":1}',
        ),
    ],
)
def test_arguments_come_in_pieces_or_at_once_or_not_at_all(
    events: list[dict[str, Any]], arguments: str
) -> None:
    deltas, _ = hear(*events)
    calls = [each for each in deltas if isinstance(each, ToolCallDelta)]
    assert (calls[0].call_id, calls[0].name) == ("a", "look")
    assert "".join(each.arguments for each in calls) == arguments


def test_thoughts_come_with_their_signature_at_their_end() -> None:
    deltas, _ = hear(
        started(0, type="thinking", thinking="", signature=""),
        grew(0, type="thinking_delta", thinking="Hm."),
        grew(0, type="signature_delta", signature="sig=="),
        stopped(0),
        started(1, type="redacted_thinking", data="c2VjcmV0"),
        stopped(1),
    )
    assert deltas == [
        ReasoningDelta(text="Hm."),
        ExtraDelta(kind="reasoning", extra=kept_thought(signature="sig==")),
        ExtraDelta(kind="reasoning", index=1, extra=kept_thought(data="c2VjcmV0")),
    ]


def test_usage_is_what_was_said_last_of_each_number() -> None:
    deltas, _ = hear(
        {
            "type": "message_start",
            "message": {
                "usage": {
                    "input_tokens": 5,
                    "cache_read_input_tokens": 70,
                    "cache_creation_input_tokens": 25,
                    "output_tokens": 1,
                }
            },
        },
        ended("end_turn", usage={"output_tokens": 12}),
    )
    used = [each.usage for each in deltas if isinstance(each, UsageDelta)]
    assert used[-1] == Usage(
        input_tokens=100, cached_tokens=70, cache_write_tokens=25, output_tokens=12
    )


def test_what_came_later_than_this_code_is_let_pass() -> None:
    deltas, ear = hear(
        {"type": "ping"},
        {"type": "something_new", "index": 3},
        started(0, type="server_tool_use", id="s", name="web_search", input={"q": 1}),
        grew(0, type="citations_delta", citation={}),
        stopped(0),
        stopped(9),
        grew(1, type="text_delta", text="Hi"),
    )
    assert deltas == [TextDelta(text="Hi", index=1)]
    assert ear.failure is None


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded_error", "Overloaded"),
        ("broken", None, "broken"),
        (None, None, None),
        ({"type": 3, "message": []}, None, None),
    ],
)
def test_an_error_in_the_stream_is_heard_with_its_words(
    error: Any, kind: str | None, message: str | None
) -> None:
    deltas, ear = hear(grew(0, text="Hi"), {"type": "error", "error": error}, grew(0, text="!"))
    assert deltas == [TextDelta(text="Hi")]
    assert ear.failure is not None and ear.over
    assert (ear.failure.error.type, ear.failure.error.message) == (kind, message)


def test_a_whole_answer_is_heard_like_a_streamed_one() -> None:
    body = {
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "a", "name": "look", "input": {"n": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    deltas = parse_whole(msgspec.json.encode(body))
    assert [type(each).__name__ for each in deltas] == [
        *("ReasoningDelta", "ExtraDelta", "TextDelta"),
        *("ToolCallDelta", "ToolCallDelta", "UsageDelta", "FinishDelta"),
    ]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"content":3}', b'{"content":[]}', b"\xff"])
def test_a_whole_answer_that_is_none_fails(body: bytes) -> None:
    with pytest.raises(StreamFailure):
        parse_whole(body)
