"""The context that a model would see: `POST /v1/responses/input_tokens` counts it, `/v1/responses/compact` sums it up.

Neither stores anything. A count is the provider's if it offers one, else an estimate; the answer says which.
"""

from __future__ import annotations

import msgspec

from holdfast import limits
from holdfast.core.history.conversation import Snapshot, seen_by_model, seen_by_people
from holdfast.core.history.reconciliation import Fresh, NothingNew, take_in
from holdfast.core.items import Item, SystemMessage, UserMessage
from holdfast.ids import ResponseId, SessionId
from holdfast.server.access.seals import Seals
from holdfast.server.api.compaction import CompactionApi
from holdfast.server.http.routing import AnswerDescription, BodyDescription, HttpCall, Route
from holdfast.server.openai.item_references import ItemReferences
from holdfast.server.openai.response_turns import ResponseTurns
from holdfast.server.openapi import error_codes as errors
from holdfast.server.turns.inline_blobs import inlined
from holdfast.server.turns.token_counts import CountedContext, TokenCounts
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.wire.headers import TOKEN_COUNT
from holdfast.wire.openai.answer_types import Compaction, TokenCount
from holdfast.wire.openai.conversations import unknown_conversation
from holdfast.wire.openai.request_types import CompactBody, ContextBody
from holdfast.wire.openai.responses.answer import usage_object
from holdfast.wire.openai.responses.items import item_object
from holdfast.wire.openai.responses.request import (
    ContextAsk,
    read_context_request,
    unknown_previous,
)
from holdfast.wire.problems import bad_request
from holdfast.wire.turn_answers import estimate_shown


class ModelContexts:
    """The endpoints. One instance serves every request."""

    def __init__(
        self, sessions: Sessions, compacting: CompactionApi, counters: TokenCounts, seals: Seals
    ) -> None:
        self._sessions = sessions
        self._seals = seals
        self._counters = counters
        self._compacting = compacting
        self._turns = ResponseTurns(sessions)

    @Route(
        "POST /v1/responses/compact",
        "chat",
        "compactContext",
        AnswerDescription("The summary, encrypted, to continue from.", Compaction),
        body=BodyDescription(CompactBody, {"model": "root", "input": "Oslo is in Norway."}),
        codes=(*errors.CONTEXT, *errors.ASKING, "agent_not_found", "nothing_to_compact"),
        passes_codes_on=True,
        body_bytes_max=limits.body_bytes_max,
        load="turns",
    )
    async def compact(self, call: HttpCall) -> None:
        """Sum a history up; nothing is stored.

        Instructions and the messages of the user are kept as they are.
        """
        seal = await self._seals.of(call.tenant)
        asked = read_context_request(call.body, needs_model=True, seal=seal)
        snapshot, brought = await self._context(call, asked)
        snapshot = msgspec.structs.replace(snapshot, items=snapshot.items.extended(brought))
        if not len(snapshot.items):
            raise bad_request("nothing_to_compact", "there is nothing to sum up", param="input")
        ask = Ask(tenant=call.tenant, name=None, agent=asked.model)
        writing = self._compacting.write(ask, snapshot, len(snapshot.items))
        made = await call.exchange.unless_gone(writing)
        response_id = self._sessions.mint(ResponseId)
        seen = seen_by_people(snapshot)
        told = (each for each in seen if isinstance(each, SystemMessage | UserMessage))
        said = {
            "id": str(response_id),
            "object": "response.compaction",
            "created_at": response_id.minted_at_ms // 1000,
            "output": [
                *(shown for each in told if (shown := item_object(each, None))),
                {
                    "id": f"cmp_{response_id.body}",
                    "type": "compaction",
                    "encrypted_content": seal.close("summary", made.text.encode()),
                },
            ],
            "usage": usage_object(made.usage),
            "holdfast": estimate_shown(made.usage),
        }
        body = msgspec.json.encode(said)
        await call.exchange.answer(
            200, await inlined(self._sessions.store, call.tenant, snapshot.session_id, body)
        )

    @Route(
        "POST /v1/responses/input_tokens",
        "chat",
        "countInputTokens",
        AnswerDescription("The count, or an estimate.", TokenCount, headers=(TOKEN_COUNT.name,)),
        body=BodyDescription(ContextBody, {"model": "root", "input": "Where is Oslo?"}),
        codes=errors.CONTEXT,
        body_bytes_max=limits.body_bytes_max,
        load="turns",
    )
    async def input_tokens(self, call: HttpCall) -> None:
        """How large a request would be, by its model's provider or as an estimate.

        `X-Token-Count` says which.
        """
        seal = await self._seals.asked_in(call.tenant, call.body)
        asked = read_context_request(call.body, needs_model=False, seal=seal)
        snapshot, brought = await self._context(call, asked)
        items = [*seen_by_model(snapshot), *brought]
        context = CountedContext(
            model=asked.model,
            instructions=asked.instructions,
            tools=asked.tools,
            tools_bytes=asked.tools_bytes,
        )
        tokens = await self._counters.measure(call, context, snapshot, items)
        said = {"object": "response.input_tokens", "input_tokens": tokens}
        await call.exchange.answer(200, msgspec.json.encode(said))

    async def _context(
        self, call: HttpCall, asked: ContextAsk
    ) -> tuple[Snapshot, tuple[Item, ...]]:
        """The history that the request names, and the items that it adds."""
        snapshot = await self._snapshot(call, asked)
        references = ItemReferences(
            self._sessions, call.tenant, line=asked.conversation, previous=asked.previous
        )
        taken = take_in(snapshot, await references.resolved(asked.input), self._sessions.mint)
        if not isinstance(taken, Fresh | NothingNew):
            raise bad_request(
                "unknown_tool_call", "calls and their results do not fit together", param="input"
            )
        return snapshot, taken.input if isinstance(taken, Fresh) else ()

    async def _snapshot(self, call: HttpCall, asked: ContextAsk) -> Snapshot:
        if asked.previous is not None:
            kept = await self._turns.look(call.tenant, asked.previous)
            found = None
            if kept is not None and kept.row.seq is not None:
                row = kept.row
                found = await self._sessions.snapshot(call.tenant, row.session_id, row.seq)
            if found is None:
                raise unknown_previous(asked.previous)
            return found
        if asked.conversation is not None:
            found = await self._sessions.snapshot(call.tenant, asked.conversation)
            if found is None:
                raise unknown_conversation(asked.conversation)
            return found
        return Snapshot(session_id=self._sessions.mint(SessionId))
