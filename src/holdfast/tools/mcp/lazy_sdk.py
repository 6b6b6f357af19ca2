"""Imports the MCP SDK when the first server is needed: most agents have none, and the import takes most of a second.

This is one of the few places with a late import; the architecture test names them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from typing import TypeAlias

import msgspec

from holdfast.tools.mcp.config import McpServer, Stdio
from holdfast.tools.mcp.peer import Connect, OnChanged, Peer
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.threads import in_thread

_Connect: TypeAlias = Callable[[McpServer, OnChanged, Sandbox], AbstractAsyncContextManager[Peer]]

INSTALL = "MCP servers need an extra that is not installed: pip install 'holdfast[mcp]'"


def is_installed() -> bool:
    return find_spec("mcp") is not None


def connecting_to(server: McpServer, sandbox: Sandbox) -> Connect:
    """A function that connects to a server; nothing is imported or started yet. Links on the way to its directories are
    resolved now: when the server starts, a command may have changed them."""
    if isinstance(server.transport, Stdio):
        server = msgspec.structs.replace(server, transport=server.transport.pinned())

    @asynccontextmanager
    async def connect(on_changed: OnChanged) -> AsyncIterator[Peer]:
        sdk_connect = await in_thread(_load, name="holdfast mcp")
        async with sdk_connect(server, on_changed, sandbox) as peer:
            yield peer

    return connect


def _load() -> _Connect:
    from holdfast.tools.mcp import sdk  # noqa: PLC0415

    return sdk.connect
