"""The toolsets of an agent file: checked, but not started."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path

from holdfast import limits
from holdfast.agents.file.document import UnreadableDocument, Where, read_document
from holdfast.agents.file.models import UNTRUSTED
from holdfast.agents.file.shape_checks import Findings, suggest
from holdfast.agents.file.shapes import (
    AgentShape,
    AnyToolset,
    Deferred,
    FetchToolsetShape,
    FileShape,
    FilesystemToolsetShape,
    McpShape,
    McpToolsetShape,
    MemoryToolsetShape,
    OpenapiToolsetShape,
    RemoteShape,
    ScriptShape,
    ScriptToolsetShape,
    Shape,
    ShellToolsetShape,
    ThinkToolsetShape,
    TodoToolsetShape,
    ToolsetShape,
)
from holdfast.agents.file.variables import filled_in
from holdfast.core.codec import encode
from holdfast.core.items import Permissions
from holdfast.tools.built_in_tools import BuiltInToolset
from holdfast.tools.deferred_tools import ADD, SEARCH
from holdfast.tools.mcp.config import McpServer, Remote, Stdio
from holdfast.tools.mcp.toolset import McpToolset
from holdfast.tools.permissions import permission_for
from holdfast.tools.sandbox.sandbox import Sandbox, cache_home
from holdfast.tools.schema import TOOL_NAME, InvalidTool
from holdfast.tools.tool import Json, Toolset, ToolSpec
from holdfast.tools.toolset_choice import ChosenToolset
from holdfast.tools.toolsets.fetch import FetchToolset
from holdfast.tools.toolsets.filesystem import WRITERS, FilesystemToolset
from holdfast.tools.toolsets.memory import MemoryToolset
from holdfast.tools.toolsets.openapi import HttpApi, OpenApiToolset
from holdfast.tools.toolsets.openapi_document import Unusable
from holdfast.tools.toolsets.script import (
    ScriptCommand,
    ScriptToolset,
    passed_on,
    working_directory,
)
from holdfast.tools.toolsets.shell import ShellToolset
from holdfast.tools.toolsets.think import ThinkToolset
from holdfast.tools.toolsets.todo import TodoToolset
from holdfast.tools.web.address_guard import WEB_PORTS, AddressGuard, Domains, FetchFailed, host_of

RESERVED_TOOLS = frozenset({"transfer_task", "handoff", SEARCH, ADD})
"""Names of the loop's own tools: for work between agents, and for the search for deferred tools."""

_NEEDS_TRUST: Mapping[type[Shape], str] = {
    ScriptToolsetShape: "run commands on this machine",
    ShellToolsetShape: "run commands on this machine",
    McpToolsetShape: "run commands on this machine, and reach servers from it",
    FilesystemToolsetShape: "read and change files on this machine",
    OpenapiToolsetShape: "read files of this machine, and reach servers from it",
}
_STREAMABLE = ("", "streamable", "streamable-http", "streamable_http", "http")


