"""What the rest of us knows of an MCP server that is there: a few questions to ask it, and how they can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from holdfast.core.codec import Value
from holdfast.tools.tool import Json, ToolOutput


class Unavailable(Exception):
    """The server cannot be asked now; the message says why."""


class ServerLost(Exception):
    """The server went away, and with it the answer: it may have acted or not.

    `unheard`: it cannot have: it did not know us any more.
    """

    def __init__(self, words: str, *, unheard: bool = False) -> None:
        super().__init__(words)
        self.unheard = unheard


class CallFailed(Exception):
    """The server is there, and says that this cannot be done."""


class Offered(Value):
    """A tool, as its server describes it."""

    name: str
    description: str
    schema: str
    read_only: bool = False
    idempotent: bool = False


class OnProgress(Protocol):
    """Hears how far a call has come."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class Peer(Protocol):
    """A server that is there."""

    @property
    def instruction(self) -> str:
        """What it says about how to use it."""
        ...

    @property
    def gone(self) -> asyncio.Event:
        """Set when it is not there any more."""
        ...

    async def greet(self) -> None:
        """Introduce ourselves; the first thing to do. Raises Unavailable."""
        ...

    async def offered(self) -> tuple[Offered, ...]:
        """Its tools. Raises ServerLost or CallFailed."""
        ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Json],
        *,
        call_key: str,
        on_progress: OnProgress,
    ) -> ToolOutput:
        """Run one of them. Cancelling this tells the server. Raises ServerLost or CallFailed."""
        ...


OnChanged: TypeAlias = Callable[[], None]
"""The server's tools are not what they were."""

Connect: TypeAlias = Callable[[OnChanged], AbstractAsyncContextManager[Peer]]
"""Starts a server, and ends it. What it raises says that it could not be started, or has gone."""
