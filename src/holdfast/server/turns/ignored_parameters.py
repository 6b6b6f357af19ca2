"""What every request for a turn goes through, whichever API it came by."""

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

Met: TypeAlias = Callable[[AgentChoice], None]


def heeding(
    exchange: Exchange,
    directory: Directory,
    tenant: Tenant,
    model: str,
    *,
    given: tuple[GivenParameter, ...],
    left_alone: tuple[str, ...],
    named: bool,
) -> Met:
    """What is to be told who plays: the answer will say what of the request that agent ignores.

    It raises Refused if the agent ignores what an answer has to keep to. In a named conversation that may be
    another agent than the one that was asked for, so it is known when the turn is about to begin; until then, and
    for an answer that is had again, it is taken to be the one that was asked for.
    Raises ModelNotFound if there is nobody, and no conversation that might know better.
    """

    def met(choice: AgentChoice) -> None:
        knows = frozenset(each.ours for each in given) if choice.knows is None else choice.knows
        unheeded = (*ignored(given, knows), *left_alone)
        exchange.about.pop(IGNORED_PARAMS.name, None)
        if unheeded:
            exchange.about[IGNORED_PARAMS.name] = ", ".join(unheeded)

    try:
        met(directory.named(model, tenant))
    except (ModelNotFound, Refused):
        if not named:
            raise
    return met
