"""`POST /v1/responses`: a turn, as clients of the Responses API ask for it.

The sessions are the same as in every API: `conversation` and `X-Conversation-Id` name one. A request that names none
starts an anonymous line, which `previous_response_id` continues. That id names a version, not a line: the request
extends an anonymous line if the version is its head and no other turn runs, and forks otherwise, so two children of one
Response never wait for each other. A conversation that has a name advances only by requests that name it.
"""

from __future__ import annotations

import time

import msgspec
from msgspec import Struct

from holdfast import limits
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import Items, TurnLimits
from holdfast.errors import (
    ApprovalUndecided,
    HoldfastError,
    SessionBusy,
    SessionConflict,
    SessionGone,
    TurnRejected,
)
from holdfast.ids import ResponseId, SessionId, Tenant
from holdfast.server.access.seals import Seals
from holdfast.server.agents.directory import Directory
from holdfast.server.http.parameters import ABOUT_TURN, TURN
from holdfast.server.http.routing import AnswerDescription, BodyDescription, HttpCall, Route
from holdfast.server.openai.item_references import ItemReferences
from holdfast.server.openai.response_turns import ResponseOutcome, ResponseTurns, response_end
from holdfast.server.openapi import error_codes as errors
from holdfast.server.problems import problem_of
from holdfast.server.turns.answer_delivery import AnswerDelivery
from holdfast.server.turns.answers import conversation_headers, is_answered, said_before
from holdfast.server.turns.chat_approvals import ChatApprovals, RepeatedQuestion, tell_where
from holdfast.server.turns.ignored_parameters import ignored_parameters, told_at_refusal
from holdfast.server.turns.request_names import history_of, naming_of
from holdfast.server.turns.turn_requests import TurnSettings, ask_of
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.stateless_turns import LooseConversation
from holdfast.sessions.turns.watch import Watch
from holdfast.wire.headers import (
    CONVERSATION_ID,
    CONVERSATION_VERSION,
    IDEMPOTENCY_KEY,
    ConversationHeaders,
)
from holdfast.wire.openai import answer_types as openai
from holdfast.wire.openai.request_types import ResponsesBody
from holdfast.wire.openai.responses.answer import (
    ResponseEnd,
    ResponseHead,
    Status,
    note_of,
    response_object,
    whole_response,
)
from holdfast.wire.openai.responses.request import (
    ResponsesAsk,
    read_responses_request,
    unknown_previous,
)
from holdfast.wire.openai.responses.stream import ResponseStream
from holdfast.wire.problems import Refused, bad_request
from holdfast.wire.seal import Seal


