"""The toolsets of an agent file: checked, but not started."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from copy import copy
from hashlib import sha256
from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.agents.file.document import UnreadableDocument, Where, read_document
from holdfast.agents.file.models import UNTRUSTED
from holdfast.agents.file.shape_base import Shape
from holdfast.agents.file.shape_checks import suggest
from holdfast.agents.file.shapes import AgentShape, FileShape
from holdfast.agents.file.toolsets.file_context import TOOL_PREFIX, FileContext, check_deferred
from holdfast.agents.file.toolsets.mcp_servers import FileServers, is_required
from holdfast.agents.file.toolsets.scripts import FileScripts
from holdfast.agents.file.toolsets.skills import FileSkills
from holdfast.agents.file.toolsets.toolset_shapes import (
    A2aToolsetShape,
    AnyToolset,
    ApiToolsetShape,
    BackgroundAgentsToolsetShape,
    BackgroundJobsToolsetShape,
    FetchToolsetShape,
    FilesystemToolsetShape,
    McpShape,
    McpToolsetShape,
    MemoryToolsetShape,
    ModelPickerToolsetShape,
    OpenapiToolsetShape,
    OpenUrlToolsetShape,
    PlanToolsetShape,
    PythonToolsetShape,
    ScriptToolsetShape,
    SessionPlanToolsetShape,
    ShellToolsetShape,
    TasksToolsetShape,
    ThinkToolsetShape,
    TodoToolsetShape,
    ToolsetShape,
    UnrunToolsetShape,
    UserPromptToolsetShape,
    WebhookToolsetShape,
    deferred_names,
)
from holdfast.core.codec import encode
from holdfast.tools.built_in_tools import BuiltInToolset
from holdfast.tools.deferred_tools import ADD, SEARCH
from holdfast.tools.mcp.toolset import McpToolset
from holdfast.tools.notes.memory import MemoryToolset
from holdfast.tools.notes.model_choice import ModelPickerToolset
from holdfast.tools.notes.plans import PlanToolset
from holdfast.tools.notes.session_plan import SessionPlanToolset
from holdfast.tools.notes.tasks import TasksToolset
from holdfast.tools.notes.think import ThinkToolset
from holdfast.tools.notes.todo import TodoToolset
from holdfast.tools.schema import TOOL_NAME, InvalidTool
from holdfast.tools.tool import Json, Toolset, ToolSpec
from holdfast.tools.toolset_choice import ChosenToolset
from holdfast.tools.toolsets.a2a import A2aToolset, RemoteAgent
from holdfast.tools.toolsets.absent import AbsentToolset
from holdfast.tools.toolsets.api import ApiRequest, ApiToolset
from holdfast.tools.toolsets.background_jobs import BackgroundJobsToolset
from holdfast.tools.toolsets.fetch import FetchToolset
from holdfast.tools.toolsets.filesystem import AfterWriting, EditCommand, FilesystemToolset
from holdfast.tools.toolsets.openapi import HttpApi, OpenApiToolset
from holdfast.tools.toolsets.openapi_document import Unusable
from holdfast.tools.toolsets.person import OpenUrlToolset, UserPromptToolset
from holdfast.tools.toolsets.python_file import PythonToolset
from holdfast.tools.toolsets.script import passed_on
from holdfast.tools.toolsets.shell import ShellToolset
from holdfast.tools.toolsets.skills import Skill, SkillsToolset
from holdfast.tools.toolsets.webhook import FIELDS, SPELLINGS, WebhookTarget, WebhookToolset
from holdfast.tools.web.address_guard import WEB_PORTS, AddressGuard, Domains, domain_problem

RESERVED_TOOLS = frozenset({"transfer_task", "handoff", SEARCH, ADD})
"""Names of the loop's own tools: for work between agents, and for the search for deferred tools."""

