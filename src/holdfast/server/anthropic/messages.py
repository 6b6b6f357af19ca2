"""`POST /v1/messages`: a turn, as any client of Anthropic's API asks for it; and `/v1/messages/count_tokens`."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast import limits
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.reconciliation import Fresh, take_in
from holdfast.ids import SessionId
from holdfast.server.http.parameters import ABOUT_TURN, TURN, Parameter
from holdfast.server.http.routing import AnswerDescription, BodyDescription, HttpCall, Route
from holdfast.server.openapi import error_codes as errors
from holdfast.server.turns.conversation_turns import ConversationTurns
from holdfast.server.turns.token_counts import CountedContext, TokenCounts
from holdfast.sessions.sessions import Sessions
from holdfast.wire.anthropic.door.answer import MessageObject, MessagesEvent, MessagesForm
from holdfast.wire.anthropic.door.problems import ANTHROPIC_PROBLEMS, MessagesErrorAnswer
from holdfast.wire.anthropic.door.request import read_messages_request, same_request, unheeded_betas
from holdfast.wire.anthropic.door.request_types import CountedBody, MessagesBody, MessageTokens
from holdfast.wire.headers import ANTHROPIC_BETA, TOKEN_COUNT
from holdfast.wire.turn_answers import AnswerHead

_ASKED = [{"role": "user", "content": "Where is Oslo?"}]


class MessagesEndpoint:
    """The endpoints. One instance serves every request."""

    def __init__(self, turns: ConversationTurns, sessions: Sessions, counters: TokenCounts) -> None:
        self._turns = turns
        self._sessions = sessions
        self._counters = counters

    @Route(
        "POST /v1/messages",
        "chat",
        "createMessage",
        AnswerDescription("What the agent says.", MessageObject, headers=ABOUT_TURN),
        AnswerDescription(
            "The same as a stream, with `stream: true`; `message_stop` is its last event if it succeeds.",
            events=(MessagesEvent, MessagesErrorAnswer),
            headers=ABOUT_TURN,
        ),
        body=BodyDescription(
            MessagesBody, {"model": "root", "max_tokens": 1024, "messages": _ASKED}
        ),
        parameters=(*TURN, Parameter("beta", "Changes nothing here.", Literal["true"])),
        codes=(*errors.TURN, *errors.ASKING, "answer_restarted"),
        passes_codes_on=True,
        body_bytes_max=limits.body_bytes_max,
        load="turns",
        problems=ANTHROPIC_PROBLEMS,
    )
    async def create(self, call: HttpCall) -> None:
        """Say something to an agent, in a conversation if one is named."""
        naming = self._turns.naming_of(call)
        asked = read_messages_request(call.body)
        betas = unheeded_betas(
            call.exchange.headers.get(ANTHROPIC_BETA.name, ""), call.query.get("beta", "")
        )
        asked = msgspec.structs.replace(asked, left_alone=(*asked.left_alone, *betas))

        def form_of(head: AnswerHead) -> MessagesForm:
            return MessagesForm(head, shows_thoughts=asked.shows_thoughts)

        same = msgspec.structs.replace(call, body=same_request(call.body))
        await self._turns.answer(same, naming, asked, asked.messages, form_of)

    @Route(
        "POST /v1/messages/count_tokens",
        "chat",
        "countMessageTokens",
        AnswerDescription("The count, or an estimate.", MessageTokens, headers=(TOKEN_COUNT.name,)),
        body=BodyDescription(CountedBody, {"model": "root", "messages": _ASKED}),
        codes=("invalid_content", "invalid_tool", "no_new_user_message", "unsupported_parameter"),
        body_bytes_max=limits.body_bytes_max,
        load="turns",
        problems=ANTHROPIC_PROBLEMS,
    )
    async def count(self, call: HttpCall) -> None:
        """How large these messages are, by the model's provider or as an estimate.

        `X-Token-Count` says which. A conversation that is named does not count.
        """
        asked = read_messages_request(call.body, is_counted=True)
        snapshot = Snapshot(session_id=self._sessions.mint(SessionId))
        said = tuple(each for each in asked.messages if each.role != "system")
        taken = take_in(snapshot, said, self._sessions.mint)
        context = CountedContext(
            model=asked.model,
            instructions="\n\n".join(asked.instructions),
            tools=asked.client_tools,
            tools_bytes=asked.tools_bytes,
        )
        items = taken.input if isinstance(taken, Fresh) else ()
        tokens = await self._counters.measure(call, context, snapshot, items)
        await call.exchange.answer(200, msgspec.json.encode(MessageTokens(input_tokens=tokens)))
