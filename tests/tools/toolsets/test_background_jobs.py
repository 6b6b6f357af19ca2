"""Commands that go on after their call: each belongs to its conversation, and none is left behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import pytest

from holdfast import limits
from holdfast.core.items import Permissions
from holdfast.tools.execution import execute
from holdfast.tools.permissions import permission_for
from holdfast.tools.tool import Json, ToolOutput, news_of
from holdfast.tools.toolset_choice import ChosenToolset
from holdfast.tools.toolsets.background_jobs import BackgroundJobsToolset
from tests.tools.tool_calls import KEY, Blobs, Lifeline, Pipe, call_of, leap, said

OURS = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-secret"}


class Jobs:
    """The tools of one toolset, by name."""

    def __init__(self, toolset: BackgroundJobsToolset) -> None:
        self.toolset = toolset
        self._n = 0

    async def ask(self, name: str, *, session: str = "conv_1", **arguments: Json) -> ToolOutput:
        self._n += 1
        run = msgspec.structs.replace(
            call_of(arguments, key=f"{KEY}_{self._n}"), session_id=session
        )
        tool = next(each for each in await self.toolset.tools() if each.spec.name == name)
        return await execute(tool, run, Blobs())

    async def start(self, cmd: str, *, recall: bool | None = None) -> str:
        """The id of a new job."""
        arguments: dict[str, Json] = (
            {"cmd": cmd} if recall is None else {"cmd": cmd, "recall": recall}
        )
        output = await self.ask("run_background_job", session="conv_1", **arguments)
        assert output.outcome == "ok", said(output)
        return said(output).split()[-1].rstrip(".")


@asynccontextmanager
async def jobs_in(directory: Path, *, recall: bool = False) -> AsyncIterator[Jobs]:
    toolset = BackgroundJobsToolset(
        directory, env={"DESK": "front"}, environment=OURS, recall=recall
    )
    try:
        yield Jobs(toolset)
    finally:
        await toolset.close()


def test_starting_and_stopping_needs_a_permission(tmp_path: Path) -> None:
    specs = {each.spec.name: each.spec for each in BackgroundJobsToolset(tmp_path).listed}
    allowed = {
        name for name, spec in specs.items() if permission_for(spec, arguments={}) == "allow"
    }
    assert specs.keys() - allowed == {"run_background_job", "stop_background_job"}
    rules = Permissions(allow=("run_background_job:cmd=make *",))
    run = specs["run_background_job"]
    assert permission_for(run, rules, arguments={"cmd": "make all"}) == "allow"
    assert permission_for(run, rules, arguments={"cmd": "make all; rm -rf /"}) == "deny"


async def test_a_job_goes_on_and_is_waited_for(tmp_path: Path) -> None:
    with closing(Lifeline(tmp_path / "line")) as line, closing(Pipe(tmp_path / "go")) as go:
        async with jobs_in(tmp_path) as jobs:
            name = await jobs.start(
                "exec 3> line; echo begun $DESK; echo up >&3; read x < go; exit 3"
            )
            await line.next_word()
            seen = said(await jobs.ask("view_background_job", job_id=name))
            assert seen == "[running]\nbegun front"
            assert f"{name}: running: exec 3" in said(await jobs.ask("list_background_jobs"))
            waiting = asyncio.ensure_future(jobs.ask("wait_background_job", job_id=name))
            await asyncio.sleep(0)
            go.say("on\n")
            assert said(await waiting) == "[ended with exit code 3]\nbegun front\n[exit code 3]"


async def test_how_a_job_ends_is_told(tmp_path: Path) -> None:
    async with jobs_in(tmp_path) as jobs:
        name = await jobs.start("echo out; exit 3")
        ended = said(await jobs.ask("wait_background_job", job_id=name))
        assert ended == "[ended with exit code 3]\nout\n[exit code 3]"
        assert said(await jobs.ask("stop_background_job", job_id=name)) == ended, "it has ended"


async def test_a_job_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    with closing(Lifeline(tmp_path / "line")) as line:
        async with jobs_in(tmp_path) as jobs:
            name = await jobs.start("exec 3> line; echo up >&3; sleep 600 & wait")
            await line.next_word()
            assert said(await jobs.ask("stop_background_job", job_id=name)).startswith("[stopped]")
            await line.wait_gone()


async def test_waiting_too_long_leaves_the_job_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Lifeline(tmp_path / "line")) as line:
        async with jobs_in(tmp_path) as jobs:
            name = await jobs.start("exec 3> line; echo up >&3; sleep 600")
            await line.next_word()
            waiting = asyncio.ensure_future(
                jobs.ask("wait_background_job", job_id=name, timeout=60)
            )
            await asyncio.sleep(0)
            leap(monkeypatch, 61)
            assert said(await waiting) == "[running]"


async def test_a_job_is_its_conversations_alone(tmp_path: Path) -> None:
    async with jobs_in(tmp_path) as jobs:
        name = await jobs.start("sleep 600")
        for tool in ("view_background_job", "stop_background_job", "wait_background_job"):
            other = await jobs.ask(tool, session="conv_2", job_id=name)
            assert other.outcome == "error" and "There is no background job" in said(other)
        assert said(await jobs.ask("list_background_jobs", session="conv_2")) == "[none]"


async def test_closing_the_toolset_ends_its_jobs(tmp_path: Path) -> None:
    with closing(Lifeline(tmp_path / "line")) as line:
        async with jobs_in(tmp_path) as jobs:
            await jobs.start("exec 3> line; echo up >&3; sleep 600")
            await line.next_word()
        await line.wait_gone()
        late = await jobs.ask("run_background_job", cmd="true")
        assert "another version" in said(late)


async def test_a_job_that_no_conversation_asks_about_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Lifeline(tmp_path / "line")) as line:
        async with jobs_in(tmp_path) as jobs:
            name = await jobs.start("exec 3> line; echo up >&3; sleep 600")
            await line.next_word()
            leap(monkeypatch, limits.job_idle_s / 2)
            await jobs.ask("list_background_jobs")  # which keeps it
            leap(monkeypatch, limits.job_idle_s / 2 + 1)
            await asyncio.sleep(0)
            assert said(await jobs.ask("view_background_job", job_id=name)).startswith("[running]")
            leap(monkeypatch, limits.job_idle_s + 1)
            await line.wait_gone()


async def test_only_so_many_run_at_once(tmp_path: Path) -> None:
    async with jobs_in(tmp_path) as jobs:
        names = [await jobs.start("sleep 600") for _ in range(limits.jobs_running_max)]
        more = await jobs.ask("run_background_job", cmd="true")
        assert more.outcome == "error" and "stop one first" in said(more)
        await jobs.ask("stop_background_job", job_id=names[0])
        await jobs.start("true")


async def test_an_agent_that_wants_to_be_told_is_told_until_it_looks(tmp_path: Path) -> None:
    async with jobs_in(tmp_path, recall=True) as jobs:
        chosen = ChosenToolset(jobs.toolset)

        def news(session: str = "conv_1") -> str:
            return news_of(chosen, tenant="local", session_id=session)

        quiet = await jobs.start("echo quiet")
        loud = await jobs.start("echo loud", recall=True)
        for name in (quiet, loud):
            await jobs.toolset._of("local", "conv_1")[name].wait(60)
        assert "has ended with exit code 0" in news() and "loud" in news()
        assert quiet not in news() and news("conv_2") == ""
        await jobs.ask("view_background_job", job_id=loud)
        assert news() == ""


async def test_no_secret_is_seen(tmp_path: Path) -> None:
    async with jobs_in(tmp_path) as jobs:
        name = await jobs.start("env")
        assert "sk-secret" not in said(await jobs.ask("wait_background_job", job_id=name))


async def test_a_command_that_cannot_start_is_told(tmp_path: Path) -> None:
    async with jobs_in(tmp_path) as jobs:
        output = await jobs.ask("run_background_job", cmd="true", cwd="gone")
        assert output.outcome == "error" and "could not be started" in said(output)
