"""Token counts by a model's provider. Nothing is stored, and no model answers."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast.core.history.conversation import Snapshot
from holdfast.core.items import Item
from holdfast.core.turns.events import TurnRequest
from holdfast.errors import AgentUnavailable, TurnFailed
from holdfast.ids import Tenant, TurnId
from holdfast.models.model import Dialect, Prompt, TokenCounter, counter_of
from holdfast.server.agents.directory import Directory
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.wire.openai.responses.request import ContextAsk

log = logging.getLogger("holdfast.server")


class TokenCounts:
    """Asks the providers of agents' models to count, if they can."""

    def __init__(self, sessions: Sessions, directory: Directory) -> None:
        self._sessions = sessions
        self._directory = directory

    async def count(
        self, tenant: Tenant, asked: ContextAsk, snapshot: Snapshot, items: Sequence[Item]
    ) -> int | None:
        """How many tokens these items and the rest of the request are; None if an estimate must do.

        The provider of the model that would answer is asked. There is no count if the agent cannot be found, if its
        provider offers none or fails, or if the agent has tools of its own: a turn would show them to the model, but
        they are not listed here.
        """
        if asked.tools is None:
            return None
        try:
            choice = self._directory.choose(
                Ask(tenant=tenant, name=None, agent=asked.model), snapshot
            )
        except AgentUnavailable:
            return None
        request = TurnRequest(
            turn_id=self._sessions.mint(TurnId),
            source_key=choice.source_key,
            source_digest=choice.source_digest,
            agent=choice.agent,
        )
        try:
            with self._directory.team_for(request) as team:
                agent = team.agents[choice.agent or team.entry]
                counter = counter_of(agent.model)
                if counter is None or agent.toolsets:
                    return None
                system = "\n\n".join(filter(None, (agent.instruction, asked.instructions)))
                return await self._ask(counter, tenant, asked, system, snapshot, items)
        except TurnFailed as failure:
            log.warning("%s: its provider did not count: %s", choice.agent, failure)
            return None

    async def _ask(
        self,
        counter: TokenCounter,
        tenant: Tenant,
        asked: ContextAsk,
        system: str,
        snapshot: Snapshot,
        items: Sequence[Item],
    ) -> int | None:
        dialect = counter.count_dialect
        assert dialect is not None and asked.tools is not None
        messages = await self._messages(dialect, tenant, snapshot, items)
        if not messages:
            return None
        return await counter.count(Prompt(system=system, messages=(messages,), tools=asked.tools))

    async def _messages(
        self, dialect: Dialect, tenant: Tenant, snapshot: Snapshot, items: Sequence[Item]
    ) -> bytes:
        """The items as the provider takes them; empty if the bytes of a blob are missing."""
        messages, blobs = dialect.encode(items), dict[str, bytes]()
        for digest in sorted(dialect.blobs_in(messages)):
            data = await self._sessions.store.blob(tenant, snapshot.session_id, digest)
            if data is None:
                return b""
            blobs[digest] = data
        return dialect.with_blobs(messages, blobs) if blobs else messages
