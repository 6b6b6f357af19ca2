"""How a history looks to Gemini, and what is made of odd streams from there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.items import (
    AssistantMessage,
    Audio,
    Blob,
    File,
    HandOff,
    Image,
    Inline,
    Interruption,
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
    PartDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.events import Usage
from holdfast.ids import MessageId, NoteId
from holdfast.wire.anthropic.thoughts import kept_thought
from holdfast.wire.google.dialect import UNSIGNED, GoogleDialect, kept_signature
from holdfast.wire.google.stream_parser import GoogleStreamParser, parse_whole, read_error
from holdfast.wire.stream_parser import StreamFailure
from tests.wire.histories import DIGEST, MINT, PDF, PNG, call, result, said, thought, user


def spoken(*items: Item, signed: bool = False) -> Any:
    return msgspec.json.decode(b"[" + GoogleDialect(signed=signed).encode(items) + b"]")


def words(role: str, *texts: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"text": each} for each in texts]}


# ── histories ────────────────────────────────────────────────────────────────────────────────


def test_a_plain_conversation_is_user_and_model_in_turns() -> None:
    assert spoken(user("Hi"), said("Hello."), user("And?")) == [
        words("user", "Hi"),
        words("model", "Hello."),
        words("user", "And?"),
    ]


def test_results_follow_their_calls_and_name_them() -> None:
    look, fly = call("look", '{"at":1}'), call("fly", call_id="call_2")
    assert spoken(
        user("Go"), look, fly, result(fly, "no", outcome="error"), user("Hurry."), result(look, "x")
    )[1:] == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"id": "call_1", "name": "look", "args": {"at": 1}}},
                {"functionCall": {"id": "call_2", "name": "fly", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "call_2",
                        "name": "fly",
                        "response": {"error": "no"},
                    }
                },
                {
                    "functionResponse": {
                        "id": "call_1",
                        "name": "look",
                        "response": {"output": "x"},
                    }
                },
            ],
        },
        words("user", "Hurry."),
    ]


def test_signatures_go_back_at_the_part_that_they_came_with() -> None:
    look = call("look", extras=(kept_signature("Y2FsbA=="),))
    [_, model, _] = spoken(
        user("Go"),
        thought("Hm.", kept_signature("dGhvdWdodA==")),
        said("Well.", kept_signature("d29yZHM=")),
        look,
        result(look),
        signed=True,
    )
    assert model["parts"] == [
        {"text": "Hm.", "thought": True, "thoughtSignature": "dGhvdWdodA=="},
        {"text": "Well."},
        {"text": "", "thoughtSignature": "d29yZHM="},
        {
            "functionCall": {"id": "call_1", "name": "look", "args": {}},
            "thoughtSignature": "Y2FsbA==",
        },
    ]


def test_the_first_call_of_another_providers_model_says_that_it_is_unsigned() -> None:
    """Newer models refuse a call without a signature; of calls side by side, the first has it."""
    look, fly = call("look"), call("fly", call_id="call_2")
    told = (look, fly, result(look), result(fly))
    signatures = [each.get("thoughtSignature") for each in spoken(*told, signed=True)[0]["parts"]]
    assert signatures == [UNSIGNED, None]
    assert all("thoughtSignature" not in each for each in spoken(*told)[0]["parts"])


def test_thoughts_without_a_signature_and_of_others_are_left_out() -> None:
    foreign = thought("Hm.", kept_thought(signature="s"))
    assert spoken(thought("Hm."), foreign, said("Hi")) == [words("model", "Hi")]


def test_what_a_result_shows_follows_the_results() -> None:
    look = call("look")
    [_, told, shown] = spoken(look, result(look, "there:", Image(source=PNG)))
    assert list(told["parts"][0]) == ["functionResponse"]
    assert shown["parts"] == [
        {"text": "[From the result of call_1:]"},
        {"inlineData": {"mimeType": "image/png", "data": "cG5n"}},
    ]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Image(source=PNG), {"inlineData": {"mimeType": "image/png", "data": "cG5n"}}),
        (File(source=PDF), {"inlineData": {"mimeType": "application/pdf", "data": "cGRm"}}),
        (Audio(source=PNG), {"inlineData": {"mimeType": "image/png", "data": "cG5n"}}),
        (Image(source=Link(url="gs://a/b")), {"fileData": {"fileUri": "gs://a/b"}}),
        (Refusal(text="No."), {"text": "No."}),
    ],
)
def test_what_people_show_is_a_part(part: Any, expected: dict[str, Any]) -> None:
    assert spoken(user(part)) == [{"role": "user", "parts": [expected]}]


def test_words_that_have_no_role_of_their_own_are_the_users() -> None:
    system = SystemMessage(id=MINT(MessageId), content=(Text(text="Be kind."),))
    note = Interruption(id=MINT(NoteId), ended_by="cancelled")
    hand_off = HandOff(id=MINT(NoteId), from_agent="a", to_agent="b")
    first, second = spoken(system, hand_off, note)
    assert first == words("user", "[Instructions: Be kind.]")
    assert "the user stopped it" in second["parts"][0]["text"]


def test_blobs_are_named_until_they_are_sent() -> None:
    dialect = GoogleDialect(signed=False)
    picture = Image(source=Blob(media_type="image/png", digest=DIGEST, size_bytes=3))
    encoded = dialect.encode([user(picture), said("")])
    assert dialect.blobs_in(encoded) == {DIGEST}
    content = msgspec.json.decode(dialect.with_blobs(encoded, {DIGEST: b"png"}))
    assert content["parts"][0]["inlineData"]["data"] == "cG5n"


def test_signed_and_unsigned_histories_are_not_taken_for_each_other() -> None:
    assert GoogleDialect(signed=True).name != GoogleDialect(signed=False).name


# ── streams ──────────────────────────────────────────────────────────────────────────────────


def hear(*responses: dict[str, Any]) -> tuple[list[Delta], GoogleStreamParser]:
    ear = GoogleStreamParser(event_bytes_max=1 << 16)
    body = b"".join(b"data: " + msgspec.json.encode(each) + b"\r\n\r\n" for each in responses)
    return list(ear.feed(body)), ear


def parts(*said_: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(said_)}, **fields}]}


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
    ],
)
def test_every_finish_reason_has_its_meaning(reason: str, finish: Any) -> None:
    deltas, ear = hear(parts(finishReason=reason))
    assert deltas == [FinishDelta(finish=finish)]
    assert ear.finished


@pytest.mark.parametrize(
    "reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER", "A_LATER_WORD"]
)
def test_a_model_that_lost_its_thread_has_failed(reason: str) -> None:
    deltas, ear = hear(parts({"text": "Hi"}, finishReason=reason, finishMessage="how so"))
    assert deltas == [TextDelta(text="Hi")]
    assert ear.failure is not None and not ear.finished
    assert ear.failure.error.code == reason.lower()
    assert "how so" in (ear.failure.error.message or "")


def test_a_prompt_that_is_blocked_is_a_failure_for_good() -> None:
    _, ear = hear({"promptFeedback": {"blockReason": "SAFETY"}})
    assert ear.failure is not None
    assert ear.failure.error.code == "content_filter"
    assert "SAFETY" in (ear.failure.error.message or "")


def test_words_and_thoughts_stay_in_their_order() -> None:
    deltas, _ = hear(
        parts({"text": "Hm", "thought": True}),
        parts({"text": ".", "thought": True}, {"text": "Well"}),
        parts({"text": "."}, {"functionCall": {"name": "look", "args": {"n": 1}}}),
        parts({"text": "More."}),
        parts({"text": "", "thoughtSignature": "c2ln"}, finishReason="STOP"),
    )
    assert deltas == [
        ReasoningDelta(text="Hm", index=0),
        ReasoningDelta(text=".", index=0),
        TextDelta(text="Well", index=1),
        TextDelta(text=".", index=1),
        ToolCallDelta(index=0, name="look", arguments='{"n":1}'),
        TextDelta(text="More.", index=2),
        ExtraDelta(kind="message", index=2, extra=kept_signature("c2ln")),
        FinishDelta(finish="tool_calls"),
    ]


def test_usage_is_said_first_and_last() -> None:
    def used(tokens: int) -> dict[str, Any]:
        return {"promptTokenCount": 7, "candidatesTokenCount": tokens, "thoughtsTokenCount": 2}

    deltas, _ = hear(
        *({**parts({"text": "a"}), "usageMetadata": used(n)} for n in range(3)),
        {**parts(finishReason="STOP"), "usageMetadata": used(9)},
    )
    told = [each.usage for each in deltas if isinstance(each, UsageDelta)]
    assert told == [
        Usage(input_tokens=7, output_tokens=2, reasoning_tokens=2),
        Usage(input_tokens=7, output_tokens=11, reasoning_tokens=2),
    ]


def test_what_came_later_than_this_code_is_let_pass() -> None:
    deltas, ear = hear(
        {},
        {"candidates": [{"index": 1, "content": {"parts": [{"text": "another"}]}}]},
        parts({"executableCode": {"code": "1"}}, {"inlineData": {}}),
        {"candidates": [{"finishReason": None, "groundingMetadata": {}}]},
    )
    assert (deltas, ear.failure) == ([], None)


def test_an_error_in_the_stream_is_heard_with_its_words() -> None:
    error = {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}
    deltas, ear = hear(parts({"text": "Hi"}), {"error": error}, parts({"text": "!"}))
    assert deltas == [TextDelta(text="Hi")]
    assert ear.failure is not None and ear.over
    said_ = ear.failure.error
    assert (said_.message, said_.type, said_.code) == ("Overloaded", "unavailable", 503)


def test_an_answer_in_one_piece_or_in_a_list_is_heard_too() -> None:
    whole = parts({"text": "Hi"}, finishReason="STOP")
    expected = [TextDelta(text="Hi"), FinishDelta(finish="stop")]
    assert parse_whole(msgspec.json.encode(whole)) == expected
    assert (
        parse_whole(b" " + msgspec.json.encode([parts({"text": "Hi"}), parts(finishReason="STOP")]))
        == expected
    )


@pytest.mark.parametrize("body", [b"", b"[]", b"3", b'{"candidates":[]}', b"\xff", b"[3]"])
def test_a_whole_answer_that_is_none_fails(body: bytes) -> None:
    with pytest.raises(StreamFailure):
        parse_whole(body)


@pytest.mark.parametrize(
    ("details", "hint_s"),
    [
        ([], None),
        ([{"@type": "x.RetryInfo", "retryDelay": "13s"}], 13.0),
        ([{"@type": "x.ErrorInfo"}, {"@type": "x.RetryInfo", "retryDelay": "0.5s"}], 0.5),
        ([{"retryDelay": "soon"}], None),
    ],
)
@pytest.mark.parametrize("listed", [False, True])
def test_an_error_may_say_when_to_come_back(
    details: list[dict[str, Any]], hint_s: float | None, listed: bool
) -> None:
    said_ = {"error": {"code": 429, "message": "m", "status": "S", "details": details}}
    found = read_error(msgspec.json.encode([said_] if listed else said_))
    assert found is not None
    assert (found[0].message, found[0].type, found[1]) == ("m", "s", hint_s)


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"message":"no"}'])
def test_another_servers_error_is_not_taken_for_theirs(body: bytes) -> None:
    assert read_error(body) is None


# ── pictures ─────────────────────────────────────────────────────────────────────────────────


def test_a_picture_of_an_image_model_is_kept_as_one_and_goes_back_with_its_signature() -> None:
    """An image model is asked to change the picture that it has made."""
    body = (
        b'{"candidates":[{"content":{"parts":[{"text":"Here."},{"thought":true,"inlineData":'
        b'{"mimeType":"image/png","data":"AAAA"}},{"inlineData":{"mimeType":"image/png",'
        b'"data":"iVBORw=="},"thoughtSignature":"c2ln"},{"inlineData":{"mimeType":"video/mp4",'
        b'"data":"AAAA"}}]},"finishReason":"STOP"}]}'
    )
    picture = Image(source=Inline(media_type="image/png", data=b"\x89PNG"))
    text, part, extra, _ = parse_whole(body)
    assert (text, part) == (TextDelta(text="Here."), PartDelta(part=picture))
    assert isinstance(extra, ExtraDelta)
    answer = AssistantMessage(
        id=MINT(MessageId), content=(Text(text="Here."), picture), extras=(extra.extra,)
    )
    (_, said_again) = spoken(user("Draw"), answer)
    assert said_again["parts"] == [
        {"text": "Here."},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}, "thoughtSignature": "c2ln"},
    ]


def test_a_picture_that_cannot_be_read_is_a_garbled_answer() -> None:
    body = (
        b'{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"?"}}]},'
        b'"finishReason":"STOP"}]}'
    )
    with pytest.raises(StreamFailure, match="not base64"):
        parse_whole(body)