class FileTools:
    """The toolsets of one file. Its agents share MCP servers with the same settings."""

    def __init__(
        self,
        findings: Findings,
        file: FileShape,
        directory: Path,
        environment: Mapping[str, str],
        *,
        trusted: bool,
        sandbox: Sandbox,
    ) -> None:
        self._found = findings
        self._sandbox = sandbox
        self._directory = directory
        self._environment = environment
        self._trusted = trusted
        self._mcps = file.mcps
        self._servers: dict[bytes, McpToolset] = {}

    def of_agent(
        self, shape: AgentShape, where: Where, rules: Permissions
    ) -> tuple[tuple[Toolset, str], ...]:
        """An agent's toolsets, each with its origin. Their problems are added to the findings."""
        for n, toolset in enumerate(shape.toolsets):
            if isinstance(toolset, FilesystemToolsetShape):
                self._check_writers(toolset, (*where, "toolsets", n), rules)
        taken = set(RESERVED_TOOLS)
        made = [
            (self._toolset(toolset, (*where, "toolsets", n), taken), self._origin(toolset))
            for n, toolset in enumerate(shape.toolsets)
            if toolset is not None  # None: a kind that is not run yet
        ]
        return tuple((toolset, origin) for toolset, origin in made if toolset is not None)

    def _origin(self, shape: AnyToolset) -> str:
        """A digest of all settings of a toolset, and of the file's directory. Variables are not filled in."""
        ref = shape.ref if isinstance(shape, McpToolsetShape) else ""
        said = (str(self._directory), shape, self._mcps.get(ref))
        return sha256(encode(said)).hexdigest()

    def _toolset(self, shape: AnyToolset, at: Where, taken: set[str]) -> Toolset | None:
        if not self._trusted and (what := _NEEDS_TRUST.get(type(shape))):
            self._found.wrong(at, UNTRUSTED.format(what=what))
            return None
        if _runs_commands(shape) and (refused := self._sandbox.refusal()):
            self._found.wrong(at, refused)
            return None
        match shape:
            case ScriptToolsetShape():
                return self._chosen(self._scripts(shape, at, taken), shape)
            case McpToolsetShape():
                return self._mcp(shape, at)
            case OpenapiToolsetShape():
                return self._openapi(shape, at)
            case _:
                built = self._built(shape, at)
                return None if built is None else self._offered(built, shape, at, taken)

    def _built(self, shape: AnyToolset, at: Where) -> BuiltInToolset | None:
        match shape:
            case ShellToolsetShape():
                where = self._below(shape.working_dir, (*at, "working_dir"))
                env, _ = self._filled(shape.env, (*at, "env"))
                cell = self._sandbox.cell(
                    where,
                    *self._placed(shape.roots),
                    read_roots=self._placed(shape.read_roots),
                    network=shape.network,
                )
                return ShellToolset(where, env=env, environment=self._environment, cell=cell)
            case FilesystemToolsetShape():
                return self._filesystem(shape, at)
            case FetchToolsetShape():
                return self._fetch(shape, at)
            case ThinkToolsetShape():
                return ThinkToolset()
            case TodoToolsetShape():
                return TodoToolset()
            case MemoryToolsetShape():
                return MemoryToolset()
            case _:
                raise AssertionError(f"{type(shape).__name__} is made elsewhere")

    # ── our own ──

    def _offered(
        self, built: BuiltInToolset, shape: ToolsetShape, at: Where, taken: set[str]
    ) -> Toolset:
        """The toolset with only the tools that the file lists. Two tools of an agent must not have the same name."""
        for n, name in enumerate(shape.tools or ()):
            if name not in built.names and not _is_writer(shape, name):
                words = f"no such tool; {suggest(name, built.names)}"
                self._found.wrong((*at, "tools", n), words)
        offered = built.names if shape.tools is None else shape.tools
        self._check_deferred(shape.defer, offered, at)
        for name in offered:
            if name in taken:
                words = f"another tool of this agent is called {name!r} already; list those to offer under 'tools'"
                self._found.wrong(at, words)
            taken.add(name)
        return self._chosen(built, shape, only=shape.tools)

    def _chosen(
        self, inner: Toolset, shape: ToolsetShape, *, only: tuple[str, ...] | None = None
    ) -> Toolset:
        if only is None and shape.instruction is None and not shape.defer:
            return inner
        return ChosenToolset(
            inner, only=only, instruction=shape.instruction, deferred=_deferred(shape.defer)
        )

    def _check_deferred(self, defer: Deferred, offered: Collection[str], at: Where) -> None:
        for n, name in enumerate(defer if isinstance(defer, tuple) else ()):
            if name not in offered:
                self._found.wrong((*at, "defer", n), f"no such tool; {suggest(name, offered)}")

    def _check_writers(self, shape: FilesystemToolsetShape, at: Where, rules: Permissions) -> None:
        """Without 'roots' files are only read. A file that means to write is refused now, not in the middle of a turn."""
        if shape.roots:
            return
        offered = WRITERS if shape.tools is None else shape.tools
        for name in (each for each in WRITERS if each in offered):
            spec = ToolSpec(name=name, description="", parameters="{}")
            if shape.tools is not None or permission_for(spec, rules) != "deny":
                words = (
                    f"{name} needs to be told where: name the directories that may be written to under "
                    "'roots' (roots: [.] is that of this file); or list only tools that read under 'tools'"
                )
                self._found.wrong(at, words)
                return

    def _filesystem(self, shape: FilesystemToolsetShape, at: Where) -> FilesystemToolset | None:
        roots = [self._directory / each for each in shape.roots] or [self._directory]
        for n, root in enumerate(roots):
            if not root.is_dir():
                self._found.missing((*at, "roots", n), "there is no such directory")
        return FilesystemToolset(
            *roots, skip_version_control=shape.ignore_vcs, read_only=not shape.roots
        )

    def _fetch(self, shape: FetchToolsetShape, at: Where) -> FetchToolset | None:
        if shape.allow_private_ips and not self._trusted:
            words = UNTRUSTED.format(what="reach into the private network")
            self._found.wrong((*at, "allow_private_ips"), words)
            return None
        guard = AddressGuard(
            allow_private=shape.allow_private_ips,
            ports=() if shape.allow_private_ips else WEB_PORTS,
            domains=Domains(allowed=shape.allowed_domains, blocked=shape.blocked_domains),
        )
        return FetchToolset(guard, timeout_s=shape.timeout)

    def _below(self, text: str, at: Where) -> Path:
        """A directory: relative to the agent file and below it, or absolute. Symbolic links are resolved now and not
        again, because a tool could change them later."""
        found = Path(os.path.normpath(self._directory / text))
        if not Path(text).is_absolute() and not found.is_relative_to(self._directory):
            words = f"leads out of {self._directory}; give it as an absolute path"
            self._found.wrong(at, words)
        return Path(os.path.realpath(found))

    def _placed(self, roots: tuple[str, ...]) -> tuple[str, ...]:
        """Further directories that a command may use: relative to the agent file, or absolute."""
        return tuple(os.path.realpath(self._directory / each) for each in roots)

    def _filled(
        self, values: Mapping[str, str], at: Where
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """Values with their variables filled in, and the secrets among the filled-in values."""
        made: dict[str, str] = {}
        secrets: tuple[str, ...] = ()
        for name, value in values.items():
            made[name], own = self._filled_one(value, (*at, name))
            secrets += own
        return made, secrets

    def _filled_one(self, value: str, at: Where) -> tuple[str, tuple[str, ...]]:
        result = filled_in(value, self._environment, self._found, at)
        return result.text, result.secrets

    # ── MCP ──

    def _mcp(self, shape: McpToolsetShape, at: Where) -> Toolset | None:
        defined = self._mcps.get(shape.ref)
        if (defined.ref if defined else shape.ref).startswith("docker:"):
            self._found.warn((*at, "ref"), "Docker's MCP gateway is not run here yet; left out")
            return None
        merged = self._referred(shape, at)
        server = None if merged is None else self._server(merged, at)
        if merged is None or server is None:
            return None
        inner = self._shared(server, at)
        if inner is None:
            return None
        if merged.instruction is None and not merged.defer:
            return inner
        names = _deferred(merged.defer)
        if names and merged.name:
            names = [each for own in names for each in (own, f"{merged.name}_{own}")]
        return ChosenToolset(inner, instruction=merged.instruction, deferred=names)

    def _shared(self, server: McpServer, at: Where) -> McpToolset | None:
        """The toolset of a server; servers with equal settings share one."""
        key = encode(server)
        if key not in self._servers:
            try:
                self._servers[key] = McpToolset(server, sandbox=self._sandbox)
            except InvalidTool as error:
                self._found.wrong(at, str(error))
                return None
        return self._servers[key]

    def _referred(self, shape: McpToolsetShape, at: Where) -> McpShape | None:
        """A toolset merged with the definition that it refers to; its own fields win."""
        own = {name: getattr(shape, name) for name in McpShape.__struct_fields__}
        if not shape.ref:
            return McpShape(**own)
        if shape.ref not in self._mcps:
            words = f"no such server; {suggest(shape.ref, self._mcps)}"
            self._found.wrong((*at, "ref"), words)
            return None
        if shape.command or shape.remote is not None:
            self._found.wrong(at, "'ref' names a server; leave out 'command' and 'remote'")
            return None
        there, blank = self._mcps[shape.ref], McpShape()
        fields = {
            name: value if value != getattr(blank, name) else getattr(there, name)
            for name, value in own.items()
        }
        return McpShape(**{**fields, "ref": "", "env": {**there.env, **shape.env}})

    def _server(self, shape: McpShape, at: Where) -> McpServer | None:
        if bool(shape.command) == (shape.remote is not None):
            self._found.wrong(at, "give one of 'command', 'remote' and 'ref'")
            return None
        if shape.name and TOOL_NAME.fullmatch(shape.name) is None:
            words = "tools begin with it: take letters, digits, '_' and '-'"
            self._found.wrong((*at, "name"), words)
        env, secrets = self._filled(shape.env, (*at, "env"))
        transport: Stdio | Remote | None
        if shape.remote is not None:
            transport, more = self._remote(shape.remote, (*at, "remote"))
        else:
            transport, more = self._program(shape, env, at), ()
        if transport is None:
            return None
        return McpServer(
            transport=transport,
            name=shape.name,
            only=shape.tools,
            trust_hints=shape.trust_hints,
            timeout_s=shape.timeout,
            secrets=secrets + more,
        )

    def _program(self, shape: McpShape, env: Mapping[str, str], at: Where) -> Stdio:
        directory = self._below(shape.working_dir, (*at, "working_dir"))
        return Stdio(
            command=shape.command,
            args=shape.args,
            env={**passed_on(self._environment), **env},
            directory=str(directory),
            network=shape.network,
            roots=self._placed(shape.roots),
            read_roots=self._placed(shape.read_roots),
            home=cache_home([shape.command, *shape.args], self._environment),
        )

    def _remote(self, shape: RemoteShape, at: Where) -> tuple[Remote | None, tuple[str, ...]]:
        if shape.transport_type not in _STREAMABLE:
            words = "only streamable HTTP is spoken here; give the server's address for that"
            self._found.wrong((*at, "transport_type"), words)
            return None, ()
        url, secrets = self._filled_one(shape.url, (*at, "url"))
        headers, more = self._filled(shape.headers, (*at, "headers"))
        try:
            host_of(url)
        except FetchFailed as error:
            self._found.wrong((*at, "url"), error.why)
            return None, ()
        return Remote(url=url, headers=headers), secrets + more

    # ── OpenAPI ──

    def _openapi(self, shape: OpenapiToolsetShape, at: Where) -> Toolset:
        document, _ = self._filled_one(shape.url, (*at, "url"))
        headers, _ = self._filled(shape.headers, (*at, "headers"))
        for field, url in (("url", document), ("base_url", shape.base_url)):
            if "://" in url:
                try:
                    host_of(url)
                except FetchFailed as error:
                    self._found.wrong((*at, field), error.why)
        if "://" not in document:
            document = str(self._below(document, (*at, "url")))
        api = HttpApi(
            document=document,
            base_url=shape.base_url,
            headers=headers,
            allow_private=shape.allow_private_ips,
            timeout_s=shape.timeout,
        )
        return self._chosen(OpenApiToolset(api, reader=_from_yaml), shape, only=shape.tools)

    # ── declared commands ──

    def _scripts(self, toolset: ScriptToolsetShape, where: Where, taken: set[str]) -> Toolset:
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
        self._check_deferred(toolset.defer, wanted, where)
        self._check_variables(toolset.env, (*where, "env"))
        scripts: dict[str, ScriptCommand] = {}
        for name, shape in toolset.shell.items():
            at = (*where, "shell", name)
            self._check_variables(shape.env, (*at, "env"))
            script = self._script(shape, toolset.env)
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

    def _script(self, shape: ScriptShape, shared: Mapping[str, str]) -> ScriptCommand:
        arguments: dict[str, Json] = {**shape.args}
        return ScriptCommand(
            cmd=shape.cmd,
            description=shape.description,
            args=arguments,
            required=shape.required,
            env={**shared, **shape.env},
            pass_env=shape.pass_env,
            working_dir=shape.working_dir,
            read_only=shape.read_only,
            idempotent=shape.idempotent,
            timeout_s=shape.timeout,
            network=shape.network,
            roots=self._placed(shape.roots),
            read_roots=self._placed(shape.read_roots),
        )

    def _check_variables(self, env: Mapping[str, str], where: Where) -> None:
        """docker-agent fills these variables in from its environment. Holdfast does not, so it refuses them."""
        for name, value in env.items():
            if re.fullmatch(r"\$(\w+|\{[^}]*\})", value):
                words = "variables are not filled in here; list the name in 'pass_env'"
                self._found.wrong((*where, name), words)


def _is_writer(shape: ToolsetShape, name: str) -> bool:
    """Whether this is a tool that a `filesystem` toolset has only with 'roots'."""
    return isinstance(shape, FilesystemToolsetShape) and name in WRITERS


def _deferred(defer: Deferred) -> Collection[str] | None:
    """The names of the deferred tools; None: all of them."""
    if isinstance(defer, tuple):
        return defer
    return None if defer else ()


def _from_yaml(data: bytes) -> Json:
    """An OpenAPI document in YAML, read by the same rules as an agent file."""
    try:
        value: Json = read_document(data).value
    except UnreadableDocument as error:
        raise Unusable(f"line {error.mark.line}: {error.words}") from error
    return value


def _runs_commands(shape: AnyToolset) -> bool:
    match shape:
        case ScriptToolsetShape() | ShellToolsetShape():
            return True
        case McpToolsetShape():
            return shape.remote is None
        case _:
            return False
