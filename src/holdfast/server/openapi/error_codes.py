"""Every error code, with its status and meaning. A test checks that the code uses no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.core.codec import Value


class Meaning(Value):
    """The status of a code, and what it means."""

    status: int
    words: str


def _all(status: int, **codes: str) -> dict[str, Meaning]:
    return {code: Meaning(status=status, words=words) for code, words in codes.items()}


CODES: Mapping[str, Meaning] = {
    **_all(
        400,
        array_above_max_length="a list of the request has more members than a list may have",
        approvals_missing="other calls of the turn wait for a decision, too",
        invalid_content="a part of a message cannot be decoded",
        invalid_conversation_key="a conversation cannot have this name",
        invalid_cursor="this server did not hand that cursor out",
        invalid_export="the export is damaged or cut off, or the body is no export",
        invalid_encrypted_content="encrypted content was changed, is another tenant's, or its key is gone",
        invalid_header="a header has a value that it cannot have",
        invalid_host="the request names no host, or not in the right form",
        invalid_http_request="this is not HTTP",
        invalid_idempotency_key="the key has the wrong form",
        invalid_json="the body is not JSON",
        invalid_request="two parts of the request contradict each other",
        invalid_tool="a tool of the request does not fit",
        invalid_turn_policy="the policy has an unknown name or choice",
        invalid_type="a parameter has the wrong type",
        invalid_value="a parameter has a value that it cannot have",
        invalid_version="the version has the wrong form",
        missing_required_parameter="a parameter is missing; `param` names it",
        no_new_user_message="the request brings nothing new",
        nothing_to_compact="there is nothing to sum up",
        operation_unsupported="the task has ended, or waits for a person",
        previous_response_not_found="there is no such response to continue",
        protocol_version_unsupported="this version of the A2A protocol is not spoken here",
        push_notifications_unsupported="the server sends no push notifications",
        task_not_cancelable="the task has ended, or waits for a person",
        tool_results_missing="results are missing for calls that wait for them",
        turn_limit_reached="the turn reached a limit",
        unknown_header="there is no such header of ours",
        unknown_parameter="there is no such parameter; the message lists the known ones",
        unknown_tool_call="a result is for a call that was not made",
        unsupported_parameter="the parameter cannot be honoured",
    ),
    **_all(401, invalid_api_key="the request has no API key, or one that is not valid"),
    **_all(
        403,
        host_not_allowed="the server does not serve this host name",
        insufficient_scope="the key does not have the scope that this needs",
        origin_not_allowed="pages of this origin may not use the server",
    ),
    **_all(
        404,
        approval_not_found="no such call waits for approval, or has waited for it",
        card_not_found="the operator publishes no agent here",
        conversation_not_found="there is no such conversation",
        blob_not_found="there are no such bytes in this conversation",
        grant_not_found="there is no such remembered approval",
        item_not_found="there is no such item",
        model_not_found="there is no such agent; the message lists the agents that there are",
        response_not_found="there is no such response",
        task_not_found="there is no such task",
        turn_not_found="there is no such turn",
        unknown_method="JSON-RPC has no such method here",
        unknown_url="there is nothing at this address",
        version_not_found="the session has had no such version",
    ),
    **_all(405, method_not_allowed="`allow` lists the methods that this path has"),
    **_all(408, request_timeout="the body did not arrive in time"),
    **_all(
        409,
        agent_ambiguous="several agents could continue the conversation",
        agent_mismatch="the conversation belongs to the agents of another source",
        agent_not_found="the conversation's agent is not served any more",
        approval_closed="the call does not wait for approval any more",
        approval_expired="the call has waited too long",
        conversation_locked="another turn runs; come back later",
        import_conflict="there is another session under this id or key",
        name_taken="the name means another session",
        too_many_grants="as many approvals are remembered for the agent as there can be",
        summary_moved="another request has summed up the session meanwhile",
        turn_cancelled="the turn was cancelled",
        turn_complete="the turn has nothing left to continue",
        turn_disconnected="the turn ended because its client disconnected",
        turn_not_head="the turn is not the last one of its conversation any more",
        turn_not_kept="the turn was not kept, so there is nothing to continue",
    ),
    **_all(410, conversation_gone="the conversation was deleted, or has expired"),
    **_all(412, version_mismatch="the conversation is at another version"),
    **_all(413, request_too_large="the body is too large"),
    **_all(415, unsupported_content_encoding="bodies are taken uncompressed only"),
    **_all(422, idempotency_key_reused="the key belongs to a different request"),
    **_all(
        429,
        concurrency_limit_exceeded="too many turns, streams, watchers or searches at once",
        insufficient_quota="the model's server says that its quota is used up",
        rate_limit_exceeded="too many requests, here or at the model's server",
    ),
    **_all(431, request_head_too_large="the headers are too large"),
    **_all(
        500,
        conversation_damaged="the conversation cannot be read in the store; all others go on",
        internal_error="a bug; the server's log knows more by the request's id",
        storage_damaged="something that the request needs cannot be read in the store",
    ),
    **_all(
        502,
        tool_error="a tool ended the turn",
        upstream_broke_off="the model's answer broke off",
        upstream_error="the model's server failed",
        upstream_garbled="the model's answer cannot be read",
        upstream_refused="the model's server refuses our key or account, or does not have the model",
        upstream_unreachable="the model's server cannot be reached",
    ),
    **_all(
        503,
        answer_restarted="the server was restarted while it answered",
        background_queue_full="too many responses wait in the background already",
        outcome_unknown="the store failed during a write, which may be done; read the conversation before you retry",
        server_overloaded="as many large requests are being read as there is memory for",
        server_shutting_down="the server stops; another one takes over",
        storage_full="the store has no room left; reading still works",
        storage_read_only="the store is damaged, and is only read until it was verified",
        storage_unavailable="the store does not answer, or refuses in a way that we do not know",
        too_many_connections="there is no room for another connection",
        turn_crashed="the turn was lost with its server",
        turn_superseded="another server took the turn over",
    ),
    **_all(
        504,
        turn_deadline_exceeded="the turn ran out of time",
        upstream_timeout="the model's server took too long",
    ),
}

ANY_REQUEST = (
    "invalid_http_request",
    "invalid_value",
    "origin_not_allowed",
    "request_head_too_large",
    "internal_error",
    "too_many_connections",
)
"""Errors that every request can get."""

LET_IN = (
    "invalid_api_key",
    "host_not_allowed",
    "insufficient_scope",
    "invalid_host",
    "request_timeout",
    "request_too_large",
    "unsupported_content_encoding",
    "concurrency_limit_exceeded",
    "rate_limit_exceeded",
    "server_overloaded",
    "server_shutting_down",
    "conversation_damaged",
    "storage_damaged",
    "storage_full",
    "storage_read_only",
    "storage_unavailable",
)
"""Errors of routes that need an API key."""

SESSION = ("invalid_conversation_key", "conversation_not_found", "conversation_gone")
"""Errors of paths that name a session by its key or id."""

HEADERS = (
    "invalid_conversation_key",
    "invalid_header",
    "invalid_idempotency_key",
    "invalid_turn_policy",
    "invalid_version",
    "unknown_header",
)
"""Errors of headers about a turn."""

BODY = (
    "array_above_max_length",
    "invalid_encrypted_content",
    "invalid_json",
    "invalid_type",
    "invalid_value",
    "missing_required_parameter",
)
"""Errors of JSON bodies."""

STRICT_BODY = (*BODY, "unknown_parameter")
"""Errors of JSON bodies in which every field must be known."""

AGENT = ("agent_ambiguous", "agent_mismatch", "agent_not_found")
"""Errors of finding a session's agent."""

