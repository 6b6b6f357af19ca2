"""The spans of a turn, by the semantic conventions for generative AI: `invoke_agent`, `chat`, `execute_tool`. Answers of
models and runs of tools are counted where their spans are.

The conventions are still in development; the names here are those of the version in `observe/otel.py`. Spans hold no
text of people, models or tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.agents.agent import Agent, Team
from holdfast.core.items import Path, ToolCall
from holdfast.core.ports import OpenTurn
from holdfast.core.turns.deltas import Accumulator
from holdfast.core.turns.events import Usage
from holdfast.models.model import ModelFailed
from holdfast.observe.spans import NO_SPAN, Attribute, Span, is_tracing, span
from holdfast.observe.tally import Tally
from holdfast.tools.tool import ToolOutput

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
    with _span_of_turn(turn, team) as here:
        try:
            yield
        finally:
            _tell_usage(here, turn.turn.usage)


@contextmanager
def asking(
    turn: OpenTurn, agent: Agent, path: Path, answer: Accumulator, tally: Tally
) -> Iterator[None]:
    """The span of one answer of a model, `chat`, retries and fallbacks included; the answer is counted."""
    began_s, outcome = _now_s(), "stopped"
    with _span_of_answer(turn, agent) as here:
        try:
            yield
            outcome = "answered"
        except ModelFailed:
            outcome = "failed"
            raise
        finally:
            usage = answer.usage
            branch = turn.turn.branch(path)
            if outcome != "answered" and branch is not None and branch.draft is not None:
                usage = branch.draft.usage(failed=outcome == "failed", reported=usage)
            _tell_usage(here, usage)
            _count_answer(tally, agent, usage, outcome, began_s)


def _count_answer(tally: Tally, agent: Agent, usage: Usage, outcome: str, began_s: float) -> None:
    about = (agent.name, agent.model.name)
    tally.answers.add(*about, outcome)
    tally.answer_ms.add(*about, by=_ms_since(began_s))
    for kind, number in (
        ("input", usage.input_tokens),
        ("cached", usage.cached_tokens),
        ("output", usage.output_tokens),
        ("reasoning", usage.reasoning_tokens),
    ):
        if number:
            tally.model_tokens.add(*about, kind, by=number)
    if usage.cost_micros:
        tally.model_cost_micros.add(*about, by=usage.cost_micros)


class ToolRunSpan:
    """One run of a tool: its span, and its counts."""

    def __init__(self, here: Span, about: tuple[str, str], tally: Tally) -> None:
        self._here = here
        self._about = about
        self._tally = tally
        self._began_s = _now_s()

    def ended(self, output: ToolOutput) -> None:
        """The tool has returned this."""
        if output.outcome != "ok":
            self._here.fail("tool_error")
        self._tally.calls.add(*self._about, output.outcome)
        self._tally.call_ms.add(*self._about, by=_ms_since(self._began_s))


@contextmanager
def using(turn: OpenTurn, agent: Agent, call: ToolCall, tally: Tally) -> Iterator[ToolRunSpan]:
    """The span of one run of a tool, `execute_tool`; a run that is broken off is not counted."""
    with _span_of_run(turn, agent, call) as here:
        yield ToolRunSpan(here, (agent.name, call.name), tally)


# ── what spans say; without a tracer it is not put together ──


def _span_of_turn(turn: OpenTurn, team: Team) -> Span:
    if not is_tracing():
        return NO_SPAN
    agent = turn.turn.agent or team.entry
    attributes = _about(turn, agent)
    if (entry := team.agents.get(agent)) is not None:
        attributes["gen_ai.provider.name"] = provider_of(entry)
    attributes["gen_ai.operation.name"] = "invoke_agent"
    return span(f"invoke_agent {agent}", "internal", attributes)


def _span_of_answer(turn: OpenTurn, agent: Agent) -> Span:
    if not is_tracing():
        return NO_SPAN
    model = agent.model.name.partition("/")[2] or agent.model.name
    attributes = _about(turn, agent.name)
    attributes["gen_ai.operation.name"] = "chat"
    attributes["gen_ai.provider.name"] = provider_of(agent)
    attributes["gen_ai.request.model"] = model
    attributes["gen_ai.request.stream"] = True
    return span(f"chat {model}", "client", attributes)


def _span_of_run(turn: OpenTurn, agent: Agent, call: ToolCall) -> Span:
    if not is_tracing():
        return NO_SPAN
    attributes = _about(turn, agent.name)
    attributes["gen_ai.operation.name"] = "execute_tool"
    attributes["gen_ai.tool.name"] = call.name
    attributes["gen_ai.tool.type"] = "function"
    attributes["gen_ai.tool.call.id"] = call.call_id
    return span(f"execute_tool {call.name}", "internal", attributes)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _ms_since(began_s: float) -> int:
    return round((_now_s() - began_s) * 1000)


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
    if here is NO_SPAN:
        return
    here.set("gen_ai.usage.input_tokens", usage.input_tokens or None)
    here.set("gen_ai.usage.output_tokens", usage.output_tokens or None)
    here.set("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens or None)
    here.set("holdfast.usage.estimated_tokens", usage.estimated_tokens or None)
