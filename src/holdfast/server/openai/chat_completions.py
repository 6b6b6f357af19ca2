"""`POST /v1/chat/completions`: a turn, as any OpenAI client asks for it."""

from __future__ import annotations

import msgspec

from holdfast import limits
from holdfast.server.http.parameters import ABOUT_TURN, TURN
from holdfast.server.http.routing import AnswerDescription, BodyDescription, HttpCall, Route
from holdfast.server.openapi import error_codes as errors
from holdfast.server.turns.conversation_turns import ConversationTurns
from holdfast.wire.openai import answer_types as openai
from holdfast.wire.openai.chat.answer import ChatForm
from holdfast.wire.openai.chat.request import read_chat_request
from holdfast.wire.openai.request_types import ChatBody
from holdfast.wire.problems import ErrorAnswer
from holdfast.wire.turn_answers import AnswerHead


class ChatCompletions:
    """The endpoint. One instance serves every request."""

    def __init__(self, turns: ConversationTurns) -> None:
        self._turns = turns

    @Route(
        "POST /v1/chat/completions",
        "chat",
        "createChatCompletion",
        AnswerDescription("What the agent says.", openai.ChatCompletion, headers=ABOUT_TURN),
        AnswerDescription(
            "The same as a stream, with `stream: true`; `data: [DONE]` is its last event if it succeeds.",
            events=(openai.ChatChunk, ErrorAnswer),
            done=True,
            headers=ABOUT_TURN,
        ),
        body=BodyDescription(
            ChatBody, {"model": "root", "messages": [{"role": "user", "content": "Where is Oslo?"}]}
        ),
        parameters=TURN,
        codes=(*errors.TURN, *errors.ASKING, "answer_restarted"),
        passes_codes_on=True,
        body_bytes_max=limits.body_bytes_max,
        load="turns",
    )
    async def serve(self, call: HttpCall) -> None:
        """Say something to an agent, in a conversation if one is named."""
        naming = self._turns.naming_of(call)
        asked = read_chat_request(call.body)

        def form_of(head: AnswerHead) -> ChatForm:
            return ChatForm(msgspec.structs.replace(head, include_usage=asked.include_usage))

        await self._turns.answer(call, naming, asked, asked.messages, form_of)
