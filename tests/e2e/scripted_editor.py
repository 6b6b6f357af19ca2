"""An editor by the protocol's own SDK: buffers that nobody has saved, a user who answers questions, a terminal.

It talks to `holdfast acp` as a process of its own, or to the same code over a socket in this process, which costs no
start of an interpreter.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import acp
from acp import schema

from holdfast.cli.acp.editor import Editor
from holdfast.cli.acp.methods import AcpAgent
from holdfast.client.aio import AsyncClient

OFFERS = schema.ClientCapabilities(
    fs=schema.FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=True
)


class ScriptedEditor:
    """What the SDK asks of an editor, and what a test asks of one."""

    def __init__(self, here: Path, *, offers: schema.ClientCapabilities = OFFERS) -> None:
        self.here = here
        self.offers = offers
        self.buffers: dict[str, str] = {}
        """Unsaved text, by path. What is not here is read from the disk."""
        self.updates: list[dict[str, Any]] = []
        self.questions: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any]], str | None] = lambda question: "once"
        """The user: which option is chosen for a question; None cancels."""
        self.commands: list[list[str]] = []
        self.printed = "done\n"
        self.reads = 0
        self.writes = 0
        self.deciding = asyncio.Event()
        """The user answers once this is set."""
        self.deciding.set()
        self.agent: Any = None
        self._news = asyncio.Condition()

    # ── for the SDK ──

    def on_connect(self, agent: Any) -> None:
        self.agent = agent

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update.model_dump(by_alias=True, exclude_none=True, mode="json"))
        await self._notify()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> schema.RequestPermissionResponse:
        question = tool_call.model_dump(by_alias=True, exclude_none=True, mode="json")
        question["options"] = {each.option_id: each.kind for each in options}
        self.questions.append(question)
        await self._notify()
        await self.deciding.wait()
        chosen = self.answer(question)
        outcome = (
            schema.DeniedOutcome(outcome="cancelled")
            if chosen is None
            else schema.AllowedOutcome(outcome="selected", option_id=chosen)
        )
        return schema.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **_: Any,
    ) -> schema.ReadTextFileResponse:
        self.reads += 1
        text = self.buffers.get(path)
        if text is None:
            if not Path(path).exists():  # noqa: ASYNC240
                raise acp.RequestError.resource_not_found(path)
            text = Path(path).read_text()  # noqa: ASYNC240
        lines = text.splitlines(keepends=True)
        first = (line or 1) - 1
        return schema.ReadTextFileResponse(
            content="".join(lines[first : None if limit is None else first + limit])
        )

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> None:
        self.writes += 1
        self.buffers[path] = content
        await self._notify()

    async def create_terminal(
        self, session_id: str, command: str, args: list[str] | None = None, **_: Any
    ) -> schema.CreateTerminalResponse:
        self.commands.append([command, *(args or [])])
        return schema.CreateTerminalResponse(terminal_id=f"term_{len(self.commands)}")

    async def terminal_output(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.TerminalOutputResponse:
        return schema.TerminalOutputResponse(output=self.printed, truncated=False)

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.WaitForTerminalExitResponse:
        return schema.WaitForTerminalExitResponse(exit_code=0)

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        self.commands.append(["release", terminal_id])

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        self.commands.append(["kill", terminal_id])

    # ── for tests ──

    async def open(self, name: str | None = None, **options: Any) -> str:
        """A session, in a conversation of this name if it has one."""
        meta = {"holdfast": {"conversation": name}} if name else {}
        made = await self.agent.new_session(
            cwd=str(self.here), **{"mcp_servers": [], **options, **meta}
        )
        return str(made.session_id)

    async def say(self, session: str, *said: str, key: str | None = None) -> Any:
        meta = {"holdfast": {"idempotencyKey": key}} if key else {}
        blocks = [acp.text_block(each) for each in said]
        return await self.agent.prompt(session_id=session, prompt=blocks, **meta)

    async def until(self, happened: Callable[[], object]) -> None:
        """Wait until something has happened to this editor."""
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(happened)

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()

    def told(self, kind: str) -> list[dict[str, Any]]:
        """The updates of a kind."""
        return [each for each in self.updates if each["sessionUpdate"] == kind]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(each["content"]["text"] for each in self.told(kind))

    def call(self, title: str) -> dict[str, Any]:
        """All that was told of the one call whose title begins like this, merged."""
        found: dict[str, dict[str, Any]] = {}
        for each in self.updates:
            if each["sessionUpdate"] in ("tool_call", "tool_call_update"):
                found.setdefault(each["toolCallId"], {}).update(each)
        (match,) = (each for each in found.values() if each["title"].startswith(title))
        return match

    async def begin(self) -> Any:
        return await self.agent.initialize(
            protocol_version=acp.PROTOCOL_VERSION, client_capabilities=self.offers
        )


@asynccontextmanager
async def joined(editor: ScriptedEditor, url: str, *, model: str = "root") -> AsyncIterator[None]:
    """The editor, joined to a running server by our side of the protocol in this process. Leaving closes its end."""
    near, far = socket.socketpair()
    ours = Editor(*await asyncio.open_connection(sock=near, limit=1 << 25))
    reader, writer = await asyncio.open_connection(sock=far, limit=1 << 25)
    async with AsyncClient(url) as client:
        agent = AcpAgent(client, ours, model=model, where=url)
        serving = asyncio.create_task(ours.serve(agent.handle))
        connection = acp.connect_to_agent(
            cast("Any", editor), writer, reader, use_unstable_protocol=True
        )
        try:
            await editor.begin()
            yield
        finally:
            writer.close()
            await serving
            await agent.end()
            await connection.close()
            ours.close()


class EditorProcess:
    """`holdfast acp`, as an editor starts it."""

    def __init__(self, editor: ScriptedEditor, process: Process) -> None:
        self.process = process
        assert process.stdin is not None and process.stdout is not None
        self._connection = acp.connect_to_agent(
            cast("Any", editor), process.stdin, process.stdout, use_unstable_protocol=True
        )

    async def kill(self) -> None:
        """End it in the way that nothing can prepare for."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()
        await self._connection.close()

    async def leave(self) -> int:
        """Close its input, as an editor does that is closed, and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = await self.process.wait()
        await self._connection.close()
        return code


async def started(
    editor: ScriptedEditor, *arguments: str, env: Mapping[str, str] | None = None
) -> EditorProcess:
    """Start `holdfast acp` for an editor, and say hello."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "acp", *arguments),
        cwd=editor.here,
        env={**os.environ, **(env or {})},
        stdin=PIPE,
        stdout=PIPE,
        limit=1 << 25,
    )
    running = EditorProcess(editor, process)
    await editor.begin()
    return running
