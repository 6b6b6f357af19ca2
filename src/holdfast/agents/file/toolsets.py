"""The toolsets of an agent file: checked, but not started."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.agents.file.document import UnreadableDocument, Where, read_document
from holdfast.agents.file.models import UNTRUSTED
from holdfast.agents.file.shape_base import Shape
from holdfast.agents.file.shape_checks import Findings, suggest
from holdfast.agents.file.shapes import AgentShape, FileShape, InlineSkillShape, Skills
from holdfast.agents.file.toolset_shapes import (
    AnyToolset,
    ApiToolsetShape,
    BackgroundAgentsToolsetShape,
    Deferred,
    FetchToolsetShape,
    FilesystemToolsetShape,
    McpShape,
    McpToolsetShape,
    MemoryToolsetShape,
    OpenapiToolsetShape,
    OpenUrlToolsetShape,
    PythonToolsetShape,
    RemoteShape,
    ScriptShape,
    ScriptToolsetShape,
    ShellToolsetShape,
    ThinkToolsetShape,
    TodoToolsetShape,
    ToolsetShape,
    UserPromptToolsetShape,
)
from holdfast.agents.file.variables import filled, seconds_in
from holdfast.agents.surroundings import NoPrompt, local_skills
from holdfast.core.codec import encode
from holdfast.core.items import Permissions
from holdfast.environment import variable
from holdfast.tools.built_in_tools import BuiltInToolset
from holdfast.tools.deferred_tools import ADD, SEARCH
from holdfast.tools.mcp.config import McpServer, Remote, Stdio
from holdfast.tools.mcp.toolset import McpToolset
from holdfast.tools.permissions import Safety, may_be_allowed
from holdfast.tools.sandbox.sandbox import Sandbox, cache_home
from holdfast.tools.schema import TOOL_NAME, InvalidTool
from holdfast.tools.tool import Json, Toolset, ToolSpec
from holdfast.tools.toolset_choice import ChosenToolset
from holdfast.tools.toolsets.absent import AbsentToolset
from holdfast.tools.toolsets.api import ApiRequest, ApiToolset
from holdfast.tools.toolsets.fetch import FetchToolset
from holdfast.tools.toolsets.filesystem import WRITERS, FilesystemToolset
from holdfast.tools.toolsets.memory import MemoryToolset
from holdfast.tools.toolsets.openapi import HttpApi, OpenApiToolset
from holdfast.tools.toolsets.openapi_document import Unusable
from holdfast.tools.toolsets.person import OpenUrlToolset, UserPromptToolset
from holdfast.tools.toolsets.python_file import PythonToolset
from holdfast.tools.toolsets.script import (
    ScriptCommand,
    ScriptToolset,
    passed_on,
    working_directory,
)
from holdfast.tools.toolsets.shell import ShellToolset
from holdfast.tools.toolsets.skills import Skill, SkillsToolset
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
    PythonToolsetShape: "run Python in the server itself",
    ApiToolsetShape: "reach servers from this machine",
}
SIDE_BY_SIDE = (
    "Your colleagues work side by side: to give several tasks at once, call transfer_task several times in one answer; "
    "all results come together. This is what run_background_agent and wait_background_agents are called here."
)
_STREAMABLE = ("", "streamable", "streamable-http", "streamable_http", "http")
_EVENTS = ("sse",)
_GATEWAY = "docker:"


_ENVIRONMENT = re.compile(r"\$\{env\.\w+\}", re.ASCII)


class AgentTools:
    """The toolsets of an agent, with what is known of their tools before any server was asked."""

    def __init__(self) -> None:
        self.toolsets: tuple[Toolset, ...] = ()
        self.origins: tuple[str, ...] = ()
        """The origin of each toolset."""
        self.specs: dict[str, ToolSpec] = {}
        """The tools that the file names, or that come with Holdfast."""
        self.has_foreign = False
        """Whether there are more tools, which a server names."""
        self.texts: tuple[str, ...] = ()
        """Words from files beside the agent file that the tools hand out."""


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
        self._shared_toolsets = file.toolsets
        self._shared_skills = file.skills
        self._agents = file.agents
        self._servers: dict[bytes, McpToolset] = {}
        self._unset: list[tuple[Where, str]] = []
        """The variables of the present toolset that are not set, each with its field."""

    @property
    def servers(self) -> tuple[McpToolset, ...]:
        """The MCP servers of the agents that were read."""
        return tuple(self._servers.values())

    def of_agent(
        self, shape: AgentShape, where: Where, rules: Permissions, safety: Safety
    ) -> AgentTools:
        """An agent's toolsets. Their problems are added to the findings."""
        made = AgentTools()
        taken = set(RESERVED_TOOLS)
        for each, at in self._wanted(shape, where):
            if isinstance(each, FilesystemToolsetShape) and not (shape.readonly or each.readonly):
                self._check_writers(each, at, rules, safety)
            self._unset = []
            toolset = self._toolset(each, at, taken, made)
            if self._unset:
                toolset = self._without_variables(each, at)
            if toolset is None:
                continue
            if shape.readonly and not isinstance(each, McpShape):
                toolset = ChosenToolset(toolset, read_only=True)
            made.toolsets += (toolset,)
            made.origins += (self._origin(each),)
        if skills := self._skills(shape, where):
            toolset = SkillsToolset(skills)
            made.toolsets += (toolset,)
            made.origins += ("skills",)
            made.texts = tuple(each.instructions for each in skills)
            made.specs |= {each.spec.name: each.spec for each in toolset.listed}
        return made

    def _skills(self, shape: AgentShape, where: Where) -> tuple[Skill, ...]:
        """An agent's skills: its own, and those of the groups that it uses, where it has none of that name."""
        found: dict[str, Skill] = {}
        groups: list[tuple[Skills, Where]] = [(shape.skills, (*where, "skills"))]
        for n, name in enumerate(shape.use_skills):
            if name in self._shared_skills:
                groups.append((self._shared_skills[name], ("skills", name)))
            else:
                words = f"no such group of skills; {suggest(name, self._shared_skills)}"
                self._found.wrong((*where, "use_skills", n), words)
        for group, at in groups:
            for skill in self._skills_of(group, at):
                found.setdefault(skill.name, skill)
        return tuple(found.values())

    def _skills_of(self, group: Skills, at: Where) -> Iterator[Skill]:
        said = ("local",) if group is True else group or ()
        yield from (
            Skill(name=each.name, description=each.description, instructions=each.instructions)
            for each in said
            if isinstance(each, InlineSkillShape)
        )
        named = [each for each in said if isinstance(each, str)]
        if not named:
            return
        if not self._trusted:
            self._found.wrong(at, UNTRUSTED.format(what="read from this machine"))
            return
        for name in (each for each in named if "://" in each):
            words = "skills are not fetched from elsewhere; put them beside the file: .agents/skills/NAME/SKILL.md"
            self._found.wrong(at, words)
            named.remove(name)
        try:
            here = local_skills(self._directory)
        except NoPrompt as error:
            self._found.missing(at, str(error))
            return
        only = [each for each in named if each != "local"]
        for name in (each for each in only if each not in {skill.name for skill in here}):
            words = f"there is no such skill beside the file; {suggest(name, (each.name for each in here))}"
            self._found.missing(at, words)
        yield from (each for each in here if each.name in only or not only)

    def _without_variables(self, shape: AnyToolset, at: Where) -> Toolset:
        """A toolset whose variables are not set on this machine has no tools; a required one is a problem."""
        is_required = shape.required if isinstance(shape, OpenapiToolsetShape) else False
        is_required = _is_required(shape) if isinstance(shape, McpShape) else is_required
        for field, name in self._unset:
            words = f"the environment variable {name!r} is not set"
            if is_required:
                self._found.missing(field, words)
            else:
                self._found.warn(field, f"{words}; the toolset has no tools until it is")
        names = ", ".join(dict.fromkeys(name for _, name in self._unset))
        kind = str(type(shape).__struct_config__.tag)
        return AbsentToolset(f"a toolset of type {kind!r}", f"{names} is not set")

    def _wanted(self, shape: AgentShape, where: Where) -> Iterator[tuple[AnyToolset, Where]]:
        """An agent's own toolsets, and then those of the file that it uses."""
        for n, toolset in enumerate(shape.toolsets):
            yield self._read_only(toolset, shape), (*where, "toolsets", n)
        for n, name in enumerate(shape.use_toolsets):
            if name in self._shared_toolsets:
                yield self._read_only(self._shared_toolsets[name], shape), ("toolsets", name)
            else:
                words = f"no such toolset; {suggest(name, self._shared_toolsets)}"
                self._found.wrong((*where, "use_toolsets", n), words)

    def _read_only(self, toolset: AnyToolset, agent: AgentShape) -> AnyToolset:
        return msgspec.structs.replace(toolset, readonly=toolset.readonly or agent.readonly)

    def _origin(self, shape: AnyToolset) -> str:
        """A digest of all settings of a toolset, and of the file's directory. Variables are not filled in."""
        ref = shape.ref if isinstance(shape, McpToolsetShape) else ""
        said = (str(self._directory), shape, self._mcps.get(ref))
        return sha256(encode(said)).hexdigest()

    def _toolset(
        self, shape: AnyToolset, at: Where, taken: set[str], made: AgentTools
    ) -> Toolset | None:
        if not self._trusted and (what := _NEEDS_TRUST.get(type(shape))):
            self._found.wrong(at, UNTRUSTED.format(what=what))
            return None
        if _runs_commands(shape) and (refused := self._sandbox.refusal()):
            self._found.wrong(at, refused)
            return None
        match shape:
            case ScriptToolsetShape():
                scripts = self._scripts(shape, at, taken)
                made.specs |= {each.spec.name: each.spec for each in scripts.listed}
                return self._chosen(scripts, shape)
            case McpToolsetShape():
                made.has_foreign = True
                return self._mcp(shape, at)
            case OpenapiToolsetShape():
                made.has_foreign = True
                return self._openapi(shape, at)
            case PythonToolsetShape():
                made.has_foreign = True  # its names are known when it has run
                return self._python(shape, at)
            case _:
                built = self._built(shape, at)
                if built is None:
                    return None
                made.specs |= {each.spec.name: each.spec for each in built.listed}
                return self._offered(built, shape, at, taken)

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
                return MemoryToolset(self._owner(shape))
            case UserPromptToolsetShape():
                return UserPromptToolset()
            case BackgroundAgentsToolsetShape():
                return BuiltInToolset(instruction=SIDE_BY_SIDE)
            case OpenUrlToolsetShape():
                return OpenUrlToolset(shape.url, name=shape.name or "open_url")
            case ApiToolsetShape():
                return self._api(shape, at)
            case _:
                raise AssertionError(f"{type(shape).__name__} is made elsewhere")

    def _owner(self, shape: MemoryToolsetShape) -> str:
        """The first agent with this path of memories: all agents with the path share its memories."""
        if not shape.path:
            return ""
        for name, agent in self._agents.items():
            used = (self._shared_toolsets.get(each) for each in agent.use_toolsets)
            for each in (*agent.toolsets, *used):
                if isinstance(each, MemoryToolsetShape) and each.path == shape.path:
                    return name
        raise AssertionError("the toolset is of an agent of this file")

    def _api(self, shape: ApiToolsetShape, at: Where) -> ApiToolset | None:
        said, at = shape.api_config, (*at, "api_config")
        if "://" in said.endpoint:
            self._check_server(said.endpoint, (*at, "endpoint"))
        else:
            self._found.wrong((*at, "endpoint"), "expected the address of a server: https://…")
        headers, _ = self._filled(said.headers, (*at, "headers"))
        arguments: dict[str, Json] = {**said.args}
        request = ApiRequest(
            name=said.name,
            endpoint=_ENVIRONMENT.sub(partial(self._variable, at=(*at, "endpoint")), said.endpoint),
            method=said.method,
            description=said.instruction,
            args=arguments,
            required=said.required,
            headers=headers,
            timeout_s=shape.timeout,
            allow_private=shape.allow_private_ips,
        )
        try:
            return None if self._unset else ApiToolset(request)
        except InvalidTool as error:
            self._found.wrong(at, str(error))
            return None

    def _variable(self, found: re.Match[str], at: Where) -> str:
        return self._filled_one(found[0], at)[0]

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
        if only is None and shape.instruction is None and not shape.defer and not shape.readonly:
            return inner
        return ChosenToolset(
            inner,
            only=only,
            instruction=shape.instruction,
            deferred=_deferred(shape.defer),
            read_only=shape.readonly,
        )

    def _check_deferred(self, defer: Deferred, offered: Collection[str], at: Where) -> None:
        for n, name in enumerate(defer if isinstance(defer, tuple) else ()):
            if name not in offered:
                self._found.wrong((*at, "defer", n), f"no such tool; {suggest(name, offered)}")

    def _check_writers(
        self, shape: FilesystemToolsetShape, at: Where, rules: Permissions, safety: Safety
    ) -> None:
        """Without 'roots' files are only read. A file that means to write is refused now, not in the middle of a turn."""
        if shape.roots or shape.allow_list:
            return
        if safety != "restricted" and not any(may_be_allowed(name, rules) for name in WRITERS):
            words = "files are only read: name the directories that may be written to under 'roots'"
            self._found.warn(at, words)
        offered = WRITERS if shape.tools is None else shape.tools
        for name in (each for each in WRITERS if each in offered):
            if shape.tools is not None or may_be_allowed(name, rules):
                words = (
                    f"{name} needs to be told where: name the directories that may be written to under "
                    "'roots' (roots: [.] is that of this file); or list only tools that read under 'tools'"
                )
                self._found.wrong(at, words)
                return

    def _filesystem(self, shape: FilesystemToolsetShape, at: Where) -> FilesystemToolset | None:
        named = [("roots", n, each) for n, each in enumerate(shape.roots)]
        named += [("allow_list", n, each) for n, each in enumerate(shape.allow_list)]
        roots: list[Path] = []
        for field, n, each in named:
            roots.append(self._place(each))
            if not roots[-1].is_dir():
                self._found.missing((*at, field, n), "there is no such directory")
        return FilesystemToolset(
            *(roots or [self._directory]),
            skip_version_control=shape.ignore_vcs,
            read_only=not roots or shape.readonly,
            denied=[str(self._place(each)) for each in shape.deny_list],
        )

    def _place(self, text: str) -> Path:
        """A directory or file: relative to the agent file, absolute, or below `~`."""
        if text == "~" or text.startswith("~/"):
            text = f"{self._environment.get('HOME', '/')}{text[1:]}"
        return self._directory / text

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
        if shape.headers and not self._trusted:
            words = UNTRUSTED.format(what="choose which of our variables are sent")
            self._found.wrong((*at, "headers"), words)
            return None
        headers, _ = self._filled(shape.headers, (*at, "headers"))
        return FetchToolset(guard, timeout_s=shape.timeout, headers=headers)

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
        result = filled(value, self._environment)
        self._unset += [(at, name) for name in result.missing]
        return result.text, result.secrets

    # ── MCP ──

    def _mcp(self, shape: McpToolsetShape, at: Where) -> Toolset | None:
        merged = self._referred(shape, at)
        if merged is None:
            return None
        is_gateway = merged.ref.startswith(_GATEWAY)
        if is_gateway and (why := self._no_gateway(merged, at)):
            self._found.warn((*at, "ref"), why)
            return AbsentToolset(merged.ref, why)
        server = self._server(_through_gateway(merged) if is_gateway else merged, at)
        if server is None:
            return None
        inner = self._shared(server, at, Sandbox("off") if is_gateway else self._sandbox)
        if inner is None:
            return None
        if merged.instruction is None and not merged.defer:
            return inner
        names = _deferred(merged.defer)
        if names and merged.name:
            names = [each for own in names for each in (own, f"{merged.name}_{own}")]
        return ChosenToolset(inner, instruction=merged.instruction, deferred=names)

    def _no_gateway(self, shape: McpShape, at: Where) -> str:
        """Why Docker's gateway cannot be run for this toolset; empty if it can. A required toolset is a problem then."""
        why = ""
        if shutil.which("docker", path=self._environment.get("PATH", "")) is None:
            why = "Docker's MCP gateway is not installed: there is no `docker` on the PATH"
        elif self._sandbox.mode == "required" or (self._sandbox.mode, shape.sandbox) == (
            "auto",
            "",
        ):
            why = (
                "Docker's MCP gateway needs Docker's socket, which is root on this machine, and this server runs "
                f"programs in a sandbox: say 'sandbox: off' at this toolset, where {variable('sandbox')} is not 'required'"
            )
        if not why and shape.config is not None:
            why = "its 'config' is not passed on: give the server its settings with `docker mcp config write`, and leave it out"
        if why and _is_required(shape):
            self._found.missing((*at, "ref"), why)
        return why

    def _shared(self, server: McpServer, at: Where, sandbox: Sandbox) -> McpToolset | None:
        """The toolset of a server; servers with equal settings share one."""
        key = encode(server)
        if key not in self._servers:
            try:
                self._servers[key] = McpToolset(server, sandbox=sandbox)
            except InvalidTool as error:
                self._found.wrong(at, str(error))
                return None
        return self._servers[key]

    def _referred(self, shape: McpToolsetShape, at: Where) -> McpShape | None:
        """A toolset merged with the definition that it refers to; its own fields win."""
        own = {name: getattr(shape, name) for name in McpShape.__struct_fields__}
        if not shape.ref or shape.ref.startswith(_GATEWAY):
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
        return McpShape(**{**fields, "ref": there.ref, "env": {**there.env, **shape.env}})

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
            only_readers=shape.readonly,
            trust_hints=shape.trust_hints,
            required=_is_required(shape),
            timeout_s=self._seconds(
                shape.lifecycle.call_timeout, (*at, "lifecycle", "call_timeout")
            )
            or shape.timeout,
            start_s=self._seconds(
                shape.lifecycle.startup_timeout, (*at, "lifecycle", "startup_timeout")
            )
            or limits.mcp_start_s,
            secrets=secrets + more,
        )

    def _seconds(self, text: str, at: Where) -> float:
        found = seconds_in(text)
        if found is None:
            self._found.wrong(at, "expected a duration, such as '30s' or '2m30s'")
        return min(found or 0.0, limits.tool_timeout_s_max)

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
        if shape.transport_type not in (*_STREAMABLE, *_EVENTS):
            words = f"has to be one of: {', '.join((*_STREAMABLE[1:], *_EVENTS))}"
            self._found.wrong((*at, "transport_type"), words)
            return None, ()
        url, secrets = self._filled_one(shape.url, (*at, "url"))
        headers, more = self._filled(shape.headers, (*at, "headers"))
        try:
            host_of(url)
        except FetchFailed as error:
            self._found.wrong((*at, "url"), error.why)
            return None, ()
        by_events = shape.transport_type in _EVENTS
        return Remote(url=url, headers=headers, events=by_events), secrets + more

    # ── OpenAPI ──

    def _openapi(self, shape: OpenapiToolsetShape, at: Where) -> Toolset:
        document, _ = self._filled_one(shape.url, (*at, "url"))
        headers, _ = self._filled(shape.headers, (*at, "headers"))
        for field, url in (("url", document), ("base_url", shape.base_url)):
            if "://" in url:
                self._check_server(url, (*at, field))
        if "://" not in document:
            document = str(self._below(document, (*at, "url")))
        api = HttpApi(
            document=document,
            base_url=shape.base_url,
            headers=headers,
            allow_private=shape.allow_private_ips,
            timeout_s=shape.timeout,
            required=shape.required,
        )
        return self._chosen(OpenApiToolset(api, reader=_from_yaml), shape, only=shape.tools)

    def _check_server(self, url: str, at: Where) -> None:
        try:
            host_of(url)
        except FetchFailed as error:
            self._found.wrong(at, error.why)

    # ── Python ──

    def _python(self, shape: PythonToolsetShape, at: Where) -> Toolset:
        path = self._below(shape.file, (*at, "file"))
        if not path.is_file():
            self._found.missing((*at, "file"), "there is no such file")
        return self._chosen(PythonToolset(path, shape.tools), shape)

    # ── declared commands ──

    def _scripts(self, toolset: ScriptToolsetShape, where: Where, taken: set[str]) -> ScriptToolset:
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
            roots=self._placed(shape.roots),
            read_roots=self._placed(shape.read_roots),
        )

    def _with_variables(self, env: Mapping[str, str], where: Where) -> dict[str, str]:
        """Variables for a command, with `${env.NAME}` filled in; every other `$` is the shell's. A value that is
        another variable as a whole may be meant as either, and is refused."""
        for name, value in env.items():
            if re.fullmatch(r"\$(\w+|\{\w+\})", value):
                words = "say which variable of the server is meant: ${env.NAME}, or list the name in 'pass_env'"
                self._found.wrong((*where, name), words)
        return {
            name: _ENVIRONMENT.sub(partial(self._variable, at=(*where, name)), value)
            for name, value in env.items()
        }


def _is_required(shape: McpShape) -> bool:
    """Whether a turn without this server's tools fails."""
    said = shape.lifecycle.required
    return shape.required or (shape.lifecycle.profile == "strict" if said is None else said)


def _through_gateway(shape: McpShape) -> McpShape:
    """The program that runs a server of Docker's catalogue."""
    server = shape.ref.removeprefix(_GATEWAY)
    return msgspec.structs.replace(
        shape, ref="", command="docker", args=("mcp", "gateway", "run", f"--servers={server}")
    )


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
            return shape.remote is None and not shape.ref
        case _:
            return False
