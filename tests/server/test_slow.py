"""Nobody holds a connection for longer than they may, and nobody else notices that they tried."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from shutil import which

import aiohttp
import msgspec
import pytest

from holdfast import limits
from holdfast.core.turns.deltas import Delta
from holdfast.errors import InvalidValue
from holdfast.models.model import Prompt
from holdfast.server.http.listen_sockets import listen
from holdfast.server.processes.server_process import HttpServer
from holdfast.testing import Gate, ScriptedModel, says
from tests.means import skip_without
from tests.server.slow import MANNERS, besiege, deaf_socket
from tests.server.stubs import Serving, agent, chat_body, serving, until

CONNECTIONS = 330


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same limits, but shorter."""
    monkeypatch.setattr(limits, "request_head_s", 1.0)
    monkeypatch.setattr(limits, "request_body_s", 1.0)
    monkeypatch.setattr(limits, "keep_alive_s", 1)


def address(server: Serving) -> tuple[str, int]:
    host, port = server.listener.getsockname()
    return host, port


@pytest.mark.usefixtures("hurried")
async def test_slow_silent_and_half_sent_requests_end_while_others_are_served() -> None:
    model = ScriptedModel(otherwise=lambda _: "Yes.")
    async with serving(agent(model)) as server:
        host, port = address(server)
        all_there = asyncio.Event()
        siege = asyncio.create_task(
            besiege(host, port, connections=CONNECTIONS, opened=all_there.set, most_s=60)
        )
        await all_there.wait()
        served, loop = 0, asyncio.get_running_loop()
        asked_s = loop.time()
        while not siege.done() or not served:
            before_s, asked_s = asked_s, loop.time()
            try:
                answer = await server.chat(f"Hi {served}", to="trip")
            except aiohttp.ClientConnectionError:
                # Our connection is held to the same limits: only if the machine has let us rest for as long.
                assert loop.time() - before_s >= limits.keep_alive_s
                continue
            assert answer.status == 200
            served += 1
        held = await siege
        await until(lambda: not _besiegers(server))
    assert len(held) == CONNECTIONS and {each.manner for each in held} == set(MANNERS)
    timed_out = [each.said for each in held if each.manner.name == "stops in the body"]
    assert all(each.startswith(b"HTTP/1.1 408 ") for each in timed_out)


def _besiegers(server: Serving) -> int:
    """Connections that are open, but for our own client's."""
    return max(0, len(server.server.server_state.connections) - 1)


@pytest.mark.parametrize("dripped", [False, True])
async def test_a_head_that_does_not_fit_is_refused(dripped: bool) -> None:
    head = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"
    async with serving(agent(ScriptedModel())) as server:
        reader, writer = await asyncio.open_connection(*address(server))
        writer.write(head + b"X-Long: " + b"a" * limits.request_head_bytes_max)
        if not dripped:
            writer.write(b"\r\n\r\n")
        said = await reader.read()
        writer.close()
        answer = await server.get("/v1/models")
    assert said.startswith(b"HTTP/1.1 431 ") and b'"code":"request_head_too_large"' in said
    assert answer.status == 200


def asking_for_a_stream(header: bytes) -> bytes:
    """The bytes of a request, with this header besides those that it needs."""
    body = chat_body("Hi", stream=True)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n" + header
    return b"%b\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


async def test_a_client_that_reads_nothing_counts_as_gone_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "write_stall_s", 0.2)
    gate = Gate()
    flood = ["\x01" * 100_000] * 19  # as much as a turn may say, and six bytes each in JSON
    model = ScriptedModel(says(*flood, "the end").waiting(gate, at=19))
    async with serving(agent(model)) as server:
        loop, (host, port) = asyncio.get_running_loop(), address(server)
        with deaf_socket(host, port) as deaf:
            await loop.sock_connect(deaf, (host, port))
            await loop.sock_sendall(deaf, asking_for_a_stream(b"X-Conversation-Id: a"))
            connections = server.server.server_state.connections
            async with asyncio.timeout(60):
                await until(lambda: bool(connections))
                await until(lambda: not connections)
        (turn,) = await server.turns("a")
        ended = await server.ended_turn(turn["id"])  # of itself: the model never comes to its end
    assert ended["ended_by"] == "disconnected"


