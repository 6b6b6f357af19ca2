"""What an upstream's refusal means: may it pass, when, and what shall a client be told. Pure.

`transient` decides whether a retry or another model is worth it, so it errs on the side of the status:
a server that says 400 has read the request and will say so again, one that says 503 has not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime

from holdfast import limits
from holdfast.models.model import ModelFailed
from holdfast.wire.headers import RETRY_AFTER, RETRY_AFTER_MS, SHOULD_RETRY
from holdfast.wire.openai.chat.chunks import ErrorObject

UNREACHABLE = "upstream_unreachable"
TIMEOUT = "upstream_timeout"
BROKE_OFF = "upstream_broke_off"
GARBLED = "upstream_garbled"

PERMANENT = frozenset(
    """
    account_deactivated authentication_error billing_error billing_hard_limit_reached content_filter
    content_policy_violation context_length_exceeded insufficient_quota invalid_api_key invalid_prompt
    model_not_found not_found_error permission_error request_too_large unsupported_parameter
    unsupported_value
    """.split()
)
"""Codes that mean the same tomorrow, whatever status they come with (OpenAI sends quotas as 429)."""

PASSING = frozenset({408, 409, 425, 429})
"""Refusals that are about the moment and not about the request. All of 5xx are, but two:"""
UNABLE = frozenset({501, 505})

_TOO_LONG = re.compile(
    r"maximum context length|context[_ ]length|context[_ ]window|exceed_context_size|prompt is too long"
    r"|too many tokens|input is too long|input token count",
    re.IGNORECASE,
)


def is_transient(status: int, reason: str, *, should_retry: str | None = None) -> bool:
    """Whether the same request may succeed later. `should_retry` is the upstream's own opinion."""
    if should_retry in ("true", "false"):
        return should_retry == "true"
    if reason in PERMANENT:
        return False
    if status == 0:
        # An error in a stream that had begun: the request was good enough to begin with.
        return reason != "invalid_request_error"
    return status in PASSING or (status >= 500 and status not in UNABLE)


def retry_hint(headers: Mapping[str, str], *, now_s: float) -> float | None:
    """How long an upstream wants to be left alone, in seconds. Header names in lower case."""
    for name, unit_s in ((RETRY_AFTER_MS.name, 0.001), (RETRY_AFTER.name, 1.0)):
        seconds = _number(headers.get(name, ""))
        if seconds is not None:
            return max(0.0, seconds * unit_s)
    until_s = _date_s(headers.get(RETRY_AFTER.name, ""))
    if until_s is None:
        return None
    # By the upstream's own clock, if it says what that shows.
    return max(0.0, until_s - (_date_s(headers.get("date", "")) or now_s))


def refused(
    status: int, error: ErrorObject, headers: Mapping[str, str], *, now_s: float
) -> ModelFailed:
    """The failure that an HTTP error, or an error in a stream, amounts to."""
    if not status and isinstance(error.code, int) and 400 <= error.code < 600:
        status = error.code
    reason = reason_of(error)
    said = bounded(error.message or "it gave no reason")
    what = f"the model's server answered {status}" if status else "the model's server failed"
    return ModelFailed(
        f"{what}: {said}",
        status=status,
        reason=reason,
        retry_after_s=retry_hint(headers, now_s=now_s),
        transient=is_transient(status, reason, should_retry=headers.get(SHOULD_RETRY.name)),
    )


def reason_of(error: ErrorObject) -> str:
    """The upstream's code for what happened; its kind, if it has none."""
    kind = error.type or ""
    if _TOO_LONG.search(f"{error.code} {kind} {error.message or ''}"):
        return "context_length_exceeded"
    code = error.code if isinstance(error.code, str) and not error.code.isdecimal() else ""
    return (code or kind)[:100]


def bounded(text: str) -> str:
    """An upstream's words, as much of them as is worth keeping, on one line."""
    text = " ".join(text.split())
    most = limits.upstream_error_chars_max
    return text if len(text) <= most else f"{text[: most - 1]}…"


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Some servers repeat the key that they were given. It goes no further."""
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