TURN = (
    *HEADERS,
    *AGENT,
    "conversation_gone",
    "conversation_locked",
    "conversation_not_found",
    "idempotency_key_reused",
    "no_new_user_message",
    "outcome_unknown",
    "tool_results_missing",
    "turn_cancelled",
    "turn_crashed",
    "turn_deadline_exceeded",
    "turn_disconnected",
    "turn_superseded",
    "unknown_tool_call",
    "version_mismatch",
)
"""Errors of requests that begin a turn and wait for its end."""

ASKING = (
    "approval_closed",
    "approval_expired",
    "approvals_missing",
    "insufficient_quota",
    "invalid_content",
    "invalid_tool",
    "model_not_found",
    "tool_error",
    "turn_limit_reached",
    "unsupported_parameter",
    "upstream_broke_off",
    "upstream_error",
    "upstream_garbled",
    "upstream_refused",
    "upstream_timeout",
    "upstream_unreachable",
)
"""Errors of requests that ask an agent."""


CONTEXT = (
    "conversation_not_found",
    "invalid_content",
    "invalid_request",
    "item_not_found",
    "previous_response_not_found",
    "unknown_tool_call",
)
"""Errors of bodies whose items can refer to other items."""


def by_status(
    codes: Iterable[str], statuses: Mapping[str, int] | None = None
) -> dict[int, tuple[str, ...]]:
    """These codes by status, both in order. `statuses` has the codes that have another status in their API."""
    found: dict[int, list[str]] = {}
    for code in sorted(set(codes)):
        found.setdefault((statuses or {}).get(code, CODES[code].status), []).append(code)
    return {status: tuple(found[status]) for status in sorted(found)}
