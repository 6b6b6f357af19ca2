"""The client for asyncio, over aiohttp: the calls of `holdfast.client.sync`, to be awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Self, TypeVar, Unpack

import aiohttp

from holdfast.client.address import parse_address
from holdfast.client.answers import QUIET_S, checked, headers_of, refused, translating
from holdfast.client.events import AnswerEvent, ChatReader, TurnEventReader
from holdfast.client.methods import ClientMethods, TurnOptions, asking, watching
from holdfast.client.requests import AwaitedClient, ClientRequest, ClientStream

T = TypeVar("T")


class AsyncClient(ClientMethods, AwaitedClient):
    """A client of one server.

    Every method raises ServerRefused for an error answer, and ServerUnreachable if the server does not answer.
    Use it as a context, in one event loop, or close it.
    """

    def __init__(self, server: str, *, key: str | None = None, timeout_s: float = QUIET_S) -> None:
        """`key` is an API key, if the server wants one. Raises InvalidValue if `server` is not an address."""
        self._address = parse_address(server)
        self._key = key
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=timeout_s, sock_read=timeout_s
        )
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    def events(self, turn_id: str, *, after: int = -1) -> AsyncWatchedTurn:
        """Watch a turn of any client, from its first event or from the event after number `after`."""
        return AsyncWatchedTurn(self, turn_id, watching(turn_id, after=after))

    def ask(self, model: str, prompt: str, **manner: Unpack[TurnOptions]) -> AsyncAnswerStream:
        """Run a turn. The request is sent when the first event is awaited."""
        return AsyncAnswerStream(self, asking(model, prompt, **manner))

    # ── pieces ──

    async def _call(self, request: ClientRequest[T]) -> T:
        with translating(self._address, aiohttp.ClientError):
            async with self._send(request) as response:
                body = await response.read()
        return checked(request, self._address, response.status, _headers(response), body)

    async def _read(self, stream: ClientStream[T]) -> AsyncIterator[T]:
        reader = stream.reader
        with translating(self._address, aiohttp.ClientError):
            async with self._send(stream.request) as response:
                if response.status >= 400:
                    body = await response.read()
                    raise refused(self._address, response.status, _headers(response), body)
                for event in reader.begin(_headers(response)):
                    yield event
                async for piece in response.content.iter_any():
                    for event in reader.feed(piece):
                        yield event
                reader.end()

    def _send(self, request: ClientRequest[object]) -> aiohttp.client._RequestContextManager:
        address = self._address
        if self._http is None:
            connector = aiohttp.UnixConnector(address.socket) if address.socket else None
            self._http = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self._http.request(
            request.method,
            address.origin + address.base + request.target,
            data=request.body or None,
            headers=headers_of(request, self._key),
        )


class AsyncAnswerStream(ChatReader):
    """The events of a turn that this client requests. Iterate it once: the request is sent then.

    To stop early, close the generator (`contextlib.aclosing`): that closes the connection.
    """

    def __init__(self, client: AsyncClient, request: ClientRequest[bytes]) -> None:
        super().__init__()
        self._client = client
        self._request = request

    def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        """Raises ServerRefused if the turn fails, ServerUnreachable if the answer breaks off."""
        return self._client._read(ClientStream(self._request, self))


class AsyncWatchedTurn(TurnEventReader):
    """The events of a turn that any client began, and then its outcome."""

    def __init__(self, client: AsyncClient, turn_id: str, request: ClientRequest[bytes]) -> None:
        super().__init__(turn_id)
        self._client = client
        self._request = request

    def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        return self._client._read(ClientStream(self._request, self))


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}
