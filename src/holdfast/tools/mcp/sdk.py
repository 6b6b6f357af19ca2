"""Speaks MCP with the official SDK; no other module knows the SDK.

The SDK handles the protocol: handshake, requests and answers, progress, `notifications/cancelled` for an
abandoned call, and a program's process group from start to end. This module adds the bounds, the error messages, and
the conversion of results.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, cast

import anyio
import httpx2
import mcp_types as types
import msgspec
from mcp.client import ClientSession, IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from holdfast import limits
from holdfast.core.items import Audio, File, Image, Inline, Part, Parts, Text
from holdfast.environment import MCP_SERVER
from holdfast.observe.events import trace_headers
from holdfast.tools.files.reserved_files import data_named_by
from holdfast.tools.mcp.config import McpServer, Remote, Stdio
from holdfast.tools.mcp.logins import TenantLogins
from holdfast.tools.mcp.peer import (
    CallFailed,
    Offered,
    OnChanged,
    OnProgress,
    Peer,
    ServerLost,
    Unavailable,
)
from holdfast.tools.mcp.signed_requests import SignedRequests
from holdfast.tools.process import Capture, kill_marked
from holdfast.tools.sandbox.sandbox import Sandbox, named_paths
from holdfast.tools.threads import in_thread
from holdfast.tools.tool import Json, ToolOutput
from holdfast.version import VERSION


class _NoticeFilter(logging.Filter):
    """Lets a message of the SDK through once a minute: it has one, with a stack trace, for each line of a program that
    is no MCP, and a program may write thousands of them in a second."""

    def __init__(self) -> None:
        super().__init__()
        self._told_s: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now_s = time.monotonic()
        if now_s - self._told_s.get(record.msg, -limits.notice_s) < limits.notice_s:
            return False
        self._told_s[record.msg] = now_s
        return True


logging.getLogger("mcp.client.stdio").addFilter(_NoticeFilter())

CALL_KEY = "holdfast/call_key"
"""The key in a request's `_meta` that holds the call's stable key, by which a server can recognise a repetition."""

_GRACE_S = 1.0
"""From SIGTERM until the launcher ends the whole server; the SDK would kill the launcher after 2 s."""
_GONE = (types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT)
_UNHEARD = re.compile(r"session (not found|terminated)|valid session|no session", re.IGNORECASE)
"""How an HTTP server says that it does not know our session: it has been restarted since."""


class _Incoming(Protocol):
    """Incoming messages: the part of the SDK's streams that we use."""

    async def receive(self) -> SessionMessage | Exception: ...
    async def aclose(self) -> None: ...


