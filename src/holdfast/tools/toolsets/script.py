"""The `script` toolset: shell commands that an agent file declares, as tools.

A command's text is the author's and is never changed: arguments reach it as environment variables, so no text of a
model is ever parsed as shell. A command sees a small, listed part of our environment, and the variables that its
author declared; never the server's secrets by accident.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.items import Text
from holdfast.environment import PREFIX
from holdfast.tools.built_in_tools import parameters
from holdfast.tools.execution import clean, failure
from holdfast.tools.process import Exit, run_command
from holdfast.tools.sandbox.sandbox import Sandbox, named_paths
from holdfast.tools.schema import InvalidTool, checked, suggest
from holdfast.tools.tool import Json, Tool, ToolBroken, ToolOutput, ToolRun, ToolSpec

PASSED_ON = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TERM SSL_CERT_FILE SSL_CERT_DIR".split()
)
"""The variables of our environment that a command sees, besides `LC_…`."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED = re.compile(
    rf"{PREFIX}.*|LD_.*|DYLD_.*|LC_.*|BASH_ENV|ENV|IFS|PS4|SHELLOPTS|BASHOPTS|CDPATH|GLOBIGNORE"
    r"|PYTHON(PATH|HOME|STARTUP)|PERL5(LIB|OPT)|RUBYOPT|NODE_OPTIONS|GIT_(SSH|SSH_COMMAND|EXTERNAL_DIFF)"
)
"""Variables that decide which code runs. An argument with such a name would let the model decide."""


class ScriptCommand(Value):
    """One declared command."""

    cmd: str
    description: str = ""
    args: Mapping[str, Json] = {}
    """Argument name → its JSON Schema."""
    required: tuple[str, ...] | None = None
    """The required arguments. None: all of them."""
    env: Mapping[str, str] = {}
    pass_env: tuple[str, ...] = ()
    """More variables of the server's environment that the command sees."""
    working_dir: str = ""
    read_only: bool = False
    idempotent: bool = False
    timeout_s: float = 60.0
    network: bool = False
    roots: tuple[str, ...] = ()
    """Directories that the command may write to in a sandbox, besides its own."""
    read_roots: tuple[str, ...] = ()
    """Directories that the command may also read in a sandbox."""


