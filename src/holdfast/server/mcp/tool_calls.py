"""`tools/call`: a call of an agent, from its request to the result, the question or the task that answers it."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import UNSET, UnsetType

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import Text
from holdfast.core.turns.events import Parameters
from holdfast.errors import HoldfastError, InvalidValue, StoreFault
from holdfast.ids import IdempotencyKey, TurnId
from holdfast.server.agents.directory import Directory
from holdfast.server.http.exchange import ClientGone
from holdfast.server.http.routing import HttpCall
from holdfast.server.mcp.tool_turns import FailedTurn, ToolTurns, joined, note_of, turn_in
from holdfast.server.problems import problem_of
from holdfast.server.turns.answer_delivery import AnswerDelivery
from holdfast.server.turns.answers import conversation_headers
from holdfast.server.turns.attempts import attempt_of
from holdfast.server.turns.request_names import naming_of
from holdfast.server.turns.turn_requests import TurnSettings, ask_of
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.turns.watch import Watch
from holdfast.version import VERSION
from holdfast.wire.body_parser import TurnBody
from holdfast.wire.headers import CONVERSATION_ID, IDEMPOTENCY_KEY, ConversationHeaders
from holdfast.wire.json_rpc import INVALID_PARAMS, RpcId
from holdfast.wire.mcp.elicitation import METHOD, form_name, form_of
from holdfast.wire.mcp.messages import McpFault, McpRequest, request_frame, result_of
from holdfast.wire.mcp.progress import ProgressNotices
from holdfast.wire.mcp.results import ToolAnswer, answer_result, completed, problem_result
from holdfast.wire.mcp.revisions import McpClient
from holdfast.wire.mcp.tasks import TurnTask, created, with_task
from holdfast.wire.mcp.tools import ToolRequest, read_tool_request, tool_names, words_of
from holdfast.wire.problems import Refused, bad_request
from holdfast.wire.sse import HEARTBEAT, data_frame


class BegunCall(Value):
    """A call whose turn has begun, or was found by an earlier attempt."""

    name: str | None
    """What the client called the conversation."""
    is_keyed: bool
    known_again: bool
    """Whether a retry of the call would be recognised."""


class ToolCalls:
    """The method. One instance serves every request."""

    def __init__(
        self,
        sessions: Sessions,
        directory: Directory,
        turns: ToolTurns,
        settings: TurnSettings,
    ) -> None:
        self._sessions = sessions
        self._directory = directory
        self._turns = turns
        self._settings = settings

    async def serve(
        self, call: HttpCall, request: McpRequest, client: McpClient, *, address: str
    ) -> None:
        """Answer a call. Raises McpFault; any other failure of the agent is a result. `address` is where
        the request comes from."""
        asked = read_tool_request(request, client)
        agents = tool_names(each.id for each in self._directory.entries(call.tenant))
        agent = agents.get(asked.name)
        if agent is None:
            raise McpFault(INVALID_PARAMS, f"there is no tool {asked.name[:100]!r}")
        told = ToldResult(call, request.id, client)
        try:
            call.occupy("turns")
            begun = await self._begun(call, request, client, asked, agent, address)
            if not isinstance(begun, tuple):
                await told.whole(begun)
                return
            watch, how = begun
            await self._answer(call, asked, client, told, watch, how)
        except (Refused, HoldfastError) as error:
            if isinstance(error, StoreFault):
                raise
            problem = error.problem if isinstance(error, Refused) else problem_of(error)
            if problem.status >= 500:
                raise  # a fault of the server, and no answer of a tool
            await told.end(problem_result(problem))

    # ── the turn ──

    async def _begun(
        self,
        call: HttpCall,
        request: McpRequest,
        client: McpClient,
        asked: ToolRequest,
        agent: str,
        address: str,
    ) -> tuple[Watch, BegunCall] | dict[str, object]:
        """The turn of a call, or the result that asks its client again."""
        if asked.state is not None:
            return await self._decided(call, asked, address)
        naming = self._named(call, asked)
        ask = self._ask(call, request, client, asked, agent, naming)
        with call.exchange.while_present():
            watch = await self._sessions.submit(ask)
        call.exchange.about |= conversation_headers(naming, watch)
        named, keyed = naming.name is not None, ask.attempt.key is not None
        known = keyed or (named and watch.admission.how != "steered")
        name = str(naming.name) if named else None
        return watch, BegunCall(name=name, is_keyed=keyed, known_again=known)

    async def _decided(
        self, call: HttpCall, asked: ToolRequest, address: str
    ) -> tuple[Watch, BegunCall] | dict[str, object]:
        """The turn that carries out what the client's user has decided about an earlier answer."""
        turn_id = turn_in(asked.state or "")
        earlier = None if turn_id is None else await self._turns.asked(call.tenant, turn_id)
        if earlier is None or earlier.question is None:
            raise McpFault(INVALID_PARAMS, "requestState is not of this server, or was changed")
        reply = asked.answers.get(form_name(earlier.question))
        if reply is None:
            return _question(earlier)
        watch = await self._turns.decide(call, earlier, reply, client=address)
        return watch, BegunCall(name=earlier.conversation, is_keyed=True, known_again=True)

    def _named(self, call: HttpCall, asked: ToolRequest) -> ConversationHeaders:
        """How the call names its conversation: by its argument, a header or the URL."""
        naming = naming_of(call, self._settings.names)
        words = words_of(asked, is_named=naming.name is not None)
        if words.conversation is not None:
            if naming.name not in (None, words.conversation):
                raise bad_request(
                    CONVERSATION_ID.code,
                    f"this connection is for the conversation {str(naming.name)!r}; leave the argument out",
                    param="conversation",
                )
            naming = msgspec.structs.replace(
                naming, name=CONVERSATION_ID.value_of(words.conversation)
            )
        return msgspec.structs.replace(
            naming, history="append", idempotency_key=_key_of(asked, naming)
        )

    def _ask(
        self,
        call: HttpCall,
        request: McpRequest,
        client: McpClient,
        asked: ToolRequest,
        agent: str,
        naming: ConversationHeaders,
    ) -> Ask:
        words = words_of(asked, is_named=naming.name is not None)
        body = TurnBody(
            model=agent,
            instructions=(),
            parameters=Parameters(),
            client_tools=(),
            stream=False,
        )
        said = Incoming(role="user", content=(Text(text=words.message),))
        ask = ask_of(call, naming, body, (said,), self._settings)
        is_task = client.has_tasks or asked.wants_task
        background_s = limits.background_deadline_s if is_task else 0.0
        # In place of the body, whose ids and tokens differ between a request and its retry.
        content = asked.name.encode() + b"\0" + asked.arguments
        return msgspec.structs.replace(
            ask,
            attempt=attempt_of(msgspec.structs.replace(call, body=content), naming),
            background=is_task,
            queues=is_task,
            deadline_s=max(ask.deadline_s, background_s),
            note=note_of(call, client.session, request.id),
        )

    # ── the answer ──

    async def _answer(
        self,
        call: HttpCall,
        asked: ToolRequest,
        client: McpClient,
        told: ToldResult,
        watch: Watch,
        how: BegunCall,
    ) -> None:
        async with watch:
            if asked.wants_task or (
                client.has_tasks and not await self._ends_soon(call, watch, how)
            ):
                await told.whole(created(client, task_of(watch.admission.turn_id)))
                return
            await self.follow(call, client, told, watch, how, asked.meta.progress_token)

    async def _ends_soon(self, call: HttpCall, watch: Watch, how: BegunCall) -> bool:
        """Whether the turn ends before its client is better served with a task.

        A client that leaves meanwhile knows no task to come back for: its turn is cancelled, unless it has a key."""
        try:
            with call.exchange.while_present():
                async with asyncio.timeout(limits.mcp_task_after_s):
                    await watch.ended()
        except TimeoutError:
            return False
        except ClientGone:
            if not how.is_keyed:
                await self._sessions.operations.cancel(call.tenant, watch.admission.turn_id)
            raise
        return True

    async def follow(
        self,
        call: HttpCall,
        client: McpClient,
        told: ToldResult,
        watch: Watch,
        how: BegunCall,
        token: RpcId | UnsetType = UNSET,
    ) -> None:
        """Tell how far the turn is, ask the client's user what has to be asked, and end with the result."""
        notices = ProgressNotices(token)
        before: ToolAnswer | None = None
        while True:
            await told.show(AnswerDelivery(self._sessions, call, watch, stored=True), notices)
            with call.exchange.while_present():
                outcome = await self._turns.outcome(
                    call.tenant, watch, name=how.name, known_again=how.known_again
                )
            if isinstance(outcome, FailedTurn):
                await told.end(problem_result(outcome.problem, turn_id=outcome.turn_id))
                return
            answer = outcome if before is None else joined(before, outcome)
            if answer.question is None or not client.elicits:
                await told.end(answer_result(answer), answered=True)
                return
            if client.is_current:
                await told.end(_question(answer), answered=True)
                return
            following = await self._decision(call, told, answer)
            if following is None:
                await told.end(answer_result(answer), answered=True)
                return
            before, watch = answer, await self._sessions.watch(call.tenant, following)

    async def _decision(
        self, call: HttpCall, told: ToldResult, answer: ToolAnswer
    ) -> TurnId | None:
        """Ask the user of a client before 2026-07-28, and wait for the turn that the decision begins, on whichever
        node. None if there is none in time, or if something else was said meanwhile."""
        assert answer.question is not None
        form = form_of(answer.question)
        with call.exchange.while_present():
            await told.write(request_frame(str(answer.turn_id), METHOD, form))
            loop = asyncio.get_running_loop()
            until_s, beat_s = loop.time() + limits.mcp_elicitation_s, loop.time()
            while loop.time() < until_s:
                found = await self._turns.look(call.tenant, answer)
                if found != "open":
                    return found if isinstance(found, TurnId) else None
                await self._sessions.lease.wait_for_others()
                if loop.time() - beat_s >= limits.heartbeat_s:
                    beat_s = loop.time()
                    await told.write(HEARTBEAT)
        return None


