"""The client of the measurements: an answer is what has a token in it, and who starts something ends it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from serving.load import Client, Refused
from speed.servers import DoesNotStart, Server, started
from speed.subjects import Command, Subject

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


class Deaf(asyncio.Transport):
    """Takes what is written, and says nothing."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass


async def told(body: bytes) -> Client:
    """A client that has asked, and was answered this."""
    client = Client(0)
    client.connection_made(Deaf())
    asking = asyncio.create_task(client.ask(1, b"a request"))
    await asyncio.sleep(0)
    client.data_received(HEAD % len(body) + body)
    await asking
    return client


async def test_an_error_inside_a_200_is_no_turn() -> None:
    with pytest.raises(Refused, match=r"without a token: .*no such model"):
        await told(b'data: {"error":"no such model"}\n\n')


async def test_an_answer_with_tokens_is_one() -> None:
    assert (await told(b" token token")).tokens == 2


def test_a_server_that_dies_at_its_start_leaves_nobody_behind(tmp_path: Path) -> None:
    """Its child holds a pipe open for as long as it lives."""
    reading, writing = os.pipe()
    script = f"exec 3>/proc/{os.getpid()}/fd/{writing}; sleep 300 & exit 1"
    subject = Subject("dies", lambda *_: Command(["sh", "-c", script]), lambda: "")
    with (
        pytest.raises(DoesNotStart, match="dies does not start"),
        started(subject, Server("direct", 1), tmp_path),
    ):
        pytest.fail("it has started")
    os.close(writing)
    assert os.read(reading, 1) == b"", "the pipe has ended, and so has the child"
    os.close(reading)


def test_a_server_that_starts_is_gone_after_its_context(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1"]
    subject = Subject("files", lambda port, *_: Command([*command, str(port)]), lambda: "")
    with started(subject, Server("direct", 1), tmp_path) as server:
        assert os.getpgid(server.pid) == server.pid
    with pytest.raises(ProcessLookupError):
        os.killpg(server.pid, 0)
