"""A trace is continued, if that is what it is."""

from __future__ import annotations

import pytest

from holdfast.wire.trace import Trace, read_trace

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    "text", [f"00-{TRACE}-{SPAN}-01", f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-more"]
)
def test_a_trace_goes_on(text: str) -> None:
    trace = read_trace({"traceparent": text})
    assert trace == Trace(trace_id=TRACE, span_id=SPAN, flags="01")
    assert trace.parent("0" * 15 + "1") == f"00-{TRACE}-0000000000000001-01"
    assert trace.parent() == f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01\r\nx: y",
    ],
)
def test_what_is_no_trace_is_not_continued(text: str) -> None:
    assert read_trace({"traceparent": text}) is None
