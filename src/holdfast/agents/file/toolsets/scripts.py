"""The `script` toolsets of an agent file: declared commands, checked but not run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast import limits
from holdfast.agents.file.document import Where
from holdfast.agents.file.shape_checks import suggest
from holdfast.agents.file.toolsets.file_context import FileContext, check_deferred
from holdfast.agents.file.toolsets.toolset_shapes import ScriptShape, ScriptToolsetShape
from holdfast.tools.schema import InvalidTool
from holdfast.tools.tool import Json
from holdfast.tools.toolsets.script import ScriptCommand, ScriptToolset, working_directory


class FileScripts:
    """The declared commands of one file."""

    def __init__(self, context: FileContext) -> None:
        self._context = context
        self._found = context.found
        self._directory = context.directory
        self._environment = context.environment
        self._sandbox = context.sandbox

    def toolset(self, toolset: ScriptToolsetShape, where: Where, taken: set[str]) -> ScriptToolset:
        if not toolset.shell:
            self._found.wrong(where, "'shell' is missing: the commands of a script toolset")
        if len(toolset.shell) > limits.script_commands_max:
            words = f"has {len(toolset.shell)} commands, at most {limits.script_commands_max}"
            self._found.wrong((*where, "shell"), words)
        wanted = toolset.shell if toolset.tools is None else toolset.tools
        for n, name in enumerate(toolset.tools or ()):
            if name not in toolset.shell:
                words = f"no such command; {suggest(name, toolset.shell)}"
                self._found.wrong((*where, "tools", n), words)
        check_deferred(self._found, toolset.defer, wanted, where)
        shared = self._with_variables(toolset.env, (*where, "env"))
        scripts: dict[str, ScriptCommand] = {}
        for name, shape in toolset.shell.items():
            at = (*where, "shell", name)
            own = self._with_variables(shape.env, (*at, "env"))
            script = self._script(shape, {**shared, **own})
            if self._is_tool(name, script, at, taken) and name in wanted:
                scripts[name] = script
                self._check_place(name, script, at)
        return self._made(scripts)

    def _check_place(self, name: str, script: ScriptCommand, where: Where) -> None:
        """Warn about a command that works in the agent file's directory: in a sandbox it cannot add files there."""
        if not script.working_dir or script.read_only:
            return
        if working_directory(name, script, self._directory) == self._directory.resolve():
            words = "in a sandbox a command can add and remove no files beside the agent file; give it a folder of its own"
            self._found.warn((*where, "working_dir"), words)

    def _is_tool(self, name: str, script: ScriptCommand, where: Where, taken: set[str]) -> bool:
        """Whether a command can be a tool; if not, a finding says why."""
        if name in taken:
            self._found.wrong(where, "another tool of this agent has that name already")
            return False
        taken.add(name)
        try:
            self._made({name: script})
        except InvalidTool as error:
            self._found.wrong(where, str(error))
            return False
        return True

    def _made(self, scripts: Mapping[str, ScriptCommand]) -> ScriptToolset:
        return ScriptToolset(
            scripts,
            directory=self._directory,
            environment=self._environment,
            sandbox=self._sandbox,
        )

    def _script(self, shape: ScriptShape, env: Mapping[str, str]) -> ScriptCommand:
        arguments: dict[str, Json] = {**shape.args}
        return ScriptCommand(
            cmd=shape.cmd,
            description=shape.description,
            args=arguments,
            required=shape.required,
            env=env,
            pass_env=shape.pass_env,
            working_dir=shape.working_dir,
            read_only=shape.read_only,
            idempotent=shape.idempotent,
            timeout_s=shape.timeout,
            network=shape.network,
            roots=self._context.placed(shape.roots),
            read_roots=self._context.placed(shape.read_roots),
        )

    def _with_variables(self, env: Mapping[str, str], where: Where) -> dict[str, str]:
        """Variables for a command, with `${env.NAME}` filled in; every other `$` is the shell's. A value that is
        another variable as a whole may be meant as either, and is refused."""
        for name, value in env.items():
            if re.fullmatch(r"\$(\w+|\{\w+\})", value):
                words = "say which variable of the server is meant: ${env.NAME}, or list the name in 'pass_env'"
                self._found.wrong((*where, name), words)
        return {
            name: self._context.with_environment(value, (*where, name))
            for name, value in env.items()
        }