class Unhurried(ScriptedModel):
    """Everybody else does what they have to do between two words."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        async for deltas in super().stream(prompt):
            yield deltas
            for _ in range(5):
                await asyncio.sleep(0)


async def test_a_client_that_reads_late_is_shown_everything_once_and_in_order() -> None:
    """What its socket does not take waits for it, and what comes after that behind it."""
    gate = Gate()
    words = [f"{n:06}" + "\x01" * 18_000 for n in range(100)]  # six bytes each in JSON
    model = Unhurried(says(*words, "the end").waiting(gate, at=100))
    async with serving(agent(model)) as server:
        loop, (host, port) = asyncio.get_running_loop(), address(server)
        with deaf_socket(host, port) as deaf:
            await loop.sock_connect(deaf, (host, port))
            await loop.sock_sendall(deaf, asking_for_a_stream(b"Connection: close"))
            await gate.reached.wait()
            (held,) = server.server.server_state.connections
            assert (
                held.transport.get_write_buffer_size() < 200_000
            )  # the rest waits where it is kept anyway
            gate.release()
            answer = b"".join([piece async for piece in _received(deaf)])
    frames = _dechunked(answer.partition(b"\r\n\r\n")[2]).split(b"\n\n")
    chunks = [msgspec.json.decode(each[6:]) for each in frames if each.startswith(b"data: {")]
    assert [text for each in chunks if (text := each["choices"][0]["delta"].get("content"))] == [
        *words,
        "the end",
    ]
    assert frames[-2:] == [b"data: [DONE]", b""]


async def test_a_request_that_is_sent_ahead_waits_until_the_stream_before_it_has_ended() -> None:
    words = [f"{n} " for n in range(50)]
    gate = Gate()
    async with serving(agent(Unhurried(says(*words).waiting(gate, at=25)))) as server:
        reader, writer = await asyncio.open_connection(*address(server))
        writer.write(asking_for_a_stream(b"Connection: keep-alive"))
        await gate.reached.wait()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        gate.release()
        first = await reader.readuntil(b"\r\n0\r\n\r\n")
        second = await reader.read()
        writer.close()
    frames = _dechunked(first.partition(b"\r\n\r\n")[2]).split(b"\n\n")
    chunks = [msgspec.json.decode(each[6:]) for each in frames if each.startswith(b"data: {")]
    said = [text for each in chunks if (text := each["choices"][0]["delta"].get("content"))]
    assert said == words
    assert second.startswith(b"HTTP/1.1 200 OK\r\n")


async def _received(plug: socket.socket) -> AsyncIterator[bytes]:
    while piece := await asyncio.get_running_loop().sock_recv(plug, 1 << 16):
        yield piece


def _dechunked(body: bytes) -> bytes:
    pieces: list[bytes] = []
    while body:
        size, _, body = body.partition(b"\r\n")
        end = int(size, 16)
        pieces.append(body[:end])
        assert body[end : end + 2] == b"\r\n"
        body = body[end + 2 :]
    return b"".join(pieces)


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    if which("openssl") is None:
        skip_without("openssl", enable="apt-get install openssl")
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", cert, "-keyout", key]
    subprocess.run(["openssl", *made.split(), *names], check=True, capture_output=True)
    return cert, key


async def test_https_is_served_from_two_files(certificate: tuple[str, str]) -> None:
    async with serving(agent(ScriptedModel("Hello."))) as server:
        with listen("127.0.0.1", 0) as listener:
            ready = asyncio.Event()
            secure = HttpServer(server.app, server.sessions, on_ready=ready.set, tls=certificate)
            running = asyncio.create_task(secure.serve(sockets=[listener]))
            await ready.wait()
            url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1/chat/completions"
            trust = ssl.create_default_context(cafile=certificate[0])
            async with (
                aiohttp.ClientSession() as http,
                http.post(url, data=chat_body("Hi", stream=True), ssl=trust) as response,
            ):
                body = await response.text()
            secure.stop()
            secure.stop()
            await running
    assert response.status == 200 and body.endswith("data: [DONE]\n\n")
    assert response.headers["strict-transport-security"] == "max-age=31536000"


async def test_files_that_cannot_be_used_for_tls_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    async with serving(agent(ScriptedModel())) as server:
        for name in ("absent.pem", "empty.pem"):
            path = str(tmp_path / name)
            with pytest.raises(InvalidValue, match=name):
                HttpServer(server.app, server.sessions, on_ready=lambda: None, tls=(path, path))
