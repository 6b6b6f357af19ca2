"""Who can be asked: what a server needs to know about its agents, however they are loaded."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from holdfast.agents.agent import Agent, PromptCommand, Team
from holdfast.core.codec import Value
from holdfast.core.history.conversation import Snapshot
from holdfast.core.ports import Play
from holdfast.core.turns.events import TurnRequest
from holdfast.ids import Tenant
from holdfast.sessions.session_requests import AgentChoice, Ask


class ModelEntry(Value):
    """One line of `GET /v1/models`: an agent, under the id that clients name it by."""

    id: str
    agent: str
    source: str
    description: str = ""
    welcome_message: str = ""
    commands: tuple[PromptCommand, ...] = ()
    """Prompts for clients to offer."""


class BrokenSourceEntry(Value):
    """A source that cannot be loaded as it is now."""

    source: str
    problems: tuple[str, ...]
    """Lines for people, each with its place."""
    serving: bool
    """An older version of it goes on."""


class Directory(Protocol):
    def entries(self, tenant: Tenant | None = None) -> tuple[ModelEntry, ...]:
        """Everybody who can be asked; by this tenant, if one is named."""
        ...

    async def refresh(self) -> None:
        """Look at every source now, not in its own time."""
        ...

    def broken(self, tenant: Tenant | None = None) -> tuple[BrokenSourceEntry, ...]:
        """What cannot be loaded as it is now, and why; as far as it is this tenant's concern."""
        ...

    def named(self, model: str, tenant: Tenant) -> AgentChoice:
        """The agent that a model id means to this tenant. Raises ModelNotFound, with what there is for it."""
        ...

    def choose(self, ask: Ask, snapshot: Snapshot) -> AgentChoice:
        """Who continues a session, if `ask.agent` is the model that was asked for.

        Raises AgentUnavailable: no such model, or none for this tenant; another source, or one that is gone.
        """
        ...

    def history_items_max(self, snapshot: Snapshot) -> int | None:
        """How many items of its past a session's agent is shown; None: all of them, or the agent is not served."""
        ...

    def resident(self, source_key: str, agent: str) -> Agent | None:
        """The agent of a session with that source, as it is served now; None if it is not. Loads nothing."""
        ...

    async def team_for(self, request: TurnRequest) -> Team:
        """The agents that a turn is played by. Raises TurnFailed."""
        ...

    def holding(self) -> AbstractAsyncContextManager[None]:
        """Agents that are found inside stay open until its end."""
        ...

    def playing(self, play: Play) -> Play:
        """The same player, whose agents stay open until it has played its turn."""
        ...
