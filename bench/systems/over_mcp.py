"""Servers that reach their tools over MCP: the tool of the scenarios (`peers/charge_mcp.py`) is started beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from systems.base import Place, Running, System, free_port
from systems.environments import python_of

CHARGE = Path(__file__).parents[1] / "peers" / "charge_mcp.py"
TRIES_MAX = 20


def tools_of(place: Place) -> str:
    """Where the tool is, as an MCP server."""
    return f"http://127.0.0.1:{(place.folder / 'tools.port').read_text()}/mcp"


class OverMcp(System):
    """The tool is a process of its own."""

    def with_tool(self, place: Place) -> Sequence[str]:
        port = (place.folder / "tools.port").read_text()
        tool = f"{python_of(self.environment)} {CHARGE} {port} {place.effects}"
        # Somebody may have taken its port for a moment, so it tries again, and not for ever.
        beside = f"for n in $(seq {TRIES_MAX}); do {tool} && break; sleep 0.2; done"
        return ["sh", "-c", f'({beside}) & exec "$@"', "sh", *self.command(place)]

    def prepare(self, place: Place) -> None:
        (place.folder / "tools.port").write_text(str(free_port()))

    async def is_ready(self, running: Running) -> bool:
        """Whether the tool answers; a server adds what it says about itself."""
        async with running.http.get(tools_of(running.place)) as response:
            return response.status < 500
