"""JSON-RPC 2.0 as MCP uses it: one message in a body."""

from __future__ import annotations

from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core.codec import DAMAGE, Value
from holdfast.wire.body_parser import BodyDecoder
from holdfast.wire.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RpcId,
    RpcNotification,
    RpcRequest,
)
from holdfast.wire.problems import Problem, ProblemAnswer, ProblemForm
from holdfast.wire.sse import data_frame

HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

STATUS: Final = {METHOD_NOT_FOUND: 404, INTERNAL_ERROR: 500}
"""The HTTP statuses that go with errors of the current revision; 400 with every other one."""

T = TypeVar("T")


class McpFault(Exception):
    """A message is answered with an error of the protocol."""

    def __init__(
        self, code: int, message: str, *, data: object = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status
        """The HTTP status, if it does not follow from the code and the revision."""


class McpRequest(RpcRequest):
    """A request of a client."""

    def read(self, kind: type[T]) -> T:
        """The parameters as this type. Raises McpFault."""
        try:
            return msgspec.json.decode(self.params, type=kind)
        except DAMAGE as error:
            raise McpFault(INVALID_PARAMS, f"{self.method}: {error}") from error


class McpReply(Value):
    """A client's answer to a request of ours."""

    id: RpcId
    result: Raw | None
    """None: the client answers with an error."""


McpMessage: TypeAlias = McpRequest | RpcNotification | McpReply


class McpBody(Struct):
    """A message as it is sent: a request, a notification, or the answer to a request."""

    jsonrpc: str
    id: RpcId | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_body_decoder: BodyDecoder[McpBody] = BodyDecoder(McpBody)
_NOTHING: Final = Raw(b"{}")


def read_message(body: bytes) -> McpMessage:
    """The message in a body. Raises McpFault."""
    try:
        body.decode()  # msgspec does not check the text of `Raw` parts
        said = _body_decoder.decode(body)
    except msgspec.ValidationError as error:
        raise McpFault(INVALID_REQUEST, f"this is not one message of JSON-RPC: {error}") from error
    except DAMAGE as error:
        raise McpFault(PARSE_ERROR, f"this is not JSON: {error}") from error
    if said.jsonrpc != "2.0":
        raise McpFault(INVALID_REQUEST, 'jsonrpc must be "2.0"')
    params = _NOTHING if said.params is UNSET else said.params
    if not bytes(params).lstrip().startswith(b"{"):
        raise McpFault(INVALID_REQUEST, "params must be an object")
    if said.method is UNSET:
        if said.id is UNSET or (said.result is UNSET and said.error is UNSET):
            raise McpFault(INVALID_REQUEST, "a message needs a method, or an id and a result")
        return McpReply(id=said.id, result=None if said.result is UNSET else said.result)
    if said.id is UNSET:
        return RpcNotification(method=said.method, params=params)
    return McpRequest(id=said.id, method=said.method, params=params)


# ── what we say ──────────────────────────────────────────────────────────────────────────────


def result_of(request_id: RpcId, result: object) -> bytes:
    """The answer to a request."""
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def fault_of(request_id: RpcId | None, fault: McpFault) -> bytes:
    """The error that answers a request; without an id if the request could not be read."""
    return _error(request_id, fault.code, fault.message, fault.data)


def _error(request_id: RpcId | None, code: int, message: str, data: object) -> bytes:
    told = UNSET if data is None else Raw(msgspec.json.encode(data))
    error = McpErrorBody(code=code, message=message, data=told)
    return msgspec.json.encode(McpErrorAnswer(jsonrpc="2.0", id=request_id, error=error))


class McpErrorBody(Value, omit_defaults=False):
    """An error of JSON-RPC."""

    code: int
    message: str
    data: Raw | UnsetType = UNSET


class McpAnswer(Value, omit_defaults=False):
    """The body of an answer to a request: its result or, to clients before 2026-07-28, also an error."""

    jsonrpc: str
    id: RpcId
    result: dict[str, Raw] | UnsetType = UNSET
    error: McpErrorBody | UnsetType = UNSET


class McpErrorAnswer(Value, omit_defaults=False):
    """The body of an answer to a message that was refused, or met a fault of the server."""

    jsonrpc: str
    id: RpcId | None
    error: McpErrorBody


def mcp_problems(request_id: RpcId | None) -> ProblemForm:
    """The form of problems in the answer to this request: errors of JSON-RPC whose data has our code."""

    def body(problem: Problem) -> bytes:
        return _error(request_id, INTERNAL_ERROR, problem.sentence, {"code": problem.code})

    return ProblemForm(
        kind=McpErrorAnswer,
        answer=lambda problem: ProblemAnswer(status=problem.status, body=body(problem)),
        frames=lambda problem: data_frame(body(problem)),
    )


def request_frame(request_id: RpcId, method: str, params: object) -> bytes:
    """A request of ours to the client, as an event of a stream."""
    return data_frame(
        msgspec.json.encode(
            {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        )
    )


def notification_frame(method: str, params: object) -> bytes:
    """A notification, as an event of a stream."""
    return data_frame(msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params}))
