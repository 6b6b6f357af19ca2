"""The clients, and how each of them is run."""

from __future__ import annotations

from dataclasses import dataclass

from tests.clients.environments import HERE, Environment


@dataclass(frozen=True)
class Client:
    """A client library, and the program that drives it."""

    name: str
    environment: Environment
    arguments: tuple[str, ...] = ()
    """What its driver is told besides the server's address and the scenario."""
    cannot: frozenset[str] = frozenset()
    """Scenarios that the library has no way to express, or that its driver leaves to others."""

    def command(self, *arguments: str) -> list[str]:
        """How its driver is run. Builds the environment if it has to; raises CannotInstall."""
        here = self.environment
        driver = here.folder / "driver.mjs" if here.is_node else here.lock.parent / "driver.py"
        return [*here.runner(), str(driver), *arguments, *self.arguments]


def _python(name: str, folder: str, lock: str = "requirements.txt", cannot: str = "") -> Client:
    return Client(name, Environment(name, HERE / folder / lock), cannot=frozenset(cannot.split()))


_SDKS = "socket methods parsed"
"""What only OpenAI's own libraries have a way to say."""

_AI = Environment("vercel_ai", HERE / "vercel_ai" / "package-lock.json")

CLIENTS = (
    _python("openai-python-1", "openai_python", "requirements-1.txt", cannot="socket"),
    _python("openai-python-2", "openai_python", "requirements-2.txt"),
    _python("openai-python-3", "openai_python", "requirements-3.txt"),
    _python("openai-agents", "openai_agents", cannot=f"models {_SDKS}"),
    _python("langchain", "langchain", cannot=f"models {_SDKS}"),
    _python("litellm", "litellm", cannot=f"models responses {_SDKS}"),
    _python("pydantic-ai", "pydantic_ai", cannot=f"models {_SDKS}"),
    _python("llm", "llm", cannot=f"models responses chained {_SDKS}"),
    Client("openai-node", Environment("openai-node", HERE / "openai_node" / "package-lock.json")),
    Client(
        "anthropic-node",
        Environment("anthropic-node", HERE / "anthropic_node" / "package-lock.json"),
        cannot=frozenset(f"responses chained {_SDKS}".split()),
    ),
    Client("ai-openai", _AI, ("openai",), cannot=frozenset(f"models chained {_SDKS}".split())),
    Client(
        "ai-openai-compatible",
        _AI,
        ("compatible",),
        cannot=frozenset(f"models responses chained {_SDKS}".split()),
    ),
)

BY_NAME = {each.name: each for each in CLIENTS}

PROBE = Environment("llmprobe", HERE / "llmprobe" / "package-lock.json")

INTEGRATIONS = Environment("integrations", HERE / "integrations" / "requirements.txt")
"""Frameworks that run on our sessions in one process with them."""

MCP = Environment("mcp", HERE / "mcp" / "package-lock.json")
"""The conformance suite of the Model Context Protocol, and the SDK that most of its hosts are built on."""

CODEX = Environment("codex", HERE / "codex" / "package-lock.json")
"""A program of 400 MB: installed when `make test-clients` first runs it, and not before."""

CLAUDE_CODE = Environment("claude-code", HERE / "claude_code" / "package-lock.json")
"""A program of 240 MB: installed when `make test-clients` first runs it, and not before."""

ENVIRONMENTS = (*dict.fromkeys(each.environment for each in CLIENTS), PROBE, INTEGRATIONS)
"""Each once, the slow ones not last."""
