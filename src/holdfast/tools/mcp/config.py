"""The configuration of an MCP server: how to reach it, and how far it is trusted."""

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
    """A server program that Holdfast starts and talks to over its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    """The program's whole environment, with variables filled in: it may hold secrets, so it is never shown."""
    directory: str = "."
    network: bool = True
    roots: tuple[str, ...] = ()
    """Directories that the program may write to in a sandbox, besides its working directory and its home."""
    read_roots: tuple[str, ...] = ()
    """Directories that the program may also read in a sandbox."""
    home: str = ""
    """The program's home in a sandbox, kept between its starts. Empty: a new one for each start."""

    def pinned(self) -> Stdio:
        """The same program, with links in these paths resolved now, and with the paths that its command line names."""
        directory = os.path.realpath(self.directory)
        folders = named_paths(Path(directory), self.command, *self.args).folders
        return msgspec.structs.replace(
            self,
            directory=directory,
            roots=tuple(map(os.path.realpath, (*folders, *self.roots))),
            read_roots=tuple(map(os.path.realpath, self.read_roots)),
        )


class OauthClient(Value):
    """How a login at a server is made, where its file says something about it."""

    client_id: str = ""
    """Empty: a client is registered at the first login."""
    client_secret: str = ""
    scopes: tuple[str, ...] = ()
    """Empty: what the server asks for."""
    port: int = 0
    """The port of the callback on this machine; 0: any free one."""
    redirect: str = ""
    """The address that the browser is sent to, if that is another one, which sends it on to the callback."""


class Remote(Value):
    """A server that Holdfast calls over HTTP."""

    url: str
    events: bool = False
    """It speaks the older transport, by server-sent events, in place of streamable HTTP."""
    headers: Mapping[str, str] = {}
    """Variables are filled in: the headers may hold secrets, so they are never shown."""
    oauth: OauthClient | None = None
    login: str = ""
    """The command that logs a person in here."""

    @property
    def takes_login(self) -> bool:
        """Whether its requests are signed with a tenant's login: its file gives no token."""
        return not any(name.lower() == "authorization" for name in self.headers)


Transport: TypeAlias = Stdio | Remote


class McpServer(Value):
    """One MCP server."""

    transport: Transport
    name: str = ""
    """If set, the server's tools are named `name_tool`."""
    only: tuple[str, ...] | None = None
    """Offer only these tools, by the server's names. None: all of them."""
    trust_hints: bool = False
    """Whether to believe the server that a tool is read-only or idempotent. Otherwise every tool needs a permission."""
    only_readers: bool = False
    """Offer only tools that say of themselves that they change nothing."""
    required: bool = False
    """A turn without its tools fails."""
    timeout_s: float = 60.0
    """The time limit of one call."""
    start_s: float = limits.mcp_start_s
    """The time limit of a start."""
    idle_s: float = limits.mcp_idle_s
    """A server without a call for this long is stopped; the next call starts it again."""
    secrets: tuple[str, ...] = ()
    """Values that no message shows, even if the server prints them."""

    @property
    def shown(self) -> str:
        """The server's name for people, without secrets."""
        address = (
            shown(self.transport.url)
            if isinstance(self.transport, Remote)
            else self.transport.command.rpartition("/")[2]
        )
        return f"{self.name} ({address})" if self.name else address

    def hide(self, text: str) -> str:
        """The text with its secrets replaced."""
        for secret in self.secrets:
            text = text.replace(secret, "***") if len(secret) > 3 else text
        return text
