"""The shapes of toolsets in an agent file, one for each type; see `shapes.py`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from holdfast.agents.file.shape_base import Duration, Schema, Seconds, Shape, Text


class ScriptShape(Shape):
    """A declared shell command."""

    cmd: Text
    description: Text = ""
    args: dict[str, Schema] = msgspec.field(default_factory=dict)
    required: tuple[str, ...] | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    working_dir: str = ""
    pass_env: tuple[str, ...] = ()
    """Ours: names of the server's variables that are passed on."""
    read_only: bool = False
    """Ours: it changes nothing, and needs no permission."""
    idempotent: bool = False
    """Ours: it may be run again under the same call key."""
    timeout: Seconds = 60.0
    """Ours: in seconds."""
    network: bool = False
    """Holdfast's own, like `roots` and `read_roots`: what the command may use in a sandbox."""
    roots: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()


Deferred: TypeAlias = tuple[str, ...] | bool
"""The tools that a model must search for before it can call them: these, all, or none."""


def deferred_names(defer: Deferred) -> Collection[str] | None:
    """The names of the deferred tools; None: all of them."""
    if isinstance(defer, tuple):
        return defer
    return None if defer else ()


class ToolsetShape(Shape, tag_field="type"):
    """A set of tools; `type` is its kind."""

    tools: tuple[str, ...] | None = None
    """Only these tools of it."""
    instruction: Text | None = None
    """The model's instruction for these tools, in place of the toolset's own."""
    defer: Deferred = False
    readonly: bool = False
    """Only the tools that change nothing."""
    model: str = ""
    """The model of the step that reads the results of these tools; the agent's own if left out."""


class UnrunToolsetShape(ToolsetShape, kw_only=True):
    """A toolset of a type that is not run here: it has no tools, and its agent is told so."""

    kind: str
    why: str


class ScriptToolsetShape(ToolsetShape, tag="script"):
    shell: dict[str, ScriptShape] = msgspec.field(default_factory=dict)
    env: dict[str, str] = msgspec.field(default_factory=dict)


class ShellToolsetShape(ToolsetShape, tag="shell"):
    env: dict[str, str] = msgspec.field(default_factory=dict)
    safer: bool = False
    """Has no effect, as in docker-agent: rules decide which commands run."""
    working_dir: str = ""
    """Holdfast's own, like the three fields below: where commands run, and what they may use in a sandbox."""
    network: bool = False
    roots: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()


class BackgroundJobsToolsetShape(ToolsetShape, tag="background_jobs"):
    env: dict[str, str] = msgspec.field(default_factory=dict)
    recall: bool = False
    """Whether the agent may ask to be told when a job has ended."""
    working_dir: str = ""
    """Ours, and the three below: what its commands may use in a sandbox."""
    network: bool = False
    roots: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()


class PostEditShape(Shape):
    """A command that runs after a file was written."""

    path: str
    """A pattern for names of files: `*.go`."""
    cmd: Text
    """The command, for /bin/sh; `$path` is the file."""


class FilesystemToolsetShape(ToolsetShape, tag="filesystem"):
    roots: tuple[str, ...] = ()
    """Ours: the directories whose files the tools reach. Left out: the agent file's directory."""
    allow_list: tuple[str, ...] = ()
    """docker-agent's word for `roots`; `~` is the home directory."""
    deny_list: tuple[str, ...] = ()
    """Directories and files that the tools never reach."""
    ignore_vcs: bool = True
    post_edit: tuple[PostEditShape, ...] = ()


class FetchToolsetShape(ToolsetShape, tag="fetch"):
    timeout: Seconds = 30.0
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    allow_private_ips: bool = False


class ThinkToolsetShape(ToolsetShape, tag="think"):
    shared: bool = False
    """Has no effect: thoughts are part of the conversation."""


class TodoToolsetShape(ToolsetShape, tag="todo"):
    shared: bool = False
    """Has no effect: all agents of a conversation have one list."""


class MemoryToolsetShape(ToolsetShape, tag="memory"):
    path: str = ""
    """Agents with the same path have the same memories. They are kept in the server's store, not in that file."""


class PlanToolsetShape(ToolsetShape, tag="plan"):
    """Plans with names, which all agents of a tenant share. They are kept in the server's store."""


class SessionPlanToolsetShape(ToolsetShape, tag="session_plan"):
    """One plan for each conversation. It is kept in the server's store."""


class TasksToolsetShape(ToolsetShape, tag="tasks"):
    path: str = ""
    """Agents with the same path have the same tasks. They are kept in the server's store, not in that file."""


class UserPromptToolsetShape(ToolsetShape, tag="user_prompt"):
    pass


class BackgroundAgentsToolsetShape(ToolsetShape, tag="background_agents"):
    """Colleagues work side by side by themselves here; the model is told so."""


