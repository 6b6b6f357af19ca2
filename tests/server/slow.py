"""Clients that take their time: silent ones, half-sent requests, bytes that drip, answers that nobody reads.

Each of them holds a connection for as long as a server lets it. `besiege` opens many, and says how long each was held.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from itertools import cycle, islice

from msgspec import Struct

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
DRIP_S = 0.05


class Manner(Struct, frozen=True):
    """How a client misbehaves: what it says at once, and what it repeats for ever."""

    name: str
    first: bytes = b""
    drip: bytes = b""


MANNERS = (
    Manner("says nothing"),
    Manner("stops in the first line", b"POST /v1/ch"),
    Manner("stops among the headers", HEAD),
    Manner("drips headers", HEAD, b"X-A: b\r\n"),
    Manner("never ends a header", HEAD + b"X-A: ", b"b"),
    Manner("sends blank lines", b"", b"\r\n"),
    Manner("stops in the body", HEAD + b"\r\n{"),
    Manner("drips the body", HEAD + b"\r\n", b" "),
    Manner("rests after an answer", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    Manner(
        "sends blank lines after an answer",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\r\n",
    ),
    Manner(
        "drips a body that was refused",
        b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",
        b" ",
    ),
)


class Held(Struct, frozen=True):
    """How long a connection was held, and what its client was told."""

    manner: Manner
    seconds: float
    said: bytes


async def besiege(
    host: str, port: int, *, connections: int, opened: Callable[[], None], most_s: float
) -> list[Held]:
    """Open this many at once, and wait until the server has closed every one. Raises TimeoutError."""
    waiting = connections

    def one_more() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            opened()

    async with asyncio.timeout(most_s):
        return await asyncio.gather(
            *(_hold(host, port, each, one_more) for each in islice(cycle(MANNERS), connections))
        )


async def _hold(host: str, port: int, manner: Manner, opened: Callable[[], None]) -> Held:
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(host, port)
    opened()
    began = loop.time()
    writer.write(manner.first)
    dripping = asyncio.create_task(_drip(writer, manner.drip)) if manner.drip else None
    try:
        said = await reader.read()
    except ConnectionError:
        said = b""
    finally:
        if dripping is not None:
            dripping.cancel()
        writer.close()
    return Held(manner, loop.time() - began, said)


async def _drip(writer: asyncio.StreamWriter, drop: bytes) -> None:
    try:
        while not writer.is_closing():
            writer.write(drop)
            await asyncio.sleep(DRIP_S)
    except ConnectionError:
        pass


def deaf_socket(host: str, port: int) -> socket.socket:
    """A connection whose other end will take very little before it is read."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setblocking(False)
    return made
