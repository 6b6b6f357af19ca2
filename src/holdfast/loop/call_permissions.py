"""Whether a call may run: by the rules, the hooks, a person's approval, and grants.

This is decided when a model's answer is recorded, so that the journal holds the decision: a call that a hook refuses
has its result at once, and a call that needs an approval waits for one. It is decided again before the call runs: a
rule that denies it by then, or a grant that was withdrawn meanwhile, stops it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar, assert_never

import msgspec

from holdfast.agents.agent import Agent
from holdfast.core.items import Text, ToolCall, WaitsFor, result_for
from holdfast.core.ports import OpenTurn
from holdfast.core.turns import events as ev
from holdfast.ids import CallId
from holdfast.loop import team_tools
from holdfast.loop.hooks.turn_hooks import Reviewed, TurnHooks
from holdfast.loop.turn_tools import TurnTools
from holdfast.tools.execution import InvalidArguments, parse_arguments
from holdfast.tools.permissions import (
    NarrowedPermissions,
    Permission,
    parsed_arguments,
    permission_for,
)
from holdfast.tools.redaction import redacted
from holdfast.tools.tool import Tool

T = TypeVar("T")

NO_APPROVAL_HERE = "a hook wants an approval for it, and no person can be asked here"

CHANGED = (
    "{name!r} is not the tool any more that a person was asked about: it comes from elsewhere, or says something else "
    "about itself. Nothing was run. Call it again if it is still wanted; then they are asked about what it is now."
)


class CallPermissions:
    """Decides which calls of one turn may run."""

    def __init__(
        self, turn: OpenTurn, toolbox: TurnTools, hooks: TurnHooks, room: asyncio.Semaphore
    ) -> None:
        """`room` bounds how many hooks and calls run at once."""
        self._turn = turn
        self._toolbox = toolbox
        self._hooks = hooks
        self._room = room
        self._asked_about: set[CallId] = set()
        """Calls that hooks have reviewed while this player recorded them, not before a crash."""

    # ── when an answer is recorded ──

    async def judged(self, agent: Agent, answered: ev.Answered) -> tuple[ev.Event, ...]:
        """The events of an answer: the answer with `waits_for` of its calls decided, and the results of refused
        calls."""
        calls = [
            each
            for each in answered.items
            if isinstance(each, ToolCall) and each.state == "complete"
        ]
        if not calls:
            return (answered,)
        verdicts = await _all_of(self._judged(each, agent) for each in calls)
        found = {call.id: verdict for call, verdict in zip(calls, verdicts, strict=True)}
        items = tuple(
            found[each.id][0] if isinstance(each, ToolCall) and each.id in found else each
            for each in answered.items
        )
        refusals = tuple(self._refusal(call, why) for call, why in verdicts if why is not None)
        return (msgspec.structs.replace(answered, items=items), *refusals)

    async def _judged(self, call: ToolCall, agent: Agent) -> tuple[ToolCall, str | None]:
        """A call as it is recorded, and why it is refused, if it is."""
        if agent.redacts:
            call = msgspec.structs.replace(call, arguments=redacted(call.arguments))
        if not call.path and call.name in {t.name for t in self._turn.turn.request.client_tools}:
            return msgspec.structs.replace(call, waits_for="client"), None
        if team_tools.means_one(call, agent):
            return await self._guarded(call, agent, None)
        tool = await self._toolbox.find(agent, call.name)
        if tool is None or not self._toolbox.is_offered(agent, tool):
            return call, None  # `refused` answers it before it would run
        match self._permission(agent, tool, call):
            case "deny":
                return call, None
            case "ask" | "allow" as permission:
                return await self._approval_decided(call, agent, tool, permission)
            case other:
                assert_never(other)

    async def _approval_decided(
        self, call: ToolCall, agent: Agent, tool: Tool, permission: Permission
    ) -> tuple[ToolCall, str | None]:
        fits = _fits(tool, call.arguments)
        if permission == "ask" and call.path and not await self._is_granted(call, agent):
            return call, None  # no person can be asked about a sub-agent's call
        call, why = await self._guarded(call, agent, tool) if fits else (call, None)
        if why is not None or call.waits_for is not None:
            return call, why
        if permission == "ask" and not call.path and not await self._is_granted(call, agent):
            return await self._asked(call, agent)
        return call, None

    async def _guarded(
        self, call: ToolCall, agent: Agent, tool: Tool | None
    ) -> tuple[ToolCall, str | None]:
        """A call as hooks have changed it, and why it is refused, if it is."""
        if not agent.hooks.of("pre_tool_use", tool=call.name):
            return call, None
        async with self._room:
            verdict = await self._hooks.reviewed(call, agent)
        self._asked_about.add(call.id)
        if (why := _objection(call, verdict, tool)) is not None:
            return call, why
        call = msgspec.structs.replace(call, arguments=verdict.arguments)
        return await self._asked(call, agent) if verdict.asks else (call, None)

    async def _asked(self, call: ToolCall, agent: Agent) -> tuple[ToolCall, str | None]:
        """The call as it waits for a person, and why it is refused, if a hook spares the person the question."""
        why = await self._hooks.denied(call, agent)
        return (call if why is not None else await self._waiting(call, agent)), why

    async def _waiting(self, call: ToolCall, agent: Agent) -> ToolCall:
        """The call as it waits for an approval, with the fingerprint of its tool."""
        known_by = await self._toolbox.fingerprint(agent, call.name)
        waits_for: WaitsFor = "approval"
        return msgspec.structs.replace(
            call,
            waits_for=waits_for,
            fingerprint=known_by,
            chat_key=self._turn.turn.request.chat_key,
        )

    def _refusal(self, call: ToolCall, why: str) -> ev.ToolFinished:
        words = (Text(text=f"Refused: {why}"),)
        return ev.ToolFinished(result=result_for(call, "refused", words, self._turn.mint))

    # ── before a call runs ──

    async def refused(self, call: ToolCall, agent: Agent, tool: Tool) -> str | None:
        """Why a call may not run by the present rules, approvals and grants; None if it may."""
        if call.fingerprint not in ("", await self._toolbox.fingerprint(agent, call.name)):
            return CHANGED.format(name=call.name)
        permission = self._permission(agent, tool, call)
        if permission == "allow" or (permission == "ask" and self._is_approved(call)):
            return None
        if permission == "ask" and await self._is_granted(call, agent):
            return None
        return f"no rule allows {call.name!r}. Do without it, or ask the user."

    async def objection(self, call: ToolCall, agent: Agent) -> str | None:
        """Why a hook refuses a call that was recorded earlier; None if none does."""
        pending = self._turn.turn.find_pending(call.id)
        if call.id in self._asked_about or (pending is not None and pending.tried):
            return None  # hooks let it pass when it was recorded, or when it ran the first time
        verdict = await self._hooks.reviewed(call, agent, final=True)
        if verdict.refused is None and verdict.asks and not self._is_approved(call):
            return NO_APPROVAL_HERE
        return verdict.refused

    def _permission(self, agent: Agent, tool: Tool, call: ToolCall) -> Permission:
        if self._turn.turn.request.reads_only and not tool.spec.read_only:
            return "deny"
        session = NarrowedPermissions.of(self._turn.snapshot.notes.settings.permissions)
        return permission_for(
            tool.spec,
            agent.permissions,
            session,
            arguments=parsed_arguments(call.arguments),
            safety=agent.safety,
        )

    def _is_approved(self, call: ToolCall) -> bool:
        """Whether a person has approved the call and its tool: a call without a fingerprint was never shown to a
        person."""
        return bool(call.fingerprint) and call.id in self._turn.turn.request.approved

    async def _is_granted(self, call: ToolCall, agent: Agent) -> bool:
        """Whether a grant that was not withdrawn allows the call."""
        known_by = await self._toolbox.fingerprint(agent, call.name)
        return any(
            each.covers(tool=call.name, fingerprint=known_by, arguments=call.arguments)
            for each in await self._turn.grants(agent.name)
        )


async def _all_of(work: Iterable[Awaitable[T]]) -> list[T]:
    """The results of all these awaitables, run at the same time. Raises the first error, after all have ended."""
    ended = await asyncio.gather(*work, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException):
            try:
                raise each
            finally:
                del each, ended
    return [each for each in ended if not isinstance(each, BaseException)]


def _objection(call: ToolCall, verdict: Reviewed, tool: Tool | None) -> str | None:
    """Why hooks refuse a call, if they do. No person can be asked about a sub-agent's call, or a call to a
    colleague."""
    if verdict.refused is not None:
        return verdict.refused
    if verdict.asks and (call.path or tool is None):
        return NO_APPROVAL_HERE
    if tool is not None and not _fits(tool, verdict.arguments):
        return "a hook changed its arguments, and they do not fit the tool"
    return None


def _fits(tool: Tool, arguments: str) -> bool:
    try:
        parse_arguments(tool.spec, arguments)
    except InvalidArguments:
        return False
    return True
