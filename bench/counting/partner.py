"""Both sides of a server whose instructions are counted: its client, and the upstream of its model.

They are one process, and never hurry: a token leaves when the one before it has come out, so that each wakes the
server once, however slow it is. A turn is asked for when the one before it has been answered. Then the server gets
SIGINT. Run by `served.py`: `python partner.py PORT UPSTREAM_PORT WHAT COUNT`, where `turns` asks for so many JSON
turns, each of a new conversation, and `tokens` for one stream of so many.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from serving.answers import Answer
from serving.requests import chat
from serving.upstream import BEGINNING, END, SHORT, TOKEN, WHOLE


class Upstream(asyncio.Protocol):
    """A connection of the server to its model."""

    streams: Upstream | None = None
    """The one that is asked for tokens."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._heard = b""

    def data_received(self, data: bytes) -> None:
        self._heard += data
        head, _, body = self._heard.partition(b"\r\n\r\n")
        _, _, rest = head.lower().partition(b"content-length:")
        if not rest or len(body) < int(rest.split(b"\r\n")[0]):
            return
        self._heard = b""
        if b"bench:paced" in body:
            Upstream.streams = self
            self.transport.write(BEGINNING)
        else:
            self.transport.write(SHORT if b'"stream":true' in body else WHOLE)


class Client(asyncio.Protocol):
    """The connection of a client. Of a stream it wants so many tokens."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self.answer = Answer()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    async def ask(self, what: str, conversation: str, *, stream: bool) -> None:
        self.answer = Answer()
        self.ended = asyncio.get_running_loop().create_future()
        self.transport.write(chat(what, conversation, stream))
        await self.ended

    def data_received(self, data: bytes) -> None:
        before = self.answer.tokens
        self.answer.feed(data)
        if self.answer.ended:
            assert self.answer.status == 200 and self.answer.tokens, data
            self.ended.set_result(None)
        elif self.answer.tokens > before and Upstream.streams is not None:
            is_last = self.answer.tokens == self._tokens
            Upstream.streams.transport.write(END if is_last else TOKEN)


async def main(port: int, upstream_port: int, what: str, count: int) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_server(Upstream, "127.0.0.1", upstream_port)
    while True:
        try:
            _, client = await loop.create_connection(lambda: Client(count), "127.0.0.1", port)
            break
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)
    if what == "tokens":
        await client.ask("paced", "counted", stream=True)
    else:
        for number in range(count):
            await client.ask("short", f"counted-{number}", stream=False)
    client.transport.close()
    os.kill(os.getppid(), signal.SIGINT)


if __name__ == "__main__":
    port, upstream_port, what, count = sys.argv[1:]
    asyncio.run(main(int(port), int(upstream_port), what, int(count)))
