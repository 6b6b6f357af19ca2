"""Problems as clients of the protocol read them: JSON-RPC errors, and the errors of its REST binding.

The protocol has a code, a reason and a status for its own errors, and JSON-RPC some for malformed requests. Any other
problem is a server error of JSON-RPC (-32000) whose reason is our own code. Our code, and whether to ask again, are in
the metadata of every error.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from holdfast.core.codec import Value
from holdfast.wire.a2a.forms import ProtocolVersion
from holdfast.wire.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    SERVER_ERROR,
    RpcId,
)
from holdfast.wire.problems import Problem, ProblemAnswer, ProblemForm
from holdfast.wire.sse import data_frame, event_frame

ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
DOMAIN = "a2a-protocol.org"


class ErrorKind(Value):
    """An error of the protocol."""

    code: int
    """In JSON-RPC."""
    reason: str
    name: str
    """In the REST binding of version 0.3."""
    grpc: str = ""
    """The name of its status, if it is not that of the HTTP status."""


_FAILED = "FAILED_PRECONDITION"
INVALID = ErrorKind(code=INVALID_PARAMS, reason="INVALID_PARAMS", name="InvalidParamsError")
INTERNAL = ErrorKind(code=INTERNAL_ERROR, reason="INTERNAL_ERROR", name="InternalError")

KINDS: dict[str, ErrorKind] = {
    "task_not_found": ErrorKind(code=-32001, reason="TASK_NOT_FOUND", name="TaskNotFoundError"),
    "task_not_cancelable": ErrorKind(
        code=-32002, reason="TASK_NOT_CANCELABLE", name="TaskNotCancelableError", grpc=_FAILED
    ),
    "push_notifications_unsupported": ErrorKind(
        code=-32003,
        reason="PUSH_NOTIFICATION_NOT_SUPPORTED",
        name="PushNotificationNotSupportedError",
        grpc=_FAILED,
    ),
    "operation_unsupported": ErrorKind(
        code=-32004, reason="UNSUPPORTED_OPERATION", name="UnsupportedOperationError", grpc=_FAILED
    ),
    "protocol_version_unsupported": ErrorKind(
        code=-32009, reason="VERSION_NOT_SUPPORTED", name="VersionNotSupportedError", grpc=_FAILED
    ),
    "unknown_method": ErrorKind(
        code=METHOD_NOT_FOUND, reason="METHOD_NOT_FOUND", name="MethodNotFoundError"
    ),
    "invalid_request": ErrorKind(
        code=INVALID_REQUEST, reason="INVALID_REQUEST", name="InvalidRequestError"
    ),
    "invalid_json": ErrorKind(code=PARSE_ERROR, reason="INVALID_REQUEST", name="JSONParseError"),
}
"""By our code."""

_MALFORMED = frozenset({400, 413, 415, 422})
_UNKNOWN_TO_0_3 = frozenset({-32008, -32009})

_GRPC = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    410: "NOT_FOUND",
    412: "FAILED_PRECONDITION",
    413: "INVALID_ARGUMENT",
    415: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def kind_of(problem: Problem) -> ErrorKind:
    """The protocol's error for a problem."""
    found = KINDS.get(problem.code)
    if found is not None:
        return found
    if problem.status in _MALFORMED or problem.code == "conversation_not_found":
        return INVALID
    if problem.status == 500:
        return INTERNAL
    return ErrorKind(code=SERVER_ERROR, reason=problem.code.upper(), name="A2AError")


def about(problem: Problem) -> dict[str, str]:
    """Our code, and whether and when to ask again. Texts, as the protocol has them there."""
    made = {"code": problem.code}
    if problem.param:
        made["param"] = problem.param
    if problem.should_retry is not None:
        made["shouldRetry"] = "true" if problem.should_retry else "false"
    if problem.retry_after_s is not None:
        made["retryAfterMs"] = str(round(problem.retry_after_s * 1000))
    return made


class ErrorInfo(Struct, frozen=True, kw_only=True):
    """Why a request was refused, for programs."""

    type: str = msgspec.field(name="@type", default=ERROR_INFO)
    reason: str
    domain: str = DOMAIN
    metadata: dict[str, str]


def _info(problem: Problem) -> ErrorInfo:
    return ErrorInfo(reason=kind_of(problem).reason, metadata=about(problem))


# ── JSON-RPC ─────────────────────────────────────────────────────────────────────────────────


class A2AError(Struct, frozen=True):
    code: int
    message: str
    data: list[ErrorInfo]


class A2AAnswer(Struct, frozen=True, kw_only=True):
    """An answer of JSON-RPC: it has a `result` or an `error`."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RpcId | None = None
    result: Any = UNSET
    error: A2AError | UnsetType = UNSET


def rpc_error(problem: Problem, request_id: RpcId | None, version: ProtocolVersion) -> bytes:
    """A problem as the answer to a request."""
    code = kind_of(problem).code
    if version == "0.3" and code in _UNKNOWN_TO_0_3:
        code = INTERNAL.code
    error = A2AError(code=code, message=problem.sentence, data=[_info(problem)])
    return msgspec.json.encode(A2AAnswer(id=request_id, error=error))


def rpc_problems(request_id: RpcId | None, version: ProtocolVersion) -> ProblemForm:
    """The form for a request of JSON-RPC that could be read: its errors are answers, with status 200."""

    def answer(problem: Problem) -> ProblemAnswer:
        return ProblemAnswer(status=200, body=rpc_error(problem, request_id, version))

    def frames(problem: Problem) -> bytes:
        return data_frame(rpc_error(problem, request_id, version))

    return ProblemForm(kind=A2AAnswer, answer=answer, frames=frames)


def _unread(problem: Problem) -> ProblemAnswer:
    return ProblemAnswer(status=problem.status, body=rpc_error(problem, None, "1.0"))


RPC_PROBLEMS = ProblemForm(
    kind=A2AAnswer, answer=_unread, frames=lambda problem: data_frame(_unread(problem).body)
)
"""The form for requests that are refused before they were read: with the status of HTTP."""

# ── REST ─────────────────────────────────────────────────────────────────────────────────────


class RestErrorBody(Struct, frozen=True):
    code: int
    status: str
    message: str
    details: list[ErrorInfo]


class RestError(Struct, frozen=True, omit_defaults=True):
    """An error of the REST binding. `type` and `message` are those of version 0.3."""

    error: RestErrorBody
    type: str = ""
    message: str = ""


def _rest_error(problem: Problem, version: ProtocolVersion) -> bytes:
    kind, message = kind_of(problem), problem.sentence
    status = kind.grpc or _GRPC.get(problem.status, "INTERNAL")
    body = RestErrorBody(problem.status, status, message, [_info(problem)])
    if version == "0.3":
        return msgspec.json.encode(RestError(body, kind.name, message))
    return msgspec.json.encode(RestError(body))


def _rest_problems(version: ProtocolVersion) -> ProblemForm:
    def answer(problem: Problem) -> ProblemAnswer:
        return ProblemAnswer(status=problem.status, body=_rest_error(problem, version))

    def frames(problem: Problem) -> bytes:
        # Under this name: a client would take any other event for one of its task.
        return event_frame("error", _rest_error(problem, version))

    return ProblemForm(kind=RestError, answer=answer, frames=frames)


REST_PROBLEMS = _rest_problems("1.0")
REST_PROBLEMS_0_3 = _rest_problems("0.3")
