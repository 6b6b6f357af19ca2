"""The shape of an agent file: one struct for each kind of mapping in it, with docker-agent's names.

A field that is neither here nor in `dispositions.py` is refused as unknown. What each field means, and which fields
docker-agent does not have, is told in `schema.py`, for editors too.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from holdfast import limits
from holdfast.agents.file.shape_base import Count, Duration, Schema, Seconds, Shape, Text
from holdfast.agents.file.toolsets.toolset_shapes import AnyToolset, McpShape
from holdfast.core.policy import Choice
from holdfast.tools.permissions import Safety


class FallbackShape(Shape):
    """The models that are asked when an agent's model fails."""

    models: tuple[str, ...] = ()
    retries: Annotated[int, Meta(ge=-1, le=10)] = 0
    cooldown: str = ""


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


class BudgetShape(Shape):
    """How much may be used in one conversation; 0, or nothing: as much as it likes."""

    max_cost: Annotated[float, Meta(ge=0, le=1_000_000)] = 0
    max_tokens: Count = 0
    max_time: Duration = ""


class PermissionsShape(Shape):
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class HookShape(Shape):
    """A command that runs at an event of a turn, or something that Holdfast does by itself."""

    type: Literal["command", "builtin", "model"]
    command: Text = ""
    args: tuple[str, ...] = ()
    name: str = ""
    timeout: Seconds = limits.hook_timeout_s
    env: dict[str, str] = msgspec.field(default_factory=dict)
    working_dir: str = ""
    strict_output: bool = False
    on_error: Literal["warn", "ignore", "block"] = "warn"
    model: str = ""
    prompt: Text = ""
    schema: Literal["", "pre_tool_use_decision"] = ""
    network: bool = False
    roots: tuple[str, ...] = ()


class HookMatcherShape(Shape):
    """Hooks for some tools."""

    hooks: Annotated[tuple[HookShape, ...], Meta(max_length=limits.hooks_max)]
    matcher: str = "*"
    preempt_yolo: bool = False


HookList: TypeAlias = Annotated[tuple[HookShape, ...], Meta(max_length=limits.hooks_max)]
HookMatchers: TypeAlias = Annotated[tuple[HookMatcherShape, ...], Meta(max_length=limits.hooks_max)]


class HooksShape(Shape):
    """The commands that run at each kind of event."""

    tool_input_transform: HookMatchers = ()
    tool_guard: HookMatchers = ()
    pre_tool_use: HookMatchers = ()
    post_tool_use: HookMatchers = ()
    permission_request: HookMatchers = ()
    tool_response_transform: HookMatchers = ()
    session_start: HookList = ()
    user_prompt_submit: HookList = ()
    user_steering_messages_submit: HookList = ()
    turn_start: HookList = ()
    before_llm_call: HookList = ()
    after_llm_call: HookList = ()
    turn_end: HookList = ()
    pre_compact: HookList = ()
    before_compaction: HookList = ()
    after_compaction: HookList = ()
    subagent_stop: HookList = ()
    on_agent_switch: HookList = ()
    on_error: HookList = ()
    on_max_iterations: HookList = ()
    notification: HookList = ()
    on_user_input: HookList = ()
    stop: HookList = ()
    session_end: HookList = ()
    on_session_resume: HookList = ()
    on_tool_approval_decision: HookList = ()
    user_followup_submit: HookList = ()


class CommandShape(Shape):
    """A prompt with a name, for clients to offer."""

    description: Text = ""
    instruction: Text = ""
    agent: str = ""
    url: str = ""


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


