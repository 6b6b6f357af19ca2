"""The hooks of a turn's agents: when each runs, how often, and what its verdict does.

1. `pre_tool_use` runs before the model's answer is recorded, for calls that the rules have not refused. Its verdict is
   recorded with the answer: changed arguments are the call's arguments from the start, so they are what is journaled,
   approved, shown and run; a refusal is the call's result; if it asks for an approval, the call waits for one.
2. A call that an earlier player recorded (a person has approved it since, or a crash came before its intent) is
   reviewed again before it runs. Its arguments are final then: if a hook would change them, the call is refused. A call
   that had started before a crash, and may be started again, is not reviewed again.
3. `post_tool_use` runs after the call's result has been recorded, for calls that ran: once, or, after a crash in
   between, not at all. If it blocks, the turn fails; the result stands.
4. `session_start` runs before the first step of a session's first turn, `stop` when the agent has given its last
   answer, `on_user_input` when a turn ends with calls that a person has to approve. Of the events that are not about a
   call only those in `GUARDS` can block; each may run again if the turn is tried again.
5. Words that a hook adds (`additional_context`) are told to the model with its instruction: those of `session_start`,
   `user_prompt_submit` and steered messages for the rest of the turn, those of `turn_start` for one step. They are not
   part of the conversation.
6. `permission_request` runs before a call waits for a person, and may refuse it; it cannot approve. What
   `tool_response_transform` gives back is recorded in place of a tool's text; if it breaks, the text is withheld.
7. `on_tool_approval_decision` runs before a call runs, and when it is refused; `user_followup_submit` before the first
   step of a turn that was queued behind another one; `on_session_resume` before a turn goes on that had reached a limit.
8. A hook that fails is logged. A `pre_tool_use` hook that fails, or gives an answer that cannot be understood, refuses
   the call.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from holdfast import limits
from holdfast.agents.agent import Agent
from holdfast.agents.hook_prompts import filled_prompt
from holdfast.core.codec import Value
from holdfast.core.items import Text, ToolCall, ToolResult, text_of
from holdfast.core.ports import OpenTurn
from holdfast.errors import TurnFailed
from holdfast.loop.hooks.model_hooks import ask_model
from holdfast.tools.hooks import GUARDS, Hook, HookEvent, Verdict, run_hook
from holdfast.tools.redaction import redacted
from holdfast.tools.tool import Json, ToolOutput

log = logging.getLogger("holdfast.hooks")


class Reviewed(Value):
    """The combined verdict of an agent's hooks on a call."""

    arguments: str
    asks: bool = False
    """The call needs a person's approval."""
    refused: str | None = None
    """Why the call must not run."""