class Responses:
    """The endpoint. One instance serves every request."""

    def __init__(
        self,
        sessions: Sessions,
        directory: Directory,
        seals: Seals,
        approvals: ChatApprovals,
        settings: TurnSettings,
    ) -> None:
        self._sessions = sessions
        self._directory = directory
        self.seals = seals
        self._approvals = approvals
        self._settings = settings
        self._turns = ResponseTurns(sessions)

    @Route(
        "POST /v1/responses",
        "chat",
        "createResponse",
        AnswerDescription("The response.", openai.ResponseObject, headers=ABOUT_TURN),
        AnswerDescription(
            "Its events, with `stream: true`; `data: [DONE]` comes last.",
            events=openai.RESPONSE_EVENTS,
            done=True,
            headers=ABOUT_TURN,
        ),
        body=BodyDescription(ResponsesBody, {"model": "root", "input": "Where is Oslo?"}),
        parameters=TURN,
        codes=(*errors.CONTEXT, *errors.TURN, *errors.ASKING, "background_queue_full"),
        passes_codes_on=True,
        body_bytes_max=limits.body_bytes_max,
        load="turns",
    )
    async def create(self, call: HttpCall) -> None:
        """Ask an agent for a response."""
        seal = await self.seals.asked_in(call.tenant, call.body)
        await self.answer(call, read_responses_request(call.body, seal=seal))

    async def answer(
        self, call: HttpCall, asked: ResponsesAsk, loose: LooseConversation | None = None
    ) -> ResponseAnswer | None:
        """Answer a request that was parsed already; it continues the `loose` conversation, if one is given. None if the
        turn has no answer, after the client was sent the problem, or if the turn runs in the background."""
        exchange = call.exchange
        if asked.stream:
            call.occupy("streams")
        naming = await self._naming(call, asked)
        if naming.name is not None:
            exchange.about[CONVERSATION_ID.name] = str(naming.name)
        asked = _with_echo(asked, naming, exchange.headers.get("user-agent", ""))
        if not asked.store and loose is None and asked.previous is not None:
            loose = await self._loosened(call.tenant, asked.previous)
        seal = await self.seals.asked_in(call.tenant, call.body)
        messages = await self._messages(call, asked, naming, loose)
        ask = self._ask(call, asked, naming, messages)
        if not asked.store and loose is None:
            loose = LooseConversation(Snapshot(session_id=self._sessions.mint(SessionId)))
        try:
            told = told_at_refusal(exchange, self._directory, ask, asked.left_alone)
            with told, exchange.while_present():
                watch = await self._submit(ask, asked, loose)
        except ApprovalUndecided as undecided:
            return await self._ask_again(
                call, asked, await self._approvals.again(call.tenant, undecided)
            )
        self._approvals.audit(call, watch.admission)
        if asked.store:
            naming = msgspec.structs.replace(naming, name=watch.admission.session_id)
        exchange.about |= conversation_headers(naming, watch)
        exchange.about |= ignored_parameters(self._directory, ask, watch, asked.left_alone)
        before: Items = ()
        if watch.admission.continues is not None:
            before = await said_before(self._sessions.store, call.tenant, watch)
        answering = _Answering(
            self._sessions,
            call,
            watch,
            asked,
            seal,
            before,
            known_again=_is_known_again(ask, asked, watch),
        )
        if asked.background and not asked.stream:
            await self._queued(
                call, answering, watch
            )  # this request does not wait for the turn's end
            return None
        async with watch:
            ended = await (answering.stream() if asked.stream else answering.answer())
        if not is_answered(ended.ending):
            return None
        return ResponseAnswer(watch.admission.turn_id.response_id, _grown(watch, loose))

    async def _ask_again(
        self, call: HttpCall, asked: ResponsesAsk, again: RepeatedQuestion
    ) -> ResponseAnswer:
        """Answer a message that decided nothing with the question, as the Response that asked it first: the client
        continues that one."""
        exchange = call.exchange
        response_id = again.turn_id.response_id
        created_s = response_id.minted_at_ms // 1000
        head = ResponseHead(
            response_id=response_id,
            session_id=again.session_id,
            created_s=created_s,
            echo=asked.echo,
        )
        end = ResponseEnd(
            status="completed",
            items=again.calls,
            completed_s=created_s,
            version=again.version,
            again=again.text,
        )
        tell_where(exchange, again)
        if asked.stream:
            await exchange.start_stream()
            stream = ResponseStream(head)
            last = stream.first() + stream.end(end)
        else:
            last = msgspec.json.encode(whole_response(head, end))
            await exchange.start_answer(200, len(last))
        await self._approvals.hand_over(call, again, last)
        return ResponseAnswer(response_id, None)

    async def prepare(self, call: HttpCall, asked: ResponsesAsk) -> ResponseId:
        """Check a request and answer with a Response without output; no model is asked."""
        naming = await self._naming(call, asked)
        ask = self._ask(call, asked, naming, ())
        if naming.name is None and asked.previous is None:
            self._directory.choose(ask)
        call.exchange.about |= ignored_parameters(self._directory, ask, None, asked.left_alone)
        response_id = self._sessions.mint(ResponseId)
        created_s = response_id.minted_at_ms // 1000
        head = ResponseHead(
            response_id=response_id, session_id=None, created_s=created_s, echo=asked.echo
        )
        stream = ResponseStream(head)
        last = stream.end(ResponseEnd(status="completed", completed_s=created_s))
        await call.exchange.start_stream()
        await call.exchange.write(stream.first() + last)
        await call.exchange.finish()
        return response_id

    # ── the turn ──

    async def _naming(self, call: HttpCall, asked: ResponsesAsk) -> ConversationHeaders:
        """The conversation that the request names. Its key and its id together are one name."""
        naming = naming_of(call, self._settings.names)
        if naming.name is not None and asked.conversation is not None:
            named: SessionId | None
            if isinstance(naming.name, SessionId):
                named = naming.name
            else:
                row = await self._sessions.store.resolve(call.tenant, naming.name)
                named = row.session_id if row else None
            if named == asked.conversation:
                asked = msgspec.structs.replace(asked, conversation=None)
        return _named(naming, asked)

    async def _messages(
        self,
        call: HttpCall,
        asked: ResponsesAsk,
        naming: ConversationHeaders,
        loose: LooseConversation | None,
    ) -> tuple[Incoming, ...]:
        """The input, with items in place of references."""
        references = ItemReferences(
            self._sessions,
            call.tenant,
            line=naming.name if isinstance(naming.name, SessionId) else None,
            previous=asked.previous,
            held=loose.snapshot if loose else None,
        )
        return await references.resolved(asked.input)

    async def _loosened(self, tenant: Tenant, previous: ResponseId) -> LooseConversation:
        """A loose copy of the conversation that ends with a Response, to continue it without storing anything."""
        kept = await self._turns.look(tenant, previous)
        if kept is None or kept.row.seq is None:
            raise unknown_previous(previous)
        snapshot = await self._sessions.snapshot(tenant, kept.row.session_id, kept.row.seq)
        if snapshot is None:
            raise unknown_previous(previous)
        return LooseConversation(snapshot.forked(self._sessions.mint(SessionId)))

    def _ask(
        self,
        call: HttpCall,
        asked: ResponsesAsk,
        naming: ConversationHeaders,
        messages: tuple[Incoming, ...],
    ) -> Ask:
        key = self._chat_key(call, asked, naming)
        ask = ask_of(call, naming, asked, messages, self._settings, chat_key=key)
        background_s = limits.background_deadline_s if asked.background else 0.0
        return msgspec.structs.replace(
            ask,
            limits=TurnLimits(calls_max=asked.calls_max),
            background=asked.background,
            queues=asked.background,
            deadline_s=max(ask.deadline_s, background_s),
            system_is_stored=True,
            note=note_of(asked.echo) if asked.store else None,
            history=history_of(naming, streamed=asked.stream),
        )

    def _chat_key(
        self, call: HttpCall, asked: ResponsesAsk, naming: ConversationHeaders
    ) -> str | None:
        """The key that may decide in this chat. A request in the background is no message that a person types."""
        is_typed = asked.store and not asked.background
        return self._approvals.key_of(call, naming) if is_typed else None

    async def _submit(
        self, ask: Ask, asked: ResponsesAsk, loose: LooseConversation | None
    ) -> Watch:
        try:
            if not asked.store:
                return self._sessions.submit_stateless(ask, loose=loose)
            if asked.previous is not None:
                return await self._continue(ask, asked.previous)
            return await self._sessions.submit(ask)
        except TurnRejected as error:
            problem = msgspec.structs.replace(problem_of(error), param="input")
            raise Refused(problem) from error

    async def _continue(self, ask: Ask, previous: ResponseId) -> Watch:
        """Continue a Response: in its own line if it is the last one there, else in a fork."""
        kept = await self._turns.look(ask.tenant, previous)
        if kept is None or kept.row.seq is None:
            raise unknown_previous(previous)
        parent, version = kept.row.session_id, kept.row.seq
        row = await self._sessions.store.session(ask.tenant, parent)
        if row is not None and row.anonymous:
            in_place = msgspec.structs.replace(
                ask, name=parent, if_match=version, on_busy="reject", expire_after_s=None
            )
            try:
                return await self._sessions.submit(in_place)
            except (SessionBusy, SessionConflict):
                pass  # another request continues this Response, or has done so
        again = await self._sessions.submit_again(ask)
        if again is not None:
            return again
        try:
            fork = await self._sessions.operations.fork(ask.tenant, parent, version, anonymous=True)
        except SessionGone as error:
            raise unknown_previous(previous) from error
        try:
            return await self._sessions.submit(msgspec.structs.replace(ask, name=fork.id))
        except HoldfastError:
            await self._sessions.operations.delete(ask.tenant, fork.id)
            raise

    async def _queued(self, call: HttpCall, answering: _Answering, watch: Watch) -> None:
        """Answer with the state of a background turn. It is durable, and will be played to its end."""
        if watch.admission.how in ("began", "queued"):
            await answering.say_state("queued")
            return
        kept = await self._turns.find(call.tenant, watch.admission.turn_id.response_id)
        await answering.say_state(kept.status if kept.row.ended_by is None else None)


