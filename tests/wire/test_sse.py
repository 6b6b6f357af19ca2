"""Server-sent events: what comes out whole goes in whole, whatever happens to the bytes in between."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire.sse import (
    DONE,
    HEARTBEAT,
    EventTooLong,
    ServerEvent,
    SseParser,
    data_frame,
    event_frame,
)

PLENTY = 1 << 20


def parsed(*pieces: bytes, event_bytes_max: int = PLENTY) -> list[ServerEvent]:
    parser = SseParser(event_bytes_max=event_bytes_max)
    return [event for piece in pieces for event in parser.feed(piece)]


def of(*data: str) -> list[ServerEvent]:
    return [(each.encode(), "") for each in data]


# ── reading ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", of("a", "b")),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", of("a", "b")),
        (b"data: a\r\rdata: b\r\r", of("a", "b")),
        (b"data: a\r\n\ndata: b\n\r\n", of("a", "b")),
        (b"data: a\ndata: b\n\n", of("a\nb")),
        (b"data: a\r\ndata: b\r\n\r\n", of("a\nb")),
        (b"data:a\n\ndata:  b\n\n", of("a", " b")),
        (b"data\n\n", of("")),
        (b": keep-alive\ndata: a\n\n: keep-alive\n\n", of("a")),
        (b"id: 7\nretry: 3\ndata: a\n\n", of("a")),
        (b"\n\n\ndata: a\n\n\n\n", of("a")),
        (b"\xef\xbb\xbfdata: a\n\n", of("a")),
        (b"data: a\n\ndata: half", of("a")),
        (b"event: ping\n\ndata: a\n\n", of("a")),
        (b"event: done\ndata: a\n\n", [(b"a", "done")]),
        (b"event: done\ndata: a\n\ndata: b\n\n", [(b"a", "done"), *of("b")]),
        (b"", []),
        (b"\xef\xbb", []),
        (b"just words\n\n", []),
    ],
)
def test_a_stream_gives_its_events_wherever_it_is_cut(
    stream: bytes, events: list[ServerEvent]
) -> None:
    assert parsed(stream) == events
    assert parsed(*(bytes([byte]) for byte in stream)) == events
    for cut in range(len(stream) + 1):
        assert parsed(stream[:cut], stream[cut:]) == events
        assert parsed(stream[:cut], b"", stream[cut:]) == events


LINES = st.lists(
    st.sampled_from([b"data: x", b"data:", b"data: \xc3\xa9", b": hm", b"event: e", b"id: 1", b""])
    | st.binary(max_size=8).filter(lambda line: b"\n" not in line and b"\r" not in line)
)


@given(lines=LINES, ends=st.data())
def test_cuts_and_line_ends_change_nothing(lines: list[bytes], ends: st.DataObject) -> None:
    kinds = ends.draw(
        st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=len(lines), max_size=len(lines))
    )
    plain = b"".join(line + b"\n" for line in lines)
    stream = b"".join(line + end for line, end in zip(lines, kinds, strict=True))
    # A CR before an LF is one end of line, so that a blank line after it takes another form.
    for before, line, end in zip(kinds, lines[1:], kinds[1:], strict=False):
        if before == b"\r" and not line and end == b"\n":
            return
    cuts = sorted(ends.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert parsed(*pieces) == parsed(plain)


def test_an_event_is_whole_as_soon_as_its_blank_line_is() -> None:
    """A reader that waits for what may follow a CR shows every token one token late."""
    parser = SseParser(event_bytes_max=PLENTY)
    assert parser.feed(b"data: a\r\n\r") == of("a")
    assert parser.feed(b"\ndata: b\r\n\r") == of("b")


@pytest.mark.parametrize(
    "stream",
    [
        b"data: " + b"x" * 200,
        b"data: " + b"x" * 200 + b"\n\n",
        b"data: xxxx\n" * 20 + b"\n",
        b"data:\n" * 100,
        b": " + b"x" * 200,
        b"event: " + b"x" * 200 + b"\n",
    ],
)
def test_an_event_that_does_not_end_is_not_waited_for(stream: bytes) -> None:
    for size in (1, 7, len(stream)):
        pieces = [stream[n : n + size] for n in range(0, len(stream), size)]
        with pytest.raises(EventTooLong, match="longer than 100 bytes"):
            parsed(*pieces, event_bytes_max=100)


def test_the_bound_is_for_one_event_and_not_for_a_stream() -> None:
    assert (
        len(parsed(b"data: " + b"x" * 80 + b"\n\n", b"data: y\n\n" * 100, event_bytes_max=100))
        == 101
    )


def test_a_parser_knows_whether_something_is_unfinished() -> None:
    parser = SseParser(event_bytes_max=PLENTY)
    for piece, pending in ((b"da", True), (b"ta: a\n", True), (b"\n", False)):
        parser.feed(piece)
        assert parser.pending is pending


# ── writing ──────────────────────────────────────────────────────────────────────────────────

NASTY = st.text(st.sampled_from('\n\r\x85\u2028\u2029\x0b\x0c\x1c"\\:ae 😀é')) | st.text()


@given(text=NASTY, name=st.sampled_from(["response.created", "error"]))
def test_no_content_breaks_out_of_its_frame(text: str, name: str) -> None:
    body = msgspec.json.encode({"text": text})
    for frame, expected in ((data_frame(body), ""), (event_frame(name, body), name)):
        ((data, told),) = parsed(frame)
        assert told == expected
        assert msgspec.json.decode(data) == {"text": text}
        # Nor for clients that take every line break of Unicode for one.
        lines = frame.decode().splitlines()
        assert [line.partition(":")[0] for line in lines if line] == (
            ["event", "data"] if expected else ["data"]
        )


def test_frames_are_what_clients_expect() -> None:
    assert data_frame(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert event_frame("response.created", b"{}") == b"event: response.created\ndata: {}\n\n"
    assert parsed(HEARTBEAT, DONE, HEARTBEAT) == of("[DONE]")


@pytest.mark.parametrize("body", [b"a\nb", b"a\rb"])
def test_a_body_of_several_lines_is_a_bug(body: bytes) -> None:
    with pytest.raises(AssertionError):
        data_frame(body)
