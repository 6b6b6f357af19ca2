"""One session of an editor: where it works, which agent answers, its tools, and the work that goes on in it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.cli.acp.local_tools import LocalTool, ReadTool, Workplace
from holdfast.tools.tool import Toolset
from holdfast.wire.acp.requests import GivenMcpServer, SessionMode, SessionModes
from holdfast.wire.acp.turn_updates import TurnUpdates
from holdfast.wire.api import objects as api

READ_ONLY = "read-only"
"""The mode that narrows: the agent stays, and no tool that changes something is offered or run."""


class RunningPrompt:
    """A prompt that is being answered."""

    def __init__(self) -> None:
        self.turn_id: str | None = None
        """The turn that runs now."""
        self.answering: asyncio.Task[str | None] | None = None
        """The work on calls that wait for the editor or its user."""
        self.cancelled = False


class EditorSession:
    """A conversation that an editor has open. All that lasts is on the server, under `id`."""

    def __init__(
        self,
        session_id: str,
        place: Workplace,
        agents: Sequence[api.AgentObject],
        agent: api.AgentObject,
        tools: Mapping[str, LocalTool],
        servers: Sequence[GivenMcpServer] = (),
    ) -> None:
        self.id = session_id
        """The key or id of the conversation."""
        self.place = place
        self.agents = tuple(agents)
        """The agents that may answer here."""
        self.agent = agent
        self.reads_only = False
        self.updates = TurnUpdates(place.cwd)
        self.allowed: set[str] = set()
        """What its user has allowed for the whole session. Kept here alone: nothing in a store can allow a call that
        runs on the user's machine."""
        self.servers = list(servers)
        """The MCP servers that the user was not asked about yet."""
        self.toolsets: list[Toolset] = []
        self.described = False
        """Whether the conversation has its working directory as an attribute."""
        self.running: set[RunningPrompt] = set()
        self._tools = dict(tools)

    # ── tools ──

    @property
    def tools(self) -> dict[str, LocalTool]:
        """The tools that the mode offers, by name."""
        if not self.reads_only:
            return self._tools
        return {name: each for name, each in self._tools.items() if each.spec.read_only}

    def find(self, name: str) -> LocalTool | None:
        """A tool that runs here, offered or not."""
        return self._tools.get(name)

    def add(self, *tools: LocalTool) -> None:
        """Offer more tools. No tool replaces one that is there."""
        for each in tools:
            self._tools.setdefault(each.spec.name, each)

    def functions(self) -> tuple[api.ClientFunction, ...]:
        """The tools as the server is told of them."""
        return tuple(
            api.ClientFunction(
                name=each.spec.name,
                description=each.spec.description,
                parameters=msgspec.json.decode(each.spec.parameters, type=dict[str, msgspec.Raw]),
            )
            for each in self.tools.values()
        )

    def instructions(self) -> str:
        """What a model has to know about the editor."""
        where = f"You work in the user's editor, in {', '.join(self.place.directories)}."
        if not isinstance(self._tools.get("read_file"), ReadTool):
            return where
        return f"{where} Your file tools show files as they stand there, unsaved changes included."

    # ── modes ──

    @property
    def modes(self) -> SessionModes:
        agents = tuple(
            SessionMode(id=each.id, name=each.id, description=each.description or None)
            for each in self.agents
        )
        narrow = SessionMode(
            id=READ_ONLY,
            name="Read only",
            description="The same agent, without tools that change anything.",
        )
        return SessionModes(current_mode_id=self.mode, available_modes=(*agents, narrow))

    @property
    def mode(self) -> str:
        return READ_ONLY if self.reads_only else self.agent.id

    def choose(self, mode: str) -> bool:
        """Change the mode. False if there is no such mode."""
        if mode == READ_ONLY:
            self.reads_only = True
            return True
        found = next((each for each in self.agents if each.id == mode), None)
        if found is None:
            return False
        self.agent, self.reads_only = found, False
        return True

    async def close(self) -> None:
        """Stop the MCP servers that were started for this session."""
        toolsets, self.toolsets = self.toolsets, []
        for each in toolsets:
            await each.close()
