"""Request headers, and the checks of an answer that both clients share: status, error body, type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from holdfast.client.address import ServerAddress
from holdfast.client.events import StreamCut, refusal
from holdfast.client.requests import ClientRequest
from holdfast.core.codec import DAMAGE, Decoder
from holdfast.errors import InvalidValue, ServerRefused, ServerUnreachable
from holdfast.wire.problems import ErrorAnswer
from holdfast.wire.sse import EventTooLong

QUIET_S = 60.0
"""How long a server may be silent: a stream has a heartbeat every 15 s, and a request waits 30 s for a busy session."""

_SENDABLE = re.compile(r"[\x20-\x7e]*")

T = TypeVar("T")


def headers_of(request: ClientRequest[object], key: str | None) -> dict[str, str]:
    """All headers of a request. Raises InvalidValue for a value that HTTP cannot carry."""
    given = {"accept": "application/json, text/event-stream", **dict(request.headers)}
    given |= {"authorization": f"Bearer {key}"} if key else {}
    for name, value in given.items():
        if _SENDABLE.fullmatch(value) is None:
            shown = "the API key" if name == "authorization" else f"{value[:60]!r}"
            raise InvalidValue(
                f"{shown} cannot be sent as {name}: only visible ASCII characters can"
            )
    return given


def checked(
    request: ClientRequest[T],
    address: ServerAddress,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
) -> T:
    """The answer to a request. Raises ServerRefused, and ServerUnreachable if it is not a Holdfast answer."""
    if status >= 400:
        raise refused(address, status, headers, body)
    try:
        decoder: Decoder[T] = Decoder(request.answer)
        return decoder.strict(body)
    except DAMAGE as error:
        raise strange(address, f"an answer that does not fit ({error})") from error


def refused(
    address: ServerAddress, status: int, headers: Mapping[str, str], body: bytes
) -> ServerRefused | ServerUnreachable:
    """The error to raise for an answer with an error status."""
    try:
        error = msgspec.json.decode(body, type=ErrorAnswer).error
    except DAMAGE:
        return strange(address, f"status {status}, without an error of Holdfast's")
    return refusal(error, status=status, headers=headers)


@contextmanager
def translating(address: ServerAddress, failure: type[Exception]) -> Iterator[None]:
    """Raise ServerUnreachable for an answer that is not Holdfast's, and for a `failure` of the HTTP library."""
    try:
        yield
    except (OSError, failure, EventTooLong, msgspec.DecodeError) as error:
        raise strange(address, error) from error
    except StreamCut as error:
        why = "the answer broke off, and what became of the turn is not known here"
        raise strange(address, why) from error


def strange(address: ServerAddress, why: str | BaseException) -> ServerUnreachable:
    """The error to raise for an answer that is not Holdfast's."""
    told = why.strerror if isinstance(why, OSError) else None
    said = why if isinstance(why, str) else told or str(why) or type(why).__name__
    return ServerUnreachable(address.url, said)
