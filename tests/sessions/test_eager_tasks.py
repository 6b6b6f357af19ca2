"""On event loops whose tasks begin at once (`asyncio.eager_task_factory`), a short turn is over when it was begun."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import AssistantMessage, ToolCall, plain_text, result_for
from holdfast.core.ports import OpenTurn
from holdfast.core.turns import events as ev
from holdfast.ids import CallId, MessageId, SessionKey, Tenant
from holdfast.sessions.admission.lanes import Lane
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.store.memory_store import MemoryStore


class Over(asyncio.Future[Any]):
    """A task that has come to its end."""

    def set_name(self, name: object) -> None:
        pass  # it needs none any more


def begin_at_once(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **_: object
) -> asyncio.Future[Any]:
    """What `asyncio.eager_task_factory` of Python 3.12 does for work that does not have to wait."""
    try:
        work.send(None)
    except StopIteration as done:
        over = Over(loop=loop)
        over.set_result(done.value)
        return over
    raise AssertionError("nothing here has to wait")


async def play(turn: OpenTurn) -> None:
    """A tool, and an answer; nothing of it has to wait in memory."""
    call = ToolCall(id=turn.mint(CallId), call_id="1", name="look", arguments="{}")
    await turn.record(ev.StepStarted(), ev.Answered(items=(call,), finish="tool_calls"))
    await turn.record(ev.ToolStarted(call=call.id))
    result = result_for(call, "ok", plain_text("a fjord"), turn.mint)
    await turn.record(ev.ToolFinished(result=result))
    answer = AssistantMessage(id=turn.mint(MessageId), content=plain_text("A fjord."))
    await turn.record(ev.StepStarted(), ev.Answered(items=(answer,)))


async def test_turns_end_their_lane_is_left_once_and_nothing_is_kept_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = Ask(
        tenant=Tenant("local"),
        name=SessionKey("trip"),
        messages=(Incoming(role="user", content=plain_text("What do you see?")),),
    )
    async with Sessions(MemoryStore(), play) as sessions:
        left: list[bool] = []
        really_leave = sessions._lanes.leave

        def leave(lane: Lane) -> None:
            left.append(lane.held)
            really_leave(lane)

        monkeypatch.setattr(sessions._lanes, "leave", leave)
        loop = asyncio.get_running_loop()
        loop.set_task_factory(begin_at_once)  # type: ignore[arg-type]  # an ended task is a future
        try:
            for version in (1, 2, 3):
                async with await sessions.submit(ask) as watch:
                    ending = await watch.ended()
                assert ending.ok and ending.version == version
        finally:
            loop.set_task_factory(None)
        assert left == [True] * 3, "a lane is left by whoever holds it"
        load = sessions.load()
        assert (load.turns, load.lanes, load.waiting) == (0, 0, 0)
        assert not sessions._owner._tasks
