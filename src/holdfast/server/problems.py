"""Problems: the HTTP answers for our errors and for turns that did not succeed. They are decided here and nowhere else.

`x-should-retry` is `true` only if the cause can pass and a retry is safe: the turn has neither acted nor committed
anything, or the retry continues what was committed. It is `false` on permanent errors and after acting. SDKs obey it
over the status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.items import EndedBy
from holdfast.core.turns.unfinished_turns import may_pass
from holdfast.errors import (
    AgentUnavailable,
    CannotContinue,
    HoldfastError,
    ImportConflict,
    InDoubt,
    InvalidValue,
    KeyReused,
    ModelNotFound,
    NameTaken,
    QueueFull,
    SessionBusy,
    SessionConflict,
    SessionGone,
    SessionMissing,
    StorageFull,
    StoreDamaged,
    StoreError,
    StoreReadOnly,
    TurnRejected,
)
from holdfast.ids import TurnId
from holdfast.sessions.session_requests import Ending
from holdfast.wire.headers import CONVERSATION_VERSION, IDEMPOTENCY_KEY, IF_MATCH, ON_BUSY
from holdfast.wire.problems import BusyStatus, Problem, busy, permanent

STORE_RETRY_S = 2.0
ENDED_RETRY_S = 1.0

APPROVALS_OVER = frozenset({"approval_closed", "approval_expired"})
"""Reasons for refusing an approval that is valid but comes too late."""


# ── requests that could not begin ────────────────────────────────────────────────────────────


def problem_of(error: HoldfastError, *, busy_status: BusyStatus = 409) -> Problem:
    """The answer to a request that could not begin."""
    message = str(error)
    match error:
        case SessionBusy():
            return busy(message, status=busy_status, retry_after_s=error.retry_after_s)
        case QueueFull():
            return Problem(
                status=429 if error.yours else 503,
                code="concurrency_limit_exceeded" if error.yours else error.code,
                message=message,
                kind="requests" if error.yours else "server_error",
                retry_after_s=error.retry_after_s,
                should_retry=True,
            )
        case SessionConflict():
            version = ((CONVERSATION_VERSION.name, str(error.found)),)
            return permanent(412, error.code, message, param=IF_MATCH.name, more_headers=version)
        case ImportConflict() | NameTaken():
            return permanent(409, error.code, message, kind="conflict_error")
        case SessionMissing():
            return _missing(error)
        case SessionGone():
            return permanent(410, error.code, message)
        case KeyReused():
            return permanent(422, error.code, message, param=IDEMPOTENCY_KEY.name)
        case CannotContinue():
            return permanent(409, error.reason, message, kind="conflict_error")
        case TurnRejected() if error.reason in APPROVALS_OVER:
            return permanent(409, error.reason, message, kind="conflict_error")
        case TurnRejected():
            return permanent(400, error.reason, message, param="messages")
        case InvalidValue():
            return permanent(400, error.code, message)
        case ModelNotFound():
            return permanent(404, error.code, message, param="model")
        case AgentUnavailable():
            return permanent(409, error.code, message, kind="conflict_error", param="model")
        case InDoubt():
            problem = permanent(503, error.code, message, kind="server_error")
            return msgspec.structs.replace(problem, retry_after_s=STORE_RETRY_S)
        case StoreReadOnly():
            return permanent(503, error.code, message, kind="server_error")
        case StoreDamaged():
            return permanent(500, error.code, message, kind="server_error")
        case StoreError():
            return Problem(
                status=503,
                code=error.code if isinstance(error, StorageFull) else "storage_unavailable",
                message=message,
                kind="server_error",
                retry_after_s=STORE_RETRY_S,
                should_retry=True,
            )
        case _:
            return permanent(500, error.code, message, kind="server_error")


def _missing(error: SessionMissing) -> Problem:
    if error.what.startswith("session"):  # in the words that clients match on
        return permanent(404, error.code, f"Conversation with id '{error.name}' not found.")
    return permanent(404, f"{error.what}_not_found", str(error))


def unexpected(request_id: str) -> Problem:
    """The answer to a request that met a bug of ours. It shows nothing but the id that the log has."""
    return permanent(
        500,
        "internal_error",
        f"an unexpected error inside the server; its log has more about {request_id}",
        kind="server_error",
    )


def after_begin(problem: Problem, headers: Mapping[str, str]) -> Problem:
    """The same problem, for a client whose turn has begun.

    The turn may have been kept, so only an idempotency key makes a retry safe. Without one `x-should-retry` is left
    out: SDKs then retry by the status, and we recognise their own retries.
    """
    if problem.should_retry and IDEMPOTENCY_KEY.name not in headers:
        return msgspec.structs.replace(problem, should_retry=None)
    return problem


def shutting_down(headers: Mapping[str, str]) -> Problem:
    """The answer to a request that still waits when the server stops.

    Whether anything of the request was kept is not known here. With an idempotency key, a retry gets the outcome.
    Without one `x-should-retry` is left out: SDKs then retry by the status, and we recognise their own retries.
    A retried steer would put the same words into the turn twice, so it is not to be retried.
    """
    keyed, steers = IDEMPOTENCY_KEY.name in headers, headers.get(ON_BUSY.name) == "steer"
    return Problem(
        status=503,
        code="server_shutting_down",
        message="the server is shutting down, and another one takes over; "
        + ("retry for the outcome" if keyed else "look at the conversation before you repeat this"),
        kind="server_error",
        retry_after_s=ENDED_RETRY_S,
        should_retry=True if keyed else False if steers else None,
    )


# ── turns that began and did not succeed ─────────────────────────────────────────────────────


class Cause(Value):
    """How a code is shown to a client."""

    status: int
    kind: str = "server_error"
    words: str = ""
    """What has happened, if the words for the turn's end do not fit."""


