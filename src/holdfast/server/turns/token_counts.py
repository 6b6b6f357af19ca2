"""Token counts: by a model's provider if it offers them, else as an estimate. Nothing is stored, and no model answers."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast.core.codec import Value
from holdfast.core.history.conversation import Snapshot
from holdfast.core.items import Item
from holdfast.core.turns.estimates import BYTES_PER_TOKEN
from holdfast.core.turns.events import ToolDefinition, TurnRequest
from holdfast.errors import AgentUnavailable, TurnFailed
from holdfast.ids import Tenant, TurnId
from holdfast.models.model import Dialect, Prompt, TokenCounter, counter_of
from holdfast.server.agents.directory import Directory
from holdfast.server.http.routing import HttpCall
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.wire.headers import TOKEN_COUNT
from holdfast.wire.openai.chat.messages import ChatDialect

log = logging.getLogger("holdfast.server")


class CountedContext(Value):
    """What a model would see besides the messages."""

    model: str
    instructions: str = ""
    tools: tuple[ToolDefinition, ...] | None = ()
    """None if not all of them are the client's own: only other servers know the size of theirs."""
    tools_bytes: int = 0


class TokenCounts:
    """Asks the providers of agents' models to count, if they can."""

    def __init__(self, sessions: Sessions, directory: Directory) -> None:
        self._sessions = sessions
        self._directory = directory

    async def measure(
        self, call: HttpCall, asked: CountedContext, snapshot: Snapshot, items: Sequence[Item]
    ) -> int:
        """How many tokens these items and the rest of the request are; a header of the answer names the counter."""
        counting = self._count(call.tenant, asked, snapshot, items)
        tokens = await call.exchange.unless_gone(counting)
        call.exchange.about[TOKEN_COUNT.name] = "estimate" if tokens is None else "provider"
        return _estimate(asked, items) if tokens is None else tokens

    async def _count(
        self, tenant: Tenant, asked: CountedContext, snapshot: Snapshot, items: Sequence[Item]
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
        asked: CountedContext,
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


def _estimate(asked: CountedContext, items: Sequence[Item]) -> int:
    size = len(ChatDialect().encode(items)) + len(asked.instructions.encode())
    return round((size + asked.tools_bytes) / BYTES_PER_TOKEN)
