"""Errors as OpenAI clients read them: one envelope, four keys, a stable code, and advice on what to do.

Other APIs have forms of their own for the same problems (`ProblemForm`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.codec import Value
from holdfast.wire.sse import data_frame


class ErrorBody(Value, omit_defaults=False):
    """An error in OpenAI's form. All four keys are always present."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(Value, omit_defaults=False):
    """The body of every error answer, and the last frame of a stream that breaks off."""

    error: ErrorBody


class Problem(Value):
    """An error answer. `should_retry` becomes `x-should-retry`, which SDKs obey over the status."""

    status: int
    code: str
    message: str
    kind: str = "invalid_request_error"
    param: str | None = None
    retry_after_s: float | None = None
    should_retry: bool | None = None
    more_headers: tuple[tuple[str, str], ...] = ()
    advice: str = ""
    """A sentence that is true now and may not be later. A stored Response, which never changes, leaves it out."""

    @property
    def sentence(self) -> str:
        """The message, with the advice if there is any."""
        return f"{self.message} {self.advice}" if self.advice else self.message

    def body(self) -> bytes:
        """OpenAI's envelope."""
        error = ErrorBody(message=self.sentence, type=self.kind, param=self.param, code=self.code)
        return msgspec.json.encode(ErrorAnswer(error=error))


class ProblemAnswer(Value):
    """A problem as an HTTP answer."""

    status: int
    body: bytes
    media_type: str = "application/json"


class ProblemForm(Value):
    """The form in which an API answers problems."""

    kind: type[msgspec.Struct]
    """The type of the body, for the document that describes the API."""
    answer: Callable[[Problem], ProblemAnswer]
    """Makes the answer, if nothing was sent yet."""
    frames: Callable[[Problem], bytes]
    """Makes the last frames of a stream that has begun and then failed."""
    statuses: Mapping[str, int] = {}
    """The statuses of codes that have another one in this API."""


def _envelope(problem: Problem) -> ProblemAnswer:
    return ProblemAnswer(status=problem.status, body=problem.body())


def _error_frame(problem: Problem) -> bytes:
    """The error event that ends a stream; nothing follows it, not even `[DONE]`."""
    return data_frame(problem.body())


OPENAI_PROBLEMS = ProblemForm(kind=ErrorAnswer, answer=_envelope, frames=_error_frame)
"""The form of `/v1` and `/api`."""

BusyStatus: TypeAlias = Literal[409, 400]
"""The status of a busy conversation: 409, which every SDK retries, or 400 as the hosted service has it."""


def busy(message: str, *, status: BusyStatus, retry_after_s: float) -> Problem:
    """Another turn holds the conversation, and the client should retry: the headers say so with either status.

    A 400 has the hosted service's message, for clients that recognise it.
    """
    hosted = status == 400
    return Problem(
        status=status,
        code="conversation_locked",
        message=HOSTED_BUSY if hosted else message,
        kind="invalid_request_error" if hosted else "conflict_error",
        param="conversation",
        retry_after_s=retry_after_s,
        should_retry=True,
    )


HOSTED_BUSY = (
    "Another process is currently operating on this conversation. Please retry in a few seconds."
)


def permanent(
    status: int,
    code: str,
    message: str,
    *,
    kind: str = "invalid_request_error",
    param: str | None = None,
    more_headers: tuple[tuple[str, str], ...] = (),
) -> Problem:
    """A problem that the same request would meet again."""
    return Problem(
        status=status,
        code=code,
        message=message,
        kind=kind,
        param=param,
        should_retry=False,
        more_headers=more_headers,
    )


def too_many(message: str, *, code: str = "concurrency_limit_exceeded") -> Problem:
    """The caller has as many of something as it may have at once; one of them will end."""
    return Problem(
        status=429,
        code=code,
        message=message,
        kind="requests",
        retry_after_s=1.0,
        should_retry=True,
    )


class Refused(Exception):
    """A request is answered with a problem. Raised while the request is parsed, before anything has begun."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def bad_request(code: str, message: str, *, param: str | None = None) -> Refused:
    return Refused(permanent(400, code, message, param=param))


def not_found(code: str, message: str, *, param: str | None = None) -> Refused:
    return Refused(permanent(404, code, message, param=param))
