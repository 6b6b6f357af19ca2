"""One request as a value, and the two ways in which a client can send it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from functools import update_wrapper, wraps
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload
from urllib.parse import quote, urlencode

import msgspec

from holdfast.client.events import EventReader

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ClientRequest(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """One request, ready to be sent, and the type of its answer."""

    route: str
    """The label of the server's route that it is for: `GET /api/sessions/{name}`."""
    target: str
    """Path and query."""
    answer: type[T_co]
    """The type of the answer's body; `bytes` if it is a stream."""
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]


def request(
    route: str,
    answer: type[T],
    *names: str,
    query: Mapping[str, object] | None = None,
    body: msgspec.Struct | bytes = b"",
    headers: Mapping[str, str | None] | None = None,
) -> ClientRequest[T]:
    """A request for a route, with `names` in the placeholders of its path. A query or header of None is not sent."""
    path = route.partition(" ")[2]
    for name in names:
        before, _, rest = path.partition("{")
        path = before + quote(name, safe="") + rest.partition("}")[2]
    said = {name: value for name, value in (query or {}).items() if value is not None}
    sent = {name: value for name, value in (headers or {}).items() if value is not None}
    if isinstance(body, msgspec.Struct):
        sent["content-type"] = "application/json"
        body = msgspec.json.encode(body)
    return ClientRequest(
        route=route,
        target=f"{path}?{urlencode(said)}" if said else path,
        answer=answer,
        body=body,
        headers=tuple(sent.items()),
    )


# ── senders ──────────────────────────────────────────────────────────────────────────────────


class BlockingClient(ABC):
    """A client whose calls block."""

    @abstractmethod
    def _call(self, request: ClientRequest[T]) -> T:
        """Send a request, and return its whole answer."""

    @abstractmethod
    def _read(self, stream: ClientStream[T]) -> Iterator[T]:
        """Send a request when the first event is read, and yield the events as they come."""


class AwaitedClient(ABC):
    """A client whose calls are awaited."""

    @abstractmethod
    async def _call(self, request: ClientRequest[T]) -> T: ...

    @abstractmethod
    def _read(self, stream: ClientStream[T]) -> AsyncIterator[T]: ...


class ClientStream(msgspec.Struct, Generic[T], frozen=True):
    """A request whose answer is a stream, and the reader of that stream."""

    request: ClientRequest[bytes]
    reader: EventReader[T]


R = TypeVar("R")


class ClientCall(Generic[P, R]):
    """A method of both clients, from a function that makes its request.

    On a `Client` it returns the answer, or an iterator over a stream; on an `AsyncClient` a coroutine, or an async
    iterator. On the class it returns the request, and sends nothing.
    """

    def __init__(self, make: Callable[Concatenate[Any, P], R]) -> None:
        @wraps(make)
        def send(client: Any, *args: P.args, **options: P.kwargs) -> Any:
            made = make(client, *args, **options)
            return client._read(made) if isinstance(made, ClientStream) else client._call(made)

        self._make = make
        self._send = send
        update_wrapper(self, make)

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        return self._make(None, *args, **options)

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...

    @overload
    def __get__(
        self: ClientCall[P, ClientRequest[T]], client: BlockingClient, owner: type
    ) -> Callable[P, T]: ...

    @overload
    def __get__(
        self: ClientCall[P, ClientStream[T]], client: BlockingClient, owner: type
    ) -> Callable[P, Iterator[T]]: ...

    @overload
    def __get__(
        self: ClientCall[P, ClientRequest[T]], client: AwaitedClient, owner: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(
        self: ClientCall[P, ClientStream[T]], client: AwaitedClient, owner: type
    ) -> Callable[P, AsyncIterator[T]]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else MethodType(self._send, client)
