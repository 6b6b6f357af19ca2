"""The model that an agent's next step is asked of: chosen by the agent, by what the request is like, or by the toolset
whose results it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

from holdfast.agents.agent import Agent
from holdfast.agents.model_routes import best_route
from holdfast.core.history.conversation import changed_state
from holdfast.core.items import Path, ToolCall, ToolResult, UserMessage, text_of
from holdfast.core.ports import OpenTurn
from holdfast.loop.turn_tools import TurnTools
from holdfast.tools.notes.model_choice import choices_in


async def on_chosen_model(agent: Agent, path: Path, turn: OpenTurn, toolbox: TurnTools) -> Agent:
    """The agent with the model of its next step: the one that reads the results of its last calls, or else the one that
    it has chosen, or that its request is for. A turn that is played again finds the same models."""
    if not agent.other_models:
        return agent
    chosen = await _reader_of_results(agent, path, turn, toolbox)
    if chosen is None:
        state = dict(changed_state(turn.snapshot.state, turn.turn.changes))
        chosen = choices_in(state).get(agent.name)
    if chosen is None and agent.routes:
        chosen = best_route(_request(path, turn), agent.routes)
    return agent.other_models.get(chosen or "", agent)


async def _reader_of_results(
    agent: Agent, path: Path, turn: OpenTurn, toolbox: TurnTools
) -> str | None:
    """The model of the first toolset that has one, among those whose results came last."""
    if not agent.result_models:
        return None
    here = [each for each in turn.turn.items if each.path == path]
    results = takewhile(lambda each: isinstance(each, ToolResult), reversed(here))
    answered = {each.call for each in results if isinstance(each, ToolResult)}
    for call in (each for each in here if isinstance(each, ToolCall) and each.id in answered):
        origin = await toolbox.origin(agent, call.name)
        if (model := agent.result_models.get(origin)) is not None:
            return model
    return None


def _request(path: Path, turn: OpenTurn) -> str:
    """The last words of a person, or of the agent that gave the task."""
    if path:
        return next(_words(each for each in reversed(turn.turn.items) if each.path == path), "")
    asked = (*reversed(turn.turn.request.input), *reversed(turn.snapshot.items))
    return next(_words(asked), "")


def _words(items: Iterable[object]) -> Iterator[str]:
    return (
        words
        for each in items
        if isinstance(each, UserMessage) and (words := text_of(each.content)).strip()
    )
