"""MCP servers that an editor names for a session: programs to start, or URLs. Nothing is started before its user agrees.

They run here, for the user who started us, and never on the server: a program in the sandbox, in the session's
directory, with the environment that the editor gives it and the listed part of ours. Their tools are asked about like
all tools that change something: what a server says of itself is not believed.
"""

from __future__ import annotations

import os
import shlex

from holdfast.cli.acp.editor_session import EditorSession
from holdfast.cli.acp.local_tools import ToolsetTool
from holdfast.cli.acp.questions import Questions
from holdfast.tools.mcp.config import McpServer, Remote, Stdio, Transport
from holdfast.tools.mcp.toolset import McpToolset
from holdfast.tools.names import valid_names
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.schema import InvalidTool
from holdfast.tools.toolsets.script import passed_on
from holdfast.wire.acp.requests import GivenMcpServer


class GivenServers:
    """Starts the MCP servers of one editor's sessions."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._sandbox = Sandbox()

    async def start(self, session: EditorSession) -> list[str]:
        """Ask the user about each new server of a session, and offer the tools of the servers that the user allows. Returns
        what the user should know. Raises PromptCancelled."""
        told: list[str] = []
        while session.servers:
            given = session.servers[0]
            words = _words(given)
            leave = await self._questions.about(
                session.id, f"mcp-{given.name}", f"Use the MCP server {given.name}?", words
            )
            session.servers.pop(0)
            if leave == "never":
                continue
            try:
                told += await self._started(session, given)
            except InvalidTool as error:
                told.append(f"The MCP server {given.name} cannot be used: {error}")
        return told

    async def _started(self, session: EditorSession, given: GivenMcpServer) -> list[str]:
        (name,) = valid_names((given.name,))
        secrets = tuple(each.value for each in (*given.env, *given.headers))
        server = McpServer(
            transport=_transport(given, session.place.cwd), name=name, secrets=secrets
        )
        toolset = McpToolset(server, sandbox=self._sandbox)
        session.toolsets.append(toolset)
        tools = await toolset.tools()
        session.add(*(ToolsetTool(each, grant=each.spec.name, asks=True) for each in tools))
        return [toolset.trouble] if toolset.trouble else []


def _transport(given: GivenMcpServer, cwd: str) -> Transport:
    """How a server is reached. Raises InvalidTool for a kind that we did not offer."""
    if given.type == "stdio" and given.command:
        env = {**passed_on(os.environ), **{each.name: each.value for each in given.env}}
        return Stdio(command=given.command, args=given.args, env=env, directory=cwd).pinned()
    if given.type in ("http", "sse") and given.url:
        headers = {each.name: each.value for each in given.headers}
        return Remote(url=given.url, events=given.type == "sse", headers=headers)
    raise InvalidTool(f"servers of the kind {given.type!r} are not supported")


def _words(given: GivenMcpServer) -> str:
    """What would be started or called, without its secrets."""
    if given.type != "stdio":
        return f"Its tools are called at {given.url}."
    return f"This starts a program: {shlex.join((given.command, *given.args))}"
