"""The shape of an agent file: one struct for each kind of mapping in it, with docker-agent's names.

Fields of docker-agent that Holdfast does not run yet are listed, too (`NOT_RUN`): such a field is left out with a
warning, so that its author does not rely on it. Every other unknown field is refused.
Fields that docker-agent does not have are marked as "Ours".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.policy import Choice

Text: TypeAlias = Annotated[str, Meta(max_length=limits.agent_file_bytes_max)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=limits.tool_timeout_s_max)]
Schema: TypeAlias = Annotated[dict[str, Any], Meta(description="A JSON Schema")]


class Shape(Value, forbid_unknown_fields=True):
    """A mapping with known fields."""


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
    """Ours, and the two below: what it may use in a sandbox."""
    roots: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()


Deferred: TypeAlias = tuple[str, ...] | bool
"""The tools that a model must search for before it can call them: these, all, or none."""


class ToolsetShape(Shape, tag_field="type"):
    """A set of tools; `type` is its kind."""

    tools: tuple[str, ...] | None = None
    """Only these tools of it."""
    instruction: Text | None = None
    """The model's instruction for these tools, in place of the toolset's own."""
    defer: Deferred = False


class ScriptToolsetShape(ToolsetShape, tag="script"):
    shell: dict[str, ScriptShape] = msgspec.field(default_factory=dict)
    env: dict[str, str] = msgspec.field(default_factory=dict)


class ShellToolsetShape(ToolsetShape, tag="shell"):
    env: dict[str, str] = msgspec.field(default_factory=dict)
    working_dir: str = ""
    """Ours, and the three below: what it may use in a sandbox."""
    network: bool = False
    roots: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()


class FilesystemToolsetShape(ToolsetShape, tag="filesystem"):
    roots: tuple[str, ...] = ()
    """Ours: the directories whose files the tools reach. Left out: the agent file's directory, for reading only."""
    ignore_vcs: bool = True


class FetchToolsetShape(ToolsetShape, tag="fetch"):
    timeout: Seconds = 30.0
    allowed_domains: tuple[str, ...] = ()
    """Ours, and the two below."""
    blocked_domains: tuple[str, ...] = ()
    allow_private_ips: bool = False


class ThinkToolsetShape(ToolsetShape, tag="think"):
    pass


class TodoToolsetShape(ToolsetShape, tag="todo"):
    pass


class MemoryToolsetShape(ToolsetShape, tag="memory"):
    pass


class RemoteShape(Shape):
    """A server over HTTP."""

    url: str
    transport_type: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)


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
    working_dir: str = ""
    """Ours."""
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
    base_url: str = ""
    """Ours, and the two below: the server that requests go to, in place of the document's."""
    timeout: Seconds = 30.0
    allow_private_ips: bool = False


AnyToolset: TypeAlias = (
    ScriptToolsetShape
    | ShellToolsetShape
    | FilesystemToolsetShape
    | FetchToolsetShape
    | ThinkToolsetShape
    | TodoToolsetShape
    | MemoryToolsetShape
    | McpToolsetShape
    | OpenapiToolsetShape
)


class FallbackShape(Shape):
    """The models that are asked when an agent's model fails."""

    models: tuple[str, ...] = ()
    retries: Annotated[int, Meta(ge=-1, le=10)] = 0
    """0: the server's own number. -1: none."""
    cooldown: str = ""
    """How long a model that failed is asked last: `1m`, `30s`, `2m30s`."""


class PolicyShape(Shape):
    """Ours: what is kept of a turn that does not complete."""

    cancel: Choice | None = None
    disconnect: Choice | None = None
    deadline: Choice | None = None
    error: Choice | None = None
    limit: Choice | None = None
    crash: Choice | None = None


class LimitsShape(Shape):
    """Ours: how far a turn may go."""

    steps_max: Annotated[int, Meta(ge=1)] | None = None
    calls_max: Annotated[int, Meta(ge=0)] | None = None
    output_chars_max: Annotated[int, Meta(ge=1)] | None = None
    cost_micros_max: Annotated[int, Meta(ge=0)] | None = None


class PermissionsShape(Shape):
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class HookShape(Shape):
    """A command that runs at an event of a turn."""

    type: Literal["command"]
    command: Text
    timeout: Seconds = 60.0
    network: bool = False
    """Ours, and the one below: what it may use in a sandbox."""
    roots: tuple[str, ...] = ()


class HookMatcherShape(Shape):
    """Hooks for some tools."""

    hooks: Annotated[tuple[HookShape, ...], Meta(max_length=limits.hooks_max)]
    matcher: str = "*"
    """A regular expression for whole names of tools; `*` is all of them."""


HookList: TypeAlias = Annotated[tuple[HookShape, ...], Meta(max_length=limits.hooks_max)]
HookMatchers: TypeAlias = Annotated[tuple[HookMatcherShape, ...], Meta(max_length=limits.hooks_max)]


class HooksShape(Shape):
    """The commands that run at each kind of event."""

    pre_tool_use: HookMatchers = ()
    post_tool_use: HookMatchers = ()
    session_start: HookList = ()
    on_user_input: HookList = ()
    stop: HookList = ()
    session_end: HookList = ()


