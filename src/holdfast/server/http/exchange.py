"""One HTTP request and its one answer, over ASGI.

At most one answer is written, in every case: starting a second one is a bug and raises. A client that disconnects is
noticed in every phase, because a task always listens for it (`gone`): no framework does that for a handler that has
not begun to answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import unquote

from holdfast import limits
from holdfast.server.http.body_memory import READ, BodyMemory
from holdfast.wire.api_forms import api_form_of
from holdfast.wire.conversation_names import BASE, named_path
from holdfast.wire.headers import REQUEST_ID, problem_headers
from holdfast.wire.problems import Problem, ProblemForm, Refused, permanent

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

CONNECTION = "holdfast.connection"
"""The ASGI extension that holds the connection, which knows more than ASGI tells."""

SAFE: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}
"""Headers for browsers, on every answer that does not replace them: run nothing, cache nothing, frame nothing, send no
referrer."""

T = TypeVar("T")


class Socket(Protocol):
    """The connection that an exchange came by."""

    async def taken(self) -> bool:
        """Wait until the socket has taken everything written so far. False if it never will."""
        ...

    @property
    def is_writable(self) -> bool:
        """Whether a piece of the answer that is streamed now can be written without waiting."""
        ...

    def write_piece(self, piece: bytes) -> None:
        """Write a piece. Only while the connection `is_writable`."""
        ...

    @property
    def body_is_whole(self) -> bool:
        """Whether all of the request's body has arrived."""
        ...

    def start_now(self, status: int, headers: Mapping[str, str]) -> bool:
        """Write the head of an answer with a known length. False if it cannot be written now: then nothing was."""
        ...

    def end_by_closing(self) -> None:
        """Write the next answer without chunks; the end of the connection is its end."""
        ...

    def all_is_written(self) -> None:
        """Let an answer without chunks end with its next piece."""
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
        """The path as it was sent: `%2F` is not a slash yet."""
        self.conversation: str | None = None
        """The conversation that the base URL names; the path is without it, as logs, metrics and spans are."""
        if self.raw_path.startswith(BASE):
            self._take_name()
        self.query: bytes = scope["query_string"]
        self.headers = _joined(scope["headers"])
        self.request_id = request_id
        self.about: dict[str, str] = {}
        """Headers that the answer will have, be it a success or a problem."""
        self.form = api_form_of(self.path, self.headers)
        """The API that the client speaks, as its path and its headers tell."""
        self.problem_answer = self.form.problems.answer
        """Makes the answer of a problem, if nothing was sent yet."""
        self.failure_frames = self.form.problems.frames
        """Makes the last frames of a stream that has begun and then failed."""
        self._socket: Socket | None = (scope.get("extensions") or {}).get(CONNECTION)
        self.audit: tuple[str, str] | None = None
        """What the request did that belongs in the audit log, and to what, if its route alone does not say so."""
        self.code = ""
        """The code of the problem that was answered; empty if none was."""
        self.status = 0
        """The status that was answered; 0 until then."""
        self._state: Literal["reading", "answering", "streaming", "done"] = "reading"
        self._gone: asyncio.Task[None] | None = None
        self.ended_by: Problem | None = None
        """Why the server ended this exchange, if it did."""
        self.on_end: Callable[[], object] | None = None
        """Called to end this exchange; None: its task is cancelled."""
        self._cancellable_task: asyncio.Task[Any] | None = None
        """The task of this exchange while it may be cancelled at any await."""
        self._room: BodyMemory | None = None
        self._weight = 0

    def _take_name(self) -> None:
        named = named_path(self.raw_path)
        if named is not None:
            self.conversation, self.raw_path = named.name, named.path
            self.path = unquote(named.path)

    # ── the request ──

    async def body(self, *, bytes_max: int, room: BodyMemory) -> bytes:
        """The whole body. Raises Refused (413, 408, 503) if it is too large, too slow or more than there is `room` for,
        ClientGone if the client disconnects before its end."""
        self._room = room
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise Refused(_ENCODED)  # a few bytes could become gigabytes, and no client needs it
        announced = self.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > bytes_max:
            raise _too_large(bytes_max)
        if self._socket is not None and self._socket.body_is_whole:  # nearly always
            return await self._read(bytes_max)
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
        """A task that ends when the client has disconnected. Only after the body has been read."""
        if self._gone is None:
            self._gone = asyncio.create_task(self._listen())
        return self._gone

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def unless_gone(self, work: Awaitable[T]) -> T:
        """Wait for `work`. If the client disconnects first, cancel it and raise ClientGone."""
        gone = self.gone()
        task = asyncio.ensure_future(work)
        outer, self._cancellable_task = self._cancellable_task, asyncio.current_task()
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            task.cancel()
            raise
        finally:
            self._cancellable_task = outer
        if task.done():
            try:
                return task.result()
            finally:
                del task  # it holds the exception, which holds this frame
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise ClientGone

    @contextmanager
    def while_present(self) -> Iterator[None]:
        """Cancel the block at its current await when the client disconnects. Raises ClientGone then.

        Only for a block that may be cancelled at any await: it costs a callback, where `unless_gone` costs a task.
        """
        gone, task = self.gone(), asyncio.current_task()
        assert task is not None
        if gone.done():
            raise ClientGone
        left, over, before = False, False, task.cancelling()
        outer, self._cancellable_task = self._cancellable_task, task

        def leave(_: object) -> None:
            nonlocal left
            if not over:  # this callback may have been scheduled just before the block ended
                left = task.cancel()

        gone.add_done_callback(leave)
        try:
            yield
        except BaseException as error:
            others = left and task.uncancel() > before  # something else has cancelled the task, too
            if left and not others and isinstance(error, asyncio.CancelledError):
                raise ClientGone from None
            raise
        finally:
            over, self._cancellable_task = True, outer
            gone.remove_done_callback(leave)

    def end(self, problem: Problem) -> None:
        """End this exchange, because its client may not continue it. A stream, and any work that a disconnect would
        cancel, ends with this problem; any other request is brief, and is answered."""
        if self.ended_by is None and (end := self.on_end or self._leave) is not None:
            self.ended_by = problem
            end()

    @property
    def _leave(self) -> Callable[[], object] | None:
        return None if self._cancellable_task is None else self._cancellable_task.cancel

    # ── the answer ──

    @property
    def state(self) -> Literal["reading", "answering", "streaming", "done"]:
        """`reading`: no answer has begun, so any can. `streaming`: a problem can still be sent as an event."""
        return self._state

    async def answer(
        self,
        status: int,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        media_type: str = "application/json",
    ) -> None:
        """Send a whole answer at once."""
        await self.start_answer(status, len(body), headers=headers, media_type=media_type)
        self._state = "done"
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def refuse(self, problem: Problem) -> None:
        """Answer with a problem."""
        self.code = problem.code
        told = self.problem_answer(problem)
        await self.answer(
            told.status, told.body, headers=problem_headers(problem), media_type=told.media_type
        )

    def answer_problems_in(self, form: ProblemForm) -> None:
        """Answer problems in the form of another API from here on."""
        self.problem_answer, self.failure_frames = form.answer, form.frames

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
        if self.http_version == "1.0" and self._socket is not None:
            self._socket.end_by_closing()
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
        self._free_body()  # the turn has all of the body by now

    async def write(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    @property
    def is_writable(self) -> bool:
        """Whether `write_now` may be called: a piece of a stream can be written without waiting."""
        return self._state == "streaming" and self._socket is not None and self._socket.is_writable

    def write_now(self, piece: bytes) -> None:
        """`write`, without waiting. Only while the exchange `is_writable`."""
        assert self._socket is not None
        self._socket.write_piece(piece)

    async def hand_over(self, piece: bytes) -> bool:
        """Write the last bytes, and wait until the socket has taken them. False if the client has disconnected.

        This does not finish the answer: until `finish`, the connection serves no other request.
        """
        await self.write(piece)
        if self._socket is not None:
            return await self._socket.taken()
        return not self.gone().done()

    async def finish(self) -> None:
        """End an answer that was begun."""
        if self._state == "streaming" and self.http_version == "1.0" and self._socket is not None:
            self._socket.all_is_written()
        self._state = "done"
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def fail(self, problem: Problem) -> None:
        """End a stream with an error, in the form of its API."""
        self.code = problem.code
        await self.write(self.failure_frames(problem))
        await self.finish()

    @property
    def age_s(self) -> float:
        """How long ago the request arrived."""
        return time.perf_counter() - self._began

    def close(self) -> None:
        """Stop listening for a disconnect, and free the body's memory."""
        self._free_body()
        if self._gone is not None:
            self._gone.cancel()
            self._gone = None  # the cancelled task refers to this exchange

    def upgraded(self) -> Mapping[str, str]:
        """Note that the connection becomes a WebSocket, and return the headers that open it."""
        self._state, self.status = "done", 101
        return {**self.about, REQUEST_ID.name: self.request_id}

    def _free_body(self) -> None:
        if self._room is not None:
            self._room.release(self._weight)
            self._room, self._weight = None, 0

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        assert self._state == "reading", "one request, one answer"
        self._state, self.status = "answering", status
        common = self.form.headers(self.request_id, round(self.age_s * 1000))
        said = {**SAFE, **headers, **self.about, REQUEST_ID.name: self.request_id, **common}
        if self.scheme == "https":
            said["strict-transport-security"] = "max-age=31536000"
        if self._socket is not None and self._socket.start_now(status, said):
            return
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
    """Headers by lower-case name. Values of a repeated header are joined by commas, as HTTP says."""
    headers: dict[str, str] = {}
    for name_bytes, value_bytes in raw:
        name, value = name_bytes.decode("latin-1").lower(), value_bytes.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _too_large(bytes_max: int) -> Refused:
    message = f"the body is larger than {bytes_max} bytes; send less of it"
    return Refused(permanent(413, "request_too_large", message))


_ENCODED = permanent(
    415,
    "unsupported_content_encoding",
    "bodies are taken as they are; send it without content-encoding",
    more_headers=(("accept-encoding", "identity"),),
)


class ClientGone(Exception):
    """The client has disconnected, so there is no one to answer."""
