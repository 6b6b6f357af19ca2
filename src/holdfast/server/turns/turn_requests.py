"""The request for a turn, from a parsed body, the headers beside it and the operator's settings."""

from __future__ import annotations

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.policy import Policy
from holdfast.server.http.routing import HttpCall
from holdfast.server.turns.attempts import attempt_of
from holdfast.sessions.session_requests import Ask
from holdfast.wire.body_parser import TurnBody
from holdfast.wire.headers import NAMES, ConversationHeaders


class TurnSettings(Value):
    """The operator's settings for turns that requests begin."""

    names: tuple[str, ...] = NAMES
    """The headers that name a conversation."""
    policy: Policy = Policy()
    """What becomes of turns that do not complete, where neither the agent nor the request says it."""
    deadline_s: float = limits.turn_deadline_s
    expire_after_s: float | None = None


def ask_of(
    call: HttpCall,
    naming: ConversationHeaders,
    asked: TurnBody,
    messages: tuple[Incoming, ...],
    settings: TurnSettings,
    *,
    chat_key: str | None = None,
) -> Ask:
    """The request for a turn as the sessions take it. All that headers say to the sessions is handed on here."""
    return Ask(
        tenant=call.tenant,
        name=naming.name,
        messages=messages,
        approvals=naming.approvals,
        agent=asked.model,
        instructions=asked.instructions,
        parameters=asked.parameters,
        given=asked.given,
        client_tools=asked.client_tools,
        reads_only=naming.reads_only,
        policies=(settings.policy,),
        policy=naming.policy,
        on_busy=naming.on_busy,
        if_match=naming.if_match,
        create=naming.create,
        attempt=attempt_of(call, naming),
        deadline_s=settings.deadline_s,
        expire_after_s=settings.expire_after_s,
        chat_key=chat_key,
    )
