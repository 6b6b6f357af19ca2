"""The `x-ignored-params` header: parameters of a request that the agent's model ignores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import AgentUnavailable, HoldfastError
from holdfast.server.agents.directory import Directory
from holdfast.server.http.exchange import Exchange
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.turns.watch import Watch
from holdfast.wire.headers import IGNORED_PARAMS
from holdfast.wire.problems import Refused


def ignored_parameters(
    directory: Directory, ask: Ask, watch: Watch | None, left_alone: tuple[str, ...]
) -> dict[str, str]:
    """The header for the agent that plays the request's turn. If the request has begun none, because its answer is
    replayed, or its message was steered into another turn, the header is for the agent that the request names.

    `left_alone` are parts of the request that every agent ignores.
    """
    ignored = watch.admission.ignored if watch else None
    if ignored is None:
        ignored = _ignored_by_named(directory, ask)
    unheeded = (*ignored, *left_alone)
    return {IGNORED_PARAMS.name: ", ".join(unheeded)} if unheeded else {}


@contextmanager
def told_at_refusal(
    exchange: Exchange, directory: Directory, ask: Ask, left_alone: tuple[str, ...]
) -> Iterator[None]:
    """While the request's turn is begun: a refusal, too, says what the agent that the request names would ignore. A
    client learns of everything that is wrong with its request at once."""
    try:
        yield
    except (HoldfastError, Refused):
        exchange.about |= ignored_parameters(directory, ask, None, left_alone)
        raise


def _ignored_by_named(directory: Directory, ask: Ask) -> tuple[str, ...]:
    try:
        return directory.choose(ask).ignored if ask.given else ()
    except (AgentUnavailable, Refused):
        return ()  # another agent plays the turn
