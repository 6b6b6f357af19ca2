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
    read_only: bool = False
    idempotent: bool = False
    timeout: Seconds = 60.0
    network: bool = False
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
    instruction: Text | None = None
    defer: Deferred = False
    readonly: bool = False
    model: str = ""


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
    working_dir: str = ""
    network: bool = False
    roots: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()


class BackgroundJobsToolsetShape(ToolsetShape, tag="background_jobs"):
    env: dict[str, str] = msgspec.field(default_factory=dict)
    recall: bool = False
    working_dir: str = ""
    network: bool = False
    roots: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()


class PostEditShape(Shape):
    """A command that runs after a file was written."""

    path: str
    cmd: Text


class FilesystemToolsetShape(ToolsetShape, tag="filesystem"):
    roots: tuple[str, ...] = ()
    allow_list: tuple[str, ...] = ()
    deny_list: tuple[str, ...] = ()
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


class TodoToolsetShape(ToolsetShape, tag="todo"):
    shared: bool = False


class MemoryToolsetShape(ToolsetShape, tag="memory"):
    path: str = ""


class PlanToolsetShape(ToolsetShape, tag="plan"):
    """Plans with names, which all agents of a tenant share. They are kept in the server's store."""


class SessionPlanToolsetShape(ToolsetShape, tag="session_plan"):
    """One plan for each conversation. It is kept in the server's store."""


class TasksToolsetShape(ToolsetShape, tag="tasks"):
    path: str = ""


class UserPromptToolsetShape(ToolsetShape, tag="user_prompt"):
    pass


class BackgroundAgentsToolsetShape(ToolsetShape, tag="background_agents"):
    """Colleagues work side by side by themselves here; the model is told so."""


class ModelPickerToolsetShape(ToolsetShape, tag="model_picker", kw_only=True):
    models: tuple[str, ...]


class OpenUrlToolsetShape(ToolsetShape, tag="open_url", kw_only=True):
    url: str
    name: str = ""


class OauthShape(Shape):
    """How a person logs in at a server."""

    clientId: str = ""  # the file's names
    clientSecret: str = ""
    scopes: tuple[str, ...] = ()
    callbackPort: Annotated[int, Meta(ge=1, le=65535)] | None = None
    callbackRedirectURL: str = ""


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
    version: str = ""
    allow_private_ips: bool = False
    sandbox: Literal["", "off"] = ""
    required: bool = False
    trust_hints: bool = False
    timeout: Seconds = 60.0
    network: bool = True
    roots: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()


class McpToolsetShape(McpShape, tag_field="type", tag="mcp"):
    """An MCP server as a toolset; with `ref`, one that is defined under `mcps`."""


class OpenapiToolsetShape(ToolsetShape, tag="openapi", kw_only=True):
    url: str
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    timeout: Seconds = 30.0
    allow_private_ips: bool = False
    base_url: str = ""
    required: bool = False


class PythonToolsetShape(ToolsetShape, tag="python", kw_only=True):
    """Ours: functions of a Python file, which run in the server itself."""

    file: str


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


class ApiToolsetShape(ToolsetShape, tag="api", kw_only=True):
    api_config: ApiConfigShape
    timeout: Seconds = 30.0
    allow_private_ips: bool = False


class A2aToolsetShape(ToolsetShape, tag="a2a", kw_only=True):
    """An agent of another server."""

    url: str
    name: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    timeout: Seconds = 300.0
    allow_private_ips: bool = False


class WebhookConfigShape(Shape):
    """Where messages go."""

    url: str
    provider: str = ""
    chat_id: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class WebhookToolsetShape(ToolsetShape, tag="webhook", kw_only=True):
    webhook_config: WebhookConfigShape
    timeout: Seconds = 30.0
    allow_private_ips: bool = False


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
