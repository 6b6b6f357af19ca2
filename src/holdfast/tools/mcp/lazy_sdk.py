"""Imports the MCP SDK when the first server is needed: most agents have none, and the import takes most of a second.

This is one of the few places with a late import; the architecture test names them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from typing import Protocol, TypeAlias

import msgspec

from holdfast.tools.mcp.config import McpServer, Remote, Stdio
from holdfast.tools.mcp.login_callback import Callback
from holdfast.tools.mcp.logins import Login, TenantLogins
from holdfast.tools.mcp.peer import Connect, OnChanged, Peer
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.threads import in_thread

_Connect: TypeAlias = Callable[
    [McpServer, OnChanged, Sandbox, TenantLogins | None], AbstractAsyncContextManager[Peer]
]


class SignIn(Protocol):
    """A login at a server; see `sign_in.py`."""

    async def __call__(
        self,
        remote: Remote,
        *,
        redirect: str,
        state: asyncio.Future[str],
        show: Callable[[str], None],
        callback: Callable[[], Awaitable[Callback]],
    ) -> Login: ...


INSTALL = "MCP servers need an extra that is not installed: pip install 'holdfast[mcp]'"


def is_installed() -> bool:
    return find_spec("mcp") is not None


def connecting_to(
    server: McpServer, sandbox: Sandbox, logins: TenantLogins | None = None
) -> Connect:
    """A function that connects to a server; nothing is imported or started yet. Links on the way to its directories are
    resolved now: when the server starts, a command may have changed them. `logins` sign the requests to a remote server."""
    if isinstance(server.transport, Stdio):
        server = msgspec.structs.replace(server, transport=server.transport.pinned())

    @asynccontextmanager
    async def connect(on_changed: OnChanged) -> AsyncIterator[Peer]:
        sdk_connect, _ = await in_thread(load_sdk, name="holdfast mcp")
        async with sdk_connect(server, on_changed, sandbox, logins) as peer:
            yield peer

    return connect


def load_sdk() -> tuple[_Connect, SignIn]:
    """How to connect to a server, and how to log in at one."""
    from holdfast.tools.mcp import sdk, sign_in  # noqa: PLC0415

    return sdk.connect, sign_in.sign_in
