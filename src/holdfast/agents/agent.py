"""An agent, a team of them, and where teams come from. Loaded values; nothing here does anything yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from holdfast.core.codec import Value
from holdfast.core.items import Permissions, TurnLimits
from holdfast.core.policy import Policy
from holdfast.core.turns.events import Parameters
from holdfast.models.http.request_headers import Headers
from holdfast.models.model import Model
from holdfast.models.price import Price
from holdfast.models.servers import Api
from holdfast.tools.files.reserved_files import ReservedFiles
from holdfast.tools.hooks import Hooks
from holdfast.tools.names import NameOwners
from holdfast.tools.tool import Toolset


class ModelConfig(Value):
    """A model as an agent file describes it."""

    provider: str
    """Who serves it. A name that nobody knows, with a `base_url`, is an OpenAI-compatible server."""
    model: str
    base_url: str = ""
    """Variables are filled in already: not to be shown."""
    token_key: str = ""
    """The name of the environment variable that holds the API key; empty leaves it to the provider."""
    headers: Headers = Headers()
    """Sent along with every request."""
    api: Api | None = None
    """The API that its server speaks. None: the provider's own, and chat completions elsewhere."""
    thinking_tokens: int | None = None
    """A budget for thinking, where it is counted in tokens: 0 for none, -1 for as many as the model likes."""
    context_window: int | None = None
    """How many tokens it takes, if the file says so."""
    counts_tokens: bool = False
    """Its server counts prompts as OpenAI does, though nobody would know by its name."""
    price: Price | None = None
    """None: what it costs is not known, and counts as nothing."""
    parameters: Parameters = Parameters()
    """The agent has them too, and the loop sends those. A stand-in's own are in its own config."""
    fallbacks: tuple[ModelConfig, ...] = ()
    """Who is asked, in this order, when it fails."""
    retries: int | None = None
    """How often the same one is asked again. None: the server's own number."""
    cooldown_s: float = 60.0
    """How long a stand-in that could answer is kept."""

    @property
    def name(self) -> str:
        """As people know it: `openai/gpt-5`."""
        return f"{self.provider}/{self.model}"


class PromptCommand(Value):
    """A prompt with a name. Clients offer it to people, and send what it says as a message."""

    name: str
    description: str = ""
    instruction: str = ""


ModelFactory: TypeAlias = Callable[[ModelConfig], Model]
"""Makes models. Raises a HoldfastError, with the way out, for what it cannot make."""


class Agent:
    """Somebody with an instruction, a model, tools and colleagues. Never changes once it is loaded, but for `names`."""

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
        toolsets: tuple[Toolset, ...] = (),
        origins: tuple[str, ...] = (),
        sub_agents: tuple[str, ...] = (),
        handoffs: tuple[str, ...] = (),
        parameters: Parameters = Parameters(),  # noqa: B008
        limits: TurnLimits = TurnLimits(),  # noqa: B008
        permissions: Permissions = Permissions(),  # noqa: B008
        policy: Policy = Policy(),  # noqa: B008
        context_window: int | None = None,
        history_items_max: int | None = None,
        hooks: Hooks = Hooks(),  # noqa: B008
    ) -> None:
        self.name = name
        self.model = model
        self.description = description
        self.instruction = instruction
        self.welcome_message = welcome_message
        """For whoever shows the agent to people; the model does not see it, nor the commands."""
        self.commands = commands
        self.add_date = add_date
        """Its model is told the day on which the turn began, in UTC."""
        self.toolsets = toolsets
        self.origins = origins
        """Where each of them comes from: an approval that is remembered does not hold for another."""
        self.names = NameOwners()
        """Whose the names of tools are. The one thing here that is learned while turns are played."""
        self.sub_agents = sub_agents
        """Colleagues who can be given a task; they answer to this agent."""
        self.handoffs = handoffs
        """Colleagues who can take over the conversation."""
        self.parameters = parameters
        self.limits = limits
        self.permissions = permissions
        self.policy = policy
        self.context_window = context_window
        """How many tokens its model takes; None if only the model's name can tell."""
        self.history_items_max = history_items_max
        """How much of the past its model sees, in items; None: all of it."""
        self.hooks = hooks

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
        """Who answers if nobody is named: `root`, or the first."""
        self.digest = digest
        """Changes with the source's content: running turns finish on the version they began with."""
        self.warnings = warnings
        """What people should know about how it was loaded, each with its place."""
        self.files = files
        """What it reads and runs: no tool of anybody's reaches it."""
        self.reserved: Callable[[], ReservedFiles] = lambda: self.files
        """Everything that no tool of its agents reaches. A registry, which knows of others, says more."""

    async def close(self) -> None:
        """Close toolsets and models, each once; those that fail do not keep the others open."""
        parts: dict[int, Closable] = {}
        for agent in self.agents.values():
            parts[id(agent.model)] = agent.model
            for toolset in agent.toolsets:
                parts[id(toolset)] = toolset
        await close_all(parts.values())

    def __repr__(self) -> str:
        return f"<Team {', '.join(self.agents)}>"


class Closable(Protocol):
    async def close(self) -> None: ...


async def close_all(parts: Iterable[Closable]) -> None:
    """Close all of them, side by side; raises afterwards what went wrong."""
    ended = await asyncio.gather(*(part.close() for part in parts), return_exceptions=True)
    failed = [each for each in ended if isinstance(each, Exception)]
    if failed:
        raise ExceptionGroup("some parts of a team could not be closed", failed)


class Source(Protocol):
    """Where a team comes from: a file, a URL, a module, or built in."""

    @property
    def key(self) -> str:
        """The exact address: what sessions remember it by."""
        ...

    @property
    def name(self) -> str:
        """What people call it: a file's stem, a path's last segment, or the name it was given."""
        ...

    @property
    def poll_s(self) -> float | None:
        """How often to ask whether it has changed; None if it cannot."""
        ...

    async def load(self) -> Team:
        """Load the current version. Raises SourceUnusable, with the place and the way out."""
        ...

    async def changed(self) -> bool:
        """Whether there is another version than the one that was loaded last.

        Raises SourceUnusable if nobody can tell, or if what is there now is known not to load.
        """
        ...
