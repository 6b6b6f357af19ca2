"""Nothing of a turn stays in memory, however it ends: not even until the collector comes round.

A server looks for cycles seldom, and a turn may hold megabytes. So its objects have to go by themselves, with their
last reference. Each way to end is played some times without a collector; then nothing may have grown with the turns.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import types
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest

from holdfast import limits
from holdfast.core.items import TurnLimits
from holdfast.errors import StorageFull
from holdfast.models.fallback import FallbackModel
from holdfast.models.providers.openai_chat import OpenAIModel
from holdfast.models.retries import RetryingModel
from holdfast.sessions.turns.live_turn import LiveTurn
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeUpstream, Gate, ScriptedModel, says
from holdfast.testing.scripted_model import Script, fails
from holdfast.testing.upstream import Reply, refuses
from tests.postgres import free_port
from tests.server.http.test_websocket import Client
from tests.server.stubs import HeldTool, Serving, agent, chat_body, serving, until

TURNS = 6

HELD_ON_PURPOSE = (
    "holdfast.ids",
    "holdfast.core.items",
    "holdfast.core.history.conversation",
    "holdfast.core.codec",
    "holdfast.core.history.log",
    "holdfast.testing",
)
"""A history grows with what was said, and is remembered: what it is made of, in its session's snapshot."""


def census() -> Counter[str]:
    """What there is in memory of us: objects, and frames, tracebacks, tasks and coroutines of our code."""
    found: Counter[str] = Counter()
    for each in gc.get_objects():
        kind = type(each)
        module = str(
            kind.__module__
        )  # which may be anything, for classes that are made in odd ways
        match each:
            case types.TracebackType():
                name = f"a traceback through {each.tb_frame.f_code.co_qualname}"
            case types.FrameType():
                name = f"a frame of {each.f_code.co_qualname}"
            case types.CoroutineType() | types.AsyncGeneratorType():
                name = f"a coroutine {each.__qualname__}"
            case asyncio.Task():
                name = f"a task of {getattr(each.get_coro(), '__qualname__', '?')}"
            case BaseException():
                name = f"a {kind.__name__}"
            case _ if module.startswith("holdfast.") and not module.startswith(HELD_ON_PURPOSE):
                name = f"{module}.{kind.__qualname__}"
            case _:
                continue
        found[name] += 1
    return found


