"""`/api/turns/{id}/approvals`: a user decides on tool calls that wait for approval.

A decision begins the session's next turn, which runs exactly the calls that were approved and tells the agent which
were not. The session is not locked while calls wait; a new message in it closes them as refused.

1. A decision names calls by their ids, which are never used twice, so it cannot be about any other call.
2. It is checked where the turn begins, against the version that it was made for: of several decisions about one
   call, and of a decision and a message, the first one wins, and the others get `approval_closed`.
3. It may be sent again: with its `Idempotency-Key` it gets the same answer, without one `approval_closed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from holdfast import limits
from holdfast.core.history.conversation import DECIDED, Patch, Snapshot, decided_flag
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import ToolCall, plain_text
from holdfast.core.turns.events import ToolDefinition
from holdfast.errors import SessionMissing
from holdfast.ids import CallId, ItemId, Tenant, TurnId
from holdfast.server.agents.directory import Directory
from holdfast.server.api.grants import GrantsApi
from holdfast.server.http.routing import HttpCall
from holdfast.server.turns.turn_requests import TurnSettings
from holdfast.sessions.ambient import wall_clock_ms
from holdfast.sessions.session_requests import Admission, Ask
from holdfast.sessions.sessions import Sessions
from holdfast.store.outcomes import Attempt
from holdfast.wire.api.objects import ClientFunction, Decisions, WaitingCall
from holdfast.wire.body_parser import read_tools, tool_definition
from holdfast.wire.headers import read_naming
from holdfast.wire.problems import bad_request


class ApprovalsApi:
    """The endpoint. One instance serves every request."""

    def __init__(
        self,
        sessions: Sessions,
        directory: Directory,
        grants: GrantsApi,
        settings: TurnSettings,
    ) -> None:
        self._sessions = sessions
        self._directory = directory
        self._grants = grants
        self._settings = settings

    async def waiting(self, tenant: Tenant, turn_id: TurnId) -> tuple[WaitingCall, ...]:
        """The calls of a turn that wait for a decision now."""
        snapshot = await self._snapshot(tenant, turn_id)
        expires_s = turn_id.minted_at_ms / 1000 + limits.approval_s
        return tuple(
            WaitingCall(
                id=each.id,
                name=each.name,
                arguments=each.arguments,
                agent=each.agent,
                expires_at=expires_s,
            )
            for each in _asked_in(snapshot, turn_id)
            if each in snapshot.asked
        )

    async def decide(self, call: HttpCall, turn_id: TurnId, decisions: Decisions) -> Admission:
        """Begin the turn that carries out these decisions. Raises TurnRejected if the calls do not wait any more."""
        exchange, tenant, body = call.exchange, call.tenant, call.body
        snapshot = await self._snapshot(tenant, turn_id)
        asked = {each.id: each for each in _asked_in(snapshot, turn_id)}
        decided = {_call_id(text, asked): each for text, each in decisions.decisions.items()}
        if not decided:
            raise bad_request("missing_required_parameter", "nothing is decided", param="decisions")
        naming = read_naming(exchange.headers, names=())
        ask = Ask(
            tenant=tenant,
            name=snapshot.session_id,
            messages=tuple(
                Incoming(role="tool", call_id=call_id, content=plain_text(text))
                for call_id, text in decisions.results.items()
            ),
            approvals=tuple((call, each.approve) for call, each in decided.items()),
            instructions=(decisions.instructions,) if decisions.instructions else (),
            client_tools=read_tools(decisions.tools, _definition)[0],
            reads_only=naming.reads_only,
            attempt=Attempt(
                request_hash=sha256(exchange.path.encode() + b"\0" + body).digest(),
                key=naming.idempotency_key,
            ),
            background=True,  # the turn goes on when this request has been answered
            deadline_s=self._settings.deadline_s,
            policies=(self._settings.policy,),
            policy=naming.policy,
        )
        choice = self._directory.choose(ask, snapshot)
        answers = [(asked[name], each) for name, each in decided.items()]
        remembered = await self._grants.prepare(
            call.caller, answers, choice.source_key, snapshot.session_id
        )
        watch = await self._sessions.submit(ask)
        async with watch:
            # Also for a retry: the first attempt may have failed between beginning the turn and storing the grants.
            await self._grants.remember(remembered)
            await self._note(call, snapshot, {each: said.approve for each, said in decided.items()})
            return watch.admission

    async def _note(
        self, call: HttpCall, snapshot: Snapshot, decided: Mapping[CallId, bool]
    ) -> None:
        """Note beside each call who decided about it, and when. A retry finds that noted."""
        noted = {item for item, name, _ in snapshot.notes.flags if name == DECIDED}
        key, at_ms = call.caller.key_id, wall_clock_ms()
        flags: list[tuple[ItemId | None, Patch]] = [
            (each, decided_flag(approve=approve, key=key, at_ms=at_ms))
            for each, approve in decided.items()
            if each not in noted
        ]
        if flags:
            await self._sessions.operations.annotate(call.tenant, snapshot.session_id, flags)

    async def _snapshot(self, tenant: Tenant, turn_id: TurnId) -> Snapshot:
        row = await self._sessions.store.turn(tenant, turn_id)
        found = await self._sessions.snapshot(tenant, row.session_id) if row else None
        if found is None:
            raise SessionMissing("turn", turn_id)
        return found


def _asked_in(snapshot: Snapshot, turn_id: TurnId) -> list[ToolCall]:
    """The calls of a turn that needed approval, decided or not."""
    for n in range(len(snapshot.marks) - 1, -1, -1):
        mark = snapshot.marks[n]
        if mark.turn_id == turn_id:
            items = snapshot.items[mark.start : mark.end]
            calls = [each for each in items if isinstance(each, ToolCall)]
            return [each for each in calls if each.waits_for == "approval"]
    return []


def _definition(where: str, tool: ClientFunction) -> ToolDefinition:
    schema = msgspec.Raw(msgspec.json.encode(tool.parameters))
    return tool_definition(
        where, name=tool.name, description=tool.description, parameters=schema, strict=None
    )


def _call_id(text: str, asked: dict[CallId, ToolCall]) -> CallId:
    found = next((each for each in asked if str(each) == text), None)
    if found is None:
        raise SessionMissing("approval", text)
    return found