class TurnHooks:
    """The hooks of the agents of one turn."""

    def __init__(self, turn: OpenTurn) -> None:
        self._turn = turn

    async def reviewed(self, call: ToolCall, agent: Agent, *, final: bool = False) -> Reviewed:
        """The hooks' verdict on a call that is about to be recorded; if `final`, on a recorded call that is about to
        run.

        Each hook sees the arguments as the hook before it has changed them.
        """
        arguments, asks = call.arguments, False
        for hook in agent.hooks.of("pre_tool_use", tool=call.name):
            shown = msgspec.structs.replace(call, arguments=arguments)
            verdict = await self._ask(hook, "pre_tool_use", agent, call=shown, final=final)
            if verdict.blocks is not None:
                return Reviewed(arguments=arguments, refused=verdict.blocks)
            if verdict.trouble:
                return Reviewed(
                    arguments=arguments, refused=f"the hook that guards it {verdict.trouble}"
                )
            asks = asks or verdict.asks
            if verdict.arguments is not None:
                arguments = verdict.arguments
        if final and not _same(arguments, call.arguments):
            why = "a hook would change its arguments, and it is too late for that"
            return Reviewed(arguments=call.arguments, refused=why)
        return Reviewed(arguments=arguments, asks=asks)

    async def ran(self, call: ToolCall, agent: Agent, result: ToolResult) -> None:
        """Run the `post_tool_use` hooks of a call. Raises TurnFailed if one of them blocks."""
        for hook in agent.hooks.of("post_tool_use", tool=call.name):
            verdict = await self._ask(hook, "post_tool_use", agent, call=call, result=result)
            why = verdict.blocks
            if why is None and verdict.trouble and hook.blocks_if_broken:
                why = f"it {verdict.trouble}"
            if why is None and (verdict.asks or verdict.arguments is not None):
                why = "it wants the call to be asked about, or to be another one, and the call has run"
            if why is not None:
                words = f"a hook stopped the turn after {call.name!r}: {why}"
                raise TurnFailed("tool_error", words, reason="hook_blocked")

    async def happened(
        self, event: HookEvent, agent: Agent, more: Mapping[str, Json] | None = None
    ) -> tuple[str, ...]:
        """Run the hooks of an event, with these facts. Returns their words for the model. Raises TurnFailed if one blocks
        that has a say."""
        told: list[str] = []
        for hook in agent.hooks.of(event):
            verdict = await self._ask(hook, event, agent, more=more)
            why = verdict.blocks
            if why is None and verdict.trouble and hook.blocks_if_broken:
                why = f"it {verdict.trouble}"
            if why is not None and event in GUARDS:
                words = f"a {event} hook stopped the turn: {why}"
                raise TurnFailed("tool_error", words, reason="hook_blocked")
            if why is not None and not verdict.trouble:
                log.warning("%s: a %s hook says no, and has no say there", agent.name, event)
            if verdict.context:
                told.append(verdict.context)
        return tuple(told)

    async def decided(self, call: ToolCall, agent: Agent, *, refused: str | None) -> None:
        """Tell the `on_tool_approval_decision` hooks what became of a call that is about to run, or is not."""
        decision = "allow" if refused is None else "deny"
        for hook in agent.hooks.of("on_tool_approval_decision", tool=call.name):
            facts: dict[str, Json] = {
                "approval_decision": decision,
                "approval_source": refused or "rules",
            }
            await self._ask(hook, "on_tool_approval_decision", agent, call=call, more=facts)

    async def denied(self, call: ToolCall, agent: Agent) -> str | None:
        """Why a `permission_request` hook refuses a call that a person would be asked about; None if none does."""
        for hook in agent.hooks.of("permission_request", tool=call.name):
            verdict = await self._ask(hook, "permission_request", agent, call=call)
            if verdict.blocks is not None:
                return verdict.blocks
        return None

    async def transformed(self, call: ToolCall, agent: Agent, output: ToolOutput) -> ToolOutput:
        """A tool's output as it is recorded: without secrets, if its agent wants that, and as `tool_response_transform`
        hooks want it; each sees the text that the one before left."""
        if agent.redacts:
            parts = tuple(
                msgspec.structs.replace(each, text=redacted(each.text))
                if isinstance(each, Text)
                else each
                for each in output.content
            )
            output = msgspec.structs.replace(output, content=parts)
        for hook in agent.hooks.of("tool_response_transform", tool=call.name):
            text = text_of(output.content)
            facts: dict[str, Json] = {
                "tool_response": text[: limits.hook_response_chars_max],
                "tool_error": output.outcome != "ok",
            }
            verdict = await self._ask(hook, "tool_response_transform", agent, call=call, more=facts)
            if verdict.blocks is not None or verdict.trouble:
                why = verdict.blocks or verdict.trouble
                changed = f"[Withheld: the hook that changes results failed: {why}]"
            elif verdict.response is None:
                continue
            else:
                changed = verdict.response[: limits.tool_output_chars_max]
            output = msgspec.structs.replace(output, content=(Text(text=changed),))
        return output

    async def compacting(self, agent: Agent) -> Verdict:
        """The verdict of the hooks before a summary is written: a refusal, words for its writer, or a summary."""
        told: list[str] = []
        events: tuple[HookEvent, ...] = ("pre_compact", "before_compaction")
        for event in events:
            facts: dict[str, Json] = {"source": "auto", "compaction_reason": "threshold"}
            for hook in agent.hooks.of(event):
                verdict = await self._ask(hook, event, agent, more=facts)
                if verdict.blocks is not None or verdict.summary:
                    return verdict
                told.append(verdict.context)
        return Verdict(context="\n".join(filter(None, told)))

    async def _ask(
        self,
        hook: Hook,
        event: HookEvent,
        agent: Agent,
        *,
        call: ToolCall | None = None,
        result: ToolResult | None = None,
        final: bool = False,
        more: Mapping[str, Json] | None = None,
    ) -> Verdict:
        turn = self._turn
        facts: dict[str, Json] = {
            "session_id": str(turn.snapshot.session_id),
            "turn_id": str(turn.turn.request.turn_id),
            "agent_name": agent.name,
        }
        if event == "session_start":
            facts["source"] = "startup"
        if event == "stop":
            facts["stop_response"] = turn.turn.root.last_words[: limits.hook_response_chars_max]
        if event == "pre_tool_use":
            facts["tool_input_final"] = final
        if call is not None:
            facts |= {
                "tool_name": call.name,
                "tool_use_id": str(call.id),
                "tool_input": _input(call),
            }
        if result is not None:
            said = text_of(result.content)[: limits.hook_response_chars_max]
            facts |= {"tool_response": said, "tool_error": result.outcome != "ok"}
        facts |= more or {}
        mark = str(call.id) if call is not None else str(turn.turn.request.turn_id)
        if hook.prompt and not hook.model:
            return Verdict(context=filled_prompt(hook.prompt, {**facts, "hook_event_name": event}))
        if hook.model:
            model, given = agent.hook_models[hook.model], {**facts, "hook_event_name": event}
            verdict = await ask_model(hook, model, given, mint=turn.mint, key=f"{mark}/{event}")
        else:
            verdict = await run_hook(agent.hooks, hook, event, facts, mark=mark)
        which = event, hook.command or hook.model
        if verdict.trouble:
            agent.hook_troubles.failed(which, f"{agent.name}: a {event} hook", verdict.trouble)
        else:
            agent.hook_troubles.worked(which)
        return verdict


def _same(arguments: str, others: str) -> bool:
    """Whether both are the same JSON value."""
    if arguments == others:
        return True
    try:
        same: bool = msgspec.json.decode(arguments) == msgspec.json.decode(others)
    except msgspec.DecodeError:
        return False
    return same


def _input(call: ToolCall) -> Json:
    """A call's arguments, decoded; as text if they are not JSON."""
    try:
        arguments: Json = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return call.arguments
    return arguments
