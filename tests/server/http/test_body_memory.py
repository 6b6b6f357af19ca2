"""Large bodies that do not fit into memory together are refused while they come in; small ones never are."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import limits
from holdfast.server.http.body_memory import READ, BodyMemory, memory_bytes
from holdfast.server.http.exchange import Exchange, Message
from holdfast.wire.headers import problem_headers
from holdfast.wire.problems import Refused

LARGE = limits.small_body_bytes + 1
MEMORY = limits.bodies_memory_share * READ * 3 * LARGE
"""Three of them fit."""


def sends(*pieces: bytes) -> Exchange:
    messages: Iterator[Message] = iter(
        {"type": "http.request", "body": piece, "more_body": n < len(pieces)}
        for n, piece in enumerate(pieces, 1)
    )

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        pass

    scope = {"method": "POST", "path": "/", "query_string": b"", "headers": []}
    return Exchange(scope, receive, send, request_id="req_1")


async def read(exchange: Exchange, room: BodyMemory) -> bytes:
    return await exchange.body(bytes_max=limits.body_bytes_max, room=room)


async def test_large_bodies_are_refused_beyond_what_there_is_memory_for() -> None:
    """Ten of 3.8 MB took 740 MB, and a process that had 900 MB ended in a segmentation fault."""
    room = BodyMemory(MEMORY)
    held = [sends(b"x" * LARGE) for _ in range(3)]
    for each in held:
        await read(each, room)
    with pytest.raises(Refused) as refused:
        await read(sends(b"x" * LARGE), room)
    problem = refused.value.problem
    assert (problem.status, problem.code, problem.should_retry) == (503, "server_overloaded", True)
    assert problem_headers(problem)["retry-after"] == "1"

    assert await read(sends(b"small"), room) == b"small", "who sends little does not notice"
    held[0].close()
    await read(sends(b"x" * LARGE), room)


async def test_a_body_that_is_refused_or_done_with_weighs_nothing() -> None:
    room = BodyMemory(MEMORY)
    first, second = sends(b"x" * LARGE), sends(*[b"x" * LARGE] * 10)
    await read(first, room)
    with pytest.raises(Refused):
        await read(second, room)
    second.close()
    await first.start_stream()
    assert room.held == 0
    first.close()
    assert room.held == 0, "once is enough"


async def test_a_body_that_still_comes_in_weighs_what_has_come() -> None:
    """Else whoever announces much and sends it slowly keeps the room for everybody else."""
    room = BodyMemory(MEMORY)
    weight = room.weigh(0, LARGE)
    assert room.held == weight == LARGE
    assert room.weigh(weight, LARGE * READ) == room.held == LARGE * READ


async def test_one_alone_may_weigh_anything() -> None:
    """A server with little memory still takes what its limits promise, one at a time."""
    room = BodyMemory(1)
    only = sends(b"x" * limits.body_bytes_max)
    await read(only, room)
    only.close()
    assert room.held == 0


def test_workers_share_the_memory_of_their_machine() -> None:
    assert 0 < memory_bytes(processes=4) <= memory_bytes()


def test_a_limit_on_addresses_is_not_all_memory_that_is_left() -> None:
    """A process that has just started has taken half a gigabyte of them; taken for memory, they ended a server."""
    room, (soft, hard) = 1 << 30, resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (taken + room, hard))
    try:
        assert 0 < memory_bytes() <= room
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
