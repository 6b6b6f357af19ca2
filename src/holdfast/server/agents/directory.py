"""The directory of agents: the protocol by which a server finds its agents, however they are loaded."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from holdfast.agents.agent import Agent, Team
from holdfast.agents.registry import Broken, Listed
from holdfast.core.history.conversation import Snapshot
from holdfast.core.turns.events import TurnRequest
from holdfast.ids import Tenant
from holdfast.sessions.session_requests import AgentChoice, Ask
from holdfast.wire.openai.chat.request import ignored


class Directory(Protocol):
    def entries(self, tenant: Tenant | None = None) -> tuple[Listed, ...]:
        """All agents, or those that this tenant may use."""
        ...

    async def refresh(self) -> None:
        """Check every source for changes now."""
        ...

    def broken(self, tenant: Tenant | None = None) -> tuple[Broken, ...]:
        """Sources that cannot be loaded as they are now, and why; only those that this tenant may know of."""
        ...

    def choose(self, ask: Ask, snapshot: Snapshot | None = None) -> AgentChoice:
        """The agent that continues a session, or begins a new one; `ask.agent` is the model that the request named.

        Raises AgentUnavailable if there is no such model, if this tenant may not use it, or if the session's source
        is another one or is gone; Refused if the agent's model ignores a parameter that the answer must obey.
        """
        ...

    def history_items_max(self, snapshot: Snapshot) -> int | None:
        """How many items of the history a session's agent sees; None: all of them, or the agent is not served."""
        ...

    def resident(self, source_key: str, agent: str, *, source_name: str = "") -> Agent | None:
        """The agent of that source as it is served now; None if it is not served. Loads nothing."""
        ...

    def team_for(self, request: TurnRequest) -> AbstractContextManager[Team]:
        """The agents that play a turn. They stay open until the context ends. Raises TurnFailed if they cannot be
        found."""
        ...


def entry_of(directory: Directory, tenant: Tenant, model: str) -> Listed:
    """The agent that a client names, under that name. Raises AgentUnavailable if this tenant may not use it, or if there
    is none."""
    chosen = directory.choose(Ask(tenant=tenant, name=None, agent=model))
    found = next((each for each in directory.entries(tenant) if each.id == model), None)
    return found or Listed(id=model, agent=chosen.agent, source="")


def choice_of(
    agent: Agent, ask: Ask, *, source_key: str, source_digest: str, source_name: str = ""
) -> AgentChoice:
    """The choice of this agent for a request. Raises Refused if the agent's model ignores a parameter that the answer
    must obey."""
    return AgentChoice(
        agent=agent.name,
        source_key=source_key,
        source_name=source_name,
        source_digest=source_digest,
        policy=agent.policy,
        limits=agent.limits,
        ignored=ignored(ask.given, agent.model.knows),
    )
