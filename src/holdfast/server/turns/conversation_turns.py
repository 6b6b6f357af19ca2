"""Turns for requests whose answer is one message: from the parsed request to the end of its answer.

The turn runs in its own task; the request only watches it. Nothing that looks like success is sent before the
commit is durable. Every other outcome is sent as an error: a status if nothing was sent yet, and an error frame after
that. A stream that merely ended would look like success.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import Items
from holdfast.core.turns.events import Usage
from holdfast.errors import ApprovalUndecided
from holdfast.ids import TurnId
from holdfast.server.agents.directory import Directory
from holdfast.server.http.routing import HttpCall
from holdfast.server.turns.answer_delivery import AnswerDelivery
from holdfast.server.turns.answers import conversation_headers, end_of, said_before, set_aside_in
from holdfast.server.turns.chat_approvals import ChatApprovals, RepeatedQuestion, tell_where
from holdfast.server.turns.ignored_parameters import ignored_parameters, told_at_refusal
from holdfast.server.turns.request_names import history_of, naming_of
from holdfast.server.turns.turn_requests import TurnSettings, ask_of
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.turns.watch import Watch
from holdfast.wire.body_parser import TurnBody
from holdfast.wire.headers import CONVERSATION_ID, CONVERSATION_VERSION, ConversationHeaders
from holdfast.wire.problems import Problem
from holdfast.wire.turn_answers import AnswerEnd, AnswerForm, AnswerHead, AskedAgain

FormOf: TypeAlias = Callable[[AnswerHead], AnswerForm]
"""Makes the form of an answer from its head."""


class ConversationTurns:
    """Answers requests with turns, in a conversation if one is named."""

    def __init__(
        self,
        sessions: Sessions,
        directory: Directory,
        approvals: ChatApprovals,
        settings: TurnSettings,
    ) -> None:
        self._sessions = sessions
        self._directory = directory
        self._approvals = approvals
        self._settings = settings

    def naming_of(self, call: HttpCall) -> ConversationHeaders:
        """The headers of a request, with the name of its conversation, which its answer repeats. Raises Refused."""
        naming = naming_of(call, self._settings.names)
        if naming.name is not None:
            call.exchange.about[CONVERSATION_ID.name] = str(naming.name)
        return naming

    async def answer(
        self,
        call: HttpCall,
        naming: ConversationHeaders,
        asked: TurnBody,
        messages: tuple[Incoming, ...],
        form_of: FormOf,
    ) -> None:
        """Begin a turn for a request, or find the one that it has begun before, and answer with it."""
        exchange = call.exchange
        if asked.stream:
            call.occupy("streams")
        ask = self._ask(call, naming, asked, messages)
        try:
            told = told_at_refusal(exchange, self._directory, ask, asked.left_alone)
            with told, exchange.while_present():
                watch = await self._submit(ask)
        except ApprovalUndecided as undecided:
            again = await self._approvals.again(call.tenant, undecided)
            await self._ask_again(call, asked, again, form_of)
            return
        self._approvals.audit(call, watch.admission)
        exchange.about |= conversation_headers(naming, watch)
        exchange.about |= ignored_parameters(self._directory, ask, watch, asked.left_alone)
        before: Items = ()
        if watch.admission.continues is not None:
            before = await said_before(self._sessions.store, call.tenant, watch)
        form = form_of(_head(asked, naming, watch))
        answering = _Answering(self._sessions, call, watch, naming, form, before)
        async with watch:
            if asked.stream:
                await answering.stream()
            else:
                await answering.answer()

    async def _ask_again(
        self, call: HttpCall, asked: TurnBody, again: RepeatedQuestion, form_of: FormOf
    ) -> None:
        """Answer a message that decided nothing with the question. It has an id of its own: clients would take an
        answer with the id of an earlier one for the same."""
        exchange = call.exchange
        fresh = self._sessions.mint(TurnId)
        form = form_of(
            AnswerHead(turn_id=fresh, created_s=fresh.minted_at_ms // 1000, model=asked.model)
        )
        end = AnswerEnd(
            items=again.calls,
            usage=Usage(),
            version=again.version,
            limited=False,
            again=AskedAgain(turn_id=again.turn_id, text=again.text),
        )
        tell_where(exchange, again)
        if asked.stream:
            await exchange.start_stream()
            stream = form.stream()
            last = stream.first() + stream.end(end)
        else:
            last = form.whole(end)
            await exchange.start_answer(200, len(last))
        await self._approvals.hand_over(call, again, last)

    async def _submit(self, ask: Ask) -> Watch:
        if ask.name is not None or ask.attempt.key is not None:
            return await self._sessions.submit(ask)
        return self._sessions.submit_stateless(ask)

    def _ask(
        self,
        call: HttpCall,
        naming: ConversationHeaders,
        asked: TurnBody,
        messages: tuple[Incoming, ...],
    ) -> Ask:
        key = self._approvals.key_of(call, naming) if naming.name is not None else None
        ask = ask_of(call, naming, asked, messages, self._settings, chat_key=key)
        return msgspec.structs.replace(ask, history=history_of(naming, streamed=asked.stream))


class _Answering:
    """Answers one request whose turn has begun, or was found by an earlier attempt."""

    def __init__(
        self,
        sessions: Sessions,
        call: HttpCall,
        watch: Watch,
        naming: ConversationHeaders,
        form: AnswerForm,
        before: Items,
    ) -> None:
        self._store = sessions.store
        self._exchange = call.exchange
        self._tenant = call.tenant
        self._watch = watch
        self._stored = naming.name is not None or naming.idempotency_key is not None
        self._known_again = naming.idempotency_key is not None or watch.admission.how != "steered"
        self._before = before
        self._form = form
        self._showing = AnswerDelivery(
            sessions, call, watch, stored=self._stored, heartbeat=form.heartbeat
        )

    async def answer(self) -> None:
        """Answer with one object."""
        end = await self._end()
        if isinstance(end, Problem):
            await self._exchange.refuse(end)
            return
        if end.version is not None:
            self._exchange.about[CONVERSATION_VERSION.name] = str(int(end.version))
        await self._showing.answer(self._form.whole(end))

    async def stream(self) -> None:
        """Answer with a stream. A failure is a status if nothing was sent by then, and the last frame otherwise."""
        exchange = self._exchange
        set_aside = await set_aside_in(self._store, self._tenant, self._watch)
        stream = self._form.stream(set_aside=set_aside, before=self._before)
        await self._showing.show(stream)
        end = await self._end()
        if isinstance(end, AnswerEnd) and stream.took_back:
            end = _RESTARTED
        if isinstance(end, Problem):
            await (exchange.refuse if exchange.state == "reading" else exchange.fail)(end)
            return
        await self._showing.end(stream, stream.end(end))

    async def _end(self) -> AnswerEnd | Problem:
        with self._exchange.while_present():
            return await end_of(
                self._store,
                self._tenant,
                self._watch,
                stored=self._stored,
                before=self._before,
                known_again=self._known_again,
            )


_RESTARTED = Problem(
    status=503,
    code="answer_restarted",
    message="the server was restarted while it answered; the turn is complete, and what was shown of it "
    "before is not: repeat the request under its idempotency key, or read the conversation",
    kind="server_error",
)


def _head(asked: TurnBody, naming: ConversationHeaders, watch: Watch) -> AnswerHead:
    turn_id = watch.admission.turn_id
    return AnswerHead(
        turn_id=turn_id,
        created_s=turn_id.minted_at_ms // 1000,
        model=asked.model,
        client_tools=frozenset(each.name for each in asked.client_tools),
        options=naming.answer,
    )
