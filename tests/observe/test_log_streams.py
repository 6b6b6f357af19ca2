"""A log whose reader has stopped reading holds nobody up."""

from __future__ import annotations

import logging
import os
import pty
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from io import StringIO, TextIOWrapper
from typing import TextIO

import pytest

from holdfast import limits
from holdfast.cli.standard_streams import _Closed
from holdfast.observe.events import configure, flush_log, warn
from holdfast.observe.log_streams import UnreadLog, without_waiting

LINE = "x" * 9_999 + "\n"


def pipe_ends() -> tuple[int, int]:
    return os.pipe()


def socket_ends() -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def terminal_ends() -> tuple[int, int]:
    return pty.openpty()


@pytest.fixture(params=[pipe_ends, socket_ends, terminal_ends])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[int, TextIO]]:
    """Where the log is read, and the stream that it is written to."""
    reading, writing = request.param()
    with ExitStack() as opened:
        opened.callback(os.close, reading)
        yield reading, opened.enter_context(os.fdopen(writing, "w"))


def test_lines_that_nobody_reads_are_kept_up_to_a_bound_and_then_counted(
    ends: tuple[int, TextIO], request: pytest.FixtureRequest
) -> None:
    reading, stream = ends
    told: list[int] = []
    log = without_waiting(stream, lost=told.append)
    assert isinstance(log, UnreadLog)
    request.addfinalizer(log.close)
    for _ in range(200):  # a plain stream would wait here for ever
        log.write(LINE)
        log.flush()
    assert told == []
    read = bytearray()
    while not told:
        read += os.read(reading, 1 << 16)
        log.flush()
    os.set_blocking(reading, False)
    try:
        while True:
            read += os.read(reading, 1 << 16)
    except BlockingIOError:
        pass
    lines = bytes(read).replace(b"\r\n", b"\n").splitlines(keepends=True)
    assert set(lines) == {LINE.encode()}, "no line is cut"
    assert told == [200 - len(lines)]
    assert len(lines) * len(LINE) >= limits.log_waiting_bytes_max - len(LINE)


def test_the_program_that_shares_a_pipe_still_waits_for_room() -> None:
    """A flag on the stream itself would be seen by a shell that writes to it after us."""
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as stream:
        log = without_waiting(stream, lost=lambda _: None)
        assert os.get_blocking(writing)
        log.close()


def test_nothing_is_kept_for_a_reader_that_is_gone() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        log = without_waiting(stream, lost=lambda _: None)
        log.write(LINE)
        with pytest.raises(BrokenPipeError):
            log.flush()
        log.flush()
        log.close()


def test_a_file_and_a_closed_stream_are_written_as_they_are() -> None:
    with open(os.devnull, "w") as file:
        assert without_waiting(file, lost=lambda _: None) is file
    for unnumbered in (StringIO(), TextIOWrapper(_Closed())):  # type: ignore[type-var]
        assert without_waiting(unnumbered, lost=lambda _: None) is unnumbered
    assert without_waiting(file, lost=lambda _: None) is file


def test_the_log_of_a_server_says_how_many_of_its_lines_were_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as read, os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        for name in ("holdfast.events", "holdfast.audit"):
            monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
        handler = configure("text")
        assert isinstance(handler, logging.StreamHandler)
        try:
            for n in range(100):
                warn("task.failed", task="heart", why=f"{n}{LINE}")
            os.set_blocking(reading, False)
            said = ""
            while "log.lost" not in said:  # which the server does once a second
                said += read.read()
                flush_log()
        finally:
            logging.getLogger().removeHandler(handler)
            handler.stream.close()
        assert said.count("task.failed") + int(said.rpartition("lines=")[2]) == 100
