"""The frameworks that run tools of their own between their requests, and how each of them is run.

Their environments are large, so that `make test` builds none of them: `make test-clients` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tests.clients.environments import HERE, Environment


@dataclass(frozen=True)
class Framework:
    """A framework, and the program that drives it."""

    name: str
    apis: tuple[str, ...] = ("chat",)
    """The APIs that it speaks."""
    cannot: str = ""
    """Ways of talking that it has no means for."""
    tool: str = "get_weather"
    """Its name for its tool."""
    retries: bool = False
    """Whether it sends a request again if its connection is lost."""
    lock: str = "requirements.txt"

    def __str__(self) -> str:
        return self.name

    @property
    def environment(self) -> Environment:
        return Environment(self.name, HERE / self.name.replace("-", "_") / self.lock)

    @property
    def ways(self) -> Iterator[str]:
        """How a talk with it may be held."""
        ways = map("-".join, product(self.apis, ("plain", "streamed"), ("named", "unnamed")))
        return (each for each in ways if each not in self.cannot.split())

    def command(self, *arguments: str) -> list[str]:
        """How its driver is run. Builds the environment if it has to; raises CannotInstall."""
        here = self.environment
        driver = here.folder / "driver.mjs" if here.is_node else here.lock.parent / "driver.py"
        return [*here.runner(), str(driver), *arguments]


BOTH = ("chat", "responses")
NODE_LOCK = "package-lock.json"

FRAMEWORKS = (
    Framework("agno", BOTH, retries=True),
    Framework("agent-framework", BOTH, retries=True),
    Framework(
        "semantic-kernel",
        BOTH,
        # Its agent for Responses goes on from the last response, which is a name by itself.
        cannot="responses-plain-named responses-streamed-named",
        tool="Weather-get_weather",
        retries=True,
    ),
    Framework("mastra", BOTH, lock=NODE_LOCK, retries=True),
    Framework("vercel-ai-6", BOTH, lock=NODE_LOCK, retries=True),
    Framework("llama-index", BOTH, retries=True),
    Framework("haystack", BOTH, retries=True),
    Framework("strands", retries=True),
    Framework("autogen", retries=True),
)

TELLERS = (
    Framework("smolagents", retries=True),
    Framework("crewai", retries=True),
    Framework("dspy", retries=True),
)
"""They tell the model what they have done in words of their own, and not by the calls that it made."""

INSTRUCTOR = Framework(
    "instructor",
    ("chat", "parallel"),
    cannot="parallel-streamed-named parallel-streamed-unnamed",
    retries=True,
)
"""It asks for one call or for several, and runs none."""
