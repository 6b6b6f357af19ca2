"""What an upstream's refusal means."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast import limits
from holdfast.models.failures import (
    bounded,
    is_transient,
    reason_of,
    refused,
    retry_hint,
    without_secrets,
)
from holdfast.server.problems import CAUSES
from holdfast.server.turns.turn_failures import code_of
from holdfast.wire.google.stream_parser import read_error as read_google_error
from holdfast.wire.openai.chat.chunks import ErrorObject

NOW_S = 1_445_412_480.0  # Wed, 21 Oct 2015 07:28:00 GMT


@pytest.mark.parametrize("status", [0, 408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_what_is_about_the_moment_can_pass(status: int) -> None:
    assert is_transient(status, "")


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422, 501, 505])
def test_what_is_about_the_request_cannot(status: int) -> None:
    assert not is_transient(status, "")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (429, "insufficient_quota"),
        (500, "context_length_exceeded"),
        (0, "invalid_request_error"),
        (0, "content_policy_violation"),
    ],
)
def test_some_codes_mean_the_same_tomorrow(status: int, reason: str) -> None:
    assert not is_transient(status, reason)


def test_a_status_says_more_than_a_kind_of_error() -> None:
    """Hosted OpenAI calls a locked conversation an invalid request."""
    assert is_transient(409, "invalid_request_error")
    assert not is_transient(400, "invalid_request_error")


def test_the_upstream_knows_best() -> None:
    assert is_transient(400, "", should_retry="true")
    assert not is_transient(503, "", should_retry="false")
    assert is_transient(503, "", should_retry="perhaps")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "2"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:27:00 GMT"}, 0.0),
        (
            {
                "retry-after": "Thu, 01 Jan 2026 00:00:09 GMT",
                "date": "Thu, 01 Jan 2026 00:00:00 GMT",
            },
            9.0,
        ),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:30 GMT"}, None),
    ],
)
def test_hints_come_in_several_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_hint(headers, now_s=NOW_S) == seconds


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ErrorObject(code="rate_limit_exceeded", type="tokens"), "rate_limit_exceeded"),
        (ErrorObject(type="server_error"), "server_error"),
        (ErrorObject(code=429, type="rate_limit_error"), "rate_limit_error"),
        (ErrorObject(code="400", type="BadRequestError"), "BadRequestError"),
        (ErrorObject(), ""),
        (ErrorObject(code="context_length_exceeded"), "context_length_exceeded"),
        (
            ErrorObject(message="This model's maximum context length is 8192 tokens.", code=400),
            "context_length_exceeded",
        ),
        (ErrorObject(type="exceed_context_size_error"), "context_length_exceeded"),
        (ErrorObject(message="prompt is too long: 9 tokens > 8"), "context_length_exceeded"),
    ],
)
def test_a_reason_is_a_stable_word(error: ErrorObject, reason: str) -> None:
    assert reason_of(error) == reason


def test_a_refusal_keeps_what_the_upstream_said() -> None:
    error = ErrorObject(message="Slow\n down.", code="rate_limit_exceeded")
    failure = refused(429, error, {"retry-after": "7"}, now_s=NOW_S)
    assert (failure.status, failure.reason) == (429, "rate_limit_exceeded")
    assert failure.retry_after_s == 7.0
    assert failure.transient
    assert failure.detail == "the model's server answered 429: Slow down."


def test_an_error_in_a_stream_may_bring_its_own_status() -> None:
    failure = refused(0, ErrorObject(message="no", code=402), {}, now_s=NOW_S)
    assert (failure.status, failure.transient) == (402, False)
    assert refused(0, ErrorObject(message="no", code=7), {}, now_s=NOW_S).status == 0


def test_long_words_are_cut() -> None:
    assert len(bounded("x" * 99_999)) == limits.upstream_error_chars_max
    assert "no reason" in refused(500, ErrorObject(), {}, now_s=NOW_S).detail


def test_secrets_go_no_further() -> None:
    assert without_secrets("key sk-123 is wrong: sk-123", ["sk-123"]) == "key [key] is wrong: [key]"


@pytest.mark.parametrize(
    ("headers", "said", "seconds"),
    [
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, "", 360.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "120ms"}, "", 0.12),
        ({"x-ratelimit-remaining-tokens": "7", "x-ratelimit-reset-tokens": "9s"}, "", None),
        (
            {
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-11-18T10:00:30Z",
            },
            "",
            30.0,
        ),
        ({"anthropic-ratelimit-requests-remaining": "0"}, "", None),
        ({"retry-after": "3"}, "Please try again in 20s.", 3.0),
        ({}, "Rate limit reached. Please try again in 1m2.5s. Visit our page.", 62.5),
        ({}, "Please try again later", None),
    ],
)
def test_each_vendor_says_in_its_own_way_when_to_come_back(
    headers: dict[str, str], said: str, seconds: float | None
) -> None:
    now_s = datetime(2026, 11, 18, 10, tzinfo=UTC).timestamp()
    failure = refused(429, ErrorObject(message=said), headers, now_s=now_s)
    assert failure.retry_after_s == pytest.approx(seconds)


def test_an_account_without_credit_is_not_a_wrong_request() -> None:
    """Anthropic says it with status 400, and a client could do nothing about it."""
    words = "Your credit balance is too low to access the Anthropic API."
    error = ErrorObject(message=words, type="invalid_request_error")
    failure = refused(400, error, {}, now_s=0.0)
    assert (failure.reason, failure.transient) == ("insufficient_quota", False)
    assert code_of(failure) == "insufficient_quota"


def test_a_key_that_gemini_does_not_know_is_the_operators_fault() -> None:
    """Gemini says it with status 400; the client of an agent has no key to correct."""
    body = (
        b'{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.",'
        b'"status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo",'
        b'"reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}'
    )
    read = read_google_error(body)
    assert read is not None
    failure = refused(400, read[0], {}, now_s=0.0)
    assert (failure.reason, failure.transient) == ("invalid_api_key", False)
    assert code_of(failure) == "upstream_refused"
    assert CAUSES["upstream_refused"].status == 502