class ToldResult:
    """The result of one request: one object, or the last event of a stream if one has begun."""

    def __init__(
        self, call: HttpCall, request_id: RpcId, client: McpClient, *, task: str | None = None
    ) -> None:
        """`task` is the task that the result belongs to, if the request asks for that."""
        self._task = task
        self._exchange = call.exchange
        self._id = request_id
        self._client = client
        self._delivery: AnswerDelivery | None = None
        self._notices = ProgressNotices(UNSET)

    async def show(self, delivery: AnswerDelivery, notices: ProgressNotices) -> None:
        """Tell how far the turn is, until it has ended."""
        self._delivery, self._notices = delivery, notices
        await delivery.show(notices)

    async def write(self, frame: bytes) -> None:
        """Write a frame; a stream begins if none has."""
        if self._exchange.state == "reading":
            await self._exchange.start_stream()
        await self._exchange.write(frame)

    async def whole(self, result: dict[str, object]) -> None:
        """Answer with one object, which is not the end of the turn."""
        await self._exchange.answer(200, self._body(result))

    async def end(self, result: dict[str, object], *, answered: bool = False) -> None:
        """Answer with this result; with `answered` it is noted that the client has it."""
        body, delivery = self._body(result), self._delivery
        if self._exchange.state != "reading":
            assert delivery is not None, "only a turn's events begin a stream"
            await delivery.end(self._notices, data_frame(body), answered=answered)
        elif answered and delivery is not None:
            await delivery.answer(body)
        else:
            await self._exchange.answer(200, body)

    def _body(self, result: dict[str, object]) -> bytes:
        if self._task is not None:
            result = with_task(result, self._task)
        return result_of(self._id, completed(self._client, result, version=VERSION))


def task_of(turn_id: TurnId) -> TurnTask:
    """The task of a turn that has just begun."""
    return TurnTask(turn_id=turn_id, status="working", updated_ms=turn_id.minted_at_ms)


def _question(answer: ToolAnswer) -> dict[str, object]:
    """The answer that asks a client's user, who decides by sending the call again."""
    assert answer.question is not None
    form = {"method": METHOD, "params": form_of(answer.question)}
    return {
        "resultType": "input_required",
        "inputRequests": {form_name(answer.question): form},
        "requestState": str(answer.turn_id),
    }


def _key_of(asked: ToolRequest, naming: ConversationHeaders) -> IdempotencyKey | None:
    """The key of a call: from its `_meta`, else from the header that every request may have."""
    key = asked.meta.idempotency_key
    if isinstance(key, UnsetType):
        return naming.idempotency_key
    try:
        return IdempotencyKey(key)
    except InvalidValue as error:
        raise bad_request(IDEMPOTENCY_KEY.code, f"_meta: {error}", param="_meta") from error
