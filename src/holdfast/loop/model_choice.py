"""The model that an agent's next step is asked of: chosen by the agent, or by what the request is like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.agents.agent import Agent
from holdfast.agents.model_routes import best_route
from holdfast.core.history.conversation import changed_state
from holdfast.core.items import Path, UserMessage, text_of
from holdfast.core.ports import OpenTurn
from holdfast.tools.notes.model_choice import choices_in


def on_chosen_model(agent: Agent, path: Path, turn: OpenTurn) -> Agent:
    """The agent with the model of its next step. A turn that is played again finds the same models."""
    if not agent.other_models:
        return agent
    state = dict(changed_state(turn.snapshot.state, turn.turn.changes))
    chosen = choices_in(state).get(agent.name)
    if chosen is None and agent.routes:
        chosen = best_route(_request(path, turn), agent.routes)
    return agent.other_models.get(chosen or "", agent)


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
