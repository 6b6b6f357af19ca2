"""Where a browser ends after a login: an address on this machine that is there for as long as the login takes.

Only a request with the login's own `state` counts. Any other is refused, and the login waits on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import compare_digest
from urllib.parse import parse_qs, urlsplit

from holdfast.core.codec import Value

PATH = "/callback"
_REQUEST_BYTES_MAX = 16_384


class LoginFailed(Exception):
    """There is no login; the message says why."""


class Callback(Value):
    """What an authorization server sends with the browser: RFC 6749, section 4.1.2, and RFC 9207."""

    state: str
    code: str = ""
    iss: str | None = None
    error: str = ""


def callback_in(address: str, *, state: str) -> Callback:
    """The callback of an address that a browser ended at. Raises LoginFailed if it is of another login, or refused."""
    _, said = _parsed(address)
    if not compare_digest(said.get("state", "").encode(), state.encode()):
        raise LoginFailed("the answer is not for this login: its state is another one")
    if error := said.get("error"):
        raise LoginFailed(f"the server refused: {said.get('error_description', error)[:300]}")
    if not said.get("code"):
        raise LoginFailed("the answer has no code")
    return Callback(state=said["state"], code=said["code"], iss=said.get("iss"))


def _parsed(address: str) -> tuple[str, dict[str, str]]:
    """The path and the query of an address; of one that is none, nothing."""
    try:
        parts = urlsplit(address)
        return parts.path, {name: values[-1] for name, values in parse_qs(parts.query).items()}
    except ValueError:
        return "", {}


class CallbackAddress:
    """Waits for the browser."""

    def __init__(self, state: asyncio.Future[str]) -> None:
        self._state = state
        self._found: asyncio.Future[Callback] = asyncio.get_running_loop().create_future()
        self.port = 0

    async def wait(self) -> Callback:
        """The callback. Raises LoginFailed if the authorization server refuses."""
        return await self._found

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            status, words = self._judged(head.split(b"\r\n", 1)[0].decode("latin-1"))
            page = f"<!doctype html><meta charset=utf-8><title>Holdfast</title><p>{words}</p>"
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n"
                f"Content-Length: {len(page.encode())}\r\nConnection: close\r\n\r\n{page}".encode()
            )
            await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # a browser that went away, or no browser
        finally:
            writer.close()

    def _judged(self, request_line: str) -> tuple[str, str]:
        method, _, rest = request_line.partition(" ")
        address = rest.partition(" ")[0]
        path, query = _parsed(address)
        if method != "GET" or path != PATH or not self._state.done():
            return "404 Not Found", "There is nothing here."
        said = query.get("state", "")
        if not compare_digest(said.encode(), self._state.result().encode()):
            return "400 Bad Request", "This is not the answer to the login that is under way."
        if not self._found.done():
            try:
                self._found.set_result(callback_in(address, state=said))
            except LoginFailed as error:
                self._found.set_exception(error)
                return "400 Bad Request", "The login was refused; the terminal says why."
        return "200 OK", "You are logged in. You can close this window."


@asynccontextmanager
async def callback_address(state: asyncio.Future[str], port: int) -> AsyncIterator[CallbackAddress]:
    """An address on this machine for the login whose `state` is known soon; `port` 0: any free one. Raises LoginFailed."""
    address = CallbackAddress(state)
    try:
        server = await asyncio.start_server(
            address.answer, "127.0.0.1", port, limit=_REQUEST_BYTES_MAX
        )
    except OSError as error:
        raise LoginFailed(
            f"port {port} cannot be used for the callback: {error.strerror}"
        ) from error
    async with server:
        address.port = server.sockets[0].getsockname()[1]
        yield address
