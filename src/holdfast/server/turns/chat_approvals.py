"""Decisions about waiting calls in a chat: who may make them there, and the question that is asked again.

By default a message decides only where nothing but this machine reaches the server and no API key is needed. The
operator can allow it for all (`approve_in_chat: on`), then for the key that was asked, or for none.
"""

from __future__ import annotations

from typing import assert_never

from holdfast.config import ApproveInChat
from holdfast.core.codec import Value
from holdfast.core.history.reconciliation import question_of
from holdfast.core.items import ToolCall, UserMessage
from holdfast.errors import ApprovalUndecided, SessionMissing
from holdfast.ids import SessionId, Tenant, TurnId, Version
from holdfast.observe.events import audit
from holdfast.server.http.exchange import Exchange
from holdfast.server.http.origin_guard import OriginGuard
from holdfast.server.http.routing import HttpCall
from holdfast.sessions.session_requests import Admission
from holdfast.sessions.sessions import Sessions
from holdfast.wire.headers import SESSION_ID, TURN_ID, ConversationHeaders


class RepeatedQuestion(Value):
    """A question that is asked again, in words, and where its calls wait."""

    session_id: SessionId
    turn_id: TurnId
    version: Version
    calls: tuple[ToolCall, ...]
    text: str


class ChatApprovals:
    """Decides for each request whether a person may decide in its chat, and repeats questions."""

    def __init__(
        self, sessions: Sessions, guard: OriginGuard, when: ApproveInChat, *, on_loopback: bool
    ) -> None:
        self._sessions = sessions
        self._guard = guard
        self._when: ApproveInChat = when
        self._on_loopback = on_loopback

    def key_of(self, call: HttpCall, naming: ConversationHeaders) -> str | None:
        """The key that a question of this request's turn may be answered with: empty where no key is needed, None if
        no message decides."""
        if self._when == "off" or not naming.answer.asks_in_words:
            return None
        match self._when:
            case "on":
                return call.caller.key_id or ""
            case "auto":
                is_near = self._on_loopback and call.caller.key_id is None
                return "" if is_near and _is_local(self._guard.client_of(call.exchange)) else None
            case other:
                assert_never(other)

    async def again(self, tenant: Tenant, undecided: ApprovalUndecided) -> RepeatedQuestion:
        """The question that a message has left open."""
        session_id, version = SessionId(undecided.session_id), Version(undecided.version)
        snapshot = await self._sessions.snapshot(tenant, session_id, version)
        found = None if snapshot is None else question_of(snapshot)
        if found is None:
            raise SessionMissing("turn", undecided.turn_id)
        return RepeatedQuestion(
            session_id=session_id,
            turn_id=found.turn_id,
            version=version,
            calls=found.calls,
            text=found.repeated(str(undecided)),
        )

    async def hand_over(self, call: HttpCall, again: RepeatedQuestion, last: bytes) -> None:
        """Write the last bytes of a repeated question, and note that its client has it."""
        exchange = call.exchange
        if await exchange.hand_over(last):
            self._sessions.note_asked_again(call.tenant, again.turn_id)
        await exchange.finish()

    def audit(self, call: HttpCall, admission: Admission) -> None:
        """Log the decisions that a message made, if it has begun a turn."""
        if admission.how != "began":
            return
        for item in (each for each in admission.input if isinstance(each, UserMessage)):
            for each in item.decisions:
                audit(
                    "approval.decide",
                    tenant=call.tenant,
                    key=call.caller.key_id,
                    client=self._guard.client_of(call.exchange),
                    about=f"{admission.session_id} {each.call}",
                    decision="approved" if each.approve else "refused",
                    how="said in chat" if item.content else "mcp_approval_response",
                )


def tell_where(exchange: Exchange, again: RepeatedQuestion) -> None:
    """Set the headers that say which turn a repeated question belongs to."""
    exchange.about |= {TURN_ID.name: str(again.turn_id), SESSION_ID.name: str(again.session_id)}


def _is_local(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "")
