"""The tools of one MCP server: the `mcp` toolset.

A server's description of its tools is not trusted. Names are made valid and unique, schemas are checked. Read-only and
idempotent hints are believed only if the operator trusts the server's hints; otherwise every tool of it needs a
permission and is not run again after a crash.
While a server cannot be reached, it keeps the tools of its last answer, or none; its agents' instructions say so.
"""

from __future__ import annotations

import asyncio
import logging

from holdfast.ids import LOCAL
from holdfast.tools.execution import failure
from holdfast.tools.mcp.config import McpServer
from holdfast.tools.mcp.connection import McpConnection
from holdfast.tools.mcp.lazy_sdk import INSTALL, connecting_to, is_installed
from holdfast.tools.mcp.logins import Logins
from holdfast.tools.mcp.peer import CallFailed, Connect, Offered, ServerLost, Unavailable
from holdfast.tools.names import valid_names
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.schema import InvalidTool, checked
from holdfast.tools.tool import Tool, ToolBroken, ToolOutput, ToolRun, ToolSpec

log = logging.getLogger("holdfast.tools")


class McpToolset:
    """The tools of one server. Raises InvalidTool if the SDK is not installed."""

    foreign = True

    def __init__(
        self,
        server: McpServer,
        *,
        connect: Connect | None = None,
        sandbox: Sandbox | None = None,
        logins: Logins | None = None,
        tenant: str = LOCAL,
    ) -> None:
        """`connect`: how to reach the server; by default through the SDK. `logins`: tenants have connections of their own,
        each with its login; this one is of `tenant`."""
        if connect is None and not is_installed():
            raise InvalidTool(INSTALL)
        self.server = server
        self._logins = logins
        self._tenants: dict[str, McpToolset] = {tenant: self}
        self.named = tuple(valid_names(server.only or (), prefix=server.name))
        self._connection = McpConnection(
            server.shown,
            connect
            or connecting_to(
                server,
                sandbox or Sandbox(),
                None if logins is None else logins.of_tenant(tenant),
            ),
            idle_s=server.idle_s,
            start_s=server.start_s,
            on_changed=self._forget,
            hide=server.hide,
        )
        self._known: tuple[Tool, ...] = ()
        self._is_fresh = False
        self._listing = asyncio.Lock()
        self._instruction = ""
        self._trouble = ""

    def for_tenant(self, tenant: str) -> McpToolset:
        """The same tools for a tenant: over its own connection, if there are logins."""
        if self._logins is None:
            return self
        if tenant not in self._tenants:
            self._tenants[tenant] = McpToolset(self.server, logins=self._logins, tenant=tenant)
        return self._tenants[tenant]

    @property
    def instruction(self) -> str:
        """The server's own instruction, or why the server cannot be reached."""
        return "\n".join(filter(None, (self._instruction, self._trouble)))

    @property
    def trouble(self) -> str:
        """Why the server could not be asked the last time; empty if it answered."""
        return self._trouble

    @property
    def absence(self) -> str:
        """Why there are no tools, if they are required."""
        return self._trouble if self.server.required and not self._known else ""

    async def tools(self) -> tuple[Tool, ...]:
        """The server's tools. They are listed at the start, and again after the server says that they changed."""
        async with self._listing:
            if not self._is_fresh:
                await self._list()
        return self._known

    async def _list(self) -> None:
        self._is_fresh = True  # set first: a change during the listing counts
        try:
            async with self._connection.peer() as peer:
                offered = await peer.offered()
                self._instruction, self._trouble = peer.instruction, ""
        except (Unavailable, ServerLost, CallFailed) as error:
            self._is_fresh = False
            self._trouble = f"The tools of {self.server.shown} cannot be used now: {error}"
        else:
            self._known = tuple(made_of(offered, self.server, self._connection))

    def _forget(self) -> None:
        self._is_fresh = False

    async def close(self) -> None:
        await self._connection.close()
        for each in tuple(self._tenants.values()):
            if each is not self:
                await each.close()

    def __repr__(self) -> str:
        return f"<McpToolset {self.server.shown}>"


def made_of(
    offered: tuple[Offered, ...], server: McpServer, connection: McpConnection
) -> list[Tool]:
    """Tools made of a server's offer. A tool that models cannot take is left out, and logged."""
    named = {each.name: each for each in reversed(offered)}
    made: list[Tool] = []
    for name, own in valid_names((each.name for each in offered), prefix=server.name).items():
        if server.only is not None and own not in server.only:
            continue
        if server.only_readers and not named[own].read_only:
            continue
        try:
            made.append(
                McpTool(checked(spec_of(name, named[own], server)), own, server, connection)
            )
        except InvalidTool as error:
            log.warning("mcp server %s: a tool is left out: %s", server.shown, error)
    return made


def spec_of(name: str, offered: Offered, server: McpServer) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=offered.description,
        parameters=offered.schema,
        read_only=offered.read_only and server.trust_hints,
        idempotent=offered.idempotent and server.trust_hints,
        # The call has its own timeout, whose message includes the progress; this one is the backstop.
        timeout_s=min(server.timeout_s + 10.0, 3600.0),
    )


class McpTool:
    """One tool of a server."""

    def __init__(
        self, spec: ToolSpec, own_name: str, server: McpServer, connection: McpConnection
    ) -> None:
        self.spec = spec
        self._own_name = own_name
        self._server = server
        self._connection = connection

    async def run(self, run: ToolRun) -> ToolOutput:
        progress = _Progress()
        try:
            async with asyncio.timeout(self._server.timeout_s):
                return await self._call(run, progress)
        except TimeoutError:
            cause = f"did not finish within {self._server.timeout_s:g} s"
            raise ToolBroken(f"{self.spec.name!r} {cause}{progress.words}.", cause=cause) from None
        except Unavailable as error:
            return failure(f"{self.spec.name!r} was not run: {error}")
        except CallFailed as error:
            return failure(f"{self.spec.name!r} failed: {error}")
        except ServerLost as error:
            return failure(
                f"{self.spec.name!r} failed: its server went away before it answered ({error}){progress.words}. "
                "Whether it did what was asked is not known. The server is started again for the next call."
            )

    async def _call(self, run: ToolRun, progress: _Progress) -> ToolOutput:
        try:
            return await self._call_once(run, progress)
        except ServerLost as error:
            if not error.unheard:
                raise
        # The server was restarted and never received the first attempt.
        return await self._call_once(run, progress)

    async def _call_once(self, run: ToolRun, progress: _Progress) -> ToolOutput:
        async with self._connection.peer() as peer:
            return await peer.call(
                self._own_name, run.arguments, call_key=run.call_key, on_progress=progress.note
            )

    def __repr__(self) -> str:
        return f"<McpTool {self.spec.name} of {self._server.shown}>"


class _Progress:
    """The progress that a server has reported for a call."""

    def __init__(self) -> None:
        self.words = ""

    async def note(self, progress: float, total: float | None, message: str | None) -> None:
        of = f" of {total:g}" if total is not None else ""
        words = f" ({message[:200]})" if message else ""
        self.words = f"; it had come to {progress:g}{of}{words}"
