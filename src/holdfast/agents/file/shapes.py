"""The shape of an agent file: one struct for each kind of mapping in it, with docker-agent's names.

A field that is neither here nor in `dispositions.py` is refused as unknown.
Fields that docker-agent does not have are marked as "Ours".
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


class BudgetShape(Shape):
    """How much may be used in one conversation; 0, or nothing: as much as it likes."""

    max_cost: Annotated[float, Meta(ge=0, le=1_000_000)] = 0
    """In the currency of the models' `cost`."""
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
    """Of something built in."""
    name: str = ""
    """For people; it has no effect."""
    timeout: Seconds = limits.hook_timeout_s
    env: dict[str, str] = msgspec.field(default_factory=dict)
    working_dir: str = ""
    strict_output: bool = False
    """Has no effect: an answer that is not understood as a whole always counts as a no, before a tool."""
    on_error: Literal["warn", "ignore", "block"] = "warn"
    """What a hook that breaks does, where a broken hook does not refuse anyway."""
    model: str = ""
    """The model that a hook of type `model` asks."""
    prompt: Text = ""
    """What that model is asked; `{{ .ToolName }}` stands for a fact of the event."""
    schema: Literal["", "pre_tool_use_decision"] = ""
    """What the hook answers: words for the agent's model, or a decision about a call."""
    network: bool = False
    """Holdfast's own, like `roots`: what the command may use in a sandbox."""
    roots: tuple[str, ...] = ()


class HookMatcherShape(Shape):
    """Hooks for some tools."""

    hooks: Annotated[tuple[HookShape, ...], Meta(max_length=limits.hooks_max)]
    matcher: str = "*"
    """A regular expression for whole names of tools; `*` is all of them."""
    preempt_yolo: bool = False
    """Has no effect: hooks before a call are asked always, also about calls that the rules allow."""


HookList: TypeAlias = Annotated[tuple[HookShape, ...], Meta(max_length=limits.hooks_max)]
HookMatchers: TypeAlias = Annotated[tuple[HookMatcherShape, ...], Meta(max_length=limits.hooks_max)]


class HooksShape(Shape):
    """The commands that run at each kind of event."""

    tool_input_transform: HookMatchers = ()
    tool_guard: HookMatchers = ()
    """These two run with those of `pre_tool_use`, before them."""
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
    """The agent that the prompt is for."""
    url: str = ""
    """An address that clients open instead of sending a prompt."""


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
    """`fork`: an agent of its own follows them, with the tools of the agent that has the skill."""
    model: str = ""
    """That agent's model."""
    allowed_tools: tuple[str, ...] = ()
    """Of those tools, the only ones that it has: names, with `*`."""


Skills: TypeAlias = bool | tuple[str | InlineSkillShape, ...]
"""`true`, or `local` in a list: those beside the file; a name: only that one of them; a mapping: the skill itself."""

Share: TypeAlias = Annotated[float, Meta(gt=0, le=1)]