class CommandShape(Shape):
    """A prompt with a name, for clients to offer."""

    description: Text = ""
    instruction: Text = ""


Commands: TypeAlias = Annotated[
    dict[str, CommandShape | str], Meta(max_length=limits.agent_commands_max)
]
"""Text alone is a command's instruction."""


class StructuredOutputShape(Shape):
    """The JSON Schema that answers must fit."""

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]*$")]
    schema: Schema
    description: Text = ""
    strict: bool = False


class AgentShape(Shape):
    model: str
    description: Text = ""
    instruction: Text = ""
    welcome_message: Text = ""
    toolsets: Annotated[
        tuple[AnyToolset | None, ...], Meta(max_length=limits.agent_toolsets_max)
    ] = ()
    """None: a toolset that is not run, and left out."""
    sub_agents: tuple[str, ...] = ()
    handoffs: tuple[str, ...] = ()
    fallback: FallbackShape = FallbackShape()
    max_iterations: Count = 0
    """0: the server's own bound."""
    num_history_items: Count = 0
    """How many items of the history its model sees; 0: all of them."""
    add_date: bool = False
    """Tell its model the day on which the turn began."""
    add_environment_info: bool = False
    """Tell its model the directory and the system that it runs in."""
    add_prompt_files: Annotated[tuple[str, ...], Meta(max_length=limits.prompt_files_max)] = ()
    """Files whose text is added to its instruction."""
    commands: Commands | tuple[Commands, ...] = msgspec.field(default_factory=dict)
    structured_output: StructuredOutputShape | None = None
    hooks: HooksShape = HooksShape()
    policy: PolicyShape = PolicyShape()
    limits: LimitsShape = LimitsShape()
    permissions: PermissionsShape = PermissionsShape()
    """Ours: rules for this agent, in addition to those of the file."""


ApiType: TypeAlias = Literal["openai_chatcompletions", "openai_responses", "anthropic", "google"]
"""The last two are ours."""


Amount: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]


class CostShape(Shape):
    """Ours: the price of a million tokens of each kind, in one currency."""

    input: Amount = 0
    output: Amount = 0
    cache_read: Amount | None = None
    cache_write: Amount | None = None
    """Without a price of its own, a kind of cached tokens costs as much as input."""


class ModelShape(Shape):
    provider: str
    model: str
    base_url: str = ""
    token_key: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    temperature: Annotated[float, Meta(ge=0, le=10)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    parallel_tool_calls: bool | None = None
    thinking_budget: Annotated[int, Meta(ge=-1, le=1_000_000)] | str | None = None
    provider_opts: dict[str, Any] = msgspec.field(default_factory=dict)
    """Options that only some providers have."""
    track_usage: bool | None = None
    api_type: ApiType | None = None
    """Ours: the API of its server, if it is not the provider's usual one."""
    cost: CostShape | None = None
    """Ours: its price."""


class ProviderShape(Shape):
    """A model server that the file defines."""

    base_url: str
    token_key: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    api_type: ApiType = "openai_chatcompletions"


class MetadataShape(Shape):
    author: Text = ""
    license: Text = ""
    readme: Text = ""
    description: Text = ""
    version: Text = ""


class FileShape(Shape):
    """A whole agent file."""

    agents: dict[str, AgentShape]
    version: int | str = ""
    models: dict[str, ModelShape] = msgspec.field(default_factory=dict)
    providers: dict[str, ProviderShape] = msgspec.field(default_factory=dict)
    permissions: PermissionsShape = PermissionsShape()
    mcps: dict[str, McpShape] = msgspec.field(default_factory=dict)
    """MCP servers, by the name that toolsets use in `ref`."""
    metadata: MetadataShape = MetadataShape()


_TOOLSET_FIELDS = frozenset(
    """
    api_config args command config defer env file_types headers ignore_vcs instruction model models name path
    post_edit rag_config ref remote shared shell timeout tools toon url version
    """.split()
)
"""The fields that docker-agent has on toolsets of every type."""

NOT_RUN: Mapping[type[Shape], frozenset[str]] = {
    FileShape: frozenset({"rag"}),
    AgentShape: frozenset(
        """
        add_description_parameter code_mode_tools max_consecutive_tool_calls max_old_tool_call_tokens rag skills
        """.split()
    ),
    HooksShape: frozenset({"notification"}),
    ModelShape: frozenset({"routing"}),
    McpShape: frozenset({"config", "version"}),
    **{shape: _TOOLSET_FIELDS - set(shape.__struct_fields__) for shape in get_args(AnyToolset)},
}
"""Fields of docker-agent that are left out with a warning."""

TOOLSETS_NOT_RUN = frozenset(
    "a2a api background_agents lsp model_picker rag tasks user_prompt".split()
)

GONE: Mapping[type[Shape], Mapping[str, str]] = {
    ShellToolsetShape: {
        "sandbox": "was dropped by docker-agent after version 5, and nothing here would keep commands in; "
        "run the whole server in a container, and leave this out"
    }
}
"""Fields of older versions, and why they are refused: a field that was meant to protect is never left out silently."""
