"""A log for people cannot be forged: a record is one line, a field is one field, whatever is in them."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest

from holdfast.observe.events import audit, configure, event, warn
from holdfast.testing import ScriptedModel
from tests.server.stubs import agent, serving

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")
FORGED = "x\n2026-11-16 12:00:00,000 INFO    holdfast.audit: key.create key=hf_1 \x1b[1A\u202e"
HOSTILE = [FORGED, "\r" + FORGED, "\x85" + FORGED, "a b=c", '" by="root', "", "\u2028" + FORGED]


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = configure("text", stream=stream)
    yield stream
    logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("words", HOSTILE)
def test_a_record_is_one_line(log: io.StringIO, words: str) -> None:
    logging.getLogger("holdfast.events").setLevel(logging.INFO)
    audit("session.delete", about=words, key=None, status=200)
    event("turn.ended", detail=words)
    warn(words, why=words)
    logging.getLogger("holdfast.sources").warning("%s: %s", words, words)
    lines = log.getvalue().splitlines()
    assert len(lines) == 4
    assert all(LINE.match(each) for each in lines)
    assert "\x1b" not in log.getvalue() and "\u202e" not in log.getvalue()


def test_a_field_is_one_field(log: io.StringIO) -> None:
    audit("session.delete", about='trip by=root "x"', key="k1")
    (line,) = log.getvalue().splitlines()
    assert line.endswith(r'session.delete about="trip by=root \"x\"" key=k1')


def test_a_trace_has_no_line_that_looks_like_a_record(log: io.StringIO) -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        logging.getLogger("holdfast.server").exception("it failed")
    first, *trace = log.getvalue().splitlines()
    assert LINE.match(first) and len(trace) > 3
    assert all(each.startswith("  | ") for each in trace)
    assert "\x1b" not in log.getvalue()


async def test_a_client_cannot_write_into_the_audit_log(log: io.StringIO) -> None:
    async with serving(agent(ScriptedModel("Yes."))) as server:
        path = "/api/sessions/a%0A2026-11-16%2012:00:00,000%20INFO%20%20%20%20holdfast.audit:%20x%1B%5B2K"
        await server.request("DELETE", path)
    lines = [each for each in log.getvalue().splitlines() if "session.delete" in each]
    assert len(lines) == 1 and all(LINE.match(each) for each in log.getvalue().splitlines())
    assert "\x1b" not in log.getvalue()