CAUSES: dict[str, Cause] = {
    "rate_limit_exceeded": Cause(status=429, kind="rate_limit_error"),
    "insufficient_quota": Cause(status=429, kind="insufficient_quota"),
    "upstream_refused": Cause(status=502),
    "upstream_error": Cause(status=502),
    "upstream_unreachable": Cause(status=502),
    "upstream_broke_off": Cause(status=502),
    "upstream_garbled": Cause(status=502),
    "upstream_timeout": Cause(status=504),
    "storage_unavailable": Cause(status=503, words="the store could not be asked"),
    "storage_full": Cause(status=503, words="the store had no room for the turn"),
    "storage_read_only": Cause(status=503, words="the store is damaged and takes no turns"),
    "storage_damaged": Cause(status=500, words="the store is damaged"),
    "conversation_damaged": Cause(status=500, words="the conversation is damaged in the store"),
    "agent_not_found": Cause(status=409, kind="conflict_error"),
    "internal_error": Cause(status=500),
}
"""Our codes for a turn that its model ended. Any other code is the upstream's own: it refused the request."""

OVERTAKEN = Cause(status=400, kind="invalid_request_error")
"""A turn that waited for its session, which then changed so that the turn no longer makes sense."""

_OVERTAKEN = dict.fromkeys(
    ("agent_mismatch", "approval_closed"), Cause(status=409, kind="conflict_error")
)
"""Codes of overtaken turns that a request without `wait` gets as a 409."""

REFUSED_BY_UPSTREAM = Cause(status=400, kind="invalid_request_error")

