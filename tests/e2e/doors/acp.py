"""The Agent Client Protocol, by its SDK: an editor that has joined the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import acp

from tests.e2e.doors.door import Behaviour, DoorAnswer
from tests.e2e.scripted_editor import ScriptedEditor, joined
from tests.e2e.world import World


class AcpDoor:
    """`session/prompt`, each in an editor of its own. `_meta` names the conversation, and the prompt for a retry."""

    name = "acp"
    lacks: Mapping[Behaviour, str] = {}
    goes_on_alone = True

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], tuple[Any, str]] = {}
        """The editor with the last prompt of each conversation."""

    async def ask(self, world: World, said: str, *, to: str, key: str | None = None) -> DoorAnswer:
        async with self._editor(world, to) as (editor, session):
            try:
                ended = await editor.say(session, said, key=key)
            except acp.RequestError as failed:
                return DoorAnswer(error=str(failed))
        if ended.stop_reason != "end_turn":
            return DoorAnswer(error=ended.stop_reason)
        return DoorAnswer(text=editor.text())

    @asynccontextmanager
    async def begun(self, world: World, said: str, *, to: str) -> AsyncIterator[None]:
        async with self._editor(world, to) as (editor, session):
            asking = asyncio.create_task(editor.say(session, said))
            await editor.until(editor.text)
            yield
            asking.cancel()
        with suppress(asyncio.CancelledError, acp.RequestError, ConnectionError):
            await asking

    @asynccontextmanager
    async def _editor(self, world: World, to: str) -> AsyncIterator[tuple[ScriptedEditor, str]]:
        editor = ScriptedEditor(world.here)
        async with joined(editor, world.url):
            session = await editor.open(to)
            self._open[world.url, to] = editor.agent, session
            yield editor, session

    async def cancel(self, world: World, *, to: str) -> None:
        agent, session = self._open[world.url, to]
        await agent.cancel(session_id=session)

    async def session(self, world: World, *, to: str) -> str:
        return to
