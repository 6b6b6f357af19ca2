"""A server that is there when it is needed: started once, stopped when idle, started again when it went away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from holdfast import limits
from holdfast.tools.execution import execute
from holdfast.tools.mcp import lazy_sdk
from holdfast.tools.mcp.config import McpServer, Remote, Stdio
from holdfast.tools.mcp.connection import McpConnection, backoff_s
from holdfast.tools.mcp.peer import (
    CallFailed,
    Offered,
    OnChanged,
    OnProgress,
    Peer,
    ServerLost,
    Unavailable,
)
from holdfast.tools.mcp.toolset import McpToolset
from holdfast.tools.schema import InvalidTool
from holdfast.tools.tool import Json, ToolOutput
from tests.tools.tool_calls import Blobs, call_of, said

ANY = '{"type":"object"}'


class FakePeer:
    """A server that does what a test says."""

    instruction = "Be kind."

    def __init__(self, world: World) -> None:
        self.gone = asyncio.Event()
        self._world = world

    async def greet(self) -> None:
        await self._world.greeting()

    async def offered(self) -> tuple[Offered, ...]:
        self._world.listed += 1
        return self._world.offers

    async def call(
        self, name: str, arguments: Mapping[str, Json], *, call_key: str, on_progress: OnProgress
    ) -> ToolOutput:
        self._world.calls.append((name, call_key))
        failure = self._world.failures.pop(0) if self._world.failures else None
        if failure is not None:
            raise failure
        return ToolOutput(content=())


class World:
    """Where a server can be started, and what becomes of it."""

    def __init__(self) -> None:
        self.started = 0
        self.ended = 0
        self.listed = 0
        self.calls: list[tuple[str, str]] = []
        self.failures: list[Exception | None] = []
        self.refuses: Exception | None = None
        self.greets: asyncio.Event | None = None
        self.offers: tuple[Offered, ...] = (Offered(name="look", description="", schema=ANY),)
        self.peers: list[FakePeer] = []
        self.changed: OnChanged = lambda: None
        self.now_s = 1000.0

    async def greeting(self) -> None:
        if self.greets is not None:
            await self.greets.wait()

    @asynccontextmanager
    async def connect(self, on_changed: OnChanged) -> AsyncIterator[Peer]:
        self.started += 1
        self.changed = on_changed
        if self.refuses is not None:
            raise self.refuses
        self.peers.append(FakePeer(self))
        try:
            yield self.peers[-1]
        finally:
            self.ended += 1

    def link(self, *, idle_s: float = 600.0, start_s: float = 60.0) -> McpConnection:
        return McpConnection(
            "desk", self.connect, idle_s=idle_s, start_s=start_s, now_s=lambda: self.now_s
        )


@pytest.fixture
def world() -> World:
    return World()


async def test_everybody_shares_one_server(world: World) -> None:
    link = world.link()
    world.greets = asyncio.Event()

    async def use() -> Peer:
        async with link.peer() as peer:
            return peer

    users = [asyncio.ensure_future(use()) for _ in range(5)]
    await asyncio.sleep(0)
    users.pop().cancel()  # one who leaves does not take the others' server away
    world.greets.set()
    assert len({id(peer) for peer in await asyncio.gather(*users)}) == 1
    assert (world.started, link.is_up) == (1, True)
    await link.close()
    assert (world.ended, link.is_up) == (1, False)


async def test_an_idle_server_is_stopped_but_not_while_somebody_uses_it(world: World) -> None:
    link = world.link(idle_s=0.0)
    async with link.peer():
        async with link.peer():
            pass
        for _ in range(10):
            await asyncio.sleep(0)
        assert world.ended == 0
    await link.wait_down()
    assert world.ended == 1
    async with link.peer():
        assert world.started == 2
    await link.close()


async def test_a_server_that_goes_away_is_started_again(world: World) -> None:
    link = world.link()
    async with link.peer():
        world.peers[0].gone.set()
    await link.wait_down()
    assert not link.is_up
    async with link.peer():
        assert world.started == 2
    with pytest.raises(ServerLost):
        async with link.peer():
            raise ServerLost("gone")
    async with link.peer():
        assert world.started == 3
    await link.close()
    assert world.ended == 3


async def test_who_lost_a_server_does_not_take_it_from_those_who_have_not(world: World) -> None:
    """Over HTTP a single answer can be lost; the others are still on their way."""
    link = world.link()
    async with link.peer() as first:
        with pytest.raises(ServerLost):
            async with link.peer() as second:
                raise ServerLost("broken off")
        assert first is second
        async with link.peer() as third:
            assert third is not first
        for _ in range(5):
            await asyncio.sleep(0)
        assert world.ended == 0
    while world.ended == 0:
        await asyncio.wait(link._ending, return_when=asyncio.FIRST_COMPLETED)
    await link.close()
    assert world.ended == 2


async def test_attempts_at_a_server_that_does_not_start_are_spaced_out(world: World) -> None:
    link = world.link()
    world.refuses = OSError("no such program")
    for attempt in range(1, 6):
        with pytest.raises(Unavailable, match="desk could not be reached: no such program"):
            async with link.peer():
                raise AssertionError
        assert world.started == attempt
        if attempt > 1:
            with pytest.raises(
                Unavailable, match=f"failed {attempt} times in a row.*no such program"
            ):
                async with link.peer():
                    raise AssertionError
            assert world.started == attempt
        world.now_s += backoff_s(attempt)
    world.refuses = None
    async with link.peer():
        pass
    with pytest.raises(ServerLost):
        async with link.peer():
            raise ServerLost("gone")
    async with link.peer():  # a success in between: the first failure costs nothing again
        pass
    await link.close()


async def test_the_log_says_once_that_a_server_fails_and_once_that_it_is_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    link = world.link()
    world.refuses = OSError("no such file")
    for _ in range(3):
        world.now_s += 1000
        with pytest.raises(Unavailable):
            async with link.peer():
                pass
    world.refuses = None
    world.now_s += 1000
    for _ in range(2):
        async with link.peer():
            pass
    await link.close()
    assert [each.getMessage() for each in caplog.records] == [
        "mcp server desk: it fails: no such file",
        "mcp server desk: it works again, after 3 failures",
    ]


def test_how_long_a_server_is_left_alone() -> None:
    assert [backoff_s(n) for n in range(6)] == [0, 0, 0.5, 1, 2, 4]
    assert backoff_s(1000) == limits.mcp_backoff_s_max


@pytest.mark.parametrize("error", [ExceptionGroup("g", [OSError("inner")]), ValueError("inner")])
async def test_whatever_goes_wrong_with_it_is_its_own_failure(
    world: World, error: Exception
) -> None:
    world.refuses = error
    link = world.link()
    with pytest.raises(Unavailable, match="inner"):
        async with link.peer():
            raise AssertionError
    await link.close()


async def test_a_server_that_does_not_answer_is_not_waited_for(world: World) -> None:
    world.greets = asyncio.Event()
    link = world.link(start_s=0.01)
    with pytest.raises(Unavailable, match=r"no answer within 0.01 s"):
        async with link.peer():
            raise AssertionError
    await link.wait_down()
    assert world.ended == 1


async def test_closing_ends_a_server_that_is_just_being_started(world: World) -> None:
    world.greets = asyncio.Event()
    link = world.link()

    async def use() -> None:
        async with link.peer():
            raise AssertionError

    user = asyncio.ensure_future(use())
    for _ in range(5):  # up to its greeting
        await asyncio.sleep(0)
    assert world.started == 1
    await link.close()
    with pytest.raises(Unavailable):
        await user
    assert world.ended == 1
    with pytest.raises(Unavailable, match="is closed"):
        async with link.peer():
            raise AssertionError
    await link.close()


async def test_a_cancelled_close_closes_all_the_same(world: World) -> None:
    link = world.link()
    async with link.peer():
        pass
    closing = asyncio.ensure_future(link.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert world.ended == 1


# ── tools of it ──


def toolset(world: World, **about: object) -> McpToolset:
    server = McpServer(transport=Stdio(command="/bin/desk"), **about)  # type: ignore[arg-type]
    return McpToolset(server, connect=world.connect)


async def test_what_it_offers_is_asked_for_once_and_again_when_it_changes(world: World) -> None:
    tools = toolset(world)
    for _ in range(3):
        assert [each.spec.name for each in await tools.tools()] == ["look"]
    assert world.listed == 1
    world.offers += (Offered(name="find", description="", schema=ANY),)
    world.changed()
    assert [each.spec.name for each in await tools.tools()] == ["look", "find"]
    assert world.listed == 2
    await tools.close()


async def test_a_server_that_went_has_the_tools_that_it_had(world: World) -> None:
    tools = toolset(world)
    await tools.tools()
    assert tools.instruction == "Be kind."
    world.refuses = OSError("out for lunch")
    world.peers[0].gone.set()
    await tools._connection.wait_down()
    world.changed()
    (look,) = await tools.tools()
    assert "cannot be used now" in tools.instruction
    output = await execute(look, call_of(), Blobs())
    assert output.outcome == "error"
    assert said(output).startswith("'look' was not run: desk has failed 2 times in a row")
    assert "out for lunch" in said(output)
    await tools.close()


async def test_a_tool_that_no_model_could_be_offered_is_left_out(world: World) -> None:
    world.offers += (
        Offered(
            name="odd",
            description="",
            schema='{"type":"object","properties":{"a":{"type":"nonsense"}}}',
        ),
        Offered(name="list", description="", schema='{"type":"array"}'),
        Offered(
            name="far", description="", schema='{"type":"object","$ref":"http://example.org/s"}'
        ),
    )
    tools = toolset(world)
    assert [each.spec.name for each in await tools.tools()] == ["look"]
    await tools.close()


async def test_a_call_that_was_not_heard_is_made_again_and_any_other_is_not(world: World) -> None:
    tools = toolset(world)
    (look,) = await tools.tools()
    world.failures = [ServerLost("session not found", unheard=True)]
    assert (await execute(look, call_of(key="fc_7"), Blobs())).outcome == "ok"
    assert world.calls == [("look", "fc_7")] * 2
    world.failures = [ServerLost("gone")]
    assert (await execute(look, call_of(), Blobs())).outcome == "error"
    world.failures = [CallFailed("no such page")]
    output = await execute(look, call_of(), Blobs())
    assert said(output) == "'look' failed: no such page"
    assert len(world.calls) == 4
    await tools.close()


def test_without_the_extra_its_install_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_sdk, "find_spec", lambda name: None)
    with pytest.raises(InvalidTool, match=r"pip install 'holdfast\[mcp\]'"):
        McpToolset(McpServer(transport=Stdio(command="desk")))


def test_a_server_is_shown_without_what_is_secret() -> None:
    server = McpServer(
        transport=Remote(url="https://u:pw@example.org/mcp?token=s3cret", headers={"A": "s3cret"}),
        secrets=("s3cret", "a"),
    )
    assert server.shown == "https://example.org/mcp?…"
    assert server.hide("s3cret a s3cret") == "*** a ***"
    assert "pw" not in repr(McpToolset(server, connect=World().connect))