_ENDINGS: dict[EndedBy, tuple[str, Cause, str]] = {
    "completed": ("internal_error", CAUSES["internal_error"], "the turn completed"),
    "cancelled": (
        "turn_cancelled",
        Cause(status=409, kind="conflict_error"),
        "the turn was cancelled",
    ),
    "disconnected": (
        "turn_disconnected",
        Cause(status=409, kind="conflict_error"),
        "the turn ended because its client went away",
    ),
    "deadline": (
        "turn_deadline_exceeded",
        Cause(status=504),
        "the turn ran out of time",
    ),
    "model_error": ("upstream_error", CAUSES["upstream_error"], "the model failed"),
    "tool_error": ("tool_error", Cause(status=502), "a tool failed"),
    "limit": (
        "turn_limit_reached",
        Cause(status=400, kind="invalid_request_error"),
        "the turn reached a limit",
    ),
    "crash": (
        "turn_crashed",
        Cause(status=503),
        "the turn was lost with the server that played it",
    ),
    "superseded": (
        "turn_superseded",
        Cause(status=503),
        "another server took the turn over",
    ),
    "shutdown": (
        "server_shutting_down",
        Cause(status=503),
        "the server was shut down",
    ),
    "deleted": (
        "conversation_gone",
        Cause(status=410, kind="invalid_request_error"),
        "the conversation was deleted",
    ),
}
"""Code, cause and words for each end, unless the turn's own code says more."""


class ContinuationAdvice(Value):
    """How a client can continue after a turn without an answer."""

    turn_id: TurnId
    """The turn that was kept: this one or, if it was discarded, the one that it was to continue."""
    by_retry: bool = False
    """A retry of the same request continues it."""
    by_hand: bool = False
    """A user can continue it: it is still the last turn of its conversation."""


def problem_of_ending(
    ending: Ending,
    *,
    acted: bool | None,
    transient: bool | None = None,
    retry_after_s: float | None = None,
    way_on: ContinuationAdvice | None = None,
) -> Problem:
    """The answer to a request whose turn began and did not succeed.

    `acted` is None if it is not known. `transient` and `retry_after_s` are what the model's server said.
    `way_on` says how the client can continue what was kept; None if nothing was kept.
    """
    code, cause, words = _ENDINGS[ending.by]
    said, detail = _coded(ending.detail)
    if said and ending.by in ("model_error", "tool_error", "crash"):
        code, cause = said, CAUSES.get(said, REFUSED_BY_UPSTREAM)
        words = cause.words or words
    elif said and ending.by == "superseded":
        code, cause, words = said, _OVERTAKEN.get(said, OVERTAKEN), "the conversation has moved on"
    elif said:
        detail = ending.detail
    is_far = retry_after_s is not None and retry_after_s > limits.retry_after_s_max
    passes = may_pass(ending.by, said) and transient is not False and not is_far
    retry: bool | None
    if ending.kept or way_on is not None:
        retry = way_on is not None and way_on.by_retry and passes
    else:
        retry = False if acted or not passes else None if acted is None else True
    if retry is False:
        retry_after_s = None  # it would ask for a retry, which makes no sense here
    if cause.status == 503 and passes and retry_after_s is None:
        retry_after_s = ENDED_RETRY_S  # another server goes on, or this one again
    if way_on is not None and not ending.kept:
        fate = "What was done before it is kept."
    elif ending.kept:
        fate = "What it had done is kept."
    else:
        fate = "Nothing was stored, though a tool has acted." if acted else "Nothing was stored."
    advice = ""
    if way_on is not None and way_on.by_hand and not retry:
        kept = way_on.turn_id
        advice = f"To go on: POST /api/turns/{kept}/continue, `holdfast turns continue {kept}`, or a new message."
    return Problem(
        status=cause.status,
        code=code,
        message=f"{words}{f': {detail}' if detail else ''}".rstrip(".") + f". {fate}",
        kind=cause.kind,
        retry_after_s=retry_after_s,
        should_retry=retry,
        advice=advice,
    )


_CODED = re.compile(r"([a-z][a-zA-Z0-9_.-]*): (.*)", re.DOTALL)


def _coded(detail: str) -> tuple[str, str]:
    """A turn row's detail, split into its code and its words; the code is empty if it has none."""
    found = _CODED.fullmatch(detail)
    return (found[1], found[2]) if found else ("", detail)
