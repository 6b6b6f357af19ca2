"""What listening has in common, on every wire that sends JSON by server-sent events."""

from __future__ import annotations

import pytest

from holdfast.core.turns.deltas import Delta, TextDelta
from holdfast.wire.stream_parser import GarbledStream
from tests.models.wires import TONGUES, Tongue

WORDS = {
    "chat": b'{"choices":[{"delta":{"content":"%b"}}]}',
    "anthropic": b'{"type":"content_block_delta","delta":{"text":"%b"}}',
    "google": b'{"candidates":[{"content":{"parts":[{"text":"%b"}]}}]}',
    "responses": b'{"type":"response.output_text.delta","delta":"%b"}',
}

every_tongue = pytest.mark.parametrize("tongue", TONGUES.values(), ids=TONGUES.keys())


def said(tongue: Tongue, *datas: bytes) -> tuple[list[Delta], object]:
    ear = tongue.hearing()
    body = b"".join(b"data: " + data + b"\n\n" for data in datas)
    return list(ear.feed(body)), ear.failure


@every_tongue
@pytest.mark.parametrize("half", [rb"\ud83d", rb"\ude00", b"\xf0\x9f"])
def test_half_a_character_is_lost_and_not_the_answer(tongue: Tongue, half: bytes) -> None:
    """Servers that cut text by its units, or by bytes, send half a character in one event."""
    deltas, failure = said(tongue, WORDS[tongue.name] % (b"a" + half + b"b"))
    assert failure is None
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["a\ufffdb"]


@every_tongue
def test_events_that_say_nothing_are_let_pass(tongue: Tongue) -> None:
    deltas, failure = said(tongue, b"", b"  ", WORDS[tongue.name] % b"Hi")
    assert failure is None
    assert deltas == [TextDelta(text="Hi")]


@every_tongue
@pytest.mark.parametrize("data", [b"{", b"[]", b"3", b'"\\ud83d', b'{"a":' * 2000, b"\xff"])
def test_what_cannot_be_read_is_a_failure_with_words(tongue: Tongue, data: bytes) -> None:
    deltas, failure = said(tongue, data, WORDS[tongue.name] % b"Hi")
    assert deltas == []
    assert isinstance(failure, GarbledStream)


@every_tongue
def test_an_event_without_an_end_is_no_stream(tongue: Tongue) -> None:
    ear = tongue.hearing()
    ear.feed(b"data: " + b"x" * (2 << 20))
    assert isinstance(ear.failure, GarbledStream)
    assert "longer than" in str(ear.failure)


@every_tongue
def test_nothing_counts_after_the_end(tongue: Tongue) -> None:
    deltas, failure = said(tongue, b"[DONE]", WORDS[tongue.name] % b"Hi")
    assert (deltas, failure) == ([], None)
