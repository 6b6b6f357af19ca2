"""The `shell` toolset: runs commands that a model writes.

It is never read-only, so it runs only where a rule allows it, and in a sandbox where there is one. A command's
environment and its end are the same as for declared commands (`toolsets/script.py`, `process.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast import limits
from holdfast.tools.built_in_tools import (
    BuiltInTool,
    BuiltInToolset,
    number_in,
    parameters,
    text_in,
)
from holdfast.tools.execution import failure
from holdfast.tools.process import run_command
from holdfast.tools.sandbox.sandbox import ConfinedCommand, Sandbox
from holdfast.tools.tool import ToolOutput, ToolRun, ToolSpec
from holdfast.tools.toolsets.script import in_words, passed_on

TIMEOUT_S = 30
TIMEOUT_S_MAX = 600

INSTRUCTION = """\
Each command of your shell tool runs in a fresh shell: a directory or variable that one sets is not there for the next.
Nobody can answer a prompt: use flags that make commands run without asking.
Commands may write to the working directory and to $TMPDIR; other files, and the network, may be out of their reach."""


class ShellToolset(BuiltInToolset):
    """One tool, `shell`; commands start in `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        env: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        cell: ConfinedCommand | None = None,
    ) -> None:
        """`env` is for the commands alone; of `environment` (ours) they see a small, listed part. `cell` is what
        they may use of this machine; by default `directory`."""
        self._directory = directory
        self._cell = cell or Sandbox().cell(os.path.realpath(directory))
        self._environment = passed_on(environment) | dict(env or {})
        spec = ToolSpec(
            name="shell",
            description="Run a command with /bin/sh and show what it prints, and its exit code if that is not 0.",
            parameters=parameters(
                ["cmd"],
                cmd={"type": "string", "minLength": 1, "description": "The command."},
                cwd={
                    "type": "string",
                    "description": "Where to run it; relative to the working directory.",
                },
                timeout={
                    "type": "integer",
                    "minimum": 1,
                    "maximum": TIMEOUT_S_MAX,
                    "description": f"When to give up, in seconds; {TIMEOUT_S} unless said.",
                },
            ),
            # The command has its own timeout, which keeps what it has printed for the model; this one is the backstop.
            timeout_s=TIMEOUT_S_MAX + 3 * limits.script_kill_grace_s + 1,
        )
        super().__init__(BuiltInTool(spec, self._run), instruction=INSTRUCTION)

    async def _run(self, run: ToolRun) -> ToolOutput:
        try:
            ended = await run_command(
                text_in(run.arguments, "cmd"),
                environment=self._environment,
                directory=self._directory / text_in(run.arguments, "cwd"),
                mark=run.call_key,
                timeout_s=float(number_in(run.arguments, "timeout", TIMEOUT_S)),
                cell=self._cell,
                tenant=run.tenant,
            )
        except (OSError, ValueError) as error:
            return failure(f"The command could not be started: {error}")
        return in_words(ended)
