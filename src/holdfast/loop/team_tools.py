"""The two tools by which agents of a team work together: `transfer_task` and `handoff`."""

from __future__ import annotations

import msgspec

from holdfast import limits
from holdfast.agents.agent import Agent, Team
from holdfast.core.codec import Value
from holdfast.core.items import ToolCall
from holdfast.core.turns.deltas import ToolCallDelta
from holdfast.core.turns.events import ToolDefinition

TRANSFER = "transfer_task"
HANDOFF = "handoff"


class TransferArguments(msgspec.Struct, frozen=True):
    """The arguments of `transfer_task`, with the names that docker-agent uses."""

    agent: str
    task: str
    expected_output: str = ""


class HandoffArguments(msgspec.Struct, frozen=True):
    agent: str


class Task(Value):
    agent: str
    task: str


class UnfitCall(Value):
    """What is wrong with the arguments of a call, in words for the model."""

    why: str


def means_one(call: ToolCall, agent: Agent) -> bool:
    """Whether a call is of one of the two tools: an agent has them only if it has colleagues."""
    return (call.name == TRANSFER and bool(agent.sub_agents)) or (
        call.name == HANDOFF and bool(agent.handoffs or agent.force_handoff)
    )


def gives_tasks(agent: Agent, *, depth: int) -> bool:
    """Whether an agent in a branch of this depth may give a task to a sub-agent. The deepest may not."""
    return bool(agent.sub_agents) and depth < limits.branch_depth_max


def hands_off(agent: Agent, *, depth: int) -> bool:
    """Whether an agent may hand the conversation over. A sub-agent may not: it owes an answer to its caller."""
    return bool(agent.handoffs or agent.force_handoff) and depth == 0


def forced_handoff(agent: Agent, *, depth: int) -> ToolCallDelta | None:
    """The call by which an agent that has given its last answer hands the conversation over, if it always does. It
    is made in the agent's name, so that the journal, clients and hooks see an ordinary hand-off."""
    if not agent.force_handoff or depth > 0:
        return None
    arguments = msgspec.json.encode(HandoffArguments(agent=agent.force_handoff)).decode()
    return ToolCallDelta(
        index=0, call_id=f"handoff_{agent.name}", name=HANDOFF, arguments=arguments
    )


def definitions(agent: Agent, team: Team, *, depth: int) -> tuple[ToolDefinition, ...]:
    """The definitions of the two tools for an agent's model, with its colleagues' names and descriptions."""
    offered: list[ToolDefinition] = []
    if gives_tasks(agent, depth=depth):
        offered.append(
            ToolDefinition(
                name=TRANSFER,
                description="Give a task to a colleague and get the result back. Colleagues: "
                + _introduced(agent.sub_agents, team),
                parameters=_schema(TransferArguments, agent.sub_agents),
            )
        )
    if agent.handoffs and hands_off(agent, depth=depth):
        offered.append(
            ToolDefinition(
                name=HANDOFF,
                description="Hand the conversation over to a colleague, who answers from now on. "
                "Colleagues: " + _introduced(agent.handoffs, team),
                parameters=_schema(HandoffArguments, agent.handoffs),
            )
        )
    return tuple(offered)


def parse_transfer(arguments: str, agent: Agent, team: Team) -> Task | UnfitCall:
    """The task of a `transfer_task` call, and the agent it is for."""
    try:
        asked = msgspec.json.decode(arguments, type=TransferArguments)
    except msgspec.DecodeError as error:
        return UnfitCall(why=f"The arguments do not fit: {error}.")
    if not asked.task.strip():
        return UnfitCall(why="The task is empty; say what is to be done.")
    expected = f"\n\nExpected output: {asked.expected_output}" if asked.expected_output else ""
    return _stranger(asked.agent, agent.sub_agents, team) or Task(
        agent=asked.agent, task=asked.task + expected
    )


def parse_handoff(arguments: str, agent: Agent, team: Team) -> str | UnfitCall:
    """The agent that takes over after a `handoff` call."""
    try:
        asked = msgspec.json.decode(arguments, type=HandoffArguments)
    except msgspec.DecodeError as error:
        return UnfitCall(why=f"The arguments do not fit: {error}.")
    known = (*agent.handoffs, agent.force_handoff) if agent.force_handoff else agent.handoffs
    return _stranger(asked.agent, known, team) or asked.agent


def _stranger(name: str, known: tuple[str, ...], team: Team) -> UnfitCall | None:
    there = [each for each in known if each in team.agents]
    if name in there:
        return None
    return UnfitCall(
        why=f"There is no colleague {name!r}. There are: {', '.join(there) or 'none'}."
    )


def _introduced(names: tuple[str, ...], team: Team) -> str:
    known = ((name, team.agents.get(name)) for name in names)
    return "; ".join(
        f"{name} ({each.description})" if each and each.description else name
        for name, each in known
    )


def _schema(kind: type[msgspec.Struct], colleagues: tuple[str, ...]) -> str:
    (_,), components = msgspec.json.schema_components([kind])
    schema = components[kind.__name__]
    schema["properties"]["agent"]["enum"] = list(colleagues)
    return msgspec.json.encode(schema).decode()
