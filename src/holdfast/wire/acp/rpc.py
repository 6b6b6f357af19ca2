"""JSON-RPC 2.0 as the Agent Client Protocol has it: one message a line, requests in both directions.

A line that is no message of the protocol becomes `BadMessage`, which says what to answer; it is never an exception, so
one bad line does not end a connection.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core.codec import DAMAGE, Value, encode
from holdfast.wire.body_parser import BodyDecoder
from holdfast.wire.json_rpc import INVALID_REQUEST, PARSE_ERROR, RpcId, RpcNotification, RpcRequest

AUTH_REQUIRED = -32000
RESOURCE_NOT_FOUND = -32002


class RpcError(Value):
    """Why a request has no result."""

    code: int
    message: str
    data: Raw = Raw(b"null")


class RpcAnswer(Value):
    """The answer to a request of ours: a result, or an error."""

    id: RpcId
    result: Raw = Raw(b"null")
    error: RpcError | None = None


class BadMessage(Value):
    """A line that is no message. `id` is the id that its answer needs, null if it has none."""

    id: RpcId | None
    error: RpcError


Received: TypeAlias = RpcRequest | RpcNotification | RpcAnswer | BadMessage


class _Line(Struct, frozen=True):
    jsonrpc: str = ""
    id: RpcId | UnsetType | None = UNSET
    method: str | None = None
    params: Raw = Raw(b"{}")
    result: Raw = Raw(b"null")
    error: RpcError | None = None


_lines: BodyDecoder[_Line] = BodyDecoder(_Line)


def read_line(line: bytes) -> Received:
    """The message in a line."""
    try:
        said = _lines.decode(line)
    except msgspec.ValidationError as error:
        return _bad(None, INVALID_REQUEST, str(error))
    except DAMAGE as error:
        return _bad(None, PARSE_ERROR, f"this line is not JSON: {error}")
    given = None if said.id is UNSET else said.id
    if said.jsonrpc != "2.0":
        return _bad(given, INVALID_REQUEST, 'a message has "jsonrpc": "2.0"')
    if said.method is None:
        if given is None:
            return _bad(None, INVALID_REQUEST, "a message has a method, or the id of a request")
        return RpcAnswer(id=given, result=said.result, error=said.error)
    if said.id is UNSET:
        return RpcNotification(method=said.method, params=said.params)
    if given is None:
        return _bad(None, INVALID_REQUEST, "the id of a request is a number or a text")
    return RpcRequest(id=given, method=said.method, params=said.params)


def _bad(given: RpcId | None, code: int, why: str) -> BadMessage:
    return BadMessage(id=given, error=RpcError(code=code, message=why))


# ── lines to be sent ─────────────────────────────────────────────────────────────────────────


class _Request(Struct, frozen=True):
    id: int
    method: str
    params: object
    jsonrpc: Literal["2.0"] = "2.0"


class _Notification(Struct, frozen=True):
    method: str
    params: object
    jsonrpc: Literal["2.0"] = "2.0"


class _Result(Struct, frozen=True):
    id: RpcId
    result: object
    jsonrpc: Literal["2.0"] = "2.0"


class _Failure(Struct, frozen=True):
    id: RpcId | None
    error: RpcError
    jsonrpc: Literal["2.0"] = "2.0"


def request_line(number: int, method: str, params: Struct) -> bytes:
    return encode(_Request(number, method, params)) + b"\n"


def notification_line(method: str, params: Struct) -> bytes:
    return encode(_Notification(method, params)) + b"\n"


def result_line(given: RpcId, result: Struct) -> bytes:
    return encode(_Result(given, result)) + b"\n"


def error_line(given: RpcId | None, error: RpcError) -> bytes:
    return encode(_Failure(given, error)) + b"\n"
