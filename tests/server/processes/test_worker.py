"""A worker's line to its supervisor: what it hears there, and what it makes of silence."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable

import pytest

from holdfast.server.http.listen_sockets import SharedPort
from holdfast.server.processes.process_role import ReadyServer
from holdfast.server.processes.worker import DRAIN, HURRY, RELOAD, SharedState, Worker

READY = ReadyServer(url="http://127.0.0.1:1", node="node", agents=("root",))


class Server:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._news = asyncio.Event()

    def stop(self) -> None:
        self._say("stop")

    def drain(self) -> None:
        self._say("drain")

    def hurry(self) -> None:
        self._say("hurry")

    def reload(self) -> None:
        self._say("reload")

    def _say(self, what: str) -> None:
        self.told.append(what)
        self._news.set()

    async def wait(self) -> None:
        async with asyncio.timeout(30):
            await self._news.wait()
        self._news.clear()


def killed(line: socket.socket, worker: Worker) -> None:
    """A supervisor that is killed has read nothing of what it was told last: its end is reset, not closed."""
    worker.ready(READY)
    line.close()


def closed(line: socket.socket, worker: Worker) -> None:
    line.close()


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (lambda line, _: line.send(DRAIN), "drain"),
        (lambda line, _: line.send(HURRY), "hurry"),
        (lambda line, _: line.send(DRAIN + HURRY), "hurry"),
        (lambda line, _: os.kill(os.getpid(), signal.SIGTERM), "drain"),
        (lambda line, _: os.kill(os.getpid(), signal.SIGINT), "drain"),
        (lambda line, _: line.send(RELOAD), "reload"),
        (lambda line, _: line.send(RELOAD + DRAIN), "drain"),
        (lambda line, _: os.kill(os.getpid(), signal.SIGHUP), "reload"),
        (lambda line, _: os.kill(os.getpid(), signal.SIGUSR1), "reload"),
        (lambda line, _: os.kill(os.getpid(), signal.SIGUSR2), "reload"),
        (closed, "drain"),
        (killed, "drain"),
    ],
)
async def test_what_a_worker_is_told(
    happens: Callable[[socket.socket, Worker], object], told: str
) -> None:
    ours, theirs = socket.socketpair()
    port = SharedPort("127.0.0.1", 0)
    worker = Worker(0, port, theirs, SharedState(1, bounded=False), run=1)
    server = Server()
    with worker.control(server):
        happens(ours, worker)
        await server.wait()
    assert server.told == [told]
    for each in (ours, theirs, port):
        each.close()


async def test_a_worker_that_is_ready_when_nobody_is_left_to_hear_it_drains() -> None:
    ours, theirs = socket.socketpair()
    port = SharedPort("127.0.0.1", 0)
    worker = Worker(0, port, theirs, SharedState(1, bounded=False), run=1)
    server = Server()
    ours.close()
    with worker.control(server):
        worker.ready(READY)
        await server.wait()
    assert server.told == ["drain"]
    for each in (theirs, port):
        each.close()
