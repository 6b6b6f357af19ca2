"""Tasks: turns that a client comes back for. The id of a task is the id of the turn that its call began.

In revision 2026-07-28 tasks are an extension: the server decides that a call becomes one, and `tasks/get` has its result.
In 2025-11-25 the client asks for a task, and `tasks/result` waits for it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from holdfast.core.codec import Value
from holdfast.ids import TurnId
from holdfast.wire.mcp.revisions import McpClient

TTL_MS: Final = 7 * 24 * 3600 * 1000
"""How long a task can be asked for at least: a turn that was discarded is kept for a week."""
POLL_MS: Final = 1000

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]


class TurnTask(Value):
    """A task at one moment."""

    turn_id: TurnId
    status: TaskStatus
    updated_ms: int
    words: str = ""
    """What there is to say about the status, to people."""


def task_shown(client: McpClient, task: TurnTask) -> dict[str, object]:
    """The members that every answer about a task has."""
    shown: dict[str, object] = {
        "taskId": str(task.turn_id),
        "status": task.status,
        "createdAt": _time(task.turn_id.minted_at_ms),
        "lastUpdatedAt": _time(max(task.updated_ms, task.turn_id.minted_at_ms)),
    }
    if task.words:
        shown["statusMessage"] = task.words
    if client.is_current:
        return {**shown, "ttlMs": TTL_MS, "pollIntervalMs": POLL_MS}
    return {**shown, "ttl": TTL_MS, "pollInterval": POLL_MS}


def created(client: McpClient, task: TurnTask) -> dict[str, object]:
    """The answer to a call that became a task."""
    if client.is_current:
        return {"resultType": "task", **task_shown(client, task)}
    return {"task": task_shown(client, task)}


def with_task(result: dict[str, object], task_id: str) -> dict[str, object]:
    """The result of a task's call, as `tasks/result` answers it: with the task that it belongs to."""
    meta = result.get("_meta")
    related = {"io.modelcontextprotocol/related-task": {"taskId": task_id}}
    return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), **related}}


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
