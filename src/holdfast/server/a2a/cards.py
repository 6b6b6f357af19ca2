"""Agent cards: the public ones of the agents that the operator publishes, and the extended ones for keys.

Without a key, an agent that is not published does not exist. With a key, a card tells of every agent that the key's
tenant may use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase

import msgspec

from holdfast.agents.registry import Listed
from holdfast.server.agents.directory import Directory, entry_of
from holdfast.server.http.origin_guard import OriginGuard
from holdfast.server.http.routing import AnswerDescription, HttpCall, Route
from holdfast.version import VERSION
from holdfast.wire.a2a.cards import AgentCard, CardSkill, CardSubject, card
from holdfast.wire.a2a.problems import REST_PROBLEMS
from holdfast.wire.problems import Refused, not_found

_CARD = AnswerDescription("A card, for clients of versions 1.0 and 0.3.", AgentCard)
_CODES = ("host_not_allowed", "invalid_host", "card_not_found", "storage_unavailable")


class Cards:
    """The endpoints that need no key, and the extended cards."""

    def __init__(
        self,
        directory: Directory,
        guard: OriginGuard,
        published: tuple[str, ...],
        needs_key: Callable[[], Awaitable[bool]],
    ) -> None:
        """`published` are patterns of model ids; `needs_key` tells whether the server needs API keys by now."""
        self._directory = directory
        self._guard = guard
        self._published = published
        self._needs_key = needs_key

    @Route(
        "GET /.well-known/agent-card.json",
        None,
        "readPublicCard",
        _CARD,
        codes=_CODES,
        problems=REST_PROBLEMS,
    )
    async def first(self, call: HttpCall) -> None:
        """The card of the first agent that the operator publishes, for other agents.

        See [agents for other agents](../guides/a2a.md).
        """
        listed = self._public()
        if not listed:
            raise _no_card()
        await self._say(call, listed[0], listed)

    @Route(
        "GET /a2a/{agent}/.well-known/agent-card.json",
        None,
        "readCard",
        _CARD,
        codes=_CODES,
        problems=REST_PROBLEMS,
    )
    async def one(self, call: HttpCall) -> None:
        """The card of an agent that the operator publishes."""
        listed = self._public()
        found = next((each for each in listed if each.id == call.names[0]), None)
        if found is None:
            raise _no_card()
        await self._say(call, found, listed)

    async def extended(self, call: HttpCall, agent: str) -> dict[str, object]:
        """The card of an agent that the caller may use. Raises AgentUnavailable."""
        entry = entry_of(self._directory, call.tenant, agent)
        return await self._made(call, entry, self._directory.entries(call.tenant))

    def _public(self) -> tuple[Listed, ...]:
        """The published agents, in the order of the setting."""
        listed = self._directory.entries()
        found = (
            each for pattern in self._published for each in listed if fnmatchcase(each.id, pattern)
        )
        return tuple({each.id: each for each in found}.values())

    async def _say(self, call: HttpCall, entry: Listed, listed: tuple[Listed, ...]) -> None:
        self._guard.check(call.exchange)  # the card repeats the host that the request names
        body = msgspec.json.encode(await self._made(call, entry, listed))
        await call.exchange.answer(200, body)

    async def _made(
        self, call: HttpCall, entry: Listed, listed: tuple[Listed, ...]
    ) -> dict[str, object]:
        return card(
            _subject(entry),
            tuple(each.id for each in listed),
            base=self._guard.base_url(call.exchange),
            version=VERSION,
            needs_key=await self._needs_key(),
        )


def _subject(entry: Listed) -> CardSubject:
    words = entry.description or entry.welcome_message or f"The agent {entry.agent}."
    own = CardSkill(id=entry.id, name=entry.agent, description=words)
    more = tuple(
        CardSkill(
            id=f"{entry.id}/{each.name}",
            name=each.name,
            description=each.description or each.instruction,
            examples=(each.instruction,) if each.instruction else (),
        )
        for each in entry.commands
        if not each.url
    )
    return CardSubject(id=entry.id, name=entry.agent, description=words, skills=(own, *more))


def _no_card() -> Refused:
    """The refusal for a card. It is the same whether the agent is not published or does not exist."""
    return not_found(
        "card_not_found",
        "no card is published here; with a key, an agent's extended card is at "
        "/a2a/AGENT/extendedAgentCard",
    )
