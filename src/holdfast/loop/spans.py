"""The spans of a turn, by the semantic conventions for generative AI: `invoke_agent`, `chat`, `execute_tool`.

The conventions are still in development; the names here are those of the version in `observe/otel.py`. Spans hold no
text of people, models or tools.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.agents.agent import Agent, Team
from holdfast.core.items import ToolCall
from holdfast.core.ports import OpenTurn
from holdfast.core.turns.deltas import Accumulator
from holdfast.core.turns.events import Usage
from holdfast.observe.spans import Attribute, Span, span

PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""Provider names that differ in the conventions."""


@contextmanager
def invoking(turn: OpenTurn, team: Team) -> Iterator[None]:
    """The span of a whole turn, `invoke_agent`."""
    agent = turn.turn.agent or team.entry
    attributes = _about(turn, agent)
    if (entry := team.agents.get(agent)) is not None:
        attributes["gen_ai.provider.name"] = provider_of(entry)
    attributes["gen_ai.operation.name"] = "invoke_agent"
    with span(f"invoke_agent {agent}", "internal", attributes) as here:
        try:
            yield
        finally:
            _tell_usage(here, turn.turn.usage)


@contextmanager
def asking(turn: OpenTurn, agent: Agent, answer: Accumulator) -> Iterator[None]:
    """The span of one answer of a model, `chat`, retries and fallbacks included."""
    model = agent.model.name.partition("/")[2] or agent.model.name
    attributes = _about(turn, agent.name)
    attributes["gen_ai.operation.name"] = "chat"
    attributes["gen_ai.provider.name"] = provider_of(agent)
    attributes["gen_ai.request.model"] = model
    attributes["gen_ai.request.stream"] = True
    with span(f"chat {model}", "client", attributes) as here:
        try:
            yield
        finally:
            _tell_usage(here, answer.usage)


def using(turn: OpenTurn, agent: Agent, call: ToolCall) -> Span:
    """The span of one run of a tool, `execute_tool`."""
    attributes = _about(turn, agent.name)
    attributes["gen_ai.operation.name"] = "execute_tool"
    attributes["gen_ai.tool.name"] = call.name
    attributes["gen_ai.tool.type"] = "function"
    attributes["gen_ai.tool.call.id"] = call.call_id
    return span(f"execute_tool {call.name}", "internal", attributes)


def provider_of(agent: Agent) -> str:
    """The provider of an agent's model, by its name in the conventions."""
    name = agent.model.name.partition("/")[0]
    return PROVIDERS.get(name, name)


def _about(turn: OpenTurn, agent: str) -> dict[str, Attribute]:
    return {
        "gen_ai.agent.name": agent,
        "gen_ai.conversation.id": str(turn.snapshot.session_id),
        "holdfast.turn.id": str(turn.turn.request.turn_id),
    }


def _tell_usage(here: Span, usage: Usage) -> None:
    here.set("gen_ai.usage.input_tokens", usage.input_tokens or None)
    here.set("gen_ai.usage.output_tokens", usage.output_tokens or None)
    here.set("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens or None)