class InlineSkillShape(Shape):
    """Instructions that a model reads when it needs them."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    description: Text
    instructions: Text
    context: Literal["", "fork"] = ""
    model: str = ""
    allowed_tools: tuple[str, ...] = ()


Skills: TypeAlias = bool | tuple[str | InlineSkillShape, ...]
"""`true`, or `local` in a list: those beside the file; a name: only that one of them; a mapping: the skill itself."""

Share: TypeAlias = Annotated[float, Meta(gt=0, le=1)]


class AgentShape(Shape):
    model: str = "auto"
    name: str = ""
    description: Text = ""
    instruction: Text = ""
    instruction_file: str | tuple[str, ...] = ()
    welcome_message: Text = ""
    toolsets: Annotated[tuple[AnyToolset, ...], Meta(max_length=limits.agent_toolsets_max)] = ()
    use_toolsets: Annotated[tuple[str, ...], Meta(max_length=limits.agent_toolsets_max)] = ()
    sub_agents: tuple[str, ...] = ()
    handoffs: tuple[str, ...] = ()
    force_handoff: str = ""
    fallback: FallbackShape = FallbackShape()
    max_iterations: Count = 0
    max_consecutive_tool_calls: Count = 0
    budgets: tuple[str, ...] = ()
    num_history_items: Count = 0
    add_date: bool = False
    add_environment_info: bool = False
    add_prompt_files: Annotated[tuple[str, ...], Meta(max_length=limits.prompt_files_max)] = ()
    add_prompt_files_depth: Annotated[int, Meta(ge=0, le=10)] = 0
    commands: Commands | tuple[Commands, ...] = msgspec.field(default_factory=dict)
    use_commands: tuple[str, ...] = ()
    skills: Skills = False
    use_skills: tuple[str, ...] = ()
    readonly: bool = False
    safety: Safety | None = None
    redact_secrets: bool = False
    max_tool_result_tokens: Annotated[int, Meta(ge=-1)] = 0
    session_compaction: bool = True
    compaction_threshold: Share | None = None
    compaction_model: str = ""
    structured_output: StructuredOutputShape | None = None
    hooks: HooksShape = HooksShape()
    policy: PolicyShape = PolicyShape()
    limits: LimitsShape = LimitsShape()
    permissions: PermissionsShape = PermissionsShape()


ApiType: TypeAlias = Literal["openai_chatcompletions", "openai_responses", "anthropic", "google"]
"""The last two are ours."""


Amount: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]


class CostShape(Shape):
    """The price of a million tokens of each kind, in one currency."""

    input: Amount = 0
    output: Amount = 0
    cache_read: Amount | None = None
    cache_write: Amount | None = None


class CapabilitiesShape(Shape):
    """What a model takes besides text."""

    image: bool = True
    pdf: bool = True
    audio: bool = True
    video: bool = True


class TaskBudgetShape(Shape):
    """How many tokens a whole task may take, as the model is told."""

    total: Annotated[int, Meta(ge=1)]
    type: Literal["tokens"] = "tokens"


class SettingsShape(Shape):
    """The settings that models and providers have in common: a provider's hold for its models."""

    provider: str = ""
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
    task_budget: TaskBudgetShape | Annotated[int, Meta(ge=1)] | None = None
    track_usage: bool | None = None
    api_type: ApiType | None = None
    compaction_model: str = ""


class RoutingRuleShape(Shape):
    """A model, and requests that are for it."""

    model: str
    examples: tuple[Text, ...]


class ModelShape(SettingsShape):
    model: str = ""
    description: Text = ""
    first_available: tuple[str, ...] = ()
    compaction_threshold: Share | None = None
    capabilities: CapabilitiesShape = CapabilitiesShape()
    cost: CostShape | None = None
    bypass_models_gateway: bool = False
    routing: tuple[RoutingRuleShape, ...] = ()


class ProviderShape(SettingsShape):
    """A model server that the file defines, or another name for a known one with settings of its own."""


class MetadataShape(Shape):
    author: Text = ""
    license: Text = ""
    readme: Text = ""
    description: Text = ""
    version: Text = ""
    tags: tuple[str, ...] = ()


class RuntimeShape(Shape):
    """How the agents of a file are run."""

    sandbox: bool = False
    safety: Safety | None = None


class FileShape(Shape):
    """A whole agent file."""

    agents: dict[str, AgentShape]
    version: int | str = ""
    models: dict[str, ModelShape] = msgspec.field(default_factory=dict)
    providers: dict[str, ProviderShape] = msgspec.field(default_factory=dict)
    permissions: PermissionsShape = PermissionsShape()
    mcps: dict[str, McpShape] = msgspec.field(default_factory=dict)
    toolsets: dict[str, AnyToolset] = msgspec.field(default_factory=dict)
    commands: dict[str, Commands | tuple[Commands, ...]] = msgspec.field(default_factory=dict)
    skills: dict[str, Skills] = msgspec.field(default_factory=dict)
    budget: BudgetShape = BudgetShape()
    budgets: dict[str, BudgetShape] = msgspec.field(default_factory=dict)
    flavors: dict[str, Any] = msgspec.field(default_factory=dict)
    runtime: RuntimeShape = RuntimeShape()
    metadata: MetadataShape = MetadataShape()
