"""Errors as OpenAI clients read them: one envelope, four keys, a stable code, and what to do about it."""

from __future__ import annotations

from math import ceil

import msgspec

from holdfast.core.codec import Value


class Problem(Value):
    """An answer that says no. `should_retry` becomes `x-should-retry`, which SDKs obey over the status."""

    status: int
    code: str
    message: str
    kind: str = "invalid_request_error"
    param: str | None = None
    retry_after_s: float | None = None
    should_retry: bool | None = None
    more_headers: tuple[tuple[str, str], ...] = ()

    def body(self) -> bytes:
        """The envelope."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return msgspec.json.encode({"error": error})

    def headers(self) -> dict[str, str]:
        """What tells a client whether, and when, to come back."""
        found = dict(self.more_headers)
        if self.retry_after_s is not None:
            found["retry-after"] = str(max(1, ceil(self.retry_after_s)))
            found["retry-after-ms"] = str(round(self.retry_after_s * 1000))
        if self.should_retry is not None:
            found["x-should-retry"] = "true" if self.should_retry else "false"
        return found


class Refused(Exception):
    """A request that is answered with a problem. Raised while it is read, before anything began."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def bad_request(code: str, message: str, *, param: str | None = None) -> Refused:
    return Refused(Problem(status=400, code=code, message=message, param=param, should_retry=False))
