"""Real MCP servers: from npm and in Python, over standard input and output and over HTTP, killed in the middle."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from holdfast.core.items import Image
from holdfast.observe.events import traced
from holdfast.tools.execution import execute
from holdfast.tools.mcp.config import McpServer, Stdio, Transport
from holdfast.tools.mcp.toolset import McpToolset, _Progress
from holdfast.tools.permissions import permission_for
from holdfast.tools.tool import Json, Tool, ToolOutput
from tests.tools import mcp_means as means
from tests.tools.tool_calls import KEY, Blobs, Pipe, call_of, leap, said

pytestmark = pytest.mark.slow


@asynccontextmanager
async def opened(server: McpServer | Transport) -> AsyncIterator[McpToolset]:
    toolset = McpToolset(server if isinstance(server, McpServer) else McpServer(transport=server))
    try:
        yield toolset
    finally:
        await toolset.close()


async def tools_of(toolset: McpToolset) -> dict[str, Tool]:
    tools = {each.spec.name: each for each in await toolset.tools()}
    assert tools, toolset.instruction
    return tools


async def ran(
    toolset: McpToolset, tool_name: str, /, *, key: str = KEY, **arguments: Json
) -> ToolOutput:
    tool = (await tools_of(toolset))[tool_name]
    return await execute(tool, call_of(arguments, key=key), Blobs())


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    with closing(Pipe(tmp_path / "pipe")) as made:
        yield made


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a server has reported progress: its call is under way."""
    seen = asyncio.Event()
    noted = _Progress.note

    async def note(self: _Progress, done: float, total: float | None, words: str | None) -> None:
        await noted(self, done, total, words)
        seen.set()

    monkeypatch.setattr(_Progress, "note", note)
    return seen


# ── servers of npm ──


async def test_everything_that_the_reference_server_has_is_understood() -> None:
    async with opened(means.program(means.node(), means.everything())) as toolset:
        assert said(await ran(toolset, "echo", message="hi")) == "Echo: hi"
        assert said(await ran(toolset, "get-sum", a=2, b=3)) == "The sum of 2 and 3 is 5."
        picture = await ran(toolset, "get-tiny-image")
        assert any(isinstance(part, Image) for part in picture.content)
        assert "demo://resource" in said(await ran(toolset, "get-resource-links", count=2))
        embedded = await ran(toolset, "get-resource-reference", resourceType="Text", resourceId=1)
        assert "plaintext resource" in said(embedded)
        structured = await ran(toolset, "get-structured-content", location="Chicago")
        assert "temperature" in said(structured)
        assert "Server Instructions" in toolset.instruction


async def test_a_server_for_files_reads_and_writes_them(tmp_path: Path) -> None:
    async with opened(means.program(means.node(), means.filesystem(), tmp_path)) as toolset:
        path = str(tmp_path / "a.txt")
        assert (await ran(toolset, "write_file", path=path, content="hello")).outcome == "ok"
        assert (tmp_path / "a.txt").read_text() == "hello"
        assert said(await ran(toolset, "read_text_file", path=path)) == "hello"
        outside = await ran(toolset, "read_text_file", path="/etc/hostname")
        assert (outside.outcome, "denied" in said(outside)) == ("error", True)


async def test_the_reference_server_is_killed_in_the_middle_of_a_call(
    progress: asyncio.Event,
) -> None:
    mark = f"npm-{os.getpid()}"
    transport = means.program(means.node(), means.everything(), **{means.MARK: mark})
    async with opened(transport) as toolset:
        await tools_of(toolset)
        call = asyncio.ensure_future(
            ran(toolset, "trigger-long-running-operation", duration=600, steps=60000)
        )
        await progress.wait()
        means.kill(mark)
        output = await call
        assert output.outcome == "error"
        assert "its server went away before it answered" in said(output)
        assert said(await ran(toolset, "echo", message="back")) == "Echo: back"
    await means.wait_gone(mark)


async def test_the_reference_server_over_http_is_killed_in_the_middle_of_a_call(
    progress: asyncio.Event,
) -> None:
    async with means.everything_over_http() as (url, process):
        async with opened(means.remote(url)) as toolset:
            assert said(await ran(toolset, "echo", message="hi")) == "Echo: hi"
            call = asyncio.ensure_future(
                ran(toolset, "trigger-long-running-operation", duration=600, steps=60000)
            )
            await progress.wait()
            process.kill()
            output = await call
            assert output.outcome == "error"
            assert "went away" in said(output)
            # Nobody is there any more: that is told as well, and takes nobody down.
            output = await ran(toolset, "echo", message="hi")
            assert (output.outcome, "was not run" in said(output)) == ("error", True)