class _Outgoing(Protocol):
    """Outgoing messages: the part of a stream that the SDK uses."""

    async def send(self, item: SessionMessage, /) -> None: ...
    async def aclose(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None: ...


_Streams: TypeAlias = tuple[_Incoming, _Outgoing]


@asynccontextmanager
async def connect(
    server: McpServer, on_changed: OnChanged, sandbox: Sandbox, logins: TenantLogins | None
) -> AsyncIterator[Peer]:
    """A connected server. A local program is started, and stopped on exit with all of its processes. Requests to a
    remote one are signed with a login, unless its file gives a token."""
    errors = _Stderr()
    signed = _signed(server, logins)
    opened = (
        _over_http(server.transport, signed)
        if isinstance(server.transport, Remote)
        else _over_stdio(server.transport, errors, sandbox)
    )
    with closing(errors):
        async with opened as (read, write):
            peer = _SdkPeer(server, errors, on_changed, signed)
            peer.session = ClientSession(
                _Watched(read, peer.gone),
                write,
                message_handler=peer.on_message,
                client_info=types.Implementation(name="holdfast", version=VERSION),
            )
            async with peer.session:
                yield peer


@asynccontextmanager
async def _over_stdio(program: Stdio, errors: _Stderr, sandbox: Sandbox) -> AsyncIterator[_Streams]:
    mark, directory = secrets.token_hex(16), Path(program.directory)
    words = (program.command, *program.args)
    named = named_paths(directory, *words)
    cell = sandbox.cell(
        program.directory,
        *program.roots,
        read_roots=(*named.projects, *program.read_roots),
        own=data_named_by(words, directory) | {program.home},
        network=program.network,
        home=program.home,
    )
    argv, environment = [program.command, *program.args], {**program.env, MCP_SERVER: mark}
    argv = await cell.launched(argv, environment, grace_s=_GRACE_S) or argv
    parameters = StdioServerParameters(
        command=argv[0],
        args=argv[1:],
        env=environment,
        cwd=program.directory,
        encoding_error_handler="replace",
    )
    try:
        async with stdio_client(parameters, errlog=errors.to) as streams:
            errors.to.close()  # our copy; the server has its own
            yield streams
    finally:
        # The SDK ends the program's process group; processes that have left the group are found by the mark.
        await in_thread(lambda: kill_marked(mark, variable=MCP_SERVER), name="holdfast mcp")


def _signed(server: McpServer, logins: TenantLogins | None) -> SignedRequests | None:
    remote = server.transport
    if not isinstance(remote, Remote) or not remote.takes_login:
        return None
    return SignedRequests(remote.url, logins)


@asynccontextmanager
async def _over_http(remote: Remote, signed: SignedRequests | None) -> AsyncIterator[_Streams]:
    if remote.events:
        async with sse_client(
            remote.url,
            headers=dict(remote.headers),
            timeout=30.0,
            sse_read_timeout=limits.tool_timeout_s_max,
            auth=signed,
            httpx_client_factory=_without_proxies,
        ) as streams:
            yield streams
        return
    client = httpx2.AsyncClient(
        headers=dict(remote.headers),
        timeout=httpx2.Timeout(30.0, read=limits.tool_timeout_s_max),
        auth=signed,
        trust_env=False,
    )
    async with client:
        async with streamable_http_client(
            remote.url, http_client=client, max_sse_event_size=2 * limits.tool_output_bytes_max
        ) as streams:
            yield streams


def _without_proxies(
    headers: dict[str, Any] | None = None,
    timeout: httpx2.Timeout | None = None,
    auth: httpx2.Auth | None = None,
) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, trust_env=False)


class _SdkPeer:
    """A server connected through the SDK."""

    session: ClientSession

    def __init__(
        self,
        server: McpServer,
        errors: _Stderr,
        on_changed: OnChanged,
        signed: SignedRequests | None,
    ) -> None:
        self._server = server
        self._signed = signed
        self._errors = errors
        self._on_changed = on_changed
        self.gone = asyncio.Event()

    @property
    def instruction(self) -> str:
        return self._server.hide(self.session.instructions or "")[: limits.mcp_text_chars_max]

    async def greet(self) -> None:
        try:
            await self.session.initialize()
        except (MCPError, RuntimeError, ValidationError) as error:
            raise Unavailable(await self._words(error)) from error

    async def on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_changed()

    async def offered(self) -> tuple[Offered, ...]:
        found: list[Offered] = []
        cursor: str | None = None
        try:
            while True:
                page = await self.session.list_tools(
                    params=types.PaginatedRequestParams(cursor=cursor)
                )
                found += map(_offered, page.tools)
                cursor = page.next_cursor
                if not cursor or len(found) >= limits.mcp_tools_max:
                    return tuple(found[: limits.mcp_tools_max])
        except (MCPError, RuntimeError, ValidationError, anyio.ClosedResourceError) as error:
            raise await self._failure(error) from error

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Json],
        *,
        call_key: str,
        on_progress: OnProgress,
    ) -> ToolOutput:
        meta = cast("types.RequestParamsMeta", {CALL_KEY: call_key, **trace_headers()})
        try:
            result = await self.session.call_tool(
                name, dict(arguments), progress_callback=on_progress, meta=meta
            )
        except (MCPError, RuntimeError, ValidationError, anyio.ClosedResourceError) as error:
            raise await self._failure(error) from error
        return output_of(result)

    async def _failure(self, error: Exception) -> ServerLost | CallFailed:
        words = await self._words(error)
        code = error.code if isinstance(error, MCPError) else None
        is_remote = isinstance(self._server.transport, Remote)
        if is_remote and isinstance(error, MCPError) and _UNHEARD.search(error.message):
            return ServerLost(words, unheard=True)
        if self.gone.is_set() or code in _GONE or isinstance(error, anyio.ClosedResourceError):
            return ServerLost(words)
        return CallFailed(words)

    async def _words(self, error: Exception) -> str:
        message = error.message if isinstance(error, MCPError) else str(error)
        message = message or type(error).__name__
        if self._signed is not None and self._signed.is_refused:
            assert isinstance(self._server.transport, Remote)
            return self._signed.way_out(self._server.transport.login)
        if isinstance(self._server.transport, Stdio) and self.gone.is_set():
            printed = await self._errors.last_words()
            message = f"it ended{f'; it said: {printed}' if printed else ''}"
        return self._server.hide(message)[: limits.mcp_text_chars_max]


