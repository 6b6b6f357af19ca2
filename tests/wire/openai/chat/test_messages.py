"""Messages of the chat API, as clients send them and as providers are sent them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.history.reconciliation import Incoming, IncomingCall
from holdfast.core.items import (
    Audio,
    Blob,
    File,
    HandOff,
    Image,
    Inline,
    Item,
    Link,
    Opaque,
    Part,
    Refusal,
    SystemMessage,
    Text,
    ToolResult,
    UserMessage,
)
from holdfast.errors import InvalidValue
from holdfast.ids import MessageId, NoteId
from holdfast.wire.openai.chat.messages import (
    ChatDialect,
    ChatMessage,
    blobs_in,
    incoming_of,
    spoken,
    with_blobs,
)
from tests.core.builders import call, mint, note, result, said, summary, thought, user
from tests.core.strategies import values

PNG = b"\x89PNG\r\n"
PNG_URL = "data:image/png;base64," + b64encode(PNG).decode()
DIGEST = "sha256:" + sha256(PNG).hexdigest()
BLOB = Blob(media_type="image/png", digest=DIGEST, size_bytes=len(PNG))


def heard(message: dict[str, Any]) -> Incoming:
    return incoming_of(msgspec.convert(message, ChatMessage))


def encoded(*items: Item) -> list[dict[str, Any]]:
    piece = ChatDialect().encode(items)
    messages: list[dict[str, Any]] = msgspec.json.decode(b"[" + piece + b"]")
    return messages


def with_parts(*parts: Part) -> UserMessage:
    return UserMessage(id=mint(MessageId), content=parts)


# ── hearing ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("message", "incoming"),
    [
        ({"role": "user", "content": "Hi"}, Incoming(role="user", content=(Text(text="Hi"),))),
        ({"role": "user", "content": ""}, Incoming(role="user")),
        ({"role": "user", "content": None}, Incoming(role="user")),
        ({"role": "user"}, Incoming(role="user")),
        ({"role": "user", "name": "ada", "content": []}, Incoming(role="user", name="ada")),
        (
            {"role": "developer", "content": "Be brief"},
            Incoming(role="system", content=(Text(text="Be brief"),)),
        ),
        (
            {"role": "assistant", "content": None, "refusal": "No"},
            Incoming(role="assistant", content=(Refusal(text="No"),)),
        ),
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
            Incoming(
                role="assistant", calls=(IncomingCall(call_id="c", name="f", arguments="{}"),)
            ),
        ),
        (
            {"role": "tool", "tool_call_id": "c", "content": "4"},
            Incoming(role="tool", call_id="c", content=(Text(text="4"),)),
        ),
        (
            {"role": "user", "content": "Hi", "audio": {"id": 1}, "cache_control": {}},
            Incoming(role="user", content=(Text(text="Hi"),)),
        ),
    ],
)
def test_a_message_is_heard(message: dict[str, Any], incoming: Incoming) -> None:
    assert heard(message) == incoming


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "Hi"}, Text(text="Hi")),
        ({"type": "refusal", "refusal": "No"}, Refusal(text="No")),
        (
            {"type": "image_url", "image_url": {"url": PNG_URL, "detail": "low"}},
            Image(source=Inline(media_type="image/png", data=PNG), detail="low"),
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            Image(source=Link(url="https://example.org/a.png")),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AAEC", "format": "mp3"}},
            Audio(source=Inline(media_type="audio/mp3", data=b"\0\1\2"), format="mp3"),
        ),
        (
            {"type": "file", "file": {"file_id": "file-1", "filename": "a.pdf"}},
            File(source=Link(url="file-1"), name="a.pdf"),
        ),
        (
            {"type": "file", "file": {"file_data": "data:text/plain;base64,aGk="}},
            File(source=Inline(media_type="text/plain", data=b"hi")),
        ),
        (
            {"type": "file", "file": {"file_data": b64encode(b"%PDF-1").decode()}},
            File(source=Inline(media_type="application/pdf", data=b"%PDF-1")),
        ),
        (
            {"type": "file", "file": {"file_data": "aGk="}},
            File(source=Inline(media_type="application/octet-stream", data=b"hi")),
        ),
    ],
)
def test_parts_are_heard(part: dict[str, Any], expected: Part) -> None:
    assert heard({"role": "user", "content": [part]}).content == (expected,)


@pytest.mark.parametrize(
    "url", ["data:image/png,raw", "data:image/png;base64", "data:image/png;base64,%%%"]
)
def test_a_picture_that_cannot_be_decoded_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match="base64"):
        heard({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})


# ── speaking ─────────────────────────────────────────────────────────────────────────────────


def test_a_turn_with_a_tool_is_three_kinds_of_message() -> None:
    look = call("look", '{"where":"Oslo"}')
    messages = encoded(
        user("Hi"), thought(), said("Let me see."), look, result(look, "cold"), said("Cold.")
    )
    assert messages == [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {
                    "id": look.call_id,
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"where":"Oslo"}'},
                }
            ],
        },
        {"role": "tool", "content": "cold", "tool_call_id": look.call_id},
        {"role": "assistant", "content": "Cold."},
    ]


def test_calls_alone_come_with_null_content_and_arguments_that_are_json() -> None:
    (message,) = encoded(call("look", ""))
    assert message["content"] is None
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"


def roles(*items: Item) -> list[str]:
    return [message["role"] for message in encoded(*items)]


def test_results_follow_their_calls_whatever_the_model_opened_first() -> None:
    """Words between a call and its result make a history that servers refuse for ever."""
    first, second = call("a"), call("b")
    assert roles(first, said("after"), second, result(first), result(second)) == [
        "assistant",
        "tool",
        "tool",
    ]


def test_results_follow_their_calls_whatever_happened_meanwhile() -> None:
    first, second = call("a"), call("b")
    hand_off = HandOff(id=mint(NoteId), from_agent="a", to_agent="b")
    happened = (first, second, result(first), summary(), hand_off, result(second), said("done"))
    assert roles(*happened) == ["assistant", "tool", "tool", "user", "assistant"]


def test_results_of_calls_in_an_earlier_piece_come_first() -> None:
    waiting = call("ask", waits_for="client")
    assert roles(result(waiting), user("And?")) == ["tool", "user"]


def test_notes_are_told_in_plain_words() -> None:
    broken, shortened = encoded(note("cancelled"), summary("They met."))
    assert "interrupted: the user stopped it" in broken["content"]
    assert "They met." in shortened["content"]
    assert broken["role"] == shortened["role"] == "user"


def test_what_says_nothing_to_a_model_makes_no_message() -> None:
    hand_off = HandOff(id=mint(NoteId), from_agent="a", to_agent="b")
    assert ChatDialect().encode([thought(), hand_off]) == b""
    assert ChatDialect().encode([]) == b""


def test_thoughts_go_back_with_calls_if_a_server_wants_them_and_nobody_has_sealed_them() -> None:
    sealed = msgspec.structs.replace(thought("hidden"), extras=(Opaque(owner="them", json="{}"),))
    fly = call("fly")
    items: list[Item] = [
        user("Go"),
        thought("a"),
        sealed,
        thought("b"),
        fly,
        result(fly),
        thought("c"),
        said("Done"),
    ]
    messages = spoken(items, reasoning_back=True)
    thoughts = [getattr(each, "reasoning_content", "") for each in messages]
    assert thoughts == ["", "a\n\nb", "", ""]
    piece = ChatDialect(reasoning_back=True).encode(items)
    assert piece.count(b"reasoning_content") == 1
    assert b"reasoning_content" not in ChatDialect().encode(items)


def test_system_messages_of_a_history_stay_where_they_are() -> None:
    rule = SystemMessage(id=mint(MessageId), content=(Text(text="Be brief"),))
    assert encoded(user(), rule)[1] == {"role": "system", "content": "Be brief"}


@pytest.mark.parametrize(
    ("part", "spoken_part"),
    [
        (
            Image(source=Inline(media_type="image/png", data=PNG), detail="high"),
            {"type": "image_url", "image_url": {"url": PNG_URL, "detail": "high"}},
        ),
        (
            Image(source=Link(url="https://example.org/a.png")),
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        ),
        (
            Audio(source=Inline(media_type="audio/wav", data=b"\0\1\2")),
            {"type": "input_audio", "input_audio": {"data": "AAEC", "format": "wav"}},
        ),
        (
            Audio(source=Link(url="https://x/y.mp3")),
            {"type": "text", "text": "[audio: https://x/y.mp3]"},
        ),
        (
            File(source=Link(url="file-1"), name="a.pdf"),
            {"type": "file", "file": {"file_id": "file-1", "filename": "a.pdf"}},
        ),
        (
            File(source=Link(url="https://x/a.pdf"), name="a.pdf"),
            {"type": "text", "text": "[file a.pdf: https://x/a.pdf]"},
        ),
        (Refusal(text="No"), {"type": "refusal", "refusal": "No"}),
    ],
)
def test_parts_are_spoken(part: Part, spoken_part: dict[str, Any]) -> None:
    (message,) = encoded(with_parts(Text(text="See:"), part))
    assert message["content"] == [{"type": "text", "text": "See:"}, spoken_part]


def test_a_picture_from_a_tool_follows_its_results() -> None:
    """Tool messages hold text only; a picture that is left out is a result that is lost."""
    first, second = call("draw"), call("look")
    drawn = ToolResult(
        id=result(first).id,
        call=first.id,
        outcome="ok",
        content=(Text(text="done"), Image(source=Inline(media_type="image/png", data=PNG))),
        call_id=first.call_id,
    )
    messages = encoded(first, second, drawn, result(second), said("Nice."))
    assert [each["role"] for each in messages] == ["assistant", "tool", "tool", "user", "assistant"]
    assert messages[3]["content"][1] == {"type": "image_url", "image_url": {"url": PNG_URL}}
    assert first.call_id in messages[3]["content"][0]["text"]


def test_a_result_without_words_says_at_least_what_became_of_the_call() -> None:
    fly = call("fly")
    empty = ToolResult(id=result(fly).id, call=fly.id, outcome="not_run", call_id=fly.call_id)
    assert encoded(fly, empty)[1]["content"] == "[not run]"


def test_nobody_else_can_name_a_blob() -> None:
    name = f"blob:{DIGEST};image/png"
    with pytest.raises(InvalidValue, match="blob:"):
        heard({"role": "user", "content": [{"type": "image_url", "image_url": {"url": name}}]})
    piece = ChatDialect().encode([with_parts(Image(source=Link(url=name)))])
    assert blobs_in(piece) == frozenset()


# ── there and back ───────────────────────────────────────────────────────────────────────────


def round_trip(*items: Item) -> list[Incoming]:
    piece = ChatDialect().encode(items)
    return [
        incoming_of(each)
        for each in msgspec.json.decode(b"[" + piece + b"]", type=list[ChatMessage])
    ]


PLAIN_PARTS = st.one_of(
    st.text(min_size=1).map(lambda text: Text(text=text)),
    st.binary(max_size=20).map(
        lambda data: Image(source=Inline(media_type="image/png", data=data))
    ),
    st.builds(
        lambda data, name: File(source=Inline(media_type="text/plain", data=data), name=name),
        st.binary(max_size=20),
        st.text(max_size=5),
    ),
)


@given(parts=st.lists(PLAIN_PARTS, min_size=1, max_size=4), name=st.text(max_size=5))
def test_what_a_user_said_comes_back_as_it_was(parts: list[Part], name: str) -> None:
    message = UserMessage(id=mint(MessageId), content=tuple(parts), name=name)
    (back,) = round_trip(message)
    assert back.name == name
    if all(isinstance(part, Text) for part in parts):
        whole = "".join(part.text for part in parts if isinstance(part, Text))
        assert back.content == (Text(text=whole),)
    else:
        assert back.content == tuple(parts)


@given(items=st.lists(values(Item), max_size=4))
def test_every_item_can_be_spoken(items: Sequence[Item]) -> None:
    messages = spoken(items)
    assert len(messages) <= 2 * len(items)
    piece = ChatDialect().encode(items)
    assert msgspec.json.decode(b"[" + piece + b"]", type=list[ChatMessage]) == messages


# ── blobs ────────────────────────────────────────────────────────────────────────────────────


def test_a_blob_is_named_until_its_bytes_are_put_in_place() -> None:
    sound = Blob(media_type="audio/mp3", digest="sha256:" + "0" * 64, size_bytes=3)
    piece = ChatDialect().encode(
        [
            user("nothing here"),
            with_parts(
                Image(source=BLOB), Audio(source=sound, format="mp3"), File(source=BLOB, name="a")
            ),
        ]
    )
    assert blobs_in(piece) == {DIGEST, sound.digest}
    whole = with_blobs(piece, {DIGEST: PNG, sound.digest: b"\0\1\2"})
    assert blobs_in(whole) == frozenset()
    content = msgspec.json.decode(b"[" + whole + b"]")[1]["content"]
    assert content == [
        {"type": "image_url", "image_url": {"url": PNG_URL}},
        {"type": "input_audio", "input_audio": {"data": "AAEC", "format": "mp3"}},
        {"type": "file", "file": {"file_data": PNG_URL, "filename": "a"}},
    ]


def test_a_blob_that_is_not_there_is_not_left_out_silently() -> None:
    with pytest.raises(KeyError):
        with_blobs(ChatDialect().encode([with_parts(Image(source=BLOB))]), {})


@given(before=st.text(max_size=9), after=st.text(max_size=9))
def test_no_text_can_pass_for_a_blob(before: str, after: str) -> None:
    forged = f'{before}"url":"blob:{DIGEST};image/png"{after}'
    piece = ChatDialect().encode([user(forged), user(f"blob:{DIGEST};image/png")])
    assert blobs_in(piece) == frozenset()
    assert with_blobs(piece, {DIGEST: b"stolen"}) == piece