# ── a server in Python, over both ──


together = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["stdio", "http"])
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[McpToolset]:
    """One for the tests that leave it as it was: it takes most of a second to load."""
    if request.param == "stdio":
        async with opened(McpServer(transport=means.desk(), name="desk")) as toolset:
            yield toolset
    else:
        async with means.desk_over_http() as served:
            async with opened(
                msgspec.structs.replace(means.remote(served.url), name="desk")
            ) as toolset:
                yield toolset


@together
async def test_its_tools_are_offered_under_names_that_every_provider_takes(
    desk: McpToolset,
) -> None:
    tools = await tools_of(desk)
    assert {"desk_greet", "desk_wait", "desk_fail"} < tools.keys()
    (odd,) = (name for name in tools if name.startswith("desk_who_am_i_"))
    assert "fc_7" in said(await ran(desk, odd, key="fc_7"))
    assert tools["desk_greet"].spec.description == "Say hello."
    assert desk.instruction == "Ask the desk before you ask anybody else."


@together
async def test_a_trace_goes_on_with_a_call(desk: McpToolset) -> None:
    (who,) = (name for name in await tools_of(desk) if name.startswith("desk_who_am_i_"))
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    with traced(parent):
        assert parent in said(await ran(desk, who))
    assert parent not in said(await ran(desk, who))


@together
async def test_a_call_is_answered_with_its_result_or_its_error(desk: McpToolset) -> None:
    assert said(await ran(desk, "desk_greet", name="Ada")) == "Hello, Ada."
    output = await ran(desk, "desk_fail")
    assert (output.outcome, "the desk is closed" in said(output)) == ("error", True)
    output = await ran(desk, "desk_greet", nme="Ada")
    assert output.outcome == "error"
    assert said(await ran(desk, "desk_greet", name="Bob")) == "Hello, Bob."


@together
async def test_a_call_that_is_cancelled_is_cancelled_there(desk: McpToolset, pipe: Pipe) -> None:
    call = asyncio.ensure_future(ran(desk, "desk_wait", at=pipe.path))
    assert await pipe.heard() == "waiting"
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await pipe.heard() == "cancelled"
    assert said(await ran(desk, "desk_greet", name="Ada")) == "Hello, Ada."


@together
async def test_many_calls_at_once_get_each_their_own_answer(desk: McpToolset) -> None:
    names = [f"n{n}" for n in range(30)]
    outputs = await asyncio.gather(*(ran(desk, "desk_greet", name=name) for name in names))
    assert [said(each) for each in outputs] == [f"Hello, {name}." for name in names]


async def test_hints_are_believed_only_if_the_server_is_trusted() -> None:
    async with opened(means.desk()) as toolset:
        for tool in (await tools_of(toolset)).values():
            assert (tool.spec.read_only, tool.spec.idempotent) == (False, False)
            assert permission_for(tool.spec, arguments={}) == "deny"
    async with opened(McpServer(transport=means.desk(), trust_hints=True)) as toolset:
        specs = {name: each.spec for name, each in (await tools_of(toolset)).items()}
        assert permission_for(specs["greet"], arguments={}) == "allow"
        assert permission_for(specs["fail"], arguments={}) == "deny"
        # One that says both that it only reads and that it destroys is taken at its worst word.
        assert not specs["wait"].read_only
        repeatable = [name for name, spec in specs.items() if spec.idempotent]
        assert [name.partition("_")[0] for name in repeatable] == ["greet", "who", "wait"]