class ModelPickerToolsetShape(ToolsetShape, tag="model_picker", kw_only=True):
    models: tuple[str, ...]
    """The models that the agent may choose from."""


class OpenUrlToolsetShape(ToolsetShape, tag="open_url", kw_only=True):
    url: str
    name: str = ""


class OauthShape(Shape):
    """How a person logs in at a server."""

    clientId: str = ""  # the file's names
    """Left out: a client is registered, where the server offers that."""
    clientSecret: str = ""
    scopes: tuple[str, ...] = ()
    callbackPort: Annotated[int, Meta(ge=1, le=65535)] | None = None
    callbackRedirectURL: str = ""
    """An address that sends the browser on to the callback; `${callbackPort}` is its port."""


class RemoteShape(Shape):
    """A server over HTTP."""

    url: str
    transport_type: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    oauth: OauthShape | None = None


class LifecycleShape(Shape):
    """How a server is started, and started again."""

    profile: Literal["resilient", "strict", "best-effort"] | None = None
    required: bool | None = None
    startup_timeout: Duration = ""
    call_timeout: Duration = ""


class McpShape(Shape):
    """An MCP server that several toolsets refer to."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)
    remote: RemoteShape | None = None
    ref: str = ""
    name: str = ""
    tools: tuple[str, ...] | None = None
    instruction: Text | None = None
    defer: Deferred = False
    readonly: bool = False
    model: str = ""
    working_dir: str = ""
    lifecycle: LifecycleShape = LifecycleShape()
    config: Any = None
    """For Docker's gateway."""
    version: str = ""
    """The package that docker-agent installs if the command is not there; nothing is installed here."""
    allow_private_ips: bool = False
    """Has no effect: a server that the file names may be at any address."""
    sandbox: Literal["", "off"] = ""
    """Ours: Docker's gateway needs its socket, and runs only where this is off."""
    required: bool = False
    """Ours: without its tools there is no answer."""
    trust_hints: bool = False
    """Ours: whether to believe the server that a tool only reads."""
    timeout: Seconds = 60.0
    """Ours: for one call."""
    network: bool = True
    """Ours, and the two below: what a program may use in a sandbox."""
    roots: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()


class McpToolsetShape(McpShape, tag_field="type", tag="mcp"):
    """An MCP server as a toolset; with `ref`, one that is defined under `mcps`."""


class OpenapiToolsetShape(ToolsetShape, tag="openapi", kw_only=True):
    url: str
    """The document's address, or its path, relative to the agent file."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    timeout: Seconds = 30.0
    allow_private_ips: bool = False
    base_url: str = ""
    """Ours: the server that requests go to, in place of the document's."""
    required: bool = False
    """Ours: without its tools there is no answer."""


class PythonToolsetShape(ToolsetShape, tag="python", kw_only=True):
    """Ours: functions of a Python file, which run in the server itself."""

    file: str
    """Its path, relative to the agent file."""


class ApiConfigShape(Shape):
    """One request to an HTTP API, as a tool."""

    name: str
    endpoint: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    instruction: Text = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    args: dict[str, Schema] = msgspec.field(default_factory=dict)
    required: tuple[str, ...] = ()
    output_schema: dict[str, Any] = msgspec.field(default_factory=dict)
    """Has no effect: models get the answer as it is."""


class ApiToolsetShape(ToolsetShape, tag="api", kw_only=True):
    api_config: ApiConfigShape
    timeout: Seconds = 30.0
    allow_private_ips: bool = False


class A2aToolsetShape(ToolsetShape, tag="a2a", kw_only=True):
    """An agent of another server."""

    url: str
    """The server's address, or that of the agent's card."""
    name: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    timeout: Seconds = 300.0
    allow_private_ips: bool = False


class WebhookConfigShape(Shape):
    """Where messages go."""

    url: str
    provider: str = ""
    """The kind of server: slack, discord, telegram, teams …"""
    chat_id: str = ""
    """For Telegram."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class WebhookToolsetShape(ToolsetShape, tag="webhook", kw_only=True):
    webhook_config: WebhookConfigShape
    timeout: Seconds = 30.0
    allow_private_ips: bool = False
    """Ours."""


AnyToolset: TypeAlias = (
    ScriptToolsetShape
    | ShellToolsetShape
    | BackgroundJobsToolsetShape
    | FilesystemToolsetShape
    | FetchToolsetShape
    | ThinkToolsetShape
    | TodoToolsetShape
    | MemoryToolsetShape
    | PlanToolsetShape
    | SessionPlanToolsetShape
    | TasksToolsetShape
    | UserPromptToolsetShape
    | BackgroundAgentsToolsetShape
    | ModelPickerToolsetShape
    | OpenUrlToolsetShape
    | McpToolsetShape
    | OpenapiToolsetShape
    | ApiToolsetShape
    | A2aToolsetShape
    | WebhookToolsetShape
    | PythonToolsetShape
)
