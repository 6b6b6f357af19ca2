"""The fake upstream, byte by byte, through plain sockets."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest

from holdfast.core.turns.events import Usage
from holdfast.testing import FakeUpstream, Gate, Reply, fails, refuses, says

ASKED = {"model": "fake-model", "messages": [{"role": "user", "content": "Hi"}]}
STREAMED = {**ASKED, "stream": True, "stream_options": {"include_usage": True}}


async def raw(upstream: FakeUpstream, asked: object = STREAMED) -> bytes:
    """Everything that comes back on one connection, until it ends."""
    address = urlsplit(upstream.base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    body = msgspec.json.encode(asked)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = b""
    try:
        while not answer.endswith(b"\r\n0\r\n\r\n") and (piece := await reader.read(65536)):
            answer += piece
    except ConnectionError:
        answer += b"<reset>"
    writer.close()
    return answer


def body_of(answer: bytes) -> bytes:
    """The body of a chunked response, as far as it came."""
    rest = answer.partition(b"\r\n\r\n")[2]
    body = b""
    while rest and rest[:1] not in b"0<":
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body


async def test_a_stream_looks_like_the_real_one() -> None:
    usage = Usage(input_tokens=1, output_tokens=2)
    async with FakeUpstream(says("Hi", usage=usage)) as upstream:
        answer = await raw(upstream)
    head, _, _ = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"Content-Type: text/event-stream" in head
    frames = body_of(answer).decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    chunks = [msgspec.json.decode(frame.removeprefix("data: ")) for frame in frames[:-2]]
    assert [bool(chunk["choices"]) for chunk in chunks] == [True, True, True, False]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[3]["usage"]["total_tokens"] == 3


async def test_faults_happen_where_they_are_placed() -> None:
    async with FakeUpstream(*(Reply() for _ in range(1))) as upstream:
        whole = body_of(await raw(upstream))
        for cut_at in (0, 1, 17, len(whole) - 1, len(whole)):
            upstream.will(Reply(cut_at=cut_at, cut_by="close"))
            cut = await raw(upstream)
            assert body_of(cut) == whole.replace(b"chatcmpl-1", _number(upstream))[:cut_at]
            assert not cut.endswith(b"0\r\n\r\n")
            upstream.will(Reply(cut_at=cut_at, cut_by="end"))
            assert (await raw(upstream)).endswith(b"0\r\n\r\n")
        upstream.will(Reply(cut_at=3, cut_by="reset"))
        assert (await raw(upstream)).endswith(b"<reset>")


def _number(upstream: FakeUpstream) -> bytes:
    return b"chatcmpl-%d" % len(upstream.requests)


async def test_writes_are_cut_where_they_are_told_to() -> None:
    async with FakeUpstream(
        Reply(write_bytes=10), Reply(cuts=(3, 4)), Reply(line_end=b"\r\n"), Reply(chunked=False)
    ) as upstream:
        answer = await raw(upstream)
        assert answer.partition(b"\r\n\r\n")[2].startswith(b'a\r\ndata: {"id\r\na\r\n')
        answer = await raw(upstream)
        assert answer.partition(b"\r\n\r\n")[2].startswith(b"3\r\ndat\r\n1\r\na\r\n")
        assert body_of(await raw(upstream)).endswith(b"\r\n\r\ndata: [DONE]\r\n\r\n")
        assert (await raw(upstream)).endswith(b"data: [DONE]\n\n")


async def test_it_stalls_until_it_is_released() -> None:
    gate = Gate()
    async with FakeUpstream(Reply(stall_at=5, gate=gate)) as upstream:
        asking = asyncio.create_task(raw(upstream))
        await gate.reached.wait()
        assert not asking.done()
        gate.release()
        assert (await asking).endswith(b"0\r\n\r\n")


async def test_what_goes_wrong_in_a_script_goes_wrong_on_the_wire() -> None:
    failing = says("a", "b").failing(at=1)
    async with FakeUpstream(
        failing, fails("down", status=503), refuses(429, code="slow")
    ) as upstream:
        streamed = body_of(await raw(upstream))
        assert b'"error":{"message":"scripted to fail"' in streamed
        assert b"[DONE]" not in streamed
        plain = await raw(upstream, ASKED)
        assert plain.startswith(b"HTTP/1.1 503") and b'"message":"down"' in plain
        refused = await raw(upstream)
        assert refused.startswith(b"HTTP/1.1 429") and b'"code":"slow"' in refused
        assert b"unscripted" in await raw(upstream)


async def test_requests_are_recorded_as_they_came() -> None:
    async with FakeUpstream(
        otherwise=lambda request: f"{len(request.json['messages'])} messages"
    ) as upstream:
        async with aiohttp.ClientSession() as session:
            for _ in range(2):
                async with session.post(
                    f"{upstream.base_url}/chat/completions", json=ASKED, headers={"X-A": "1"}
                ) as response:
                    answer = await response.json()
                    assert answer["choices"][0]["message"]["content"] == "1 messages"
            async with session.post(
                f"{upstream.base_url}/chat/completions", data=_pieces()
            ) as response:
                await response.json()
            async with session.get(f"{upstream.base_url}/models/none") as response:
                assert response.status == 404
        first = upstream.requests[0]
        assert (first.method, first.path, first.headers["x-a"]) == (
            "POST",
            "/v1/chat/completions",
            "1",
        )
        assert first.json == ASKED == upstream.requests[2].json
        assert not first.wants_stream
        assert upstream.connections == 1
        assert [request.path for request in upstream.others] == ["/v1/models/none"]
        assert repr(first).startswith("<Request POST")
        assert "asked 3 times" in repr(upstream)


async def _pieces() -> AsyncIterator[bytes]:
    body = msgspec.json.encode(ASKED)
    yield body[:10]
    yield body[10:]


@pytest.mark.slow
def test_it_runs_by_itself() -> None:
    command = [sys.executable, "-m", "holdfast.testing.upstream", "--words", "3", "--pace-s", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            base_url = process.stdout.readline().strip()
            assert "word2 " in asyncio.run(_text_at(base_url))
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=60)
    assert errors == ""


async def _text_at(base_url: str) -> str:
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{base_url}/chat/completions", json=STREAMED) as response:
            return await response.text()
