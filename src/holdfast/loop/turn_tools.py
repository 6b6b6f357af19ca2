"""The tools of a turn's agents: all of them, the ones that their models may call now, and their fingerprints."""

from __future__ import annotations

from itertools import zip_longest

from holdfast.agents.agent import Agent
from holdfast.core.codec import Value
from holdfast.core.history.conversation import changed_state
from holdfast.core.ports import OpenTurn
from holdfast.errors import TurnFailed
from holdfast.tools.deferred_tools import is_offered, loaded_by, loaders
from holdfast.tools.tool import (
    Tool,
    Toolset,
    absence_of,
    fingerprint,
    for_tenant,
    is_foreign,
    named_in,
)


class _Kept(Value):
    """A tool and its origin."""

    tool: Tool
    origin: str


class TurnTools:
    """The tools of one turn."""

    def __init__(self, turn: OpenTurn) -> None:
        self._turn = turn
        self._kept: dict[str, dict[str, _Kept]] = {}

    async def find(self, agent: Agent, name: str) -> Tool | None:
        """An agent's tool of this name, offered or not."""
        kept = (await self._of(agent)).get(name)
        return kept.tool if kept else None

    async def offered(self, agent: Agent) -> tuple[Tool, ...]:
        """The tools that are offered to an agent's model now."""
        everything = await self._of(agent)
        return tuple(kept.tool for kept in everything.values() if self.is_offered(agent, kept.tool))

    def is_offered(self, agent: Agent, tool: Tool) -> bool:
        """Whether an agent may call this tool: a deferred tool has to be loaded first."""
        return not tool.spec.deferred or is_offered(tool.spec, loaded_by(agent.name, self.state()))

    async def fingerprint(self, agent: Agent, name: str) -> str:
        """The fingerprint of a tool, which approvals and grants are bound to; empty if there is no such tool."""
        kept = (await self._of(agent)).get(name)
        return fingerprint(kept.tool.spec, origin=kept.origin) if kept else ""

    async def origin(self, agent: Agent, name: str) -> str:
        """The origin of the toolset that a tool is of; empty if there is no such tool."""
        kept = (await self._of(agent)).get(name)
        return kept.origin if kept else ""

    def state(self) -> dict[str, str]:
        """The session's state with the changes of this turn."""
        return dict(changed_state(self._turn.snapshot.state, self._turn.turn.changes))

    async def _of(self, agent: Agent) -> dict[str, _Kept]:
        if agent.name not in self._kept:
            found: dict[str, _Kept] = {}
            toolsets = _ours_first(agent, str(self._turn.tenant))
            for toolset, origin in toolsets:
                agent.names.reserve(named_in(toolset), origin)
            for toolset, origin in toolsets:
                tools = await toolset.tools()
                if why := absence_of(toolset):
                    raise TurnFailed("tool_error", f"{agent.name} needs them. {why}")
                for tool in tools:
                    # The first tool of a name wins: no server can replace a tool that a rule names.
                    name = tool.spec.name
                    ours = not is_foreign(toolset)
                    if name not in found and (ours or agent.names.is_owned(name, origin)):
                        found[name] = _Kept(tool=tool, origin=origin)
            deferred = [each.tool.spec for each in found.values() if each.tool.spec.deferred]
            adding = {each.spec.name: _Kept(tool=each, origin="") for each in loaders(deferred)}
            self._kept[agent.name] = {**found, **adding}
        return self._kept[agent.name]


def _ours_first(agent: Agent, tenant: str) -> list[tuple[Toolset, str]]:
    """An agent's toolsets as a tenant has them, with their origins: first those whose tools the operator names, then the
    others."""
    every: list[tuple[Toolset, str]] = []
    for n, (toolset, origin) in enumerate(zip_longest(agent.toolsets, agent.origins, fillvalue="")):
        assert not isinstance(toolset, str), "there are no more origins than toolsets"
        every.append((for_tenant(toolset, tenant), origin or _made_in_code(n, toolset)))
    return sorted(every, key=lambda each: is_foreign(each[0]))


def _made_in_code(n: int, toolset: Toolset) -> str:
    """An origin for an agent's n-th toolset, if no file declares it: two toolsets of one type have different
    origins."""
    return f"{n} {type(toolset).__module__}.{type(toolset).__qualname__}"