_NEEDS_TRUST: Mapping[type[Shape], str] = {
    ScriptToolsetShape: "run commands on this machine",
    ShellToolsetShape: "run commands on this machine",
    BackgroundJobsToolsetShape: "run commands on this machine",
    McpToolsetShape: "run commands on this machine, and reach servers from it",
    FilesystemToolsetShape: "read and change files on this machine",
    OpenapiToolsetShape: "read files of this machine, and reach servers from it",
    PythonToolsetShape: "run Python in the server itself",
    ApiToolsetShape: "reach servers from this machine",
    A2aToolsetShape: "reach servers from this machine",
    WebhookToolsetShape: "reach servers from this machine",
}
SIDE_BY_SIDE = (
    "Your colleagues work side by side: to give several tasks at once, call transfer_task several times in one answer; "
    "all results come together. This is what run_background_agent and wait_background_agents are called here."
)


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
        self.models: tuple[tuple[str, Where], ...] = ()
        """The models that the agent may choose from, or that read results, and the fields that name them."""
        self.result_models: dict[str, str] = {}
        """The models that read the results of toolsets, by the toolsets' origins."""
        self.apart: tuple[Skill, ...] = ()
        """Skills that agents of their own follow."""
        self.texts: tuple[str, ...] = ()
        """Words from files beside the agent file that the tools hand out, or are made of."""

    def for_skill(self, skill: Skill) -> AgentTools:
        """The tools of the agent that follows a skill: the same, as far as the skill allows; no skills."""
        made = copy(self)
        kept = [
            (toolset, origin)
            for toolset, origin in zip(self.toolsets, self.origins, strict=True)
            if not isinstance(toolset, SkillsToolset)
        ]
        made.origins = tuple(origin for _, origin in kept)
        made.toolsets = tuple(
            ChosenToolset(toolset, matching=skill.allowed_tools) if skill.allowed_tools else toolset
            for toolset, _ in kept
        )
        return made

    def add_words(self, words: tuple[str, ...]) -> None:
        """Tell the agent's model something that belongs to no tool."""
        if words:
            self.toolsets += (BuiltInToolset(instruction="\n".join(words)),)
            self.origins += ("words",)


