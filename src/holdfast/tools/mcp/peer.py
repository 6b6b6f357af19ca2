"""The protocol of a connected MCP server: what it can be asked, and how that can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from holdfast.core.codec import Value
from holdfast.tools.tool import Json, ToolOutput


class Unavailable(Exception):
    """The server cannot be reached now; the message says why."""


class ServerLost(Exception):
    """The server went away before it answered: it may have acted or not.

    `unheard`: it has not acted, because it no longer knew our session.
    """

    def __init__(self, words: str, *, unheard: bool = False) -> None:
        super().__init__(words)
        self.unheard = unheard


class CallFailed(Exception):
    """The server answered that it cannot do this."""


class Offered(Value):
    """A tool, as its server describes it."""

    name: str
    description: str
    schema: str
    read_only: bool = False
    idempotent: bool = False


class OnProgress(Protocol):
    """Receives the progress of a call."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class Peer(Protocol):
    """A connected server."""

    @property
    def instruction(self) -> str:
        """The server's own instruction on how to use it."""
        ...

    @property
    def gone(self) -> asyncio.Event:
        """Set when the server has gone."""
        ...

    async def greet(self) -> None:
        """The handshake, before anything else. Raises Unavailable."""
        ...

    async def offered(self) -> tuple[Offered, ...]:
        """The server's tools. Raises ServerLost or CallFailed."""
        ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Json],
        *,
        call_key: str,
        on_progress: OnProgress,
    ) -> ToolOutput:
        """Call a tool. Cancelling this tells the server to cancel. Raises ServerLost or CallFailed."""
        ...


OnChanged: TypeAlias = Callable[[], None]
"""Called when the server's list of tools has changed."""

Connect: TypeAlias = Callable[[OnChanged], AbstractAsyncContextManager[Peer]]
"""Starts a server, and stops it on exit. Any error means that the server did not start, or has gone."""
