"""An MCP server with the official SDK, for tests: it tells what it was sent, waits, changes and dies on request.

`desk.py` speaks over its standard input and output, `desk.py FD` over HTTP on a socket that it was given.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

server = MCPServer(
    "desk", instructions="Ask the desk before you ask anybody else.", log_level="ERROR"
)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}."


@server.tool(name="who.am/i", annotations=ToolAnnotations(idempotent_hint=True))
async def who_am_i(ctx: Context) -> str:
    """Tell what came with the call, and a few variables."""
    meta = ctx.request_context.meta or {}
    told = {name: os.environ.get(name, "") for name in ("DESK_TOKEN", "OPENAI_API_KEY")}
    header = (ctx.headers or {}).get("authorization", "")
    with_it = f"{meta.get('holdfast/call_key')} {meta.get('traceparent')}"
    return f"{with_it} {told} {header} {os.getcwd()} {os.getpid()}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True, destructive_hint=True))
async def wait(ctx: Context, at: str) -> str:
    """Report progress, say so in a pipe, and wait until nobody wants it any more."""
    await ctx.report_progress(2, 5, "looking")
    try:
        await asyncio.to_thread(tell, at, "waiting")  # and here it may be cancelled already
        await asyncio.Event().wait()
    finally:
        tell(at, "cancelled")
    return "never"


def tell(at: str, words: str) -> None:
    """Write to a pipe, and wait until somebody reads it."""
    Path(at).write_text(words)


@server.tool()
def fail() -> str:
    """Fail, politely."""
    raise ToolError("the desk is closed")


@server.tool()
def die(words: str) -> str:
    """Say something, and be gone."""
    sys.stderr.write(words)
    sys.stderr.flush()
    os._exit(3)


@server.tool()
async def learn(ctx: Context) -> str:
    """Offer one more tool from now on."""
    server.add_tool(lambda: "done", name="fly", description="Fly.")
    await ctx.session.send_tool_list_changed()
    return "learnt"


async def over_http(fd: int) -> None:
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", lifespan="on")
    await uvicorn.Server(config).serve(sockets=[socket.socket(fileno=fd)])


if __name__ == "__main__":
    if "DESK_REFUSES" in os.environ:
        sys.exit(f"no desk today, {os.environ.get('DESK_TOKEN')}")
    if len(sys.argv) > 1:
        asyncio.run(over_http(int(sys.argv[1])))
    else:
        server.run()
