"""The client of the measurements finds the end of every answer, and counts every token once."""

from __future__ import annotations

import pytest
from serving.answers import Answer
from serving.requests import chat, named

SSE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = b'data: {"content":" token1"}\n\ndata: {"content":" token2"}\n\n'
CHUNKED = SSE + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
JSON = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n" token token"'


def fed(answer: bytes, step: int) -> Answer:
    """An answer that comes in pieces, and must not have ended before the last one."""
    found = Answer()
    for at in range(0, len(answer), step):
        assert not found.ended
        found.feed(answer[at : at + step])
    return found


@pytest.mark.parametrize("answer", [CHUNKED, JSON], ids=["chunked", "length"])
@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 11, 1000])
def test_every_cut_gives_the_same_end_and_the_same_tokens(answer: bytes, step: int) -> None:
    found = fed(answer, step)
    assert (found.status, found.ended, found.tokens) == (200, True, 2)


def test_an_answer_without_chunks_or_length_ends_with_its_connection() -> None:
    found = fed(b"HTTP/1.0 200 OK\r\n\r\n token", 4)
    assert not found.ended
    assert found.closed()
    assert found.ended


@pytest.mark.parametrize("answer", [CHUNKED[:-1], JSON[:-1], b"HTTP/1.1 200"])
def test_one_that_breaks_off_has_not_ended(answer: bytes) -> None:
    found = fed(answer, 4)
    assert not found.closed()
    assert not found.ended


def test_an_empty_answer_ends_too() -> None:
    assert fed(SSE + b"0\r\n\r\n", 3).ended
    assert fed(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 5).ended


def test_a_system_names_how_it_is_asked() -> None:
    asked = named("serving.requests:chat")
    head, _, body = asked("short", "trip", False).partition(b"\r\n\r\n")
    assert b"X-Conversation-Id: trip" in head
    assert f"Content-Length: {len(body)}".encode() in head
    assert b'"stream":false' in body


def test_what_a_client_says_is_new_each_time_and_the_past_can_be_sent_again() -> None:
    assert chat("m", "c", True) != chat("m", "c", True)
    assert chat("m", "c", True, past=10).count(b'"role"') == 11
