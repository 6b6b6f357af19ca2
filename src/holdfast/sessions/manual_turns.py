"""`played`: a turn whose answer comes from the caller's own code, in an `async with` block.

    async with played(sessions, "trip-to-oslo", "And the weather?") as turn:
        answer = await my_agent(turn.messages)
        await turn.say(answer)

The turn is committed when the block ends. If the block raises, the turn ends by policy, and the error travels on.
A cancel of the turn cancels the block. A message that is steered into the turn begins the next turn: a block has no
point between two steps at which it would take one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from holdfast.core.history.conversation import seen_by_model
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import (
    AssistantMessage,
    Interruption,
    Item,
    Summary,
    SystemMessage,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    plain_text,
    result_for,
    text_of,
)
from holdfast.core.ports import OpenTurn
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import note_for_model
from holdfast.errors import IllegalEvent, TurnFailed
from holdfast.ids import LOCAL, CallId, MessageId, SessionId, SessionKey, Tenant
from holdfast.sessions.session_requests import Ask, Ending
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.turns.watch import Watch


async def play_without_model(turn: OpenTurn) -> None:
    """The player for a turn that asks no model: it takes in what its client has written or run."""
    await turn.record(ev.StepStarted(), ev.Answered(items=()))


async def nobody_plays(turn: OpenTurn) -> None:
    """The player for `Sessions` whose turns are all played by their callers: it fails recovered turns, which have no
    caller."""
    raise TurnFailed(
        "model_error", "this turn has no player: it was begun by a caller that is gone"
    )


class ManualTurn:
    """An open turn as its caller's block sees it."""

    def __init__(self, turn: OpenTurn) -> None:
        self._turn = turn

    @property
    def messages(self) -> list[tuple[str, str]]:
        """Role and text of the conversation so far, the new message included.

        Tool results and interruptions are messages of `system`, so that the caller's model knows what was done already.
        """
        said = (*seen_by_model(self._turn.snapshot), *self._turn.turn.items)
        calls = {item.id: item for item in said if isinstance(item, ToolCall)}
        return [message for item in said if (message := _message(item, calls)) is not None]

    async def say(self, text: str, *, usage: ev.Usage = ev.Usage()) -> None:  # noqa: B008
        """Answer. A turn needs exactly one answer, after its last tool. Raises TypeError if `text` is no text."""
        _demand_text("an answer", text)
        self._demand_unanswered()
        message = AssistantMessage(id=self._turn.mint(MessageId), content=plain_text(text))
        await self._turn.record(ev.StepStarted(), ev.Answered(items=(message,), usage=usage))

    async def use_tool(
        self,
        name: str,
        arguments: str,
        run: Callable[[], Awaitable[str]],
        *,
        read_only: bool = False,
    ) -> str:
        """Run a tool that has an effect. Its start is durable before it runs, its result afterwards.

        If the process dies in between, or `run` raises, the history says that the outcome is unknown. Raises TypeError,
        with the same outcome, if `run` does not return text, and ValueError if `arguments` is not JSON.
        """
        _demand_json(name, arguments)
        self._demand_unanswered()
        call_id = self._turn.mint(CallId)
        call = ToolCall(id=call_id, call_id=str(call_id), name=name, arguments=arguments)
        await self._turn.record(ev.StepStarted(), ev.Answered(items=(call,), finish="tool_calls"))
        await self._turn.record(ev.ToolStarted(call=call_id, read_only=read_only))
        output = await run()
        _demand_text(f"what {name} returns", output)
        result = result_for(call, "ok", (Text(text=output),), self._turn.mint)
        await self._turn.record(ev.ToolFinished(result=result))
        return output

    def _demand_unanswered(self) -> None:
        if self._turn.turn.complete:
            raise IllegalEvent("another step", "the turn has its answer; say everything in one")


def _demand_text(what: str, given: object) -> None:
    if not isinstance(given, str):
        raise TypeError(
            f"{what} is text, and this is {type(given).__name__}; json.dumps makes it text"
        )


def _demand_json(name: str, arguments: str) -> None:
    _demand_text(f"the arguments of {name}", arguments)
    try:
        msgspec.json.decode(arguments)
    except msgspec.DecodeError as error:
        raise ValueError(
            f"the arguments of {name} are JSON as text, such as '{{}}': {error}"
        ) from None


def _message(item: Item, calls: dict[CallId, ToolCall]) -> tuple[str, str] | None:
    match item:
        case UserMessage():
            return "user", text_of(item.content)
        case AssistantMessage():
            return "assistant", text_of(item.content)
        case SystemMessage():
            return "system", text_of(item.content)
        case Summary():
            return "system", item.text
        case ToolResult():
            call = calls.get(item.call)  # None: a summary covers it
            what = f"{call.name} {call.arguments}: " if call else ""
            return "system", f"[{what}{text_of(item.content)}]"
        case Interruption():
            return "system", note_for_model(item)
        case _:
            return None


@asynccontextmanager
async def played(
    sessions: Sessions, name: str | SessionId, prompt: str, *, tenant: Tenant = LOCAL
) -> AsyncIterator[ManualTurn]:
    """A turn of the session with this key, or this id, played by the block. A message steered into it waits for its
    end.

    Raises TurnFailed if the turn did not complete.
    """
    stage = _Stage()
    ask = Ask(
        tenant=tenant,
        name=name if isinstance(name, SessionId) else SessionKey(name),
        messages=(Incoming(role="user", content=plain_text(prompt)),),
        hears=False,
    )
    watch = await sessions.submit(ask, play=stage.play)
    async with watch:
        turn = await _opened(stage, watch)
        try:
            async with stage.guarded():
                yield ManualTurn(turn)
        except BaseException as error:
            stage.fail(error)
            await watch.ended()
            raise
        stage.finished.set_result(None)
        ending = await watch.ended()
    if not ending.ok:
        raise TurnFailed("model_error", f"the turn ended by {ending.by}: {ending.detail}")


async def _opened(stage: _Stage, watch: Watch) -> OpenTurn:
    """The turn, once it has begun. Raises TurnFailed if a shutdown ends it before that."""
    ended = asyncio.ensure_future(watch.ended())
    first: set[asyncio.Future[OpenTurn] | asyncio.Future[Ending]] = {stage.opened, ended}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if stage.opened.done():
        ended.cancel()
        return stage.opened.result()
    raise TurnFailed("model_error", f"the turn ended by {ended.result().by} before it was played")


class _Stage:
    """Connects the task that owns a turn with the caller's task, whose block plays it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[OpenTurn] = loop.create_future()
        self.finished: asyncio.Future[None] = loop.create_future()
        self._block: asyncio.Task[object] | None = None
        self._stopped = False

    async def play(self, turn: OpenTurn) -> None:
        self.opened.set_result(turn)
        try:
            await asyncio.shield(self.finished)
        except asyncio.CancelledError:
            self._stopped = True
            if self._block is not None:
                self._block.cancel()
            raise

    def fail(self, error: BaseException) -> None:
        """End the turn with the block's error. A turn that was stopped has ended already."""
        if not self._stopped:
            self.finished.set_exception(error if isinstance(error, Exception) else _stopped())

    @asynccontextmanager
    async def guarded(self) -> AsyncIterator[None]:
        """Cancel the block if the turn is stopped: then it raises TurnFailed. A cancel of the caller stays a cancel."""
        self._block = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if self._stopped and self._block is not None and self._block.uncancel() == 0:
                raise _stopped() from None
            raise
        finally:
            self._block = None


def _stopped() -> TurnFailed:
    return TurnFailed("model_error", "the turn was stopped")