class AgentShape(Shape):
    model: str = "auto"
    """`auto`: the first provider that the server has a key for."""
    name: str = ""
    """Has no effect: an agent has the name that it is listed under."""
    description: Text = ""
    instruction: Text = ""
    instruction_file: str | tuple[str, ...] = ()
    """Files, in the agent file's directory or below it, whose texts are the instruction."""
    welcome_message: Text = ""
    toolsets: Annotated[tuple[AnyToolset, ...], Meta(max_length=limits.agent_toolsets_max)] = ()
    use_toolsets: Annotated[tuple[str, ...], Meta(max_length=limits.agent_toolsets_max)] = ()
    """Toolsets of the file, by name."""
    sub_agents: tuple[str, ...] = ()
    handoffs: tuple[str, ...] = ()
    force_handoff: str = ""
    """The agent that takes over whenever this one has given its last answer."""
    fallback: FallbackShape = FallbackShape()
    max_iterations: Count = 0
    """0: the server's own bound."""
    max_consecutive_tool_calls: Count = 0
    """How many steps in a row may make exactly the same calls; 0: any number."""
    budgets: tuple[str, ...] = ()
    """Budgets of the file, by name, that its steps are paid from."""
    num_history_items: Count = 0
    """How many items of the history its model sees; 0: all of them."""
    add_date: bool = False
    """Tell its model the day on which the turn began."""
    add_environment_info: bool = False
    """Tell its model the directory and the system that it runs in."""
    add_prompt_files: Annotated[tuple[str, ...], Meta(max_length=limits.prompt_files_max)] = ()
    """Files whose text is added to its instruction."""
    add_prompt_files_depth: Annotated[int, Meta(ge=0, le=10)] = 0
    """How many levels below the directory are searched for more such files, whose paths the agent is told."""
    commands: Commands | tuple[Commands, ...] = msgspec.field(default_factory=dict)
    use_commands: tuple[str, ...] = ()
    """Groups of commands of the file, by name."""
    skills: Skills = False
    use_skills: tuple[str, ...] = ()
    """Groups of skills of the file, by name."""
    readonly: bool = False
    """None of its tools may change anything."""
    safety: Safety | None = None
    """What becomes of calls that no rule names."""
    redact_secrets: bool = False
    """Secrets of well-known forms are taken out of its calls, their results and its prompts."""
    max_tool_result_tokens: Annotated[int, Meta(ge=-1)] = 0
    """The longest result of a tool that is kept, in tokens of four characters; 0 or -1: the server's own
    bound."""
    session_compaction: bool = True
    """Whether older turns are summed up when a prompt does not fit."""
    compaction_threshold: Share | None = None
    """The share of the window at which they are."""
    compaction_model: str = ""
    """The model that writes summaries; the agent's own if left out."""
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
    """The price of a million tokens of each kind, in one currency."""

    input: Amount = 0
    output: Amount = 0
    cache_read: Amount | None = None
    cache_write: Amount | None = None
    """Without a price of its own, a kind of cached tokens costs as much as input."""


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
    """Ours on a model."""
    temperature: Annotated[float, Meta(ge=0, le=10)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    parallel_tool_calls: bool | None = None
    thinking_budget: Annotated[int, Meta(ge=-1, le=1_000_000)] | str | None = None
    provider_opts: dict[str, Any] = msgspec.field(default_factory=dict)
    """Options that only some providers have."""
    task_budget: TaskBudgetShape | Annotated[int, Meta(ge=1)] | None = None
    """For Claude: how many tokens a whole task may take. A number stands for its `total`."""
    track_usage: bool | None = None
    api_type: ApiType | None = None
    """Ours on a model: the API of its server, if it is not the provider's usual one."""
    compaction_model: str = ""
    """The model that writes summaries for agents on this one."""


class RoutingRuleShape(Shape):
    """A model, and requests that are for it."""

    model: str
    examples: tuple[Text, ...]


class ModelShape(SettingsShape):
    model: str = ""
    description: Text = ""
    """For people; it has no effect."""
    first_available: tuple[str, ...] = ()
    """Models, of which the first is taken that the server has a key for."""
    compaction_threshold: Share | None = None
    capabilities: CapabilitiesShape = CapabilitiesShape()
    cost: CostShape | None = None
    """Its price."""
    bypass_models_gateway: bool = False
    """Has no effect: there is no gateway for models here."""
    routing: tuple[RoutingRuleShape, ...] = ()
    """Rules that send a request to another model if it is like their examples; this model answers all other requests."""


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
    """Commands have to run in a sandbox."""
    safety: Safety | None = None
    """For agents that have none of their own."""


class FileShape(Shape):
    """A whole agent file."""

    agents: dict[str, AgentShape]
    version: int | str = ""
    models: dict[str, ModelShape] = msgspec.field(default_factory=dict)
    providers: dict[str, ProviderShape] = msgspec.field(default_factory=dict)
    permissions: PermissionsShape = PermissionsShape()
    mcps: dict[str, McpShape] = msgspec.field(default_factory=dict)
    """MCP servers, by the name that toolsets use in `ref`."""
    toolsets: dict[str, AnyToolset] = msgspec.field(default_factory=dict)
    """Toolsets, by the name that agents use in `use_toolsets`."""
    commands: dict[str, Commands | tuple[Commands, ...]] = msgspec.field(default_factory=dict)
    """Groups of commands, by the name that agents use in `use_commands`."""
    skills: dict[str, Skills] = msgspec.field(default_factory=dict)
    """Groups of skills, by the name that agents use in `use_skills`."""
    budget: BudgetShape = BudgetShape()
    """For all agents together."""
    budgets: dict[str, BudgetShape] = msgspec.field(default_factory=dict)
    """Budgets, by the name that agents use in `budgets`."""
    flavors: dict[str, Any] = msgspec.field(default_factory=dict)
    """Has no effect: none is chosen here, and the file is read as it stands without one."""
    runtime: RuntimeShape = RuntimeShape()
    metadata: MetadataShape = MetadataShape()
