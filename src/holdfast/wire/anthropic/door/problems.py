"""Errors as Anthropic's clients read them: in its envelope, with its types.

The type follows from the status. An overloaded server is 529 there, which its SDKs have a class for; our own code
stays in the body, beside the type.
"""

from __future__ import annotations

import msgspec

from holdfast.core.codec import Value
from holdfast.wire.problems import Problem, ProblemAnswer, ProblemForm
from holdfast.wire.sse import event_frame

OVERLOADED = 529
_STATUSES = {"server_overloaded": OVERLOADED}
"""The statuses of codes that have another one here."""

_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    410: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}
"""Status → type. Other statuses below 500 are `invalid_request_error`, the others `api_error`."""


class MessagesError(Value, omit_defaults=False):
    """An error in Anthropic's form, with our own code and parameter beside its type."""

    type: str
    message: str
    code: str
    param: str | None


class MessagesErrorAnswer(Value, omit_defaults=False):
    """The body of every error answer to an Anthropic client, and the last event of a stream that breaks off."""

    error: MessagesError
    type: str = "error"


def _status(problem: Problem) -> int:
    return _STATUSES.get(problem.code, problem.status)


def _type(problem: Problem) -> str:
    if problem.code == "insufficient_quota":
        return "billing_error"
    status = _status(problem)
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def _body(problem: Problem) -> bytes:
    error = MessagesError(
        type=_type(problem), message=problem.sentence, code=problem.code, param=problem.param
    )
    return msgspec.json.encode(MessagesErrorAnswer(error=error))


ANTHROPIC_PROBLEMS = ProblemForm(
    kind=MessagesErrorAnswer,
    answer=lambda problem: ProblemAnswer(status=_status(problem), body=_body(problem)),
    frames=lambda problem: event_frame("error", _body(problem)),
    statuses=_STATUSES,
)
