"""An agent, a team of agents, and the protocol of a team's source. Loaded values: nothing here runs anything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Protocol, TypeAlias

import msgspec

from holdfast.agents.model_routes import ModelRoute
from holdfast.core.codec import Value
from holdfast.core.items import Permissions, TurnLimits
from holdfast.core.policy import Policy
from holdfast.core.turns.events import Parameters
from holdfast.models.dialects import Kind
from holdfast.models.http.request_headers import Headers
from holdfast.models.model import Model
from holdfast.models.price import Price
from holdfast.models.servers import Api
from holdfast.observe.trouble import Troubles
from holdfast.tools.files.reserved_files import ReservedFiles
from holdfast.tools.function import Function, FunctionTool, FunctionToolset
from holdfast.tools.hooks import Hooks
from holdfast.tools.names import NameOwners
from holdfast.tools.permissions import Safety
from holdfast.tools.tool import Toolset


class ModelConfig(Value):
    """A model as an agent file describes it."""

    provider: str
    """The model's provider. An unknown name with a `base_url` is an OpenAI-compatible server."""
    model: str
    base_url: str = ""
    """With its variables filled in, which may be secrets: not to be shown."""
    token_key: str = ""
    """The name of the environment variable that holds the API key; empty leaves it to the provider."""
    headers: Headers = Headers()
    """Sent with every request."""
    api: Api | None = None
    """The API of its server. None: the provider's usual one, and chat completions for other servers."""
    thinking_tokens: int | None = None
    """A budget for thinking, for providers that count it in tokens: 0 for none, -1 for as many as the model likes."""
    context_window: int | None = None
    """The size of its window in tokens, if the file has it."""
    counts_tokens: bool = False
    """Whether its server counts prompts as OpenAI does, which its name does not tell."""
    price: Price | None = None
    """None: the price is not known, and counts as zero."""
    parameters: Parameters = Parameters()
    """For this model as a fallback. For an agent's own model the loop sends the agent's parameters."""
    fallbacks: tuple[ModelConfig, ...] = ()
    """The models that are asked, in this order, when this one fails."""
    retries: int | None = None
    """How often each model is asked again. None: the server's own number."""
    cooldown_s: float = 60.0
    """How long a model that failed is asked last."""
    takes_turns: bool = False
    """The model and its fallbacks take turns: each step is answered by another of them."""
    kind: str = ""
    """The known provider whose server and API this is, if `provider` is a name that the file gave it."""
    options: tuple[tuple[str, str], ...] = ()
    """Members of every request, as JSON, that only this model's server knows."""
    region: str = ""
    """The region of its server, for providers that have some; empty: that of the environment."""
    without: tuple[Kind, ...] = ()
    """What it is told of in words alone, because it does not take it."""
    unset: tuple[str, ...] = ()
    """Variables of its address or its headers that the environment does not have: it cannot be used yet."""

    @property
    def name(self) -> str:
        """For people: `openai/gpt-5`."""
        return f"{self.provider}/{self.model}"


class PromptCommand(Value):
    """A prompt with a name. Clients offer it to people, and send its instruction as a message."""

    name: str
    description: str = ""
    instruction: str = ""
    agent: str = ""
    """The agent that gets the message; empty: the agent that offers the prompt."""
    url: str = ""
    """An address to open instead of sending a message."""


class Budget(Value):
    """How much the steps of some agents may use in one conversation. None: as much as they like."""

    name: str
    """As the file says it: `budget`, `budgets.small`. Agents with a budget of one name share it."""
    cost_micros_max: int | None = None
    tokens_max: int | None = None
    time_ms_max: int | None = None
    """Of models and tools at work; not of people who read and write."""


