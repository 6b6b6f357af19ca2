"""Which MCP server, and how far it is trusted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.tools.sandbox.sandbox import named_paths
from holdfast.tools.web.address_guard import shown


class Stdio(Value):
    """A program that we start and speak to over its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    """Everything that it sees; variables are filled in already: not to be shown."""
    directory: str = "."
    network: bool = True
    roots: tuple[str, ...] = ()
    """Where it may write in a sandbox, besides its directory and its home."""
    read_roots: tuple[str, ...] = ()
    """What it may read in a sandbox, besides."""
    home: str = ""
    """Its home in a sandbox, kept over its starts. Empty: a new one each time."""

    def pinned(self) -> Stdio:
        """The same, with the directories that these paths lead to now, and with those that its words name."""
        directory = os.path.realpath(self.directory)
        folders = named_paths(Path(directory), self.command, *self.args).folders
        return msgspec.structs.replace(
            self,
            directory=directory,
            roots=tuple(map(os.path.realpath, (*folders, *self.roots))),
            read_roots=tuple(map(os.path.realpath, self.read_roots)),
        )


class Remote(Value):
    """A server that is spoken to over streamable HTTP."""

    url: str
    headers: Mapping[str, str] = {}
    """Variables are filled in already: not to be shown."""


Transport: TypeAlias = Stdio | Remote


class McpServer(Value):
    """One MCP server."""

    transport: Transport
    name: str = ""
    """If there is one, its tools are called `name_tool`."""
    only: tuple[str, ...] | None = None
    """Only these of its tools, by its own names. None: all of them."""
    trust_hints: bool = False
    """Whether its own word counts that a tool only reads, or may be repeated. Else every tool needs a permission."""
    timeout_s: float = 60.0
    """For one call."""
    idle_s: float = limits.mcp_idle_s
    """Nobody has called it for so long: it is stopped, and started again when somebody does."""
    secrets: tuple[str, ...] = ()
    """Values that are never told, also if the server itself does."""

    @property
    def shown(self) -> str:
        """As people know it, without anything secret."""
        told = (
            shown(self.transport.url)
            if isinstance(self.transport, Remote)
            else self.transport.command.rpartition("/")[2]
        )
        return f"{self.name} ({told})" if self.name else told

    def hide(self, text: str) -> str:
        """The same text without the secrets that are in it."""
        for secret in self.secrets:
            text = text.replace(secret, "***") if len(secret) > 3 else text
        return text
