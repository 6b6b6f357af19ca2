"""A model's server that costs next to nothing: every byte of every answer is there before anybody asks.

Which answer is decided by the last message, since some systems know one model only. It holds `bench:` and a word:

    flatN    N tokens, in as few writes as the socket takes
    paced    one token every 20 ms, a write each, for a quarter of a minute: not every server stops when its client leaves
    short    20 tokens at once, streamed or as one object
    idle     one token, and then silence until the client leaves

Whoever asks which models there are is told of none; some servers ask when they start.

Run by `bench/speed` in a process of its own: `python upstream.py PORT`.
"""

from __future__ import annotations

import asyncio
import re
import sys
from functools import cache

import uvloop

from holdfast.core.turns.events import Usage
from holdfast.wire.openai.chat.chunks import ChunkWriter, encode_json, usage_object
from holdfast.wire.sse import DONE

SHORT_TOKENS, PACE_S, PACED_S = 20, 0.02, 15.0

MARK = b"bench:"
_WORD = re.compile(rb"bench:(flat(\d+)|[a-z]+)")
_STREAM = re.compile(rb'"stream": ?true')

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunked(*frames: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in frames)


def _tokens(count: int) -> list[bytes]:
    return [_writer.content(f" token{n % 10}") for n in range(count)]


_writer = ChunkWriter(completion_id="chatcmpl-0123456789", created_s=1_750_000_000, model="bench")
_usage = Usage(input_tokens=10, output_tokens=SHORT_TOKENS)
_last = (_writer.chunk(finish="stop"), _writer.usage(_usage), DONE)
END = _chunked(*_last) + b"0\r\n\r\n"
BEGINNING = SSE + _chunked(_writer.opening(), *_tokens(1))
TOKEN = _chunked(*_tokens(1))


def _whole() -> bytes:
    text = "".join(f" token{n % 10}" for n in range(SHORT_TOKENS))
    message = {"role": "assistant", "content": text}
    return _json(
        {
            "id": "chatcmpl-0123456789",
            "object": "chat.completion",
            "created": 1_750_000_000,
            "model": "bench",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": usage_object(_usage),
        }
    )


def _json(answer: object) -> bytes:
    body = encode_json(answer)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


@cache
def flat(tokens: int) -> bytes:
    return SSE + _chunked(_writer.opening(), *_tokens(tokens)) + END


SHORT, WHOLE = flat(SHORT_TOKENS), _whole()
NO_MODELS = _json({"object": "list", "data": []})


class Answering(asyncio.Protocol):
    """One connection. As much of HTTP as our own clients speak: a length, or chunks; one request at a time."""

    def __init__(self) -> None:
        self._heard = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._heard += data
        head, whole, body = self._heard.partition(b"\r\n\r\n")
        if not whole or not _is_whole(head.lower(), body):
            return
        self._heard = b""
        wanted = _WORD.match(body, max(0, body.rfind(MARK)))
        if head.startswith(b"GET "):
            self._transport.write(NO_MODELS)
        elif wanted and wanted[2]:
            self._transport.write(flat(int(wanted[2])))
        elif wanted and wanted[1] == b"short":
            self._transport.write(SHORT if _STREAM.search(body) else WHOLE)
        else:
            self._transport.write(BEGINNING)
            if wanted and wanted[1] == b"paced":
                self._next_at = self._loop.time()
                self._until = self._next_at + PACED_S
                self._pace()

    def _pace(self) -> None:
        if self._loop.time() > self._until:
            self._transport.write(END)
            return
        self._transport.write(TOKEN)
        self._next_at += PACE_S
        self._timer = self._loop.call_at(self._next_at, self._pace)


def _is_whole(head: bytes, body: bytes) -> bool:
    if b"chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    _, _, rest = head.partition(b"content-length:")
    return len(body) >= int(rest.split(b"\r\n")[0] or b"0")


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(
        Answering, "127.0.0.1", int(sys.argv[1]), backlog=1024
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
