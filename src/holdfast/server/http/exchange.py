"""One HTTP request and its one answer, over ASGI.

Whatever happens, at most one answer is written: starting a second one is a bug and raises. A client that goes
away is noticed in every phase, since somebody is always listening for it (`gone`): no framework does that for
a handler that has not begun to answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from holdfast import limits
from holdfast.server.http.body_memory import READ, BodyMemory
from holdfast.wire.headers import OPENAI_PROCESSING_MS, OPENAI_VERSION, REQUEST_ID, problem_headers
from holdfast.wire.problems import Problem, Refused
from holdfast.wire.sse import data_frame

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

CONNECTION = "holdfast.connection"
"""The ASGI extension by which our own server tells more about a connection than the protocol does."""

SAFE: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}
"""What every answer tells a browser, should one come by, unless it says otherwise: run nothing, keep nothing,
frame nothing, tell nobody."""

T = TypeVar("T")


class Socket(Protocol):
    """What a connection can say about its socket."""

    async def taken(self) -> bool:
        """Wait until the socket has taken everything written so far. False if it never will."""
        ...

    @property
    def is_writable(self) -> bool:
        """Whether a piece of the answer that is streamed now can be written without waiting."""
        ...

    def write_piece(self, piece: bytes) -> None:
        """Write it. Only while it `is_writable`."""
        ...


class Exchange:
    """A request, and the answer to it."""

    def __init__(
        self, scope: Mapping[str, Any], receive: Receive, send: Send, *, request_id: str
    ) -> None:
        self._receive = receive
        self._send = send
        self._began = time.perf_counter()
        self.method: str = scope["method"]
        self.http_version: str = scope.get("http_version", "1.0")
        self.scheme: str = scope.get("scheme", "http")
        self.peer: str = (scope.get("client") or ("",))[0]
        """The address at the other end of the connection."""
        self.path: str = scope["path"]
        self.raw_path: str = (scope.get("raw_path") or self.path.encode()).decode("latin-1")
        """As it was sent: `%2F` is not a slash yet."""
        self.query: bytes = scope["query_string"]
        self.headers = _joined(scope["headers"])
        self.request_id = request_id
        self.about: dict[str, str] = {}
        """Headers that the answer will have, whatever it turns out to be."""
        self.say_failure: Callable[[Problem], bytes] = _error_frame
        """How a stream that has begun says that it failed: its last frames."""
        self._socket: Socket | None = (scope.get("extensions") or {}).get(CONNECTION)
        self.code = ""
        """Of the problem that it was answered with, if it was."""
        self.status = 0
        """What was answered; 0 as long as nothing was."""
        self._state: Literal["reading", "answering", "streaming", "done"] = "reading"
        self._gone: asyncio.Task[None] | None = None
        self.ended_by: Problem | None = None
        """Why it was ended, if it was."""
        self.on_end: Callable[[], object] | None = None
        """How it is ended, if not by leaving what it does."""
        self._left_by: asyncio.Task[Any] | None = None
        """The task that may leave what it does at any await, and so may be ended."""
        self._room: BodyMemory | None = None
        self._weight = 0

    # ── the request ──

    async def body(self, *, bytes_max: int, room: BodyMemory) -> bytes:
        """The whole body. Raises Refused (413, 408, 503) if it is too large, too slow or more than there is `room` for,
        ClientGone if it never ends."""
        self._room = room
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise Refused(_ENCODED)  # a few bytes could be gigabytes, and nobody has to send it so
        announced = self.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > bytes_max:
            raise _too_large(bytes_max)
        try:
            async with asyncio.timeout(limits.request_body_s):
                return await self._read(bytes_max)
        except TimeoutError:
            raise Refused(
                Problem(
                    status=408,
                    code="request_timeout",
                    message=f"the body did not come to its end within {limits.request_body_s:g} s",
                    should_retry=True,
                )
            ) from None

    async def _read(self, bytes_max: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > bytes_max:
                raise _too_large(bytes_max)
            pieces.append(piece)
            is_whole = not message.get("more_body", False)
            if size > limits.small_body_bytes and self._room is not None:
                self._weight = self._room.weigh(self._weight, size * READ if is_whole else size)
            if is_whole:
                return b"".join(pieces)

    def gone(self) -> asyncio.Task[None]:
        """A task that ends when the client has gone. Only after the body has been read."""
        if self._gone is None:
            self._gone = asyncio.create_task(self._listen())
        return self._gone

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def unless_gone(self, work: Awaitable[T]) -> T:
        """Wait for something, as long as the client does. Raises ClientGone when it has gone first."""
        gone = self.gone()
        task = asyncio.ensure_future(work)
        outer, self._left_by = self._left_by, asyncio.current_task()
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            task.cancel()
            raise
        finally:
            self._left_by = outer
        if task.done():
            try:
                return task.result()
            finally:
                del task  # which holds what is raised here, and with it this frame
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise ClientGone

    @contextmanager
    def while_present(self) -> Iterator[None]:
        """What is done in here ends when the client goes, at whatever await it is. Raises ClientGone then.

        For what may be left at any await: it costs a callback, where `unless_gone` costs a task.
        """
        gone, task = self.gone(), asyncio.current_task()
        assert task is not None
        if gone.done():
            raise ClientGone
        left, over, before = False, False, task.cancelling()
        outer, self._left_by = self._left_by, task

        def leave(_: object) -> None:
            nonlocal left
            if not over:  # it may have been called for already when the work came to its end
                left = task.cancel()

        gone.add_done_callback(leave)
        try:
            yield
        except BaseException as error:
            others = left and task.uncancel() > before  # who want the task to end, too
            if left and not others and isinstance(error, asyncio.CancelledError):
                raise ClientGone from None
            raise
        finally:
            over, self._left_by = True, outer
            gone.remove_done_callback(leave)

    def end(self, problem: Problem) -> None:
        """Its client may not go on with it. A stream ends with this problem, and so does what ends with its
        client; anything else is brief, and comes to its end."""
        if self.ended_by is None and (end := self.on_end or self._leave) is not None:
            self.ended_by = problem
            end()

    @property
    def _leave(self) -> Callable[[], object] | None:
        return None if self._left_by is None else self._left_by.cancel

    # ── the answer ──

    @property
    def state(self) -> Literal["reading", "answering", "streaming", "done"]:
        """`reading`: nothing is said, so anything can be. `streaming`: a problem can be told as an event."""
        return self._state

    async def answer(
        self,
        status: int,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        media_type: str = "application/json",
    ) -> None:
        """Answer with everything at once."""
        await self.start_answer(status, len(body), headers=headers, media_type=media_type)
        self._state = "done"
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def refuse(self, problem: Problem) -> None:
        """Answer with a problem."""
        self.code = problem.code
        await self.answer(problem.status, problem.body(), headers=problem_headers(problem))

    async def start_answer(
        self,
        status: int,
        size_bytes: int,
        *,
        headers: Mapping[str, str] | None = None,
        media_type: str = "application/json",
    ) -> None:
        """Begin an answer of this size: `hand_over` its bytes, then `finish`."""
        await self._start(
            status,
            {"content-type": media_type, "content-length": str(size_bytes), **(headers or {})},
        )

    async def start_stream(self, headers: Mapping[str, str] | None = None) -> None:
        """Begin a stream of events. Each `write` is one piece on the wire."""
        await self._start(
            200,
            {
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-cache",
                "x-accel-buffering": "no",
                **(headers or {}),
            },
        )
        self._state = "streaming"
        self._let_go()  # what it said is in the turn by now

    async def write(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    @property
    def is_writable(self) -> bool:
        """Whether a piece of a stream can be written without waiting: `write_now`."""
        return self._state == "streaming" and self._socket is not None and self._socket.is_writable

    def write_now(self, piece: bytes) -> None:
        """`write`, without waiting. Only while it `is_writable`."""
        assert self._socket is not None
        self._socket.write_piece(piece)

    async def hand_over(self, piece: bytes) -> bool:
        """Write the last bytes, and wait until the socket has taken them. False if the client has gone.

        The answer is not finished by this: the connection serves nothing else until it is.
        """
        await self.write(piece)
        if self._socket is not None:
            return await self._socket.taken()
        return not self.gone().done()

    async def finish(self) -> None:
        """End an answer that was begun."""
        self._state = "done"
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def fail(self, problem: Problem) -> None:
        """End a stream with an error, in the words of its API."""
        self.code = problem.code
        await self.write(self.say_failure(problem))
        await self.finish()

    @property
    def age_s(self) -> float:
        """How long ago the request came."""
        return time.perf_counter() - self._began

    def close(self) -> None:
        """Stop listening, and let go of the body."""
        self._let_go()
        if self._gone is not None:
            self._gone.cancel()
            self._gone = None  # what it was cancelled with leads back to us

    def upgraded(self) -> Mapping[str, str]:
        """It is no request any more: the headers that its connection begins anew with."""
        self._state, self.status = "done", 101
        return {**self.about, REQUEST_ID.name: self.request_id}

    def _let_go(self) -> None:
        if self._room is not None:
            self._room.release(self._weight)
            self._room, self._weight = None, 0

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        assert self._state == "reading", "one request, one answer"
        self._state, self.status = "answering", status
        said = {**SAFE, **headers, **self.about, REQUEST_ID.name: self.request_id}
        if self.scheme == "https":
            said["strict-transport-security"] = "max-age=31536000"
        if self.path.startswith("/v1/"):
            said[OPENAI_VERSION.name] = "2020-10-01"
            said[OPENAI_PROCESSING_MS.name] = str(round(self.age_s * 1000))
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    (name.encode("latin-1"), value.encode("latin-1"))
                    for name, value in said.items()
                ],
            }
        )


def _joined(raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name. One that comes twice is one list, as HTTP has it."""
    headers: dict[str, str] = {}
    for name_bytes, value_bytes in raw:
        name, value = name_bytes.decode("latin-1").lower(), value_bytes.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _error_frame(problem: Problem) -> bytes:
    """The one event after which nothing follows, not even `[DONE]`."""
    return data_frame(problem.body())


def _too_large(bytes_max: int) -> Refused:
    return Refused(
        Problem(
            status=413,
            code="request_too_large",
            message=f"the body is larger than {bytes_max} bytes; send less of it",
            should_retry=False,
        )
    )


_ENCODED = Problem(
    status=415,
    code="unsupported_content_encoding",
    message="bodies are taken as they are; send it without content-encoding",
    should_retry=False,
    more_headers=(("accept-encoding", "identity"),),
)


class ClientGone(Exception):
    """Nobody is there to answer."""