class ResponseAnswer(Struct, frozen=True):
    """The id of an answered request's Response, and its conversation."""

    response_id: ResponseId
    loose: LooseConversation | None
    """The conversation after the answer, if it is not stored."""


class _Answering:
    """Answers one request whose turn has begun, or was found by an earlier attempt."""

    def __init__(
        self,
        sessions: Sessions,
        call: HttpCall,
        watch: Watch,
        asked: ResponsesAsk,
        seal: Seal | None,
        before: Items,
        *,
        known_again: bool,
    ) -> None:
        """`before` has the items of the turns that this one continues, `known_again` says whether a retry would be
        recognised."""
        turn_id = watch.admission.turn_id
        self._store = sessions.store
        self._call = call
        self._exchange = call.exchange
        self._watch = watch
        self._stored = asked.store
        self._before = before
        self._known_again = known_again
        self._showing = AnswerDelivery(sessions, call, watch, stored=asked.store)
        self._head = ResponseHead(
            response_id=turn_id.response_id,
            session_id=watch.admission.session_id if asked.store else None,
            created_s=turn_id.minted_at_ms // 1000,
            echo=asked.echo,
            seal=seal,
        )

    async def answer(self) -> ResponseOutcome:
        """Answer with one object."""
        ended = await self._ended()
        if not is_answered(ended.ending):
            await self._exchange.refuse(ended.problem)
            return ended
        if self._stored and ended.ending.version is not None:
            self._exchange.about[CONVERSATION_VERSION.name] = str(int(ended.ending.version))
        await self._showing.answer(msgspec.json.encode(whole_response(self._head, ended.response)))
        return ended

    async def stream(self) -> ResponseOutcome:
        """Answer with a stream. A failure is a status if nothing was sent by then, and the last frames otherwise."""
        exchange, stream = self._exchange, ResponseStream(self._head, before=self._before)
        exchange.failure_frames = stream.failed
        await self._showing.show(stream)
        ended = await self._ended()
        answered = is_answered(ended.ending)
        if not answered and exchange.state == "reading":
            await exchange.refuse(ended.problem)
        else:
            await self._showing.end(stream, stream.end(ended.response), answered=answered)
        return ended

    async def say_state(self, status: Status | None) -> None:
        """Answer with this status, or with the whole Response if `status` is None: then the turn has ended."""
        if status is None:
            body = whole_response(self._head, (await self._ended()).response)
        else:
            body = response_object(self._head, status, None, [])
        await self._exchange.answer(200, msgspec.json.encode(body))

    async def _ended(self) -> ResponseOutcome:
        with self._exchange.while_present():
            return await response_end(
                self._store,
                self._call.tenant,
                self._watch,
                stored=self._stored,
                now_s=int(time.time()),
                before=self._before,
                known_again=self._known_again,
            )