async def test_what_a_call_had_come_to_is_told_when_time_is_up(
    pipe: Pipe, progress: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(McpServer(transport=means.desk(), timeout_s=60.0)) as toolset:
        call = asyncio.ensure_future(ran(toolset, "wait", at=pipe.path))
        assert await pipe.heard() == "waiting"
        await progress.wait()
        leap(monkeypatch, 60.0)
        output = await call
        assert output.outcome == "error"
        assert said(output) == "'wait' did not finish within 60 s; it had come to 2 of 5 (looking)."
        assert await pipe.heard() == "cancelled"


async def test_a_server_that_dies_is_told_with_its_last_words_and_started_again() -> None:
    server = McpServer(transport=means.desk(DESK_TOKEN="s3cret-token"), secrets=("s3cret-token",))
    async with opened(server) as toolset:
        output = await ran(toolset, "die", words="out of paper, s3cret-token")
        assert output.outcome == "error"
        assert "it ended; it said: out of paper, ***" in said(output)
        assert "Whether it did what was asked is not known" in said(output)
        assert said(await ran(toolset, "greet", name="Ada")) == "Hello, Ada."


async def test_a_program_that_writes_no_mcp_at_first_fills_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    talkative = f"yes 'Fetching …' | head -n 300; exec {sys.executable} {means.DESK}"
    async with opened(means.program("/bin/sh", "-c", talkative)) as toolset:
        assert said(await ran(toolset, "greet", name="Ada")) == "Hello, Ada."
    assert len([each for each in caplog.records if each.name == "mcp.client.stdio"]) <= 1


async def test_a_server_over_http_that_was_started_again_is_greeted_again(pipe: Pipe) -> None:
    async with means.desk_over_http() as served, opened(means.remote(served.url)) as toolset:
        call = asyncio.ensure_future(ran(toolset, "wait", at=pipe.path))
        assert await pipe.heard() == "waiting"
        served.kill()
        served.start()
        output = await call
        assert output.outcome == "error"
        assert "went away" in said(output)
        assert said(await ran(toolset, "greet", name="Ada")) == "Hello, Ada."
        served.kill()
        served.start()  # while nobody is calling: the next call is made again, since it was not heard
        assert said(await ran(toolset, "greet", name="Bob")) == "Hello, Bob."


async def test_tools_that_a_server_learns_are_offered_from_then_on() -> None:
    async with opened(means.desk()) as toolset:
        assert "fly" not in await tools_of(toolset)
        await ran(toolset, "learn")
        while "fly" not in await tools_of(toolset):
            await ran(toolset, "greet", name="Ada")  # the news is on its way
        assert said(await ran(toolset, "fly")) == "done"


async def test_a_server_sees_what_is_declared_and_where_it_runs() -> None:
    async with opened(means.desk(DESK_TOKEN="abc")) as toolset:
        (odd,) = (name for name in await tools_of(toolset) if name.startswith("who"))
        told = said(await ran(toolset, odd))
        assert "'DESK_TOKEN': 'abc'" in told
        assert "'OPENAI_API_KEY': ''" in told
        assert str(means.HERE) in told
    async with means.desk_over_http() as served:
        async with opened(means.remote(served.url, Authorization="Bearer abc")) as toolset:
            (odd,) = (name for name in await tools_of(toolset) if name.startswith("who"))
            assert "Bearer abc" in said(await ran(toolset, odd))


@pytest.mark.parametrize(
    ("transport", "told"),
    [
        (
            means.desk(DESK_REFUSES="1", DESK_TOKEN="s3cret-token"),
            "it ended; it said: no desk today, ***",
        ),
        (means.program("/no/such/program"), "No such file or directory"),
        (means.program("/bin/cat"), "cat could not be reached"),
        (means.remote("http://127.0.0.1:1/mcp").transport, "could not be reached"),
    ],
)
async def test_a_server_that_cannot_be_asked_is_told_to_its_agents(
    transport: Transport, told: str
) -> None:
    async with opened(McpServer(transport=transport, secrets=("s3cret-token",))) as toolset:
        if isinstance(transport, Stdio) and transport.command == "/bin/cat":
            toolset._connection._start_s = 0.2
        assert await toolset.tools() == ()
        assert "cannot be used now" in toolset.instruction
        assert told in toolset.instruction
        assert "s3cret" not in toolset.instruction


async def test_an_idle_server_is_stopped_and_started_when_it_is_needed() -> None:
    mark = f"idle-{os.getpid()}"
    server = McpServer(transport=means.desk(**{means.MARK: mark}), idle_s=0.01)
    async with opened(server) as toolset:
        tools = await tools_of(toolset)
        await toolset._connection.wait_down()
        assert (await tools_of(toolset)).keys() == tools.keys()
        assert means.marked(mark) == []  # what it offers is known: nobody needs it for that
        assert said(await ran(toolset, "greet", name="Ada")) == "Hello, Ada."


async def test_nothing_is_left_of_a_server_not_even_what_left_its_group() -> None:
    mark = f"group-{os.getpid()}"
    run = f"(setsid sleep 600 &) ; exec '{sys.executable}' '{means.DESK}'"
    transport = means.program("/bin/sh", "-c", run, **{means.MARK: mark})
    async with opened(transport) as toolset:
        await tools_of(toolset)
        assert len(means.marked(mark)) >= 2  # those two, and what confines them
    await means.wait_gone(mark)
