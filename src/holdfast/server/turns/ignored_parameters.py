"""The `x-ignored-params` header: parameters of a request that the agent's model ignores."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from holdfast.errors import ModelNotFound
from holdfast.ids import Tenant
from holdfast.server.agents.directory import Directory
from holdfast.server.http.exchange import Exchange
from holdfast.sessions.session_requests import AgentChoice
from holdfast.wire.headers import IGNORED_PARAMS
from holdfast.wire.openai.chat.request import GivenParameter, ignored
from holdfast.wire.problems import Refused

AgentCallback: TypeAlias = Callable[[AgentChoice], None]


def note_ignored_parameters(
    exchange: Exchange,
    directory: Directory,
    tenant: Tenant,
    model: str,
    *,
    given: tuple[GivenParameter, ...],
    left_alone: tuple[str, ...],
    named: bool,
) -> AgentCallback:
    """A callback for the moment when the turn's agent is chosen: it sets the header for that agent.

    The callback raises Refused if the agent ignores a parameter that the answer must obey. In a named conversation
    another agent than the requested one may play, and that is known only when the turn is about to begin; until then,
    and for an answer that is replayed, the header is set for the requested agent.
    Raises ModelNotFound if the requested agent does not exist, unless a named conversation may choose another.
    """

    def note(choice: AgentChoice) -> None:
        knows = frozenset(each.ours for each in given) if choice.knows is None else choice.knows
        unheeded = (*ignored(given, knows), *left_alone)
        exchange.about.pop(IGNORED_PARAMS.name, None)
        if unheeded:
            exchange.about[IGNORED_PARAMS.name] = ", ".join(unheeded)

    try:
        note(directory.named(model, tenant))
    except (ModelNotFound, Refused):
        if not named:
            raise
    return note
