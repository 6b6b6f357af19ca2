"""A prompt: the turns that answer it, from the first to the one after which no call waits.

A turn runs on the server, in the background: it goes on when this process is gone, and is resumed after a crash of its
server. This process only begins turns, watches them, and answers calls that wait for the editor. Every request that
begins a turn has a key that follows from what it answers, so that sending it again is safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from holdfast.cli.acp.editor import Editor, RequestFailed
from holdfast.cli.acp.editor_calls import EditorCalls
from holdfast.cli.acp.editor_session import EditorSession, RunningPrompt
from holdfast.cli.acp.questions import PromptCancelled
from holdfast.client.aio import AsyncClient
from holdfast.core.items import ToolCall
from holdfast.errors import ServerRefused, ServerUnreachable
from holdfast.wire import json_rpc
from holdfast.wire.acp.requests import PromptEnded, PromptUsage, StopReason
from holdfast.wire.acp.updates import InfoUpdate
from holdfast.wire.api import objects as api
from holdfast.wire.openai.responses.dialect import InputItem, PromptResult

CWD = "acp.cwd"
"""The attribute of a conversation that holds its working directory."""

PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""How long to wait before each further attempt to reach the server: about a minute, for a server that restarts."""

T = TypeVar("T")


class Prompts:
    """Plays the prompts of one editor's sessions."""

    def __init__(self, client: AsyncClient, editor: Editor) -> None:
        self._client = client
        self._editor = editor
        self._calls = EditorCalls(editor)

    # ── begin ──

    async def play(
        self, session: EditorSession, items: Sequence[InputItem], *, key: str
    ) -> PromptEnded:
        """Send a prompt, and show its turns until it is answered. Raises RequestFailed if a turn fails."""
        with _running(session) as prompt:
            turn_id = await self._begin(session, items, key=key)
            return await self._follow(session, prompt, turn_id)

    async def follow(
        self, session: EditorSession, turn_id: str, *, echo: bool = False, answers: bool = True
    ) -> PromptEnded:
        """Show a turn that has begun, and the turns that follow it with answers to its waiting calls. `echo` shows the messages that began it,
        too; without `answers` its waiting calls are left to another process."""
        with _running(session) as prompt:
            return await self._follow(session, prompt, turn_id, echo=echo, answers=answers)

    async def take_up(
        self, session: EditorSession, turn_id: str, calls: Sequence[ToolCall]
    ) -> None:
        """Answer calls that another process has left behind, and go on from there."""
        with _running(session) as prompt:
            following = await self._answered(session, prompt, turn_id, calls, fresh=False)
            if following is not None:
                await self._follow(session, prompt, following)

    async def cancel(self, session: EditorSession) -> None:
        """Stop what goes on in a session. What was said so far is kept, by the server's policy."""
        for prompt in tuple(session.running):
            prompt.cancelled = True
            if prompt.answering is not None:
                prompt.answering.cancel()
            if prompt.turn_id is not None:
                await self._client.cancel(prompt.turn_id)

    async def _begin(self, session: EditorSession, items: Sequence[InputItem], *, key: str) -> str:
        begun = await persistently(
            lambda: self._client.begin(
                session.agent.id,
                items,
                tools=session.functions(),
                instructions=session.instructions(),
                session=session.id,
                reads_only=session.reads_only,
                idempotency_key=key,
            )
        )
        return str(begun.turn_id)

    # ── follow ──

    async def _follow(
        self,
        session: EditorSession,
        prompt: RunningPrompt,
        turn_id: str,
        *,
        echo: bool = False,
        answers: bool = True,
    ) -> PromptEnded:
        spent = api.UsageObject()
        following: str | None = turn_id
        while following is not None:
            turn = await self._watched(session, prompt, following, echo=echo)
            spent = api.UsageObject.of(spent + turn.usage)
            await self._describe(session, turn)
            reason = _stop_reason(turn, session)
            waiting = session.updates.waiting
            if reason != "end_turn" or not waiting:
                return _ended(reason, spent)
            if prompt.cancelled or not answers:
                break
            following = await self._answered(session, prompt, following, waiting, fresh=True)
        return _ended("cancelled" if prompt.cancelled else "end_turn", spent)

    async def _answered(
        self,
        session: EditorSession,
        prompt: RunningPrompt,
        turn_id: str,
        calls: Sequence[ToolCall],
        *,
        fresh: bool,
    ) -> str | None:
        """Answer the waiting calls of a turn, and return the turn that this begins; None if they go on waiting."""
        prompt.answering = asyncio.create_task(self._answer(session, turn_id, calls, fresh=fresh))
        try:
            return await prompt.answering
        except PromptCancelled:
            prompt.cancelled = True
            return None
        except asyncio.CancelledError:
            if prompt.cancelled:
                return None
            prompt.answering.cancel()
            raise
        finally:
            prompt.answering = None

    async def _answer(
        self, session: EditorSession, turn_id: str, calls: Sequence[ToolCall], *, fresh: bool
    ) -> str | None:
        answers = await self._calls.answers(session, calls, fresh=fresh)
        if answers is None:
            return None
        key = f"acp-{turn_id}"
        if not answers.decisions:
            results = [PromptResult(each, text) for each, text in answers.results.items()]
            return await self._begin(session, results, key=key)
        begun = await persistently(
            lambda: self._client.decide(
                turn_id,
                answers.decisions,
                results=answers.results,
                tools=session.functions(),
                instructions=session.instructions(),
                reads_only=session.reads_only,
                idempotency_key=key,
            )
        )
        return begun.id

    # ── watch ──

    async def _watched(
        self, session: EditorSession, prompt: RunningPrompt, turn_id: str, *, echo: bool
    ) -> api.TurnObject:
        """Show a turn to its end, over restarts of its server, and return what became of it."""
        prompt.turn_id = turn_id
        try:
            if prompt.cancelled:  # while the turn was begun
                await self._client.cancel(turn_id)
            return await self._show(session, turn_id, echo=echo)
        finally:
            prompt.turn_id = None

    async def _show(self, session: EditorSession, turn_id: str, *, echo: bool) -> api.TurnObject:
        seen, tries = -1, 0
        while True:
            try:
                async for record in self._client.records(turn_id, after=seen):
                    seen, tries = record.n, 0
                    for update in session.updates.of_event(record.event, echo=echo):
                        await self._editor.show(session.id, update)
                return await self._client.turn(turn_id)
            except ServerUnreachable:
                if tries == len(PAUSES_S):
                    raise
                await asyncio.sleep(PAUSES_S[tries])
                tries += 1

    async def _describe(self, session: EditorSession, turn: api.TurnObject) -> None:
        """Note the working directory with the conversation, once it exists, and show its title."""
        if session.described or turn.version is None:
            return
        session.described = True
        attributes = {CWD: session.place.cwd}
        try:
            found = await persistently(
                lambda: self._client.change(session.id, attributes=attributes)
            )
        except ServerRefused:  # the prompt is answered all the same
            return
        if found.title:
            await self._editor.show(session.id, InfoUpdate(title=found.title))


