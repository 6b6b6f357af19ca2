"""The methods of the protocol, the same for every binding and version.

A message is a request for a turn: its context names the conversation, its id is its idempotency key. So a turn goes on
when its client disconnects, is resumed after a crash, and a message that is sent again gets the same task.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from holdfast import limits
from holdfast.core.items import Items
from holdfast.errors import InvalidValue, KeyReused
from holdfast.ids import SessionId, SessionKey
from holdfast.server.a2a.cards import Cards
from holdfast.server.a2a.task_lists import TaskLists
from holdfast.server.a2a.task_turns import FoundTask, TaskTurns
from holdfast.server.http.routing import HttpCall
from holdfast.server.problems import problem_of
from holdfast.server.turns.answer_delivery import AnswerDelivery
from holdfast.server.turns.answers import conversation_headers, said_before
from holdfast.server.turns.turn_requests import TurnSettings
from holdfast.sessions.session_requests import Ask, OnBusy
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.turns.watch import Watch
from holdfast.store.outcomes import Attempt
from holdfast.wire.a2a.forms import Form
from holdfast.wire.a2a.messages import check_message, hash_of, incoming_of, key_of, note_of
from holdfast.wire.a2a.objects import A2AMessage, ListParams, SendParams, TaskParams, TaskState
from holdfast.wire.a2a.requests import Method, check_length, check_version, unsupported_push
from holdfast.wire.a2a.tasks import EventWriter, TaskHead, TaskStream, task_object
from holdfast.wire.headers import A2A_VERSION, CONVERSATION_ID, read_naming
from holdfast.wire.problems import Refused, bad_request
from holdfast.wire.sse import HEARTBEAT

ANSWERED: frozenset[TaskState] = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED"})
"""The states in which a turn has an answer."""


class TaskCall(Struct, frozen=True):
    """One request, as its binding has read it."""

    http: HttpCall
    agent: str
    """The agent that its address names."""
    method: Method
    form: Form
    params: object
    writer: EventWriter
    media_type: str = "application/json"

    async def say(self, result: object) -> None:
        """Answer with a result."""
        body = self.writer.encoded(result)
        await self.http.exchange.answer(200, body, media_type=self.media_type)


class TaskMethods:
    """The methods. One instance serves every request."""

    def __init__(self, sessions: Sessions, settings: TurnSettings, cards: Cards) -> None:
        self._sessions = sessions
        self._settings = settings
        self._cards = cards
        self._turns = TaskTurns(sessions)
        self._lists = TaskLists(sessions.store, self._turns)

    async def serve(self, call: TaskCall) -> None:
        """Answer a request. Raises Refused, and errors of the sessions."""
        exchange = call.http.exchange
        said = exchange.headers.get(A2A_VERSION.name) or call.http.query.get(A2A_VERSION.title, "")
        check_version(said, call.form)
        match call.method:
            case "send" | "stream":
                await self._send(call, call.form.params(SendParams, call.params))
            case "get":
                await self._get(call, call.form.params(TaskParams, call.params))
            case "list":
                asked = call.form.params(ListParams, call.params)
                await call.say(await self._lists.page(call.http.caller, call.agent, asked))
            case "cancel":
                await self._cancel(call, call.form.params(TaskParams, call.params))
            case "subscribe":
                await self._subscribe(call, call.form.params(TaskParams, call.params))
            case "card":
                await call.say(await self._cards.extended(call.http, call.agent))
            case "push":
                raise unsupported_push()

    # ── messages ──

    async def _send(self, call: TaskCall, asked: SendParams) -> None:
        http, options = call.http, asked.configuration
        check_message(asked.message)
        check_length(options.history_length)
        if options.task_push_notification_config is not msgspec.UNSET:
            raise unsupported_push()
        http.occupy("turns")
        if call.method == "stream":
            http.occupy("streams")
        ask, context_id = await self._ask(call, asked)
        with http.exchange.while_present():
            watch = await self._submit(ask, asked.message)
        naming = read_naming(http.exchange.headers, names=())
        named = msgspec.structs.replace(naming, name=ask.name)
        http.exchange.about |= conversation_headers(named, watch)
        before: Items = ()
        if watch.admission.continues is not None:
            before = await said_before(self._sessions.store, http.tenant, watch)
        context_id = context_id or str(watch.admission.session_id)
        answering = _Answering(self._sessions, self._turns, call, watch, asked, context_id, before)
        if call.method == "send" and options.return_immediately:
            await answering.begun()
            return
        async with watch:
            await (answering.stream() if call.method == "stream" else answering.answer())

    async def _submit(self, ask: Ask, message: A2AMessage) -> Watch:
        try:
            return await self._sessions.submit(ask)
        except KeyReused as error:
            problem = msgspec.structs.replace(
                problem_of(error),
                message=f"messageId {message.message_id[:100]!r} was used for a different message in this context; "
                "repeat that message as it was, or take a new id",
                param="message.messageId",
            )
            raise Refused(problem) from error

    async def _ask(self, call: TaskCall, asked: SendParams) -> tuple[Ask, str]:
        """The request for a turn, and its context; empty if it names none. Raises Refused."""
        http, message = call.http, asked.message
        naming = read_naming(http.exchange.headers, names=())
        attempt = Attempt(
            request_hash=hash_of(message, agent=call.agent),
            key=key_of(message, sender=http.caller.key_id or ""),
            client_attempt=naming.client_attempt,
        )
        name, context_id = _context(message), message.context_id
        on_busy: OnBusy = naming.on_busy
        if message.task_id:
            found = await self._task_named(call, message, attempt)
            name, context_id = found.last.row.session_id, found.head.context_id
            on_busy = "steer"
        background = asked.configuration.return_immediately and call.method == "send"
        background_s = limits.background_deadline_s if background else 0.0
        ask = Ask(
            tenant=http.tenant,
            name=name,
            messages=(incoming_of(message),),
            agent=call.agent,
            policies=(self._settings.policy,),
            policy=naming.policy,
            on_busy=on_busy,
            if_match=naming.if_match,
            create=naming.create,
            attempt=attempt,
            background=background,
            queues=background,
            deadline_s=max(self._settings.deadline_s, background_s),
            expire_after_s=self._settings.expire_after_s,
            note=note_of(message, agent=call.agent, key=http.caller.key_id or ""),
        )
        return ask, context_id

    async def _task_named(self, call: TaskCall, message: A2AMessage, attempt: Attempt) -> FoundTask:
        """The task that a message names. If its turn is played now, the message reaches the agent at its next step. Raises
        Refused if the task takes none any more, unless the same message was taken before."""
        found = await self._turns.find(call.http.tenant, message.task_id)
        session_id = found.last.row.session_id
        if message.context_id not in ("", found.head.context_id, str(session_id)):
            raise bad_request(
                "invalid_value",
                f"the task belongs to the context {found.head.context_id!r}",
                param="message.contextId",
            )
        if found.end is not None:
            known = await self._sessions.store.find_attempt(call.http.tenant, attempt)
            if known is None:
                raise _takes_no_message(found)
        return found

    # ── tasks ──

    async def _get(self, call: TaskCall, asked: TaskParams) -> None:
        check_length(asked.history_length)
        found = await self._turns.find(call.http.tenant, asked.id)
        await call.say(call.form.task(_shown(found, asked.history_length)))

    async def _cancel(self, call: TaskCall, asked: TaskParams) -> None:
        http = call.http
        found = await self._turns.find(http.tenant, asked.id)
        if found.end is not None:
            what = "waits for a person" if not found.is_over else "has ended"
            raise bad_request("task_not_cancelable", f"the task {what}: {found.state}")
        turn_id = found.last.row.turn_id
        http.exchange.audit = "turn.cancel", str(turn_id)
        by = http.caller.key_id or "a client without a key"
        await self._sessions.operations.cancel(http.tenant, turn_id, by=by)
        found = await self._turns.find(http.tenant, asked.id)
        await call.say(call.form.task(_shown(found, None)))

    async def _subscribe(self, call: TaskCall, asked: TaskParams) -> None:
        """Stream a task from its beginning: a client that has seen some of it replaces that, piece by piece."""
        http, exchange = call.http, call.http.exchange
        http.occupy("watchers")
        found = await self._turns.find(http.tenant, asked.id)
        if found.is_over:
            raise bad_request(
                "operation_unsupported", f"the task has ended: {found.state}; get it instead"
            )
        if found.end is not None:
            await exchange.start_stream()
            await exchange.write(call.writer.frame(_shown(found, None)))
            await exchange.finish()
            return
        watch = await self._sessions.watch(http.tenant, found.last.row.turn_id)
        begun = found.state == "TASK_STATE_WORKING"
        stream = TaskStream(found.head, call.writer, begun=begun, before=found.before)
        await exchange.start_stream()
        with exchange.while_present():
            await exchange.write(stream.first())
            async with aclosing(watch.batches(quiet_s=limits.heartbeat_s)) as batches:
                async for records in batches:
                    frames = b"".join(map(stream.frames, records))
                    if frames or not records:
                        await exchange.write(frames or HEARTBEAT)
            end, blobs = await self._turns.watched_end(http.tenant, watch, found.before)
        await exchange.write(stream.end(end, blobs))
        await exchange.finish()


class _Answering:
    """Answers one message whose turn has begun, or was found by an earlier attempt."""

    def __init__(
        self,
        sessions: Sessions,
        turns: TaskTurns,
        call: TaskCall,
        watch: Watch,
        asked: SendParams,
        context_id: str,
        before: Items,
    ) -> None:
        admission = watch.admission
        self._turns = turns
        self._call = call
        self._watch = watch
        self._before = before
        self._history_length = asked.configuration.history_length
        self._delivery = AnswerDelivery(sessions, call.http, watch, stored=True)
        task_id = str(admission.turn_id)
        message = msgspec.structs.replace(asked.message, task_id=task_id, context_id=context_id)
        self._head = TaskHead(
            task_id=task_id,
            context_id=context_id,
            created_ms=admission.turn_id.minted_at_ms,
            history=(message,),
        )

    async def begun(self) -> None:
        """Answer with the task as it stands. It is durable, and goes on without a client."""
        admission = self._watch.admission
        if admission.how in ("began", "queued"):
            state: TaskState = "TASK_STATE_SUBMITTED"
            task = task_object(self._head, state, history_length=self._history_length)
        else:
            found = await self._turns.find(self._call.http.tenant, admission.turn_id)
            task = _shown(found, self._history_length)
        await self._call.say(self._call.form.event(task))

    async def answer(self) -> None:
        """Answer with the task at its end."""
        with self._call.http.exchange.while_present():
            end, blobs = await self._turns.watched_end(
                self._call.http.tenant, self._watch, self._before
            )
        task = task_object(self._head, end, blobs=blobs, history_length=self._history_length)
        body = self._call.writer.encoded(self._call.form.event(task))
        answered = end.state in ANSWERED
        await self._delivery.answer(body, media_type=self._call.media_type, answered=answered)

    async def stream(self) -> None:
        """Answer with the task, its artifacts as they grow, and its end."""
        stream = TaskStream(
            self._head,
            self._call.writer,
            begun=self._watch.admission.how != "queued",
            before=self._before,
            history_length=self._history_length,
        )
        await self._delivery.begin(stream)
        await self._delivery.show(stream)
        with self._call.http.exchange.while_present():
            end, blobs = await self._turns.watched_end(
                self._call.http.tenant, self._watch, self._before
            )
        await self._delivery.end(stream, stream.end(end, blobs), answered=end.state in ANSWERED)


def _shown(found: FoundTask, history_length: int | None) -> Any:
    return task_object(
        found.head, found.end or found.state, blobs=found.blobs, history_length=history_length
    )


def _context(message: A2AMessage) -> SessionKey | SessionId | None:
    """The conversation that a message names: its context is a name within the tenant. Raises Refused."""
    if not message.context_id:
        return None
    try:
        return CONVERSATION_ID.parse(message.context_id)
    except InvalidValue as error:
        raise bad_request(
            CONVERSATION_ID.code, f"contextId: {error}", param="message.contextId"
        ) from error


def _takes_no_message(found: FoundTask) -> Refused:
    if found.is_over:
        return bad_request(
            "operation_unsupported",
            f"the task has ended: {found.state}; send the message in its context, without the task's id",
            param="message.taskId",
        )
    turn_id = found.last.row.turn_id
    return bad_request(
        "operation_unsupported",
        "the task waits for a person, and another agent cannot decide: a person does, in the console or by "
        f"`holdfast approvals decide {turn_id}`. A message in its context, without the task's id, refuses the calls "
        "that wait",
        param="message.taskId",
    )
