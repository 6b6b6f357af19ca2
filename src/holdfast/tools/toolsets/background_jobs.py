"""The `background_jobs` toolset: commands that a model writes, and that go on after their call.

1. A job belongs to the conversation that started it; no other conversation sees it.
2. Jobs live in this process. They end with it and with their toolset (another version of the agent file), when the
   agent stops them, or when their conversation has not asked about them for an hour. A job that is not here any more is
   an error that says so.
3. Starting and stopping needs a permission, as `shell` does; looking and waiting does not.
4. With `recall`, an agent that asks for it is told of the end of a job in the next step of the conversation, until it
   has looked at the job.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from holdfast import limits
from holdfast.tools.built_in_tools import (
    BuiltInTool,
    BuiltInToolset,
    Do,
    harmless_tool,
    number_in,
    parameters,
    text_in,
    text_output,
)
from holdfast.tools.execution import clean, failure
from holdfast.tools.process import Exit, RunningCommand, started_command
from holdfast.tools.sandbox.sandbox import ConfinedCommand, Sandbox
from holdfast.tools.tool import Json, ToolOutput, ToolRun, ToolSpec
from holdfast.tools.toolsets.script import in_words, passed_on

WAIT_S = 60
WAIT_S_MAX = 600

Conversation: TypeAlias = tuple[str, str]
"""A tenant, and the id of a session of it."""

INSTRUCTION = """\
A background job goes on while you do other things: use one for servers, watchers, and commands that take long.
Each runs in a fresh shell in which nobody can answer a prompt. Stop the jobs that are not needed any more.
A job does not outlive the server: if one is gone, start it again."""


class BackgroundJobsToolset(BuiltInToolset):
    """`run_background_job`, `list_background_jobs`, `view_background_job`, `wait_background_job`,
    `stop_background_job`; commands start in `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        env: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        cell: ConfinedCommand | None = None,
        recall: bool = False,
    ) -> None:
        """See `ShellToolset`. `recall`: the agent may ask to be told when a job has ended."""
        self._directory = directory
        self._cell = cell or Sandbox().cell(os.path.realpath(directory))
        self._environment = passed_on(environment) | dict(env or {})
        self._jobs: dict[Conversation, dict[str, _Job]] = {}
        self._closed = False
        arguments: dict[str, Json] = {
            "cmd": {"type": "string", "minLength": 1, "description": "The command, for /bin/sh."},
            "cwd": {"type": "string", "description": "Where to run it."},
        }
        if recall:
            words = "Whether you want to be told when it has ended."
            arguments["recall"] = {"type": "boolean", "description": words}
        job: Json = {"type": "string", "minLength": 1, "description": "As the job is called."}
        patience: Json = {
            "type": "integer",
            "minimum": 1,
            "maximum": WAIT_S_MAX,
            "description": f"How many seconds to wait; {WAIT_S} unless said.",
        }
        one = parameters(["job_id"], job_id=job)
        super().__init__(
            _acting("run_background_job", "Start a command, and go on without waiting for it.",
                    parameters(["cmd"], **arguments), self._run),
            harmless_tool("list_background_jobs", "The background jobs of this conversation.", parameters(), self._list),
            harmless_tool("view_background_job", "What a background job has printed, and whether it runs.", one, self._view),
            harmless_tool(
                "wait_background_job", "Wait for the end of a background job; it goes on if this takes too long.",
                parameters(["job_id"], job_id=job, timeout=patience), self._wait, timeout_s=WAIT_S_MAX + 5),
            _acting("stop_background_job", "End a background job and all of its processes.", one, self._stop),
            instruction=INSTRUCTION,
        )  # fmt: skip

    def news(self, tenant: str, session_id: str) -> str:
        """Words for the model about jobs that have ended since it asked to be told."""
        return "\n\n".join(job.news for job in self._of(tenant, session_id).values() if job.news)

    async def close(self) -> None:
        self._closed = True
        every = [job for jobs in self._jobs.values() for job in jobs.values()]
        await asyncio.gather(*(job.stop() for job in every))

    # ── the tools ──

    async def _run(self, run: ToolRun) -> ToolOutput:
        jobs = self._of(run.tenant, run.session_id)
        if why := self._no_room(jobs):
            return failure(why)
        cmd = text_in(run.arguments, "cmd")
        try:
            command = await started_command(
                cmd,
                environment=self._environment,
                directory=self._directory / text_in(run.arguments, "cwd"),
                mark=run.call_key,
                cell=self._cell,
                tenant=run.tenant,
                kept_bytes_max=limits.job_output_bytes_max,
            )
        except (OSError, ValueError) as error:
            return failure(f"The command could not be started: {error}")
        key, name = (run.tenant, run.session_id), f"job_{run.call_key}"
        self._jobs.setdefault(key, jobs)[name] = _Job(
            name,
            cmd,
            command,
            told=run.arguments.get("recall") is not True,
            forget=partial(self._forget, key, name),
        )
        return text_output(f"Started as {name}.")

    async def _list(self, run: ToolRun) -> ToolOutput:
        jobs = self._asked(run).values()
        return text_output(
            "\n".join(f"{each.name}: {each.state}: {each.cmd}" for each in jobs) or "[none]"
        )

    async def _view(self, run: ToolRun) -> ToolOutput:
        job = self._named(run)
        return _gone(run) if job is None else text_output(job.look())

    async def _wait(self, run: ToolRun) -> ToolOutput:
        job = self._named(run)
        if job is None:
            return _gone(run)
        await job.wait(float(number_in(run.arguments, "timeout", WAIT_S)))
        return text_output(job.look())

    async def _stop(self, run: ToolRun) -> ToolOutput:
        job = self._named(run)
        if job is None:
            return _gone(run)
        await job.stop()
        return text_output(job.look())

    # ── jobs ──

    def _of(self, tenant: str, session_id: str) -> dict[str, _Job]:
        return self._jobs.get((tenant, session_id), {})

    def _asked(self, run: ToolRun) -> dict[str, _Job]:
        """The jobs of a conversation that asks about them now: that keeps them alive."""
        jobs = self._of(run.tenant, run.session_id)
        for job in jobs.values():
            job.keep()
        return jobs

    def _named(self, run: ToolRun) -> _Job | None:
        return self._asked(run).get(text_in(run.arguments, "job_id"))

    def _no_room(self, jobs: dict[str, _Job]) -> str:
        """Why no further job can be started; empty if one can. Old jobs that have ended make room."""
        if self._closed:
            return "The agent has another version by now; nothing more is started for this one."
        running = sum(each.runs for each in jobs.values())
        if running >= limits.jobs_running_max:
            return f"{running} background jobs are running already; stop one first."
        if (
            sum(job.runs for jobs in self._jobs.values() for job in jobs.values())
            >= limits.jobs_everywhere_max
        ):
            return "Too many background jobs are running on this server; try again later."
        ended = [name for name, each in jobs.items() if not each.runs]
        for name in ended[: max(0, len(jobs) - limits.jobs_kept_max + 1)]:
            del jobs[name]
        return ""

    def _forget(self, key: Conversation, name: str) -> None:
        jobs = self._jobs.get(key, {})
        jobs.pop(name, None)
        if not jobs:
            self._jobs.pop(key, None)


class _Job:
    """One command, from its start until its toolset forgets it."""

    def __init__(
        self,
        name: str,
        cmd: str,
        command: RunningCommand,
        *,
        told: bool,
        forget: Callable[[], None],
    ) -> None:
        self.name = name
        self.cmd = cmd.strip().partition("\n")[0][:200]
        self._command = command
        self._told = told
        self._forget = forget
        self._ended: Exit | None = None
        self._stopping = False
        self._patience: asyncio.Timeout | None = None
        """While it runs: when it is ended."""
        self._task = asyncio.create_task(self._see_to_end())

    @property
    def runs(self) -> bool:
        return self._ended is None

    @property
    def state(self) -> str:
        if self._ended is None:
            return "running"
        code = self._ended.code
        return "stopped" if code is None else f"ended with exit code {code}"

    @property
    def news(self) -> str:
        """Words about its end for an agent that wants to be told and has not looked since."""
        if self._ended is None or self._told:
            return ""
        end = _printed(self._ended.output)[-limits.job_news_chars_max :]
        return f"The background job {self.name} ({self.cmd}) has {self.state}. It printed, at the end:\n{end}"

    def look(self) -> str:
        """Its state and its output, for the model."""
        self._told = self._told or not self.runs
        if self._ended is None:
            return f"[running]\n{_printed(self._command.printed)}".rstrip()
        words = "\n".join(getattr(each, "text", "") for each in in_words(self._ended).content)
        return f"[{self.state}]\n{words}"

    def keep(self) -> None:
        """Let it run for another while."""
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time() + limits.job_idle_s)

    async def wait(self, timeout_s: float) -> None:
        await asyncio.wait((self._task,), timeout=timeout_s)

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.sleep(0)  # a task that is cancelled before its first step would end nothing
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _see_to_end(self) -> None:
        why = "is not needed any more"
        try:
            async with asyncio.timeout(limits.job_idle_s) as self._patience:
                why = await self._command.wait_end()
        except TimeoutError:
            why = "was not asked about for long"
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        finally:
            self._patience = None
            await self._command.close()
            self._ended = self._command.outcome(why)
            asyncio.get_running_loop().call_later(limits.job_idle_s, self._forget)


def _acting(name: str, description: str, schema: str, do: Do) -> BuiltInTool:
    return BuiltInTool(ToolSpec(name=name, description=description, parameters=schema), do)


def _gone(run: ToolRun) -> ToolOutput:
    name = text_in(run.arguments, "job_id")
    return failure(
        f"There is no background job {name!r}: it ended long ago, or with the server that ran it. Start it again if it "
        "is still needed."
    )


def _printed(output: bytes) -> str:
    return clean(output.decode(errors="replace"))
