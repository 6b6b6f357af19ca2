"""Running an agent's hooks in a turn: when, how often, and what becomes of what they say.

1. `pre_tool_use` runs before the call's intent, once the rules have allowed it. A refusal is the call's result, so it
   is recorded and the hook is not asked again. After a crash, a call without an intent is asked about again; a call
   that had started before the crash, and may be started again, is not.
2. `post_tool_use` runs after the call's result has been recorded, for calls that ran: once, or, after a crash in
   between, not at all. If it blocks, the turn fails; the result stands.
3. `session_start` runs before the first step of a session's first turn. `on_user_input` runs when a turn ends with
   calls that a person has to approve. Neither can block; both may run again if the turn is tried again.
4. A hook that breaks is logged. Before a tool, that refuses the call.
"""

from __future__ import annotations

import logging

import msgspec

from holdfast import limits
from holdfast.agents.base import Agent
from holdfast.core.items import ToolCall, ToolResult, text_of
from holdfast.core.ports import OpenTurn
from holdfast.errors import TurnFailed
from holdfast.tools.base import Json
from holdfast.tools.hooks import Hook, HookEvent, Verdict, run_hook

log = logging.getLogger("holdfast.hooks")


class TurnHooks:
    """The hooks of the agents of one turn."""

    def __init__(self, turn: OpenTurn) -> None:
        self._turn = turn

    async def refusal(self, call: ToolCall, agent: Agent) -> str | None:
        """Why a call must not run; None if nobody objects."""
        pending = self._turn.turn.find_pending(call.id)
        if pending is not None and pending.tried:
            return None  # nobody objected when it ran the first time
        for hook in agent.hooks.of("pre_tool_use", tool=call.name):
            verdict = await self._ask(hook, "pre_tool_use", agent, call=call)
            if verdict.blocks is not None:
                return verdict.blocks
            if verdict.trouble:
                return f"the hook that guards it {verdict.trouble}"
        return None

    async def ran(self, call: ToolCall, agent: Agent, result: ToolResult) -> None:
        """A call has run, and its result is recorded. Raises TurnFailed if a hook wants the turn to end."""
        for hook in agent.hooks.of("post_tool_use", tool=call.name):
            verdict = await self._ask(hook, "post_tool_use", agent, call=call, result=result)
            if verdict.blocks is not None:
                words = f"a hook stopped the turn after {call.name!r}: {verdict.blocks}"
                raise TurnFailed("tool_error", words, reason="hook_blocked")

    async def happened(self, event: HookEvent, agent: Agent) -> None:
        """Tell the hooks that have no say."""
        for hook in agent.hooks.of(event):
            await self._ask(hook, event, agent)

    async def _ask(
        self,
        hook: Hook,
        event: HookEvent,
        agent: Agent,
        *,
        call: ToolCall | None = None,
        result: ToolResult | None = None,
    ) -> Verdict:
        turn = self._turn
        facts: dict[str, Json] = {
            "session_id": str(turn.snapshot.session_id),
            "turn_id": str(turn.turn.request.turn_id),
            "agent_name": agent.name,
        }
        if event == "session_start":
            facts["source"] = "startup"
        if call is not None:
            facts |= {
                "tool_name": call.name,
                "tool_use_id": str(call.id),
                "tool_input": _input(call),
            }
        if result is not None:
            said = text_of(result.content)[: limits.hook_response_chars_max]
            facts |= {"tool_response": said, "tool_error": result.outcome != "ok"}
        mark = str(call.id) if call is not None else str(turn.turn.request.turn_id)
        verdict = await run_hook(agent.hooks, hook, event, facts, mark=mark)
        if verdict.trouble:
            log.warning("%s: a %s hook %s", agent.name, event, verdict.trouble)
        return verdict


def _input(call: ToolCall) -> Json:
    """A call's arguments; as they stand, if they are not JSON."""
    try:
        arguments: Json = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return call.arguments
    return arguments
