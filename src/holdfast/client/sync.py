"""The blocking client, over the standard library's http.client.

Each call has a connection of its own, so a client may be used from several threads, and nothing has to be closed.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from typing import Self, TypeVar, Unpack

from holdfast.client.address import ServerAddress, parse_address
from holdfast.client.answers import QUIET_S, checked, headers_of, refused, translating
from holdfast.client.events import AnswerEvent, ChatReader, EventReader, TurnEventReader
from holdfast.client.methods import ClientMethods, TurnOptions, asking, watching
from holdfast.client.requests import BlockingClient, ClientRequest, ClientStream

PIECE_BYTES = 64 * 1024

T = TypeVar("T")


class Client(ClientMethods, BlockingClient):
    """A client of one server.

    Every method raises ServerRefused for an error answer, and ServerUnreachable if the server does not answer.
    """

    def __init__(self, server: str, *, key: str | None = None, timeout_s: float = QUIET_S) -> None:
        """`key` is an API key, if the server wants one. Raises InvalidValue if `server` is not an address."""
        self._address = parse_address(server)
        self._key = key
        self._timeout_s = timeout_s

    def events(self, turn_id: str, *, after: int = -1) -> WatchedTurn:
        """Watch a turn of any client, from its first event or from the event after number `after`."""
        return WatchedTurn(self, turn_id, watching(turn_id, after=after))

    def ask(self, model: str, prompt: str, **manner: Unpack[TurnOptions]) -> AnswerStream:
        """Run a turn. The request is sent when the answer is entered as a context."""
        return AnswerStream(self, asking(model, prompt, **manner))

    # ── pieces ──

    def _call(self, request: ClientRequest[T]) -> T:
        with translating(self._address, http.client.HTTPException):
            with closing(self._send(request)) as connection:
                response = connection.getresponse()
                body = response.read()
        return checked(request, self._address, response.status, _headers(response), body)

    def _read(self, stream: ClientStream[T]) -> Iterator[T]:
        with translating(self._address, http.client.HTTPException):
            with closing(self._send(stream.request)) as connection:
                yield from self._received(connection, stream.reader)

    def _received(
        self, connection: http.client.HTTPConnection, reader: EventReader[T]
    ) -> Iterator[T]:
        response = connection.getresponse()
        if response.status >= 400:
            raise refused(self._address, response.status, _headers(response), response.read())
        yield from reader.begin(_headers(response))
        while piece := response.read1(PIECE_BYTES):
            yield from reader.feed(piece)
        reader.end()

    def _send(self, request: ClientRequest[object]) -> http.client.HTTPConnection:
        """Send a request, and return its connection."""
        headers = headers_of(request, self._key)
        connection = self._connect()
        try:
            target = self._address.base + request.target
            connection.request(request.method, target, body=request.body, headers=headers)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> http.client.HTTPConnection:
        address = self._address
        if address.socket:
            return _UnixConnection(address, timeout=self._timeout_s)
        if address.tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                address.host, address.port, timeout=self._timeout_s, context=context
            )
        return http.client.HTTPConnection(address.host, address.port, timeout=self._timeout_s)


class AnswerStream(ChatReader):
    """The events of a turn that this client requests. Enter it as a context, and iterate it once inside."""

    def __init__(self, client: Client, request: ClientRequest[bytes]) -> None:
        super().__init__()
        self._client = client
        self._request = request
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        with translating(self._client._address, http.client.HTTPException):
            self._connection = self._client._send(self._request)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._connection is not None, "entered before it is left"
        self._connection.close()

    def __iter__(self) -> Iterator[AnswerEvent]:
        """Raises ServerRefused if the turn fails, ServerUnreachable if the answer breaks off."""
        assert self._connection is not None, "an answer is read in its context"
        with translating(self._client._address, http.client.HTTPException):
            yield from self._client._received(self._connection, self)

    def hang_up(self) -> None:
        """Close the connection from a signal handler or another thread: the reading code gets ServerUnreachable."""
        if self._connection is not None and self._connection.sock is not None:
            try:
                self._connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the server has closed it already


class WatchedTurn(TurnEventReader):
    """The events of a turn that any client began, and then its outcome."""

    def __init__(self, client: Client, turn_id: str, request: ClientRequest[bytes]) -> None:
        super().__init__(turn_id)
        self._client = client
        self._request = request

    def __iter__(self) -> Iterator[AnswerEvent]:
        return self._client._read(ClientStream(self._request, self))


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, address: ServerAddress, *, timeout: float) -> None:
        super().__init__(address.host, timeout=timeout)
        self._path = address.socket

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}