def _is_known_again(ask: Ask, asked: ResponsesAsk, watch: Watch) -> bool:
    """Whether a retry of this request would be recognised: not if it starts an anonymous line."""
    if ask.attempt.key is not None:
        return True
    named = ask.name is not None or asked.previous is not None
    return named and watch.admission.how != "steered"


# ── names ────────────────────────────────────────────────────────────────────────────────────


def _named(naming: ConversationHeaders, asked: ResponsesAsk) -> ConversationHeaders:
    """The headers, with the conversation that the request names. Raises Refused if header and body both name one, or if
    the request names one and says `store: false`."""
    if naming.implied and (asked.conversation or asked.previous or not asked.store):
        naming = msgspec.structs.replace(naming, name=None, history="append")
    ways = {
        "conversation": asked.conversation,
        "previous_response_id": asked.previous,
        CONVERSATION_ID.title: naming.name,
    }
    used = [name for name, value in ways.items() if value is not None]
    if len(used) > 1:
        raise bad_request(
            "invalid_request",
            f"{' and '.join(used)} cannot be used together, because each of them names a conversation; "
            f"send {' or '.join(used)} alone",
            param=used[0],
        )
    if not asked.store:
        needing = [each for each in used if each != "previous_response_id"]
        for given in (*needing, *([IDEMPOTENCY_KEY.title] if naming.idempotency_key else [])):
            raise bad_request(
                "invalid_value",
                f"store: false stores nothing, and {given} needs a stored conversation; "
                "leave one of them out",
                param="store",
            )
    return msgspec.structs.replace(naming, name=asked.conversation or naming.name)


def _with_echo(asked: ResponsesAsk, naming: ConversationHeaders, user_agent: str) -> ResponsesAsk:
    """The request with what its headers add to the echo."""
    echo = msgspec.structs.replace(
        asked.echo,
        named=naming.name is not None,
        show_tools=asked.echo.show_tools or naming.answer.show_tools,
        asks_in_words=naming.answer.asks_in_words,
        asks_in_items=asked.declares_mcp or not user_agent.startswith(_STRICT_CLIENTS),
    )
    return msgspec.structs.replace(asked, echo=echo)


_STRICT_CLIENTS = "Agents/"
"""User agents that fail on a request for approval from an MCP server that they have not declared: OpenAI's Agents SDK."""


def _grown(watch: Watch, before: LooseConversation | None) -> LooseConversation | None:
    """The loose conversation after its turn; None if the conversation is stored."""
    live = watch.live
    if before is None or live is None or live.after is None:
        return None
    return LooseConversation(live.after, before.blobs)
