"""The code that a failed turn is recorded with: the one place where an upstream's error becomes ours.

A turn's row keeps a code and a sentence. The code has to say everything that an answer depends on, since the
row may be all that is left when a client asks again. So a failure gets one of our codes (`server/problems.py` has
them all) or, if the upstream refused the request itself, the upstream's own code.
"""

from __future__ import annotations

import logging

from holdfast.core.ports import OpenTurn, Play
from holdfast.errors import HoldfastError, TurnFailed
from holdfast.models.model import ModelFailed
from holdfast.server.problems import CAUSES

log = logging.getLogger("holdfast.server")

BAD_REQUEST = "upstream_bad_request"
"""The code if the upstream refused the request without a code of its own."""


class UpstreamFailed(TurnFailed):
    """A model failed, under a code that clients may match on."""

    code = "upstream_failed"

    def __init__(self, failure: ModelFailed, code: str) -> None:
        super().__init__(failure.ended_by, failure.detail, reason=code)
        self.retry_after_s = failure.retry_after_s
        self.transient = failure.transient


def with_failure_codes(play: Play) -> Play:
    """The same `play`, whose failures have a code that a client can be shown."""

    async def play_with_codes(turn: OpenTurn) -> None:
        try:
            await play(turn)
        except ModelFailed as failure:
            raise UpstreamFailed(failure, code_of(failure)) from failure
        except HoldfastError:
            raise
        except Exception as error:
            turn_id = turn.turn.request.turn_id
            log.exception("turn %s failed unexpectedly", turn_id)
            raise TurnFailed(
                "model_error",
                f"an unexpected error inside the server; its log has more about {turn_id}",
                reason="internal_error",
            ) from error

    return play_with_codes


def code_of(failure: ModelFailed) -> str:
    """The code that a client gets for an upstream's failure."""
    status, reason = failure.status, failure.reason
    if reason in _QUOTA:
        return "insufficient_quota"
    if status == 429 or (status == 0 and "rate_limit" in reason):
        return "rate_limit_exceeded"
    if status in (401, 402, 403, 404, 407) or 300 <= status < 400 or reason in _OUR_FAULT:
        return "upstream_refused"
    if status in (408, 504):
        return "upstream_timeout"
    if status in (409, 425):
        return "upstream_error"
    if 400 <= status < 500 or reason in _ABOUT_THE_REQUEST:
        return reason if reason and reason not in CAUSES else BAD_REQUEST
    return reason if reason in CAUSES else "upstream_error"


_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached", "credit_balance_exhausted"})
_OUR_FAULT = frozenset(
    {"invalid_api_key", "account_deactivated", "model_not_found", "failed_precondition"}
)
"""The operator's: a key that is not valid, a country or an account that the provider does not serve."""
_ABOUT_THE_REQUEST = frozenset(
    """
    content_filter content_policy_violation context_length_exceeded invalid_prompt invalid_request_error
    unsupported_parameter unsupported_value
    """.split()
)
