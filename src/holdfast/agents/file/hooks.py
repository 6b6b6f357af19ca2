"""The hooks of an agent file: checked, but not run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from holdfast.agents.file.document import Where
from holdfast.agents.file.models import UNTRUSTED
from holdfast.agents.file.shape_checks import Findings
from holdfast.agents.file.shapes import HookMatcherShape, HookShape, HooksShape
from holdfast.agents.file.variables import filled_in
from holdfast.tools.hooks import EVERY_TOOL, Hook, Hooks
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.toolsets.script import passed_on


class FileHooks:
    """The hooks of the agents of one file. They run in the file's directory, with the environment of script tools."""

    def __init__(
        self,
        findings: Findings,
        directory: Path,
        environment: Mapping[str, str],
        *,
        trusted: bool,
        sandbox: Sandbox,
    ) -> None:
        self._found = findings
        self._sandbox = sandbox
        self._directory = directory
        self._given = environment
        self._environment = passed_on(environment)
        self._trusted = trusted

    def of_agent(self, shape: HooksShape, where: Where) -> Hooks:
        """An agent's hooks. Their problems are added to the findings."""
        if shape == HooksShape():
            return Hooks()
        if not self._trusted:
            self._found.wrong(where, UNTRUSTED.format(what="run commands on this machine"))
            return Hooks()
        if refused := self._sandbox.refusal():
            self._found.wrong(where, refused)
            return Hooks()
        return Hooks(
            pre_tool_use=self._matched(shape.pre_tool_use, (*where, "pre_tool_use")),
            post_tool_use=self._matched(shape.post_tool_use, (*where, "post_tool_use")),
            session_start=self._hooks(shape.session_start, (*where, "session_start")),
            on_user_input=self._hooks(shape.on_user_input, (*where, "on_user_input")),
            stop=self._hooks(shape.stop, (*where, "stop")),
            session_end=self._hooks(shape.session_end, (*where, "session_end")),
            directory=self._directory,
            environment=self._environment,
            sandbox=self._sandbox,
        )

    def _matched(self, shapes: tuple[HookMatcherShape, ...], where: Where) -> tuple[Hook, ...]:
        hooks: list[Hook] = []
        for n, shape in enumerate(shapes):
            try:
                if shape.matcher not in EVERY_TOOL:
                    re.compile(shape.matcher)
            except (re.error, OverflowError, RecursionError) as error:
                words = f"this is not a regular expression: {error}"
                self._found.wrong((*where, n, "matcher"), words)
            hooks += self._hooks(shape.hooks, (*where, n, "hooks"), matcher=shape.matcher)
        return tuple(hooks)

    def _hooks(
        self, shapes: tuple[HookShape, ...], where: Where, *, matcher: str = "*"
    ) -> tuple[Hook, ...]:
        return tuple(
            self._hook(shape, (*where, n), matcher=matcher) for n, shape in enumerate(shapes)
        )

    def _hook(self, shape: HookShape, where: Where, *, matcher: str) -> Hook:
        if not shape.command.strip() or "\0" in shape.command:
            self._found.wrong((*where, "command"), "there is no command")
        env = {
            name: filled_in(value, self._given, self._found, (*where, "env", name)).text
            for name, value in shape.env.items()
        }
        directory = Path(os.path.realpath(self._directory / shape.working_dir))
        if shape.working_dir and not directory.is_dir():
            self._found.missing((*where, "working_dir"), "there is no such directory")
        return Hook(
            command=shape.command,
            matcher=matcher,
            timeout_s=shape.timeout,
            env=env,
            directory=str(directory) if shape.working_dir else "",
            blocks_if_broken=shape.on_error == "block",
            network=shape.network,
            roots=tuple(os.path.realpath(self._directory / each) for each in shape.roots),
        )
