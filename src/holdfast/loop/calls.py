"""The calls of a turn: the tools that an agent is offered, and the results of its calls.

Every call gets a result, so that the turn stays well formed: from its tool, from the sub-agent that works on the
task, or as a sentence that tells the model why the call was not run and what it can do.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import nullcontext
from functools import partial

from holdfast import limits
from holdfast.agents.agent import Agent, Team
from holdfast.core.history.conversation import changed_memories
from holdfast.core.items import (
    HandOff,
    Outcome,
    Path,
    Text,
    ToolCall,
    UserMessage,
    plain_text,
    result_for,
)
from holdfast.core.ports import OpenTurn
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import UNKNOWN
from holdfast.core.turns.unfinished_turns import keys_of_calls
from holdfast.ids import CallId, MessageId, NoteId
from holdfast.loop import spans, team_tools
from holdfast.loop.call_permissions import CallPermissions
from holdfast.loop.hooks.turn_hooks import TurnHooks
from holdfast.loop.turn_tools import TurnTools
from holdfast.observe.tally import Tally
from holdfast.tools.deferred_tools import ADD
from holdfast.tools.execution import InvalidArguments, execute, parse_arguments
from holdfast.tools.tool import Json, Tool, ToolRun


class Calls:
    """Runs the calls of one turn, a few at a time."""

    def __init__(self, turn: OpenTurn, team: Team, hooks: TurnHooks, tally: Tally) -> None:
        self._turn = turn
        self._tally = tally
        self._team = team
        self._hooks = hooks
        self._room = asyncio.Semaphore(limits.calls_side_by_side_max)
        self.toolbox = TurnTools(turn)
        self._permissions = CallPermissions(turn, self.toolbox, hooks, self._room)
        self._state_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One lock per state name: a tool that writes a state runs after the call before it has written."""

    async def offered(self, agent: Agent, path: Path) -> tuple[ev.ToolDefinition, ...]:
        """The tools that an agent's model is offered: its own, those of its team, and the client's.

        No two have the same name: a team's tool replaces an agent's own, and a client's replaces both.
        """
        reads_only = self._turn.turn.request.reads_only
        tools = await self.toolbox.offered(agent)
        own = (_definition(each) for each in tools if each.spec.read_only or not reads_only)
        theirs = team_tools.definitions(agent, self._team, depth=len(path))
        client = () if path else self._turn.turn.request.client_tools
        return tuple({each.name: each for each in (*own, *theirs, *client)}.values())

    async def judged(self, agent: Agent, answered: ev.Answered) -> tuple[ev.Event, ...]:
        """See `CallPermissions.judged`."""
        return await self._permissions.judged(agent, answered)

    async def run(self, call: ToolCall) -> None:
        """Run this call, open a branch for it, or record why it cannot run."""
        async with self._room:
            agent = self._caller(call)
            if agent is None:
                words = f"{call.agent!r}, who asked for this, is not in the team any more."
                await self._answer(call, "error", words)
            elif team_tools.means_one(call, agent):
                if not await self._is_refused(call, agent):
                    handle = self._transfer if call.name == team_tools.TRANSFER else self._hand_off
                    await handle(call, agent)
            else:
                await self._use_tool(call, agent)

    def _caller(self, call: ToolCall) -> Agent | None:
        """The agent that made the call; after a hand-off another agent may speak now. None if it has left the team."""
        branch = self._turn.turn.branch(call.path)
        assert branch is not None, "a call is pending in a branch that exists"
        return self._team.agents.get(call.agent or branch.agent or self._team.entry)

    # ── tools ──

    async def _use_tool(self, call: ToolCall, agent: Agent) -> None:
        tool = await self.toolbox.find(agent, call.name)
        if tool is None:
            there = [each.name for each in await self.offered(agent, call.path)]
            words = f"There is no tool {call.name!r}. There are: {', '.join(there) or 'none'}."
            await self._answer(call, "error", words)
        elif not self.toolbox.is_offered(agent, tool):
            words = f"{call.name!r} is not loaded; load it with {ADD} first."
            await self._answer(call, "error", words)
        elif (why := await self._permissions.refused(call, agent, tool)) is not None:
            await self._answer(call, "refused", f"Refused: {why}")
            await self._hooks.decided(call, agent, refused=why)
        else:
            try:
                arguments = parse_arguments(tool.spec, call.arguments)
            except InvalidArguments as error:
                await self._answer(call, "error", str(error))
            else:
                if not await self._is_refused(call, agent):
                    await self._hooks.decided(call, agent, refused=None)
                    await self._run_tool(call, agent, tool, arguments)

    async def _is_refused(self, call: ToolCall, agent: Agent) -> bool:
        """Whether a hook refuses the call; if so, the refusal is recorded as its result."""
        why = await self._permissions.objection(call, agent)
        if why is not None:
            await self._answer(call, "refused", f"Refused: {why}")
        return why is not None

    async def _run_tool(
        self, call: ToolCall, agent: Agent, tool: Tool, arguments: dict[str, Json]
    ) -> None:
        async with self._state_locks[tool.spec.state] if tool.spec.state else nullcontext():
            await self._run_tool_now(call, agent, tool, arguments)

    async def _run_tool_now(
        self, call: ToolCall, agent: Agent, tool: Tool, arguments: dict[str, Json]
    ) -> None:
        spec, turn = tool.spec, self._turn
        await turn.record(
            ev.ToolStarted(call=call.id, read_only=spec.read_only, idempotent=spec.idempotent)
        )
        run = ToolRun(
            call_key=str(self._key(call) if spec.idempotent else call.id),
            arguments=arguments,
            tenant=str(turn.tenant),
            session_id=str(turn.snapshot.session_id),
            agent=spec.memories_of or agent.name,
            state=self.toolbox.state(),
            memories=await self._memories(spec.memories_of or agent.name) if spec.memories else {},
            reserved=self._team.reserved(),
        )
        with spans.using(turn, agent, call, self._tally) as use:
            tell = partial(agent.tool_troubles.failed, spec.name, f"{agent.name}: tool {spec.name}")
            output = await execute(
                tool, run, turn.keep_blob, chars_max=agent.result_chars_max, tell_broken=tell
            )
            use.ended(output)
        if output.outcome == "ok":
            agent.tool_troubles.worked(spec.name)
        output = await self._hooks.transformed(call, agent, output)
        result = result_for(call, output.outcome, output.content, turn.mint)
        await turn.record(ev.ToolFinished(result=result, changes=output.changes))
        await self._hooks.ran(call, agent, result)

    def _key(self, call: ToolCall) -> CallId:
        """The idempotency key of a call. In a continuation, a call that repeats a call whose outcome is unknown has
        that call's key."""
        turn, snapshot = self._turn.turn, self._turn.snapshot
        if turn.request.continues is None:
            return call.id
        last = snapshot.marks[-1]
        first = (*snapshot.chain_before(last), last)[0]
        keys = keys_of_calls((*snapshot.items[first.start : last.end], *turn.items))
        return keys.get(call.id, call.id)

    async def _memories(self, agent: str) -> dict[str, str]:
        committed = await self._turn.memories(agent)
        return changed_memories(committed, self._turn.turn.changes, agent=agent)

    # ── colleagues ──

    async def _transfer(self, call: ToolCall, agent: Agent) -> None:
        if not team_tools.gives_tasks(agent, depth=len(call.path)):
            words = (
                f"Colleagues are {limits.branch_depth_max} deep at work already; do it yourself."
            )
            await self._answer(call, "error", words)
            return
        asked = team_tools.parse_transfer(call.arguments, agent, self._team)
        if isinstance(asked, team_tools.UnfitCall):
            await self._answer(call, "error", asked.why)
            return
        task = UserMessage(
            id=self._turn.mint(MessageId),
            content=plain_text(asked.task),
            path=(*call.path, call.id),
        )
        await self._turn.record(ev.BranchOpened(call=call.id, agent=asked.agent, task=task))
        await self._tell_of_switch(agent, asked.agent, "transfer_task")

    async def _hand_off(self, call: ToolCall, agent: Agent) -> None:
        if not team_tools.hands_off(agent, depth=len(call.path)):
            words = "Only the agent that talks to the user can hand over; finish your own task."
            await self._answer(call, "error", words)
            return
        to = team_tools.parse_handoff(call.arguments, agent, self._team)
        if isinstance(to, team_tools.UnfitCall):
            await self._answer(call, "error", to.why)
            return
        speaker = self._turn.turn.agent or self._team.entry
        if speaker not in (agent.name, to):
            await self._answer(call, "error", f"The conversation is {speaker}'s by now.")
            return
        note = HandOff(id=self._turn.mint(NoteId), from_agent=agent.name, to_agent=to)
        done = (Text(text=f"{to} takes over the conversation."),)
        # In this order, and idempotent: after a crash at any point the hand-off can be made again.
        await self._turn.record(
            ev.ToolStarted(call=call.id, read_only=True, idempotent=True),
            *(() if speaker == to else (ev.HandedOff(item=note),)),
            ev.ToolFinished(result=result_for(call, "ok", done, self._turn.mint)),
        )
        await self._tell_of_switch(agent, to, "handoff")

    async def _tell_of_switch(self, agent: Agent, to: str, kind: str) -> None:
        facts: dict[str, Json] = {
            "from_agent": agent.name,
            "to_agent": to,
            "agent_switch_kind": kind,
        }
        await self._hooks.happened("on_agent_switch", agent, facts)

    # ── answers ──

    async def _answer(self, call: ToolCall, outcome: Outcome, words: str) -> None:
        """Record the result of a call that is not run. If it may have run before a crash, the result says so."""
        pending = self._turn.turn.find_pending(call.id)
        if pending is not None and pending.may_have_run:
            outcome, words = "unknown", f"{UNKNOWN} It was not run again: {words}"
        result = result_for(call, outcome, (Text(text=words),), self._turn.mint)
        await self._turn.record(ev.ToolFinished(result=result))


def _definition(tool: Tool) -> ev.ToolDefinition:
    spec = tool.spec
    return ev.ToolDefinition(
        name=spec.name, description=spec.description, parameters=spec.parameters
    )
