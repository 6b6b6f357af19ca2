"""The envelope, and what tells a client whether to come back."""

from __future__ import annotations

import msgspec

from holdfast.wire.headers import problem_headers
from holdfast.wire.problems import Problem, bad_request


def test_the_envelope_has_all_four_keys() -> None:
    body = msgspec.json.decode(Problem(status=404, code="c", message="m").body())
    assert body == {
        "error": {"message": "m", "type": "invalid_request_error", "param": None, "code": "c"}
    }


def test_hints_are_headers_and_are_never_too_short() -> None:
    problem = Problem(status=429, code="c", message="m", retry_after_s=0.2, should_retry=True)
    assert problem_headers(problem) == {
        "retry-after": "1",
        "retry-after-ms": "200",
        "x-should-retry": "true",
    }
    late = Problem(status=429, code="c", message="m", retry_after_s=7.1)
    assert problem_headers(late)["retry-after"] == "8"


def test_who_does_not_know_whether_to_retry_does_not_say() -> None:
    assert problem_headers(Problem(status=500, code="c", message="m")) == {}


def test_a_bad_request_stays_one() -> None:
    problem = bad_request("c", "m", param="p").problem
    assert (problem.status, problem.param) == (400, "p")
    assert problem_headers(problem) == {"x-should-retry": "false"}
