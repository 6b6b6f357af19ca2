"""The shape of an agent file: one struct for each kind of mapping in it, in docker-agent's words.

What docker-agent has and we do not run yet is listed too (`NOT_RUN`): such a field is told as a warning and left
out, so that nobody believes in it. Anything else that is not here is refused.
Fields of ours, which docker-agent does not have, are marked so.
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
    """Ours: names of variables that are passed on."""
    read_only: bool = False
    """Ours: it changes nothing, and needs no permission."""
    idempotent: bool = False
    """Ours: it may be run again under the same call key."""
    timeout: Seconds = 60.0
    """Ours: in seconds."""
    network: bool = False
    """Ours, and the two below: what it is given in a sandbox."""
    roots: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()


Deferred: TypeAlias = tuple[str, ...] | bool
"""Which tools a model has to look for: these, all, or none."""


class ToolsetShape(Shape, tag_field="type"):
    """Some tools. What kind of them `type` says."""

    tools: tuple[str, ...] | None = None
    """Only these of them."""
    instruction: Text | None = None
    """What agents are told about them, in place of what the toolset itself says."""
    defer: Deferred = False


class ScriptToolsetShape(ToolsetShape, tag="script"):
    shell: dict[str, ScriptShape] = msgspec.field(default_factory=dict)
    env: dict[str, str] = msgspec.field(default_factory=dict)


class ShellToolsetShape(ToolsetShape, tag="shell"):
    env: dict[str, str] = msgspec.field(default_factory=dict)
    working_dir: str = ""
    """Ours, and the three below: what it is given in a sandbox."""
    network: bool = False
    roots: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()


class FilesystemToolsetShape(ToolsetShape, tag="filesystem"):
    roots: tuple[str, ...] = ()
    """Ours: the directories below which files are. Left out: that of the agent file, to be read and not written."""
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
    """A server that is spoken to over HTTP."""

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
    """Ours: whether the server's own word counts that a tool only reads."""
    timeout: Seconds = 60.0
    """Ours: for one call."""
    network: bool = True
    """Ours, and the two below: what a program is given in a sandbox."""
    roots: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()


class McpToolsetShape(McpShape, tag_field="type", tag="mcp"):
    """The same as a toolset; or, by `ref`, one that is defined elsewhere."""


class OpenapiToolsetShape(ToolsetShape, tag="openapi", kw_only=True):
    url: str
    """The document's address, or its path, relative to the agent file."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    base_url: str = ""
    """Ours, and the two below: where requests go, in place of what the document says."""
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
    """Who is asked when the model fails."""

    models: tuple[str, ...] = ()
    retries: Annotated[int, Meta(ge=-1, le=10)] = 0
    """0: the server's own number. -1: none."""
    cooldown: str = ""
    """How long a successful stand-in is kept: `1m`, `30s`, `2m30s`."""


class PolicyShape(Shape):
    """Ours: what becomes of a turn that does not complete."""

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
    """A command that is run when something happens."""

    type: Literal["command"]
    command: Text
    timeout: Seconds = 60.0
    network: bool = False
    """Ours, and the one below: what it is given in a sandbox."""
    roots: tuple[str, ...] = ()


class HookMatcherShape(Shape):
    """Hooks for some tools."""

    hooks: Annotated[tuple[HookShape, ...], Meta(max_length=limits.hooks_max)]
    matcher: str = "*"
    """A regular expression for whole names of tools; `*` is all of them."""


HookList: TypeAlias = Annotated[tuple[HookShape, ...], Meta(max_length=limits.hooks_max)]
HookMatchers: TypeAlias = Annotated[tuple[HookMatcherShape, ...], Meta(max_length=limits.hooks_max)]


class HooksShape(Shape):
    """Commands that are run when something happens in a turn."""

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
    """The form that answers have to have."""

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
    """None: one that was left out."""
    sub_agents: tuple[str, ...] = ()
    handoffs: tuple[str, ...] = ()
    fallback: FallbackShape = FallbackShape()
    max_iterations: Count = 0
    """0: the server's own bound."""
    num_history_items: Count = 0
    """How much of the past its model sees; 0: all of it."""
    add_date: bool = False
    """Tell its model the day on which the turn began."""
    add_environment_info: bool = False
    """Tell its model where it runs: the directory, the system."""
    add_prompt_files: Annotated[tuple[str, ...], Meta(max_length=limits.prompt_files_max)] = ()
    """Files whose words are added to its instruction."""
    commands: Commands | tuple[Commands, ...] = msgspec.field(default_factory=dict)
    structured_output: StructuredOutputShape | None = None
    hooks: HooksShape = HooksShape()
    policy: PolicyShape = PolicyShape()
    limits: LimitsShape = LimitsShape()
    permissions: PermissionsShape = PermissionsShape()
    """Ours: for this agent, beside those of the file."""


ApiType: TypeAlias = Literal["openai_chatcompletions", "openai_responses", "anthropic", "google"]
"""The last two are ours."""


Amount: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]


class CostShape(Shape):
    """Ours: what a million tokens cost, each kind of them, in one currency."""

    input: Amount = 0
    output: Amount = 0
    cache_read: Amount | None = None
    cache_write: Amount | None = None
    """Left out, either is paid as input."""


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
    """What only some providers have."""
    track_usage: bool | None = None
    api_type: ApiType | None = None
    """Ours: the API to ask it by, if not the provider's usual one."""
    cost: CostShape | None = None
    """Ours: what it costs."""


class ProviderShape(Shape):
    """A name for a server of one's own."""

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
    """MCP servers, by the name that toolsets refer to them by."""
    metadata: MetadataShape = MetadataShape()


_TOOLSET_FIELDS = frozenset(
    """
    api_config args command config defer env file_types headers ignore_vcs instruction model models name path
    post_edit rag_config ref remote shared shell timeout tools toon url version
    """.split()
)
"""What docker-agent has on toolsets, whatever their type."""

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
"""Fields of docker-agent's that are told and left out."""

TOOLSETS_NOT_RUN = frozenset(
    "a2a api background_agents lsp model_picker rag tasks user_prompt".split()
)

GONE: Mapping[type[Shape], Mapping[str, str]] = {
    ShellToolsetShape: {
        "sandbox": "was dropped by docker-agent after version 5, and nothing here would keep commands in; "
        "run the whole server in a container, and leave this out"
    }
}
"""Fields that older versions had, and why they are refused: what was meant to protect is never left out quietly."""