class SummaryRules(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """When and by which model an agent's older turns are summed up."""

    by_itself: bool = True
    """Whether a prompt that does not fit is made to fit."""
    at_share: float | None = None
    """The share of the model's window at which this happens; None: the server's own."""
    model: Model | None = None
    """The model that writes summaries; None: the agent's own."""


ModelFactory: TypeAlias = Callable[[ModelConfig], Model]
"""Makes models. Raises a HoldfastError, with the way out, for a config that it cannot use."""


class Agent:
    """An instruction, a model, tools and colleagues. Never changes once it is loaded, except `names`."""

    def __init__(
        self,
        name: str,
        model: Model,
        *,
        description: str = "",
        instruction: str = "",
        welcome_message: str = "",
        commands: tuple[PromptCommand, ...] = (),
        add_date: bool = False,
        tools: tuple[FunctionTool | Function, ...] = (),
        toolsets: tuple[Toolset, ...] = (),
        origins: tuple[str, ...] = (),
        sub_agents: tuple[str, ...] = (),
        handoffs: tuple[str, ...] = (),
        parameters: Parameters = Parameters(),  # noqa: B008
        limits: TurnLimits = TurnLimits(),  # noqa: B008
        permissions: Permissions = Permissions(),  # noqa: B008
        safety: Safety = "restricted",
        policy: Policy = Policy(),  # noqa: B008
        context_window: int | None = None,
        history_items_max: int | None = None,
        hooks: Hooks = Hooks(),  # noqa: B008
        result_chars_max: int | None = None,
        redacts: bool = False,
        compaction: SummaryRules = SummaryRules(),  # noqa: B008
        routes: tuple[ModelRoute, ...] = (),
        force_handoff: str = "",
        same_calls_max: int | None = None,
        budgets: tuple[Budget, ...] = (),
    ) -> None:
        self.name = name
        self.model = model
        self.description = description
        self.instruction = instruction
        self.welcome_message = welcome_message
        """For clients that show the agent to people; the model sees neither it nor the commands."""
        self.commands = commands
        self.add_date = add_date
        """Whether its model is told the day on which the turn began, in UTC."""
        self.toolsets = (*toolsets, FunctionToolset(*tools)) if tools else toolsets
        self.hook_troubles = Troubles(logging.getLogger("holdfast.hooks"))
        """The troubles with its hooks, by event and command, for the log."""
        self.tool_troubles = Troubles(logging.getLogger("holdfast.tools"))
        """The troubles with its tools, by name."""
        """Its tools; the functions under `tools` are the last toolset."""
        self.origins = origins
        """The origin of each toolset: a remembered approval holds for one origin only."""
        self.names = NameOwners()
        """Which toolset owns each tool name. The only part of an agent that changes while turns are played."""
        self.sub_agents = sub_agents
        """Agents that this agent can give a task; they answer to this agent."""
        self.handoffs = handoffs
        """Agents that can take over the conversation."""
        self.parameters = parameters
        self.limits = limits
        self.permissions = permissions
        self.safety: Safety = safety
        """What becomes of calls that no rule names."""
        self.policy = policy
        self.context_window = context_window
        """The size of its model's window in tokens; None: it is looked up by the model's name."""
        self.history_items_max = history_items_max
        """How many items of the history its model sees; None: all of them."""
        self.hooks = hooks
        self.hook_models: Mapping[str, Model] = {}
        """The models that its hooks ask, by their names in the file."""
        self.result_chars_max = result_chars_max
        """How many characters of a tool's result are kept; None: the server's own bound."""
        self.compaction = compaction
        self.redacts = redacts
        """Whether secrets are taken out of its calls, their results and its prompts."""

        self.force_handoff = force_handoff
        """The agent that takes over the conversation whenever this one has given its last answer."""
        self.same_calls_max = same_calls_max
        """How many steps in a row may make exactly the same calls; None: as many as the turn has."""
        self.budgets = budgets
        """The budgets that its steps are paid from, for the whole conversation."""
        self.routes = routes
        """Rules that send a request to another of its models if it is like their examples; its own model answers all others."""
        self.other_models: Mapping[str, Agent] = {}
        """The same agent on other models, which it may choose, or which its routes or toolsets name; by their names in the
        file."""
        self.result_models: Mapping[str, str] = {}
        """The models that read the results of toolsets: the toolset's origin → the model's name in the file."""

    def on(self, model: Model, parameters: Parameters, context_window: int | None) -> Agent:
        """The same agent, with the same tools and names, on another model."""
        other = copy(self)
        other.model, other.parameters, other.context_window = model, parameters, context_window
        return other

    def __repr__(self) -> str:
        return f"<Agent {self.name} on {self.model.name}>"


class Team:
    """The agents of one version of one source."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        *,
        entry: str,
        digest: str = "",
        warnings: tuple[str, ...] = (),
        files: ReservedFiles = ReservedFiles(),  # noqa: B008
    ) -> None:
        assert entry in agents, f"the entry agent {entry!r} is not in the team"
        self.agents = dict(agents)
        self.entry = entry
        """The agent that answers if the request names none: `root`, or the first."""
        self.digest = digest
        """Changes with the source's content: running turns finish on the version they began with."""
        self.warnings = warnings
        """Warnings from loading, each with its file and line."""
        self.files = files
        """The files that the team reads and runs: no agent's tool may touch them."""
        self.reserved: Callable[[], ReservedFiles] = lambda: self.files
        """All files that no tool of its agents may touch. A registry adds the files of its other sources."""

    async def close(self) -> None:
        """Close toolsets and models, each once. If one fails, the others are closed all the same."""
        parts: dict[int, Closable] = {}
        for agent in self.agents.values():
            models = (each.model for each in (agent, *agent.other_models.values()))
            for model in (*models, *agent.hook_models.values()):
                parts[id(model)] = model
            if agent.compaction.model is not None:
                parts[id(agent.compaction.model)] = agent.compaction.model
            for toolset in agent.toolsets:
                parts[id(toolset)] = toolset
        await close_all(parts.values())

    def __repr__(self) -> str:
        return f"<Team {', '.join(self.agents)}>"


class Closable(Protocol):
    async def close(self) -> None: ...


async def close_all(parts: Iterable[Closable]) -> None:
    """Close all parts concurrently. Raises an ExceptionGroup afterwards if some failed."""
    ended = await asyncio.gather(*(part.close() for part in parts), return_exceptions=True)
    failed = [each for each in ended if isinstance(each, Exception)]
    if failed:
        raise ExceptionGroup("some parts of a team could not be closed", failed)


class Source(Protocol):
    """The source of a team: a file, a URL, a module, or built in."""

    @property
    def key(self) -> str:
        """The exact address, which sessions store."""
        ...

    @property
    def name(self) -> str:
        """The name for people: a file's stem, a path's last segment, or the name that the operator gave."""
        ...

    @property
    def given_name(self) -> str:
        """The name that the operator gave, by which sessions find the source at another address; empty without one."""
        ...

    @property
    def poll_s(self) -> float | None:
        """How often to check whether it has changed; None if it cannot change."""
        ...

    async def load(self) -> Team:
        """Load the current version. Raises SourceUnusable, with file, line and the way out."""
        ...

    async def changed(self) -> bool:
        """Whether the source has another version than the one that was loaded last.

        Raises SourceUnusable if that cannot be found out, or if the current version has failed to load before.
        """
        ...
