"""Events have a name and fields, and no secrets."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextvars import copy_context
from io import StringIO

import pytest

from holdfast.observe.events import audit, bind, configure, event, traceparent

KEY = "hf_" + "0" * 26 + "_" + "s3cret-_" * 5 + "abc"


class Log:
    """What was logged, line by line."""

    def __init__(self) -> None:
        self.stream = StringIO()

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def log() -> Iterator[Log]:
    """The log as JSON, for as long as the test takes."""
    names = ("holdfast.events", "holdfast.audit")
    before = {name: logging.getLogger(name).level for name in names}
    found = Log()
    handler = configure("json", stream=found.stream)
    yield found
    logging.getLogger().removeHandler(handler)
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_an_event_is_a_line_of_json(log: Log) -> None:
    event("turn.ended", turn="turn_1", kept=True, version=8, code=None)
    (line,) = log.lines
    assert line["event"] == "turn.ended" and line["log"] == "holdfast.events"
    assert (line["turn"], line["kept"], line["version"], line["code"]) == ("turn_1", True, 8, None)


async def test_what_comes_of_a_request_has_its_name_in_other_tasks_too(log: Log) -> None:
    async def request(name: str) -> None:
        bind(request=name, trace="t" + name, traceparent=f"00-{name}")
        event("asked")
        await asyncio.create_task(turn())

    async def turn() -> None:
        assert traceparent()
        event("answered")

    await asyncio.gather(
        asyncio.create_task(request("req_1")), asyncio.create_task(request("req_2"))
    )
    event("afterwards")
    told = [(line["event"], line.get("request"), line.get("trace")) for line in log.lines]
    assert sorted(told[:-1]) == [
        ("answered", "req_1", "treq_1"),
        ("answered", "req_2", "treq_2"),
        ("asked", "req_1", "treq_1"),
        ("asked", "req_2", "treq_2"),
    ]
    assert told[-1] == ("afterwards", None, None)


@pytest.mark.parametrize(
    "text", [KEY, f"Authorization: Bearer {KEY}", "bearer abc.def", f"x={KEY}&y", "sk-" + "a" * 24]
)
def test_what_looks_like_a_secret_never_arrives(log: Log, text: str) -> None:
    secret = text.rsplit(" ", 1)[-1].removeprefix("x=").removesuffix("&y")
    event("odd", told=text)
    audit(f"odd {text}")
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("holdfast.server").exception("it failed: %s", text)
    assert len(log.lines) == 3
    assert secret not in log.text


def test_other_loggers_lines_say_which_request_they_are_about(log: Log) -> None:
    def work() -> None:
        bind(request="req_1")
        logging.getLogger("somebody.else").warning("look at this")

    copy_context().run(work)
    assert log.lines[0]["request"] == "req_1"


def test_text_is_for_people_and_has_no_events_but_those_that_are_audited(
    capsys: pytest.CaptureFixture[str], log: Log
) -> None:
    stream = StringIO()
    handler = configure("text", stream=stream)
    try:
        event("turn.ended", turn="turn_1")
        audit("session.delete", key="key_1", about=KEY)
        logging.getLogger("holdfast.server").warning("careful")
    finally:
        logging.getLogger().removeHandler(handler)
    first, second = stream.getvalue().splitlines()
    assert first.endswith("holdfast.audit: session.delete key=key_1 about=…")
    assert second.endswith("holdfast.server: careful")


def test_a_program_without_a_log_prints_no_events() -> None:
    """The name of an event says nothing without its fields, and a command says what it finds in its own words."""
    program = "from holdfast.observe.events import warn; warn('store.damaged', what='a table')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
