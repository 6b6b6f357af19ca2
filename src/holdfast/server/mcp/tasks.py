"""`tasks/…`: calls that their clients come back for, on any server of the store."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct, field

from holdfast.errors import SessionMissing
from holdfast.ids import TurnId
from holdfast.server.http.routing import HttpCall
from holdfast.server.mcp.tool_calls import BegunCall, ToldResult, ToolCalls
from holdfast.server.mcp.tool_turns import FailedTurn, ToolTurns, turn_in
from holdfast.sessions.sessions import Sessions
from holdfast.wire.json_rpc import INTERNAL_ERROR, INVALID_PARAMS
from holdfast.wire.mcp.elicitation import METHOD, calls_text, form_name, form_of
from holdfast.wire.mcp.messages import McpFault, McpRequest
from holdfast.wire.mcp.results import answer_result, problem_result
from holdfast.wire.mcp.revisions import McpClient
from holdfast.wire.mcp.tasks import TaskStatus, TurnTask, task_shown

LOST = frozenset({"crash", "superseded", "shutdown", "deleted"})
"""How turns end that no agent has ended: their tasks have failed."""


class _TaskParams(Struct):
    task_id: str = field(name="taskId")
    answers: dict[str, Raw] = field(name="inputResponses", default_factory=dict)


class Tasks:
    """The methods. One instance serves every request."""

    def __init__(self, sessions: Sessions, turns: ToolTurns, calls: ToolCalls) -> None:
        self._sessions = sessions
        self._turns = turns
        self._calls = calls

    async def get(
        self, call: HttpCall, request: McpRequest, client: McpClient
    ) -> dict[str, object]:
        """The state of a task and, in the current revision, its result, its error or its question."""
        task, more = await self._state(call, _task_in(request))
        shown = task_shown(client, task)
        return {**shown, **more} if client.is_current else shown

    async def update(self, call: HttpCall, request: McpRequest, address: str) -> dict[str, object]:
        """Carry out what the client's user has decided about the open question of a task. Answers to any other question are
        ignored."""
        turn_id = await self._running(call, _task_in(request))
        asked = await self._turns.asked(call.tenant, turn_id)
        question = None if asked is None else asked.question
        reply = None
        if question is not None:
            reply = request.read(_TaskParams).answers.get(form_name(question))
        if asked is not None and reply is not None:
            if await self._turns.look(call.tenant, asked) == "open":
                await self._turns.decide(call, asked, reply, client=address)
        return {}

    async def cancel(
        self, call: HttpCall, request: McpRequest, client: McpClient
    ) -> dict[str, object]:
        """Cancel the turn that runs for a task. A task that has ended stays as it is."""
        first = _task_in(request)
        running = await self._running(call, first)
        row = await self._sessions.store.turn(call.tenant, running)
        is_over = row is not None and row.ended_by is not None
        if not is_over:
            await self._sessions.operations.cancel(
                call.tenant, running, by=call.caller.key_id or ""
            )
        if client.is_current:
            return {}
        if is_over:
            raise McpFault(INVALID_PARAMS, "the task has ended already")
        task, _ = await self._state(call, first)
        return task_shown(client, task)

    async def result(self, call: HttpCall, request: McpRequest, client: McpClient) -> None:
        """Wait for the end of a task, before 2026-07-28, and answer with the result of its call."""
        call.occupy("watchers")
        first = _task_in(request)
        told = ToldResult(call, request.id, client, task=str(first))
        turn_id = await self._running(call, first)
        watch = await self._sessions.watch(call.tenant, turn_id)
        how = BegunCall(name=None, is_keyed=True, known_again=True)
        await self._calls.follow(call, client, told, watch, how)

    async def _running(self, call: HttpCall, turn_id: TurnId) -> TurnId:
        try:
            return await self._turns.running(call.tenant, turn_id)
        except SessionMissing as error:
            raise _unknown(str(turn_id)) from error

    async def _state(self, call: HttpCall, turn_id: TurnId) -> tuple[TurnTask, dict[str, object]]:
        """A task and, if it has ended or waits for an answer, the members that show this."""
        try:
            outcome = await self._turns.followed(call.tenant, turn_id)
        except SessionMissing as error:
            raise _unknown(str(turn_id)) from error
        status: TaskStatus = "working"
        words, ended_id = "", turn_id
        more: dict[str, object] = {}
        match outcome:
            case None:
                pass
            case FailedTurn(by="cancelled"):
                status, words, ended_id = "cancelled", outcome.problem.message, outcome.turn_id
            case FailedTurn(problem=problem) if (
                outcome.by in LOST or problem.code == "internal_error"
            ):
                status, words, ended_id = "failed", problem.message, outcome.turn_id
                data = {"code": problem.code}
                more = {"error": {"code": INTERNAL_ERROR, "message": problem.message, "data": data}}
            case FailedTurn(problem=problem):
                status, words, ended_id = "completed", problem.message, outcome.turn_id
                more = {"result": problem_result(problem, turn_id=outcome.turn_id)}
            case answer:
                ended_id = answer.turn_id
                question = answer.question
                if question is not None and await self._turns.look(call.tenant, answer) == "open":
                    status, words = "input_required", calls_text(question)
                    form = {"method": METHOD, "params": form_of(question)}
                    more = {"inputRequests": {form_name(question): form}}
                else:
                    status, more = "completed", {"result": answer_result(answer)}
        row = await self._sessions.store.turn(call.tenant, ended_id)
        updated_ms = row.ended_ms if row is not None else 0
        task = TurnTask(turn_id=turn_id, status=status, updated_ms=updated_ms)
        return msgspec.structs.replace(task, words=words), more


def _task_in(request: McpRequest) -> TurnId:
    told = request.read(_TaskParams).task_id
    found = turn_in(told)
    if found is None:
        raise _unknown(told)
    return found


def _unknown(task_id: str) -> McpFault:
    return McpFault(INVALID_PARAMS, f"there is no task {task_id[:100]!r}")