@pytest.fixture(autouse=True, scope="module")
def uncollected() -> Iterator[None]:
    """Without the collector, and without logs, which keep what they tell. What is there before is set aside, so that
    taking stock does not take long."""
    logging.disable()
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the time for which turns are remembered, and without what tests before have left."""
    monkeypatch.setattr(limits, "feed_keep_s", 0.0)
    monkeypatch.setattr(limits, "sweep_s", 0.01)
    monkeypatch.setattr(limits, "busy_poll_s", 0.001)
    gc.collect()


class House:
    """A server whose model does what it is told, and the turn that runs."""

    def __init__(self, server: Serving, model: ScriptedModel, store: SqliteStore) -> None:
        self.server = server
        self.store = store
        self._model = model

    async def ask(self, words: str, **asking: Any) -> int:
        return (await self.server.chat(words, **{"to": "trip", **asking})).status

    async def running(self) -> LiveTurn:
        owner = self.server.sessions._owner
        await until(lambda: bool(owner.playing) and self._model.speaking > 0)
        return owner.playing[0]

    async def quiet(self) -> None:
        """Until nothing of the last turn is under way."""
        owner, noting = self.server.sessions._owner, self.server.sessions._acknowledging
        await until(lambda: not (owner.live or owner.unstored or owner.claimed or noting))
        for _ in range(20):
            await asyncio.sleep(0)
        self._model.prompts.clear()


Way: TypeAlias = Callable[[House], Awaitable[None]]


def told(words: str, status: int, **asking: Any) -> Way:
    async def play(house: House) -> None:
        assert await house.ask(words, **asking) == status

    return play


def interrupted(by: Any, status: int) -> Way:
    async def play(house: House) -> None:
        asked = asyncio.create_task(house.ask("wait"))
        (await house.running()).interrupt(by)
        assert await asked == status

    return play


async def cancelled(house: House) -> None:
    asked = asyncio.create_task(house.ask("wait", stream=True))
    turn_id = (await house.running()).fence.turn_id
    assert (await house.server.request("POST", f"/api/turns/{turn_id}/cancel")).status == 200
    await asked


async def disconnected(house: House) -> None:
    async with aiohttp.ClientSession() as client:
        asking = client.post(
            f"{house.server.url}/v1/chat/completions",
            data=chat_body("wait"),
            headers={"X-Conversation-Id": "trip"},
        )
        asked = asyncio.create_task(asking.__aenter__())
        await house.running()
        asked.cancel()


async def lost(house: House) -> None:
    """To another node, as far as this one can tell; it takes the turn over itself."""
    asked = asyncio.create_task(house.ask("wait"))
    (await house.running()).lose()
    assert await asked == 503


async def unstored(house: House) -> None:
    end, limits_s = house.store.end, limits.store_retry_s

    async def refuse(*_: Any, **__: Any) -> Any:
        raise StorageFull("no space is left")

    house.store.end = refuse  # type: ignore[method-assign]
    limits.store_retry_s = 0.0  # type: ignore[misc]
    try:
        assert await house.ask("fail") == 503
    finally:
        house.store.end = end  # type: ignore[method-assign]
        limits.store_retry_s = limits_s  # type: ignore[misc]


async def over_a_socket(house: House) -> None:
    async with aiohttp.ClientSession() as client:
        async with client.ws_connect(f"{house.server.url}/v1/responses") as socket:
            talk = Client(socket)
            for words in ("answer", "fail", "use"):
                await talk.ask(words)


async def watched(house: House) -> None:
    """Through the events of `/api`, from beside."""
    asked = asyncio.create_task(house.ask("wait"))
    live = await house.running()
    path = f"/api/turns/{live.fence.turn_id}/events"
    watching = asyncio.create_task(house.server.get(path))
    await until(lambda: live.feed.watchers > 0)
    live.interrupt("cancelled")
    live = None  # type: ignore[assignment]
    await watching
    await asked


WAYS: dict[str, Way] = {
    "completed": told("answer", 200),
    "completed, streamed": told("answer", 200, stream=True),
    "completed, with a tool": told("use", 200),
    "completed, stateless": told("answer", 200, to=None),
    "completed, under a key": told("answer", 200, headers={"Idempotency-Key": "k"}),
    "model_error": told("fail", 502),
    "model_error, streamed": told("fail", 502, stream=True),
    "model_error, stateless": told("fail", 502, to=None),
    "model_error, in the middle": told("break off", 200, stream=True),
    "model_error, after it has acted": told("act and fail", 502),
    "model_error, by a bug": told("break", 500),
    "tool_error": told("use a broken tool", 200),
    "limit": told("go on and on", 200),
    "deadline": interrupted("deadline", 504),
    "shutdown": interrupted("shutdown", 503),
    "cancelled": cancelled,
    "disconnected": disconnected,
    "lost": lost,
    "unstored": unstored,
    "over a socket": over_a_socket,
    "watched": watched,
    "refused": told("", 400),
}


def last_words(prompt: Any) -> tuple[str, bool]:
    """What the model was told last, and whether a tool has been used since."""
    messages = b"".join(prompt.messages)
    used = b'"role":"tool"' in messages.rpartition(b'"role":"user"')[2]
    return messages.rpartition(b'"role":"user"')[2].partition(b"}")[0].decode(), used


def obey(prompt: Any) -> Script:
    words, used = last_words(prompt)
    if "go on and on" in words:
        return says(calls=[("act", "{}")])
    if "broken tool" in words and not used:
        return says(calls=[("broken", "{}")])
    if ("use" in words or "act" in words) and not used:
        return says(calls=[("act", "{}")])
    if "break off" in words:
        return says("Some", "thing").failing(at=1)
    if "break" in words and "broken" not in words:
        raise KeyError("a mistake of ours")
    if "fail" in words:
        return fails("it said no", status=500)
    return says("Let me ", "see.").waiting(Gate(), at=1) if "wait" in words else says("Yes.")


class BrokenTool(HeldTool):
    async def run(self, run: Any) -> Any:
        raise KeyError("a mistake of the tool's")


async def grown(
    play: Callable[[], Awaitable[None]], quiet: Callable[[], Awaitable[None]]
) -> list[str]:
    """What there is more of after some turns, for each of them."""
    for _ in range(3):
        await play()
        await quiet()
    before = census()
    for _ in range(TURNS):
        await play()
        await quiet()
    after = census()
    return [f"{number} × {name}" for name, number in (after - before).items() if number >= TURNS]


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_of_a_turn_stays(way: str, tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db")
    model = ScriptedModel(otherwise=obey)
    tools = (HeldTool(held=False), BrokenTool("broken"))
    butler = agent(model, *tools)
    butler.limits = TurnLimits(steps_max=3)
    async with serving(butler, store=store) as server:
        house = House(server, model, store)
        found = await grown(lambda: WAYS[way](house), house.quiet)
    await store.close()
    assert not found, "\n".join(found)


async def nothing(_: float) -> None:
    """A pause that is none."""


UPSTREAMS: dict[str, Reply | Script] = {
    "a status": refuses(500),
    "another status": refuses(400),
    "what makes no sense": Reply(body=b"data: {]\n\n", content_type="text/event-stream"),
    "a web page": Reply(body=b"<html>", content_type="text/html"),
    "a lost connection": Reply(cut_at=10),
    "a break in the middle": says("Some", "thing").ending(at=1),
    "a failure in the middle": says("Some", "thing").failing(at=1),
}


@pytest.mark.parametrize("upstream", [*UPSTREAMS, "nobody there"])
async def test_nothing_of_an_upstreams_failure_stays(upstream: str, tmp_path: Path) -> None:
    """Each turn asks two models, each of them three times; the body of each request is a copy of the history."""
    store = await SqliteStore.open(tmp_path / "store.db")
    answer = UPSTREAMS.get(upstream, says("Yes."))
    async with FakeUpstream(otherwise=lambda request: answer) as server_of_models:
        base_url = server_of_models.base_url
        if upstream == "nobody there":
            base_url = f"http://127.0.0.1:{free_port()}/v1"
        each = [
            RetryingModel(OpenAIModel("any", base_url=base_url, token_key=""), sleep=nothing)
            for _ in range(2)
        ]
        model = FallbackModel(*each)
        async with serving(agent(model), store=store) as server:
            owner = server.sessions._owner

            async def play() -> None:
                await server.chat("Hi", to="trip", stream=True)

            async def quiet() -> None:
                await until(lambda: not (owner.live or server.sessions._acknowledging))
                server_of_models.requests.clear()
                for _ in range(20):
                    await asyncio.sleep(0)

            found = await grown(play, quiet)
        await model.close()
    await store.close()
    assert not found, "\n".join(found)


def test_the_census_sees_a_turn_that_is_held(tmp_path: Path) -> None:
    """A test that cannot fail would be worth nothing."""

    def fail() -> None:
        error = ValueError("held by its own frame")
        raise error

    before = census()
    for _ in range(TURNS):
        try:
            fail()
        except ValueError:
            pass
    names = {name for name, number in (census() - before).items() if number >= TURNS}
    assert {"a ValueError", f"a frame of {fail.__qualname__}"} <= names
    assert sys.getrefcount(fail) > 1