class ScriptToolset:
    """Declared commands as tools. Raises InvalidTool for a command that cannot be a tool."""

    def __init__(
        self,
        scripts: Mapping[str, ScriptCommand],
        *,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        ours = os.environ if environment is None else environment
        sandbox = sandbox or Sandbox()
        self.listed: tuple[Tool, ...] = tuple(
            ScriptTool(name, script, directory=directory, environment=ours, sandbox=sandbox)
            for name, script in scripts.items()
        )

    async def tools(self) -> tuple[Tool, ...]:
        return self.listed

    async def close(self) -> None:
        """Nothing to close: no command outlives its call."""


class ScriptTool:
    """One declared command, as a tool."""

    def __init__(
        self,
        name: str,
        script: ScriptCommand,
        *,
        directory: Path,
        environment: Mapping[str, str],
        sandbox: Sandbox | None = None,
    ) -> None:
        sandbox = sandbox or Sandbox()
        self.spec = checked(spec_of(name, script))
        self._script = script
        self._directory = working_directory(name, script, directory)
        self._environment = {**passed_on(environment, also=script.pass_env), **script.env}
        named = named_paths(self._directory, script.cmd)
        self._cell = sandbox.cell(
            self._directory,
            *map(os.path.realpath, script.roots),
            read_roots=(
                os.path.realpath(directory),
                *named.projects,
                *map(os.path.realpath, script.read_roots),
            ),
            network=script.network,
        )

    async def run(self, run: ToolRun) -> ToolOutput:
        try:
            given = as_variables(run.arguments)
            ended = await run_command(
                self._script.cmd,
                environment={**self._environment, **given},
                directory=self._directory,
                mark=run.call_key,
                timeout_s=self._script.timeout_s,
                cell=self._cell,
                tenant=run.tenant,
            )
        except ValueError as error:
            return failure(f"{self.spec.name!r} could not be started: {error}")
        except OSError as error:
            words = f"{self.spec.name!r} could not be started: {error}"
            raise ToolBroken(words, cause="could not be started") from error
        return in_words(ended)


def spec_of(name: str, script: ScriptCommand) -> ToolSpec:
    """The tool spec of a declared command. Raises InvalidTool."""
    required = tuple(script.args) if script.required is None else script.required
    for argument in script.args:
        if argument_problem := _argument_problem(argument):
            raise InvalidTool(f"the argument {argument!r} of {name!r} {argument_problem}")
    for argument in required:
        if argument not in script.args:
            raise InvalidTool(
                f"{name!r} requires the argument {argument!r}; {suggest(argument, script.args)}"
            )
    for variable in (*script.env, *script.pass_env):
        if VARIABLE.fullmatch(variable) is None:
            raise InvalidTool(f"{name!r} declares a variable with the name {variable!r}")
    if not script.cmd.strip() or "\0" in script.cmd:
        raise InvalidTool(f"{name!r} has no command")
    if script.timeout_s <= 0:
        raise InvalidTool(f"the timeout of {name!r} has to be above 0 s")
    return ToolSpec(
        name=name,
        description=script.description,
        parameters=parameters(required, **script.args),
        read_only=script.read_only,
        idempotent=script.idempotent,
        # The command has its own timeout, which keeps what it has printed for the model; this one is the backstop.
        timeout_s=script.timeout_s + 3 * limits.script_kill_grace_s + 1,
    )


def _argument_problem(name: str) -> str:
    if VARIABLE.fullmatch(name) is None:
        return "becomes an environment variable; take letters, digits and '_'"
    if name in PASSED_ON or _RESERVED.fullmatch(name):
        return "would replace a variable that decides how commands run; take another name"
    return ""


def working_directory(name: str, script: ScriptCommand, base: Path) -> Path:
    """The directory of a command. A relative directory stays below `base`, links resolved."""
    if not script.working_dir:
        return base.resolve()
    found = Path(script.working_dir)
    if found.is_absolute():
        return found.resolve()
    resolved, root = (base / found).resolve(), base.resolve()
    if not resolved.is_relative_to(root):
        raise InvalidTool(
            f"the working_dir of {name!r} leads out of {root}; give it as an absolute path"
        )
    return resolved


def passed_on(environment: Mapping[str, str] | None, *, also: Iterable[str] = ()) -> dict[str, str]:
    """The part of an environment that a command may see; None: of our own. Its PATH has no relative entries."""
    names = PASSED_ON | frozenset(also)
    kept = {
        name: value
        for name, value in (os.environ if environment is None else environment).items()
        if name in names or name.startswith("LC_")
    }
    entries = [each for each in kept.get("PATH", "").split(os.pathsep) if os.path.isabs(each)]
    return {**kept, "PATH": os.pathsep.join(entries) or os.defpath}


def as_variables(arguments: Mapping[str, Json]) -> dict[str, str]:
    """Arguments as environment variables: text as it is, null left out, anything else as JSON."""
    variables = {
        name: clean(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in arguments.items()
        if value is not None
    }
    for name, value in variables.items():
        if "\0" in value:
            raise ValueError(f"the argument {name!r} contains a NUL character")
        if len(value.encode()) > limits.script_argument_bytes_max:
            raise ValueError(
                f"the argument {name!r} is longer than {limits.script_argument_bytes_max} bytes"
            )
    return variables


def in_words(ended: Exit) -> ToolOutput:
    """The output for the model: what the command printed, and how it ended unless it succeeded."""
    printed = ended.output.decode(errors="replace")
    if ended.why_stopped:
        how = f"[the command {ended.why_stopped} and was stopped]"
    elif ended.killed_by:
        how = f"[the command was ended by signal {ended.killed_by}]"
    elif ended.code:
        how = f"[exit code {ended.code}]"
    else:
        return ToolOutput(content=(Text(text=printed or "[exit code 0, no output]"),))
    message = f"{printed.rstrip()}\n{how}" if printed.strip() else how
    return ToolOutput(content=(Text(text=message),), outcome="error")
