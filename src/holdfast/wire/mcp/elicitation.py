"""Questions about calls that wait for an approval, as forms that a client shows to its user.

All calls of a turn are decided together, so there is one form. About one call it is a form without fields: accepting it
runs the call. About several it has a box for each, and accepting it runs those that are checked. Declining or dismissing
a form refuses all of its calls.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from holdfast.core.approval_questions import ChatQuestion
from holdfast.core.codec import DAMAGE
from holdfast.ids import CallId
from holdfast.wire.json_rpc import INVALID_PARAMS
from holdfast.wire.mcp.messages import McpFault
from holdfast.wire.mcp.tools import tool_names

METHOD: Final = "elicitation/create"


def form_of(question: ChatQuestion) -> dict[str, object]:
    """The parameters of the request that shows this question."""
    fields: dict[str, object] = {}
    if len(question.calls) > 1:
        names = {each.id: each.name for each in question.calls}
        fields = {
            code: {"type": "boolean", "title": f"Run {names[call]} ({code})", "default": False}
            for code, call in question.codes.items()
        }
    return {
        "mode": "form",
        "message": calls_text(question),
        "requestedSchema": {"type": "object", "properties": fields},
    }


def calls_text(question: ChatQuestion) -> str:
    """The question alone: its last paragraph says how to decide in a chat."""
    return question.text.rpartition("\n\n")[0]


def form_name(question: ChatQuestion) -> str:
    """The name of the question in an answer that asks for input: the tool's, if there is one call."""
    if len(question.calls) > 1:
        return "approvals"
    (name,) = tool_names([question.calls[0].name])
    return name or "approval"


class _Reply(Struct):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


def decisions_in(question: ChatQuestion, reply: Raw | None) -> dict[CallId, bool]:
    """The decisions about all calls of a question; a client that answers with an error refuses them. Raises McpFault."""
    said = _Reply(action="cancel")
    if reply is not None:
        try:
            said = msgspec.json.decode(reply, type=_Reply)
        except DAMAGE as error:
            raise McpFault(INVALID_PARAMS, f"an answer to {METHOD}: {error}") from error
    runs = said.action == "accept"
    if len(question.calls) == 1:
        return {question.calls[0].id: runs}
    boxes = said.content or {}
    return {call: runs and boxes.get(code) is True for code, call in question.codes.items()}
