"""The calls of a turn: which tools an agent is offered, and what happens when it asks for one.

A call is answered in every case, so that the turn stays well formed: by its tool, by a colleague who takes the
task on, or by a sentence that says why not, in words that the model can do something with.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext

import msgspec

from holdfast import limits
from holdfast.agents.base import Agent, Team
from holdfast.core import events as ev
from holdfast.core.closing import UNKNOWN
from holdfast.core.conversation import changed_memories, changed_state
from holdfast.core.items import (
    HandOff,
    Outcome,
    Path,
    Text,
    ToolCall,
    UserMessage,
    WaitsFor,
    plain_text,
    result_for,
)
from holdfast.core.ports import OpenTurn
from holdfast.ids import CallId, MessageId, NoteId
from holdfast.loop import colleagues
from holdfast.loop.hooks import Reviewed, TurnHooks
from holdfast.tools.base import Json, Tool, ToolRun
from holdfast.tools.deferring import ADD, is_offered, loaded_by, loaders
from holdfast.tools.permissions import Permission, permission_for
from holdfast.tools.run import InvalidArguments, execute, parse_arguments

NOBODY_TO_ASK = "a hook wants a person to be asked about it, and nobody can be asked here"


class Calls:
    """Answers the calls of one turn, a few at a time."""

    def __init__(self, turn: OpenTurn, team: Team, hooks: TurnHooks) -> None:
        self._turn = turn
        self._team = team
        self._hooks = hooks
        self._room = asyncio.Semaphore(limits.calls_side_by_side_max)
        self._tools: dict[str, dict[str, Tool]] = {}
        self._setting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Whoever sets a piece of state has seen what the call before it made of it."""
        self._asked_about: set[CallId] = set()
        """Calls that hooks have seen as they were recorded, by us and not before a crash."""

    async def offered(self, agent: Agent, path: Path) -> tuple[ev.ToolDefinition, ...]:
        """The tools that an agent's model is told of: its own, its colleagues, and the client's.

        No two have the same name: colleagues come before an agent's own tools, the client's before both.
        """
        tools, loaded = await self._tools_of(agent), self._loaded_by(agent)
        own = [_definition(each) for each in tools.values() if is_offered(each.spec, loaded)]
        theirs = colleagues.definitions(agent, self._team, depth=len(path))
        client = () if path else self._turn.turn.request.client_tools
        return tuple({each.name: each for each in (*own, *theirs, *client)}.values())

    async def classifier(self, agent: Agent, path: Path) -> Callable[[ToolCall], WaitsFor | None]:
        """How calls of this branch are told apart when they are recorded: who answers them."""
        client = {each.name for each in self._turn.turn.request.client_tools}
        tools, loaded = await self._tools_of(agent), self._loaded_by(agent)

        def waits_for(call: ToolCall) -> WaitsFor | None:
            if path:
                return None  # nobody can be asked on a sub-agent's behalf
            if call.name in client:
                return "client"
            tool = tools.get(call.name)
            if tool is None or _is_for_colleagues(call, agent):
                return None
            if not is_offered(tool.spec, loaded):
                return None
            return "approval" if self._permission(agent, tool) == "ask" else None

        return waits_for

    async def run(self, call: ToolCall) -> None:
        """See to it that this call gets its answer, or a colleague to work on it."""
        async with self._room:
            agent = self._caller(call)
            if agent is None:
                words = f"{call.agent!r}, who asked for this, is not in the team any more."
                await self._answer(call, "error", words)
            elif _is_for_colleagues(call, agent):
                if not await self._is_refused(call, agent):
                    handle = self._transfer if call.name == colleagues.TRANSFER else self._hand_off
                    await handle(call, agent)
            else:
                await self._use_tool(call, agent)

    def _caller(self, call: ToolCall) -> Agent | None:
        """Who made the call. After a hand-off that is not whoever speaks now."""
        branch = self._turn.turn.branch(call.path)
        assert branch is not None, "a call is pending in a branch that exists"
        return self._team.agents.get(call.agent or branch.agent or self._team.entry)

    # ── tools ──

    async def _use_tool(self, call: ToolCall, agent: Agent) -> None:
        tool = (await self._tools_of(agent)).get(call.name)
        if tool is None:
            there = [each.name for each in await self.offered(agent, call.path)]
            words = f"There is no tool {call.name!r}. There are: {', '.join(there) or 'none'}."
            await self._answer(call, "error", words)
        elif not is_offered(tool.spec, self._loaded_by(agent)):
            words = f"{call.name!r} is not loaded; load it with {ADD} first."
            await self._answer(call, "error", words)
        elif not self._is_allowed(call, agent, tool):
            words = f"Refused: no rule allows {call.name!r}. Do without it, or ask the user."
            await self._answer(call, "refused", words)
        else:
            try:
                arguments = parse_arguments(tool.spec, call.arguments)
            except InvalidArguments as error:
                await self._answer(call, "error", str(error))
            else:
                if not await self._is_refused(call, agent):
                    await self._run_tool(call, agent, tool, arguments)

    # ── hooks ──

    async def reviewed(self, agent: Agent, answered: ev.Answered) -> tuple[ev.Event, ...]:
        """An answer as it is to be recorded: its calls as hooks have left them, and the results of those refused."""
        if not agent.hooks.pre_tool_use:
            return (answered,)
        guarded = [
            each
            for each in answered.items
            if isinstance(each, ToolCall) and await self._is_guarded(each, agent)
        ]
        verdicts = await asyncio.gather(*(self._reviewed(each, agent) for each in guarded))
        found = {each.id: verdict for each, verdict in zip(guarded, verdicts, strict=True)}
        self._asked_about |= found.keys()
        items = tuple(
            _as_reviewed(each, found[each.id])
            if isinstance(each, ToolCall) and each.id in found
            else each
            for each in answered.items
        )
        refusals = (
            self._refusal(each, found[each.id].refused)
            for each in items
            if isinstance(each, ToolCall) and each.id in found and found[each.id].refused
        )
        return (msgspec.structs.replace(answered, items=items), *refusals)

    async def _reviewed(self, call: ToolCall, agent: Agent) -> Reviewed:
        async with self._room:
            verdict = await self._hooks.reviewed(call, agent)
        if verdict.asks and not verdict.refused and (call.path or _is_for_colleagues(call, agent)):
            return Reviewed(arguments=call.arguments, refused=NOBODY_TO_ASK)
        tool = (await self._tools_of(agent)).get(call.name)
        if tool is None or verdict.arguments == call.arguments or verdict.refused:
            return verdict
        try:
            parse_arguments(tool.spec, verdict.arguments)
        except InvalidArguments as error:
            why = f"a hook changed its arguments, and they do not fit: {error}"
            return Reviewed(arguments=call.arguments, refused=why)
        return verdict

    async def _is_guarded(self, call: ToolCall, agent: Agent) -> bool:
        """Whether hooks have a say in a call: not if it is the client's, or if it will not run in any case."""
        if call.state != "complete" or call.waits_for == "client":
            return False
        if _is_for_colleagues(call, agent):
            return True
        tool = (await self._tools_of(agent)).get(call.name)
        if tool is None or not is_offered(tool.spec, self._loaded_by(agent)):
            return False
        permission = self._permission(agent, tool)
        if permission == "deny" or (permission == "ask" and call.path):
            return False
        try:
            parse_arguments(tool.spec, call.arguments)
        except InvalidArguments:
            return False
        return True

    async def _is_refused(self, call: ToolCall, agent: Agent) -> bool:
        """Whether a hook objects to a call that was recorded earlier; if so, it is answered."""
        pending = self._turn.turn.find_pending(call.id)
        if call.id in self._asked_about or (pending is not None and pending.tried):
            return False  # nobody objected when it was recorded, or when it ran the first time
        verdict = await self._hooks.reviewed(call, agent, final=True)
        why = verdict.refused
        if verdict.asks and call.id not in self._turn.turn.request.approved:
            why = why or NOBODY_TO_ASK
        if why is not None:
            await self._answer(call, "refused", f"Refused: {why}")
        return why is not None

    def _refusal(self, call: ToolCall, why: str | None) -> ev.ToolFinished:
        words = (Text(text=f"Refused: {why}"),)
        return ev.ToolFinished(result=result_for(call, "refused", words, self._turn.mint))

    # ── running ──

    async def _run_tool(
        self, call: ToolCall, agent: Agent, tool: Tool, arguments: dict[str, Json]
    ) -> None:
        async with self._setting[tool.spec.state] if tool.spec.state else nullcontext():
            await self._run_tool_now(call, agent, tool, arguments)

    async def _run_tool_now(
        self, call: ToolCall, agent: Agent, tool: Tool, arguments: dict[str, Json]
    ) -> None:
        spec, turn = tool.spec, self._turn
        await turn.record(
            ev.ToolStarted(call=call.id, read_only=spec.read_only, idempotent=spec.idempotent)
        )
        run = ToolRun(
            call_key=str(call.id),
            arguments=arguments,
            tenant=str(turn.tenant),
            session_id=str(turn.snapshot.session_id),
            agent=agent.name,
            state=self._state(),
            memories=await self._memories(agent) if spec.memories else {},
        )
        output = await execute(tool, run, turn.keep_blob)
        result = result_for(call, output.outcome, output.content, turn.mint)
        await turn.record(ev.ToolFinished(result=result, changes=output.changes))
        await self._hooks.ran(call, agent, result)

    async def _memories(self, agent: Agent) -> dict[str, str]:
        committed = await self._turn.memories(agent.name)
        return changed_memories(committed, self._turn.turn.changes, agent=agent.name)

    def _is_allowed(self, call: ToolCall, agent: Agent, tool: Tool) -> bool:
        """Whether it may run now. What a person has allowed may not run if a rule forbids it since."""
        permission = self._permission(agent, tool)
        asked_and_allowed = permission == "ask" and call.id in self._turn.turn.request.approved
        return permission == "allow" or asked_and_allowed

    def _permission(self, agent: Agent, tool: Tool) -> Permission:
        session = self._turn.snapshot.notes.settings.permissions
        return permission_for(tool.spec, agent.permissions, session)

    async def _tools_of(self, agent: Agent) -> dict[str, Tool]:
        if agent.name not in self._tools:
            found: dict[str, Tool] = {}
            for toolset in agent.toolsets:
                for tool in await toolset.tools():
                    # The first of a name is meant: no server can put its own in place of a tool before it.
                    found.setdefault(tool.spec.name, tool)
            deferred = [each.spec for each in found.values() if each.spec.deferred]
            ours = {each.spec.name: each for each in loaders(deferred)}
            self._tools[agent.name] = {**found, **ours}
        return self._tools[agent.name]

    def _loaded_by(self, agent: Agent) -> frozenset[str]:
        """The deferred tools that an agent has loaded by now."""
        return loaded_by(agent.name, self._state())

    def _state(self) -> dict[str, str]:
        """What is remembered in the session, as this turn has it."""
        return dict(changed_state(self._turn.snapshot.state, self._turn.turn.changes))

    # ── colleagues ──

    async def _transfer(self, call: ToolCall, agent: Agent) -> None:
        if not colleagues.gives_tasks(agent, depth=len(call.path)):
            words = (
                f"Colleagues are {limits.branch_depth_max} deep at work already; do it yourself."
            )
            await self._answer(call, "error", words)
            return
        asked = colleagues.parse_transfer(call.arguments, agent, self._team)
        if isinstance(asked, colleagues.Unfit):
            await self._answer(call, "error", asked.why)
            return
        task = UserMessage(
            id=self._turn.mint(MessageId),
            content=plain_text(asked.task),
            path=(*call.path, call.id),
        )
        await self._turn.record(ev.BranchOpened(call=call.id, agent=asked.agent, task=task))

    async def _hand_off(self, call: ToolCall, agent: Agent) -> None:
        if not colleagues.hands_off(agent, depth=len(call.path)):
            words = "Only who talks to the user can hand over; finish your own task."
            await self._answer(call, "error", words)
            return
        to = colleagues.parse_handoff(call.arguments, agent, self._team)
        if isinstance(to, colleagues.Unfit):
            await self._answer(call, "error", to.why)
            return
        speaker = self._turn.turn.agent or self._team.entry
        if speaker not in (agent.name, to):
            await self._answer(call, "error", f"The conversation is {speaker}'s by now.")
            return
        note = HandOff(id=self._turn.mint(NoteId), from_agent=agent.name, to_agent=to)
        done = (Text(text=f"{to} takes over the conversation."),)
        # In this order, and idempotent: a crash at any point leaves a hand-off that can be made again.
        await self._turn.record(
            ev.ToolStarted(call=call.id, read_only=True, idempotent=True),
            *(() if speaker == to else (ev.HandedOff(item=note),)),
            ev.ToolFinished(result=result_for(call, "ok", done, self._turn.mint)),
        )

    # ── answers ──

    async def _answer(self, call: ToolCall, outcome: Outcome, words: str) -> None:
        """Answer a call that is not run. One that may have run before a crash says so."""
        pending = self._turn.turn.find_pending(call.id)
        if pending is not None and pending.may_have_run:
            outcome, words = "unknown", f"{UNKNOWN} It was not run again: {words}"
        result = result_for(call, outcome, (Text(text=words),), self._turn.mint)
        await self._turn.record(ev.ToolFinished(result=result))


def _is_for_colleagues(call: ToolCall, agent: Agent) -> bool:
    """Whether a call means one of our two tools: they are an agent's only if it has colleagues."""
    return (call.name == colleagues.TRANSFER and bool(agent.sub_agents)) or (
        call.name == colleagues.HANDOFF and bool(agent.handoffs)
    )


def _as_reviewed(call: ToolCall, verdict: Reviewed) -> ToolCall:
    """A call as hooks have left it. Nobody is asked about one that they refuse."""
    waits_for = None if verdict.refused else "approval" if verdict.asks else call.waits_for
    return msgspec.structs.replace(call, arguments=verdict.arguments, waits_for=waits_for)


def _definition(tool: Tool) -> ev.ToolDefinition:
    spec = tool.spec
    return ev.ToolDefinition(
        name=spec.name, description=spec.description, parameters=spec.parameters
    )
