"""What both clients make of an answer, before anybody looks at what it says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from holdfast.client.address import Address
from holdfast.client.events import refusal
from holdfast.client.requests import Request, read
from holdfast.errors import InvalidValue, ServerRefused, ServerUnreachable
from holdfast.wire.problems import ErrorAnswer

QUIET_S = 60.0
"""How long a server may say nothing: a stream has a heartbeat every 15 s, and a busy session is waited for 30 s."""

_SENDABLE = re.compile(r"[\x20-\x7e]*")

T = TypeVar("T")


def headers_of(request: Request[object], key: str | None) -> dict[str, str]:
    """Everything that is sent beside a body."""
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
    request: Request[T], address: Address, status: int, headers: Mapping[str, str], body: bytes
) -> T:
    """The answer to a request. Raises ServerRefused, and ServerUnreachable for what is none of ours."""
    if status >= 400:
        raise refused(address, status, headers, body)
    try:
        return read(request, body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise strange(address, f"an answer that does not fit ({error})") from error


def refused(
    address: Address, status: int, headers: Mapping[str, str], body: bytes
) -> ServerRefused | ServerUnreachable:
    """What to raise for an answer that says no."""
    try:
        error = msgspec.json.decode(body, type=ErrorAnswer).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return strange(address, f"status {status}, and not in our words")
    return refusal(error, status=status, headers=headers)


def strange(address: Address, why: str | BaseException) -> ServerUnreachable:
    """What to raise for whatever is not an answer of ours."""
    told = why.strerror if isinstance(why, OSError) else None
    said = why if isinstance(why, str) else told or str(why) or type(why).__name__
    return ServerUnreachable(address.url, said)