class FileTools:
    """The toolsets of one file. Its agents share MCP servers with the same settings."""

    def __init__(self, context: FileContext, file: FileShape) -> None:
        self._context = context
        self._found = context.found
        self._sandbox = context.sandbox
        self._directory = context.directory
        self._environment = context.environment
        self._trusted = context.trusted
        self._mcps = file.mcps
        self._shared_toolsets = file.toolsets
        self._agents = file.agents
        self._servers = FileServers(context, file.mcps)
        self._scripts = FileScripts(context)
        self._skills = FileSkills(self._context, file.skills)
        self.beside: set[str] = set()
        """Files beside the agent file whose content is a part of it."""

    @property
    def servers(self) -> tuple[McpToolset, ...]:
        """The MCP servers of the agents that were read."""
        return self._servers.every

    def of_agent(self, shape: AgentShape, where: Where) -> AgentTools:
        """An agent's toolsets. Their problems are added to the findings."""
        made = AgentTools()
        taken = set(RESERVED_TOOLS)
        seen: list[AnyToolset] = []
        for each, at in self._wanted(shape, where):
            if each in seen and not isinstance(each, McpShape):
                continue  # it is there twice
            seen.append(each)
            if isinstance(each, ModelPickerToolsetShape):
                if not each.models:
                    self._found.wrong((*at, "models"), "there has to be at least one model")
                made.models += tuple(
                    (name, (*at, "models", n)) for n, name in enumerate(each.models)
                )
            if isinstance(each, UnrunToolsetShape) and not self._trusted:
                self._found.wrong(at, UNTRUSTED.format(what="use this machine"))
                continue
            if isinstance(each, UnrunToolsetShape):
                made.has_foreign = True  # rules about its tools are no slips
                what = f"a toolset of type {each.kind!r}"
                made.toolsets += (AbsentToolset(what, each.why),)
                made.origins += (self._origin(each),)
                continue
            self._context.unset = []
            toolset = self._toolset(each, at, taken, made)
            if self._context.unset:
                toolset = self._without_variables(each, at)
            if toolset is None:
                continue
            if shape.readonly and not isinstance(each, McpShape):
                toolset = ChosenToolset(toolset, read_only=True)
            made.toolsets += (toolset,)
            made.origins += (self._origin(each),)
            if each.model:
                made.models += ((each.model, (*at, "model")),)
                made.result_models[made.origins[-1]] = each.model
        every = self._skills.of_agent(shape, where)
        made.apart = tuple(each for each in every if each.is_apart)
        made.texts += tuple(each.instructions for each in every)
        if skills := tuple(each for each in every if not each.is_apart):
            toolset = SkillsToolset(skills)
            made.toolsets += (toolset,)
            made.origins += ("skills",)
            made.specs |= {each.spec.name: each.spec for each in toolset.listed}
        return made

    def _without_variables(self, shape: AnyToolset, at: Where) -> Toolset:
        """A toolset whose variables are not set on this machine has no tools; a required one is a problem."""
        needed = shape.required if isinstance(shape, OpenapiToolsetShape) else False
        needed = is_required(shape) if isinstance(shape, McpShape) else needed
        for field, name in self._context.unset:
            words = f"the environment variable {name!r} is not set"
            if needed:
                self._found.missing(field, words)
            else:
                self._found.warn(field, f"{words}; the toolset has no tools until it is")
        names = ", ".join(dict.fromkeys(name for _, name in self._context.unset))
        kind = str(type(shape).__struct_config__.tag)
        return AbsentToolset(f"a toolset of type {kind!r}", f"{names} is not set")

    def _wanted(self, shape: AgentShape, where: Where) -> Iterator[tuple[AnyToolset, Where]]:
        """An agent's own toolsets, and then those of the file that it uses."""
        for n, toolset in enumerate(shape.toolsets):
            yield self._as_meant(toolset, shape), (*where, "toolsets", n)
        for n, name in enumerate(shape.use_toolsets):
            if name in self._shared_toolsets:
                yield self._as_meant(self._shared_toolsets[name], shape), ("toolsets", name)
            else:
                words = f"no such toolset; {suggest(name, self._shared_toolsets)}"
                self._found.wrong((*where, "use_toolsets", n), words)

    def _as_meant(self, toolset: AnyToolset, agent: AgentShape) -> AnyToolset:
        """A toolset as its agent has it. An empty list of tools chooses none, as in docker-agent: all are offered."""
        return msgspec.structs.replace(
            toolset, readonly=toolset.readonly or agent.readonly, tools=toolset.tools or None
        )

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
                scripts = self._scripts.toolset(shape, at, taken)
                made.specs |= {each.spec.name: each.spec for each in scripts.listed}
                return self._chosen(scripts, shape)
            case McpToolsetShape():
                made.has_foreign = True
                return self._servers.toolset(shape, at)
            case OpenapiToolsetShape():
                made.has_foreign = True
                return self._openapi(shape, at)
            case A2aToolsetShape():
                made.has_foreign = True
                return self._a2a(shape, at)
            case PythonToolsetShape():
                made.has_foreign = True  # its names are known when it has run
                return self._python(shape, at, made)
            case _:
                built = self._built(shape, at)
                if built is None:
                    return None
                made.specs |= {each.spec.name: each.spec for each in built.listed}
                return self._offered(built, shape, at, taken)

    def _built(self, shape: AnyToolset, at: Where) -> BuiltInToolset | None:
        match shape:
            case ShellToolsetShape() | BackgroundJobsToolsetShape():
                return self._shell(shape, at)
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
            case PlanToolsetShape():
                return PlanToolset()
            case SessionPlanToolsetShape():
                return SessionPlanToolset()
            case TasksToolsetShape():
                return TasksToolset(shape.path)
            case WebhookToolsetShape():
                return self._webhook(shape, at)
            case UserPromptToolsetShape():
                return UserPromptToolset()
            case BackgroundAgentsToolsetShape():
                return BuiltInToolset(instruction=SIDE_BY_SIDE)
            case ModelPickerToolsetShape():
                return ModelPickerToolset(shape.models)
            case OpenUrlToolsetShape():
                return OpenUrlToolset(shape.url, name=shape.name or "open_url")
            case ApiToolsetShape():
                return self._api(shape, at)
            case _:
                raise AssertionError(f"{type(shape).__name__} is made elsewhere")

    def _shell(
        self, shape: ShellToolsetShape | BackgroundJobsToolsetShape, at: Where
    ) -> ShellToolset | BackgroundJobsToolset:
        where = self._context.below(shape.working_dir, (*at, "working_dir"))
        env, _ = self._context.filled(shape.env, (*at, "env"))
        cell = self._sandbox.cell(
            where,
            *self._context.placed(shape.roots),
            read_roots=self._context.placed(shape.read_roots),
            network=shape.network,
        )
        if isinstance(shape, ShellToolsetShape):
            return ShellToolset(where, env=env, environment=self._environment, cell=cell)
        return BackgroundJobsToolset(
            where, env=env, environment=self._environment, cell=cell, recall=shape.recall
        )

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
            self._context.check_server(said.endpoint, (*at, "endpoint"))
        else:
            self._found.wrong((*at, "endpoint"), "expected the address of a server: https://…")
        headers, _ = self._context.filled(said.headers, (*at, "headers"))
        arguments: dict[str, Json] = {**said.args}
        request = ApiRequest(
            name=said.name,
            endpoint=self._context.with_environment(said.endpoint, (*at, "endpoint")),
            method=said.method,
            description=said.instruction,
            args=arguments,
            required=said.required,
            headers=headers,
            timeout_s=shape.timeout,
            allow_private=shape.allow_private_ips,
        )
        try:
            return None if self._context.unset else ApiToolset(request)
        except InvalidTool as error:
            self._found.wrong(at, str(error))
            return None

    def _webhook(self, shape: WebhookToolsetShape, at: Where) -> WebhookToolset | None:
        said, at = shape.webhook_config, (*at, "webhook_config")
        url, _ = self._context.filled_one(said.url, (*at, "url"))
        headers, _ = self._context.filled(said.headers, (*at, "headers"))
        kind = said.provider.strip().lower()
        kind = SPELLINGS.get(kind, kind)
        if kind not in FIELDS:
            self._found.wrong((*at, "provider"), f"has to be one of: {', '.join(FIELDS)}")
            return None
        if kind == "telegram" and not said.chat_id.strip():
            self._found.wrong(at, "'chat_id' is missing: the chat that the messages go to")
        if self._context.unset:
            return None
        self._context.check_server(url, (*at, "url"))
        target = WebhookTarget(
            url=url, kind=kind, chat_id=said.chat_id, headers=headers, timeout_s=shape.timeout
        )
        return WebhookToolset(target, guard=AddressGuard(allow_private=shape.allow_private_ips))

    def _a2a(self, shape: A2aToolsetShape, at: Where) -> Toolset:
        url, _ = self._context.filled_one(shape.url, (*at, "url"))
        headers, _ = self._context.filled(shape.headers, (*at, "headers"))
        if not self._context.unset:
            self._context.check_server(url, (*at, "url"))
        if shape.name and TOOL_NAME.fullmatch(shape.name) is None:
            self._found.wrong((*at, "name"), TOOL_PREFIX)
        agent = RemoteAgent(
            url=url,
            name=shape.name,
            headers=headers,
            timeout_s=shape.timeout,
            allow_private=shape.allow_private_ips,
        )
        return self._chosen(A2aToolset(agent), shape, only=shape.tools)

    # ── our own ──

    def _offered(
        self, built: BuiltInToolset, shape: ToolsetShape, at: Where, taken: set[str]
    ) -> Toolset:
        """The toolset with only the tools that the file lists. Two tools of an agent must not have the same name."""
        for n, name in enumerate(shape.tools or ()):
            if name not in built.names:
                words = f"no such tool; {suggest(name, built.names)}; left out"
                self._found.warn((*at, "tools", n), words)
        offered = [each for each in built.names if shape.tools is None or each in shape.tools]
        check_deferred(self._found, shape.defer, offered, at)
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
            deferred=deferred_names(shape.defer),
            read_only=shape.readonly,
        )

    def _filesystem(self, shape: FilesystemToolsetShape, at: Where) -> FilesystemToolset | None:
        named = [("roots", n, each) for n, each in enumerate(shape.roots)]
        named += [("allow_list", n, each) for n, each in enumerate(shape.allow_list)]
        roots: list[Path] = []
        for field, n, each in named:
            roots.append(self._place(each))
            if not roots[-1].is_dir():
                # docker-agent starts without a directory of its `allow_list`.
                told = self._found.warn if field == "allow_list" else self._found.missing
                told((*at, field, n), "there is no such directory")
        roots = roots or [self._directory]
        if (
            not shape.roots
        ):  # docker-agent's paths begin in the working directory, wherever it is in the list
            roots.sort(key=lambda each: os.path.realpath(each) != os.path.realpath(self._directory))
        return FilesystemToolset(
            *roots,
            skip_version_control=shape.ignore_vcs,
            read_only=shape.readonly,
            denied=[str(self._place(each)) for each in shape.deny_list],
            after_writing=self._after_writing(shape, roots, at) if shape.post_edit else None,
        )

    def _after_writing(
        self, shape: FilesystemToolsetShape, roots: list[Path], at: Where
    ) -> AfterWriting | None:
        if shape.readonly:
            return None  # nothing is written
        places = [os.path.realpath(each) for each in roots]
        return AfterWriting(
            *(EditCommand(pattern=each.path, cmd=each.cmd) for each in shape.post_edit),
            directory=roots[0],
            environment=passed_on(self._environment),
            cell=self._sandbox.cell(*places, read_roots=(os.path.realpath(self._directory),)),
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
        for field in ("allowed_domains", "blocked_domains"):
            for n, domain in enumerate(getattr(shape, field)):
                if words := domain_problem(domain):
                    self._found.wrong((*at, field, n), words)
        guard = AddressGuard(
            allow_private=shape.allow_private_ips,
            ports=() if shape.allow_private_ips else WEB_PORTS,
            domains=Domains(allowed=shape.allowed_domains, blocked=shape.blocked_domains),
        )
        if shape.headers and not self._trusted:
            words = UNTRUSTED.format(what="choose which of our variables are sent")
            self._found.wrong((*at, "headers"), words)
            return None
        headers, _ = self._context.filled(shape.headers, (*at, "headers"))
        return FetchToolset(guard, timeout_s=shape.timeout, headers=headers)

    # ── OpenAPI ──

    def _openapi(self, shape: OpenapiToolsetShape, at: Where) -> Toolset:
        document, _ = self._context.filled_one(shape.url, (*at, "url"))
        headers, _ = self._context.filled(shape.headers, (*at, "headers"))
        for field, url in (("url", document), ("base_url", shape.base_url)):
            if "://" in url:
                self._context.check_server(url, (*at, field))
        if "://" not in document:
            document = str(self._context.below(document, (*at, "url")))
        api = HttpApi(
            document=document,
            base_url=shape.base_url,
            headers=headers,
            allow_private=shape.allow_private_ips,
            timeout_s=shape.timeout,
            required=shape.required,
        )
        return self._chosen(OpenApiToolset(api, reader=_from_yaml), shape, only=shape.tools)

    # ── Python ──

    def _python(self, shape: PythonToolsetShape, at: Where, made: AgentTools) -> Toolset:
        path = self._context.below(shape.file, (*at, "file"))
        self.beside.add(str(path))
        source = b""
        try:
            source = path.read_bytes()
        except OSError:
            self._found.missing((*at, "file"), "there is no such file")
        if len(source) > limits.beside_bytes_max:
            words = f"has {len(source)} bytes, at most {limits.beside_bytes_max}"
            self._found.missing((*at, "file"), words)
        made.texts += (source.decode(errors="replace"),)
        return self._chosen(PythonToolset(path, shape.tools, source=source), shape)


def _from_yaml(data: bytes) -> Json:
    """An OpenAPI document in YAML, read by the same rules as an agent file."""
    try:
        value: Json = read_document(data).value
    except UnreadableDocument as error:
        raise Unusable(f"line {error.mark.line}: {error.words}") from error
    return value


def _runs_commands(shape: AnyToolset) -> bool:
    match shape:
        case ScriptToolsetShape() | ShellToolsetShape() | BackgroundJobsToolsetShape():
            return True
        case McpToolsetShape():
            return shape.remote is None and not shape.ref
        case FilesystemToolsetShape():
            return bool(shape.post_edit)
        case _:
            return False