@contextmanager
def _running(session: EditorSession) -> Iterator[RunningPrompt]:
    """A prompt of a session, which can be cancelled from now on."""
    prompt = RunningPrompt()
    session.running.add(prompt)
    try:
        yield prompt
    finally:
        session.running.discard(prompt)


async def persistently(call: Callable[[], Awaitable[T]]) -> T:
    """Send a request that may be repeated, until the server can be reached. Raises the error that the server answers."""
    for pause_s in PAUSES_S:
        try:
            return await call()
        except ServerUnreachable:
            await asyncio.sleep(pause_s)
    return await call()


def _stop_reason(turn: api.TurnObject, session: EditorSession) -> StopReason:
    """Why a turn's answer ends. Raises RequestFailed for a turn without an answer."""
    match turn.ended_by:
        case "completed":
            match session.updates.finish:
                case "length":
                    return "max_tokens"
                case "content_filter":
                    return "refusal"
                case _:
                    return "end_turn"
        case "limit":
            return "max_turn_requests"
        case "cancelled":
            return "cancelled"
        case how:
            kept = "; what was done is kept, and /retry goes on" if turn.version is not None else ""
            words = turn.detail or f"the turn ended by {how}"
            raise RequestFailed(json_rpc.INTERNAL_ERROR, f"{words}{kept}")


def _ended(reason: StopReason, spent: api.UsageObject) -> PromptEnded:
    total = spent.input_tokens + spent.output_tokens
    usage = PromptUsage(
        total_tokens=total, input_tokens=spent.input_tokens, output_tokens=spent.output_tokens
    )
    return PromptEnded(stop_reason=reason, usage=usage)
