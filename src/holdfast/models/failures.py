"""What an upstream's error means: whether and when to retry, and what to tell the client. Pure.

`transient` decides whether a retry or another model is worthwhile, so in doubt it follows the status:
a server that answers 400 has read the request and will refuse it again, one that answers 503 has not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

from holdfast import limits
from holdfast.models.model import ModelFailed
from holdfast.printable import on_one_line
from holdfast.wire.headers import RETRY_AFTER, RETRY_AFTER_MS, SHOULD_RETRY
from holdfast.wire.openai.chat.chunks import ErrorObject

UNREACHABLE = "upstream_unreachable"
TIMEOUT = "upstream_timeout"
BROKE_OFF = "upstream_broke_off"
GARBLED = "upstream_garbled"

PERMANENT = frozenset(
    """
    account_deactivated authentication_error billing_error billing_hard_limit_reached content_filter
    content_policy_violation context_length_exceeded credit_balance_exhausted failed_precondition insufficient_quota invalid_api_key invalid_prompt
    model_not_found not_found_error permission_error request_too_large unsupported_parameter
    unsupported_value
    """.split()
)
"""Error codes that are permanent, with any status (OpenAI sends quotas as 429)."""

PASSING = frozenset({408, 409, 425, 429})
"""Statuses that are about the moment, not about the request. So are all of 5xx, except two:"""
UNABLE = frozenset({501, 505})

_TOO_LONG = re.compile(
    r"maximum context length|context[_ ]length|context[_ ]window|exceed_context_size|prompt is too long"
    r"|too many tokens|input is too long|input token count",
    re.IGNORECASE,
)


_THOUGHTS = re.compile(
    r"thinking` block|`redacted_thinking`|thought.?signature|encrypted content|encrypted_content"
    r"|of type 'reasoning'|item with id 'rs_",
    re.IGNORECASE,
)


def about_thoughts(failure: ModelFailed) -> bool:
    """Whether a server refuses what a model has thought before: a signature, or reasoning that it cannot read."""
    return failure.status in (400, 404) and (
        _THOUGHTS.search(f"{failure.reason} {failure.detail}") is not None
    )


_NO_CREDIT = re.compile(r"credit balance is too low", re.IGNORECASE)
"""Anthropic says so with the status and the type of a wrong request."""


def is_transient(status: int, reason: str, *, should_retry: str | None = None) -> bool:
    """Whether the same request may succeed later. `should_retry` is the upstream's own `x-should-retry`."""
    if should_retry in ("true", "false"):
        return should_retry == "true"
    if reason in PERMANENT:
        return False
    if status == 0:
        # An error in a stream that had begun: the upstream had accepted the request.
        return reason != "invalid_request_error"
    return status in PASSING or (status >= 500 and status not in UNABLE)


def retry_hint(headers: Mapping[str, str], *, now_s: float, said: str = "") -> float | None:
    """How long the upstream asks us to wait, in seconds: in a header, or in words. Header names are lower case."""
    asked = _retry_after(headers, now_s=now_s)
    if asked is None:
        asked = _until_reset(headers, now_s=now_s)
    if asked is None and (found := _TRY_AGAIN.search(said)) is not None:
        asked = _duration_s(found[1])
    return asked


_TRY_AGAIN = re.compile(r"(?:try again|retry) in ((?:\d+(?:\.\d+)?(?:ms|h|m|s))+)", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_REMAINING = re.compile(r"(\w-ratelimit)-remaining-(\w+)|(anthropic-ratelimit-[\w-]+)-remaining")


def _duration_s(text: str) -> float | None:
    """`6m0s`, `1.5s` or `120ms`, in seconds."""
    parts = _DURATION.findall(text)
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts) if parts else None


def _until_reset(headers: Mapping[str, str], *, now_s: float) -> float | None:
    """The time until the last limit is reset of which nothing remains: OpenAI sends a duration, Anthropic a time."""
    waits: list[float] = []
    for name, value in headers.items():
        if value != "0" or (found := _REMAINING.fullmatch(name)) is None:
            continue
        reset = f"{found[1]}-reset-{found[2]}" if found[1] else f"{found[3]}-reset"
        until = headers.get(reset, "")
        wait_s = _duration_s(until) if found[1] else _since_s(until, now_s)
        waits += () if wait_s is None else (wait_s,)
    return max(waits, default=None)


def _since_s(text: str, now_s: float) -> float | None:
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - now_s)
    except ValueError:
        return None


def _retry_after(headers: Mapping[str, str], *, now_s: float) -> float | None:
    for name, unit_s in ((RETRY_AFTER_MS.name, 0.001), (RETRY_AFTER.name, 1.0)):
        seconds = _number(headers.get(name, ""))
        if seconds is not None:
            return max(0.0, seconds * unit_s)
    until_s = _date_s(headers.get(RETRY_AFTER.name, ""))
    if until_s is None:
        return None
    # Relative to the upstream's own clock, if the response has a date.
    return max(0.0, until_s - (_date_s(headers.get("date", "")) or now_s))


def refused(
    status: int, error: ErrorObject, headers: Mapping[str, str], *, now_s: float
) -> ModelFailed:
    """An HTTP error, or an error in a stream, as a ModelFailed."""
    if not status and isinstance(error.code, int) and 400 <= error.code < 600:
        status = error.code
    reason = reason_of(error)
    said = bounded(error.message or "it gave no reason")
    what = f"the model's server answered {status}" if status else "the model's server failed"
    return ModelFailed(
        f"{what}: {said}",
        status=status,
        reason=reason,
        retry_after_s=retry_hint(headers, now_s=now_s, said=said if status == 429 else ""),
        transient=is_transient(status, reason, should_retry=headers.get(SHOULD_RETRY.name)),
    )


def reason_of(error: ErrorObject) -> str:
    """The upstream's error code; its error type if it sent no code."""
    kind = error.type or ""
    if _TOO_LONG.search(f"{error.code} {kind} {error.message or ''}"):
        return "context_length_exceeded"
    if _NO_CREDIT.search(error.message or ""):
        return "insufficient_quota"
    code = error.code if isinstance(error.code, str) and not error.code.isdecimal() else ""
    return (code or kind)[:100]


def bounded(text: str) -> str:
    """The beginning of an upstream's message, on one line."""
    return on_one_line(text, limits.upstream_error_chars_max)


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets: some servers repeat the API key in their errors."""
    for secret in secrets:
        text = text.replace(secret, "[key]")
    return text


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _date_s(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None