def _offered(tool: types.Tool) -> Offered:
    hints = tool.annotations or types.ToolAnnotations()
    read_only = hints.read_only_hint is True
    return Offered(
        name=tool.name,
        description=(tool.description or tool.title or "")[: limits.mcp_text_chars_max],
        schema=msgspec.json.encode({"type": "object", **tool.input_schema}).decode(),
        read_only=read_only and hints.destructive_hint is not True,
        idempotent=read_only or hints.idempotent_hint is True,
    )


# ── a server's standard error ────────────────────────────────────────────────────────────────


class _Stderr:
    """Reads a program's standard error all the time, so that the program never blocks; keeps the end of it."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self.to = open(writing, "w")  # noqa: SIM115  # for the server; closed here once the server has it
        self._from = reading
        self._kept = Capture(whole_max=limits.mcp_text_chars_max, ends_max=1000)
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(reading, False)
        self._loop.add_reader(reading, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._from, 65536)
        except BlockingIOError:
            return
        self._kept.add(data)
        if not data:
            self._stop()

    def _stop(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._loop.remove_reader(self._from)

    async def last_words(self) -> str:
        """The end of the program's standard error, including what a server that has just ended left in the pipe."""
        try:
            async with asyncio.timeout(limits.script_kill_grace_s):
                await self._ended.wait()
        except TimeoutError:
            pass  # another process still holds the pipe open
        return self._kept.bytes().decode(errors="replace").strip()

    def close(self) -> None:
        self.to.close()
        self._stop()
        os.close(self._from)


class _Watched:
    """A message stream that sets an event when it ends."""

    def __init__(self, inner: _Incoming, gone: asyncio.Event) -> None:
        self._inner = inner
        self._gone = gone

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._gone.set()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream as error:
            raise StopAsyncIteration from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


# ── results ──────────────────────────────────────────────────────────────────────────────────


def output_of(result: types.CallToolResult) -> ToolOutput:
    """A server's result as a tool's output. Structured content without text is shown as JSON."""
    parts: Parts = tuple(part for block in result.content for part in _parts(block))
    if not parts and result.structured_content is not None:
        parts = (Text(text=msgspec.json.encode(result.structured_content).decode()),)
    if len(parts) > limits.tool_parts_max:
        left_out = len(parts) - limits.tool_parts_max + 1
        parts = (*parts[: limits.tool_parts_max - 1], Text(text=f"[… {left_out} more parts …]"))
    return ToolOutput(
        content=parts or (Text(text="[no output]"),),
        outcome="error" if result.is_error else "ok",
    )


def _parts(block: types.ContentBlock) -> Parts:
    match block:
        case types.TextContent(text=text):
            return (Text(text=text),)
        case types.ImageContent(data=data, mime_type=kind):
            return _bytes(data, kind, "image")
        case types.AudioContent(data=data, mime_type=kind):
            return _bytes(data, kind, "audio")
        case types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text)):
            return (Text(text=f"[{uri}]\n{text}"),)
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            kind = resource.mime_type or "application/octet-stream"
            return _bytes(resource.blob, kind, str(resource.uri))
        case types.ResourceLink(name=name, uri=uri):
            return (Text(text=f"[{name}: {uri}]"),)
        case _:
            return (Text(text="[something of a kind that is not known here]"),)


def _bytes(text: str, kind: str, name: str) -> tuple[Part]:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return (Text(text=f"[{name}: its bytes cannot be read]"),)
    source = Inline(media_type=kind, data=data)
    if kind in ("image/png", "image/jpeg", "image/gif", "image/webp"):
        return (Image(source=source),)
    if kind.startswith("audio/"):
        return (Audio(source=source, format=kind.partition("/")[2]),)
    return (File(source=source, name=name.rpartition("/")[2][:200]),)
