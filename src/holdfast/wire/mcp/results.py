"""What became of a call, as its client reads it.

A failure of an agent is a result with `isError`, which the model that called the tool sees and can act
on. Errors of the protocol are left for messages that make no sense, and for faults of the server.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from holdfast.core.approval_questions import ChatQuestion, question_in
from holdfast.core.codec import Value
from holdfast.core.items import Items
from holdfast.ids import SessionId, TurnId, Version
from holdfast.wire.mcp.revisions import SERVER_INFO, McpClient
from holdfast.wire.openai.chat.answer import whole_text
from holdfast.wire.problems import Problem
from holdfast.wire.turn_answers import STEP_BREAK

PROBLEM: Final = "holdfast/problem"

Status: TypeAlias = Literal["completed", "cut_short", "waiting_for_approval"]


class ToolAnswer(Value):
    """The answer of an agent, and where it was given."""

    items: Items
    session_id: SessionId
    turn_id: TurnId
    conversation: str
    version: Version | None
    is_limited: bool = False
    tells_conversation: bool = False
    """The client did not name the conversation, so the words say how to go on with it."""

    @property
    def question(self) -> ChatQuestion | None:
        """The question about calls that wait for an approval."""
        return question_in(self.items, self.turn_id)


def server_shown(version: str) -> dict[str, str]:
    """This server, as it introduces itself."""
    return {"name": "holdfast", "title": "Holdfast", "version": version}


def completed(
    client: McpClient, result: dict[str, object], *, version: str, ttl_ms: int | None = None
) -> dict[str, object]:
    """A result, with the members that the current revision adds to each; with `ttl_ms` also those that let this client,
    and no other, keep it for a while. `version` is the server's."""
    if not client.is_current:
        return result
    told = {} if ttl_ms is None else {"ttlMs": ttl_ms, "cacheScope": "private"}
    meta = {**_meta(result), SERVER_INFO: server_shown(version)}
    return {"resultType": "complete", **result, **told, "_meta": meta}


def _meta(result: dict[str, object]) -> dict[str, object]:
    found = result.get("_meta")
    return found if isinstance(found, dict) else {}


def answer_result(answer: ToolAnswer) -> dict[str, object]:
    """The result of a call that was answered. Hosts show their models the text or the structure: both say all."""
    question = answer.question
    text = STEP_BREAK.join(
        filter(None, (whole_text(answer.items), question.text if question else ""))
    )
    content = [_text(text)]
    if answer.tells_conversation:
        content.append(
            _text(f'To go on with this conversation, pass "conversation": "{answer.conversation}".')
        )
    status: Status = "completed"
    if answer.is_limited:
        status = "cut_short"
    elif question is not None:
        status = "waiting_for_approval"
    structure: dict[str, object] = {
        "answer": text,
        "conversation": answer.conversation,
        "status": status,
        "turn": str(answer.turn_id),
    }
    if answer.version is not None:
        structure["version"] = int(answer.version)
    return {"content": content, "structuredContent": structure, "isError": False}


def problem_result(problem: Problem, *, turn_id: TurnId | None = None) -> dict[str, object]:
    """The result of a call that was refused, or whose turn failed."""
    about: dict[str, object] = {"code": problem.code, "status": problem.status}
    if problem.should_retry is not None:
        about["shouldRetry"] = problem.should_retry
    if problem.retry_after_s is not None:
        about["retryAfterMs"] = round(problem.retry_after_s * 1000)
    if turn_id is not None:
        about["turn"] = str(turn_id)
    return {"content": [_text(problem.sentence)], "isError": True, "_meta": {PROBLEM: about}}


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}
