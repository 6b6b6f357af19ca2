"""The endpoints under `/a2a/{agent}`: JSON-RPC at the agent's own address, and REST below it.

REST has the paths of version 1.0 below the address itself, and those of 0.3 below `v1/`.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from holdfast import limits
from holdfast.server.a2a.methods import TaskCall, TaskMethods
from holdfast.server.http.parameters import ABOUT_TURN, TURN, Flag, Parameter
from holdfast.server.http.routing import AnswerDescription, BodyDescription, HttpCall, Route
from holdfast.server.openapi import error_codes as errors
from holdfast.wire.a2a.cards import AgentCard
from holdfast.wire.a2a.forms import VERSION_0_3_REST, VERSION_1
from holdfast.wire.a2a.objects import (
    A2ATask,
    OldSendParams,
    SendParams,
    StreamEvent,
    TaskPage,
    TaskState,
)
from holdfast.wire.a2a.problems import (
    REST_PROBLEMS,
    REST_PROBLEMS_0_3,
    RPC_PROBLEMS,
    A2AAnswer,
    RestError,
    rpc_problems,
)
from holdfast.wire.a2a.requests import Method, RpcBody, read_call, read_envelope, read_json
from holdfast.wire.a2a.tasks import EventWriter

A2A_JSON = "application/a2a+json"
_MESSAGE = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Where is Oslo?"}]}
_TASK = AnswerDescription("The task.", A2ATask, media_type=A2A_JSON)
_OLD_TASK = AnswerDescription("The task, in the form of version 0.3.", dict[str, msgspec.Raw])
_EVENTS = AnswerDescription(
    "The task, its artifacts as they grow, and its last status.",
    events=(StreamEvent, RestError),
    headers=ABOUT_TURN,
)
_OLD_EVENTS = AnswerDescription(
    "The same in the form of version 0.3.", events=(dict[str, msgspec.Raw],), headers=ABOUT_TURN
)
_SENT = (
    *errors.TURN,
    *errors.ASKING,
    "background_queue_full",
    "operation_unsupported",
    "protocol_version_unsupported",
    "push_notifications_unsupported",
    "task_not_found",
)
_SENDING = BodyDescription(SendParams, {"message": _MESSAGE})
_OLD_SENDING = BodyDescription(
    OldSendParams,
    {"message": {"messageId": "1", "role": "ROLE_USER", "content": [{"text": "Where is Oslo?"}]}},
)
_SUBSCRIBE = "/tasks/{id}:subscribe"
_PUSH = "/tasks/{id}/pushNotificationConfigs"


def _rest(
    verb: str,
    path: str,
    name: str = "",
    answer: AnswerDescription | None = None,
    *,
    codes: tuple[str, ...] = (),
    parameters: tuple[Parameter, ...] = (),
) -> Route:
    """A route of the REST binding: the paths of version 0.3 begin with `/v1/`."""
    return Route(
        f"{verb} /a2a/{{agent}}{path}",
        "chat",
        name,
        answer,
        parameters=parameters,
        codes=codes,
        problems=REST_PROBLEMS_0_3 if path.startswith("/v1/") else REST_PROBLEMS,
    )


def _sent(path: str, name: str, answer: AnswerDescription, *, body: BodyDescription) -> Route:
    """A route that takes a message."""
    return replace(
        _rest("POST", path, name, answer, codes=_SENT, parameters=TURN),
        body=body,
        passes_codes_on=True,
        body_bytes_max=limits.body_bytes_max,
    )


def _about_task(
    verb: str,
    path: str,
    name: str,
    answer: AnswerDescription,
    *codes: str,
    parameters: tuple[Parameter, ...] = (),
) -> Route:
    """A route about one task."""
    known = ("protocol_version_unsupported", "task_not_found", *codes)
    return _rest(verb, path, name, answer, codes=known, parameters=parameters)


class A2AEndpoints:
    """The endpoints. One instance serves every request."""

    def __init__(self, methods: TaskMethods) -> None:
        self._methods = methods

    @Route(
        "POST /a2a/{agent}",
        "chat",
        "callAgentProtocol",
        AnswerDescription("The result, or an error.", A2AAnswer, headers=ABOUT_TURN),
        AnswerDescription(
            "The results of a method that streams.", events=(A2AAnswer,), headers=ABOUT_TURN
        ),
        body=BodyDescription(
            RpcBody,
            {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": _MESSAGE}},
        ),
        parameters=TURN,
        codes=(*_SENT, "invalid_cursor", "task_not_cancelable", "unknown_method"),
        body_bytes_max=limits.body_bytes_max,
        problems=RPC_PROBLEMS,
    )
    async def rpc(self, call: HttpCall) -> None:
        """A method of the A2A protocol, versions 1.0 and 0.3, over JSON-RPC.

        An error of a request that could be read is an answer, with status 200. See [agents for other agents](../guides/a2a.md).
        """
        envelope = read_envelope(call.body)
        call.exchange.answer_problems_in(rpc_problems(envelope.id, envelope.version))
        asked = read_call(envelope)
        await self._methods.serve(
            TaskCall(
                http=call,
                agent=call.names[0],
                method=asked.method,
                form=asked.form,
                params=asked.params,
                writer=EventWriter(asked.form, rpc=True, request_id=envelope.id),
            )
        )

    # ── messages ──

    @_sent(
        "/message:send",
        "sendMessage",
        AnswerDescription("The task.", StreamEvent, media_type=A2A_JSON, headers=ABOUT_TURN),
        body=_SENDING,
    )
    @_sent("/v1/message:send", "sendMessageLegacy", _OLD_TASK, body=_OLD_SENDING)
    async def send(self, call: HttpCall) -> None:
        """Send a message to an agent, and get the task at its end."""
        await self._serve(call, "send", read_json(call.body))

    @_sent("/message:stream", "streamMessage", _EVENTS, body=_SENDING)
    @_sent("/v1/message:stream", "streamMessageLegacy", _OLD_EVENTS, body=_OLD_SENDING)
    async def stream(self, call: HttpCall) -> None:
        """Send a message to an agent, and watch its task."""
        await self._serve(call, "stream", read_json(call.body))

    # ── tasks ──

    @_rest(
        "GET",
        "/tasks",
        "listTasks",
        AnswerDescription("A page of tasks, the newest first.", TaskPage, media_type=A2A_JSON),
        parameters=(
            Parameter("contextId", "Only tasks of this context."),
            Parameter("status", "Only tasks in this state.", TaskState),
            Parameter("pageSize", "How many at most.", int),
            Parameter("pageToken", "Continue where a page ended."),
            Parameter("historyLength", "How many messages of each, at most.", int),
            Parameter("statusTimestampAfter", "Only tasks that came into their state later."),
            Parameter("includeArtifacts", "With their artifacts.", Flag),
        ),
        codes=("invalid_cursor", "invalid_conversation_key", "protocol_version_unsupported"),
    )
    async def list(self, call: HttpCall) -> None:
        """The tasks that were sent to an agent.

        A key with the scope `read` sees the tenant's; any other key sees those that it has sent.
        """
        await self._serve(call, "list", dict(call.query))

    @_about_task(
        "GET",
        "/tasks/{id}",
        "getTask",
        _TASK,
        parameters=(Parameter("historyLength", "How many messages, at most.", int),),
    )
    @_about_task("GET", "/v1/tasks/{id}", "getTaskLegacy", _OLD_TASK)
    async def get(self, call: HttpCall) -> None:
        """A task as it stands."""
        length = call.query.get("historyLength")
        params = {"id": call.names[1], **({"historyLength": length} if length else {})}
        await self._serve(call, "get", params)

    @_about_task("POST", "/tasks/{id}:cancel", "cancelTask", _TASK, "task_not_cancelable")
    @_about_task(
        "POST", "/v1/tasks/{id}:cancel", "cancelTaskLegacy", _OLD_TASK, "task_not_cancelable"
    )
    async def cancel(self, call: HttpCall) -> None:
        """Stop a task."""
        await self._serve(call, "cancel", {"id": call.names[1]})

    @_about_task("POST", _SUBSCRIBE, "subscribeToTask", _EVENTS, "operation_unsupported")
    @_about_task("GET", _SUBSCRIBE, "watchTask", _EVENTS, "operation_unsupported")
    @_about_task(
        "POST", f"/v1{_SUBSCRIBE}", "subscribeToTaskLegacy", _OLD_EVENTS, "operation_unsupported"
    )
    @_about_task("GET", f"/v1{_SUBSCRIBE}", "watchTaskLegacy", _OLD_EVENTS, "operation_unsupported")
    async def subscribe(self, call: HttpCall) -> None:
        """A running task from its beginning to its end."""
        await self._serve(call, "subscribe", {"id": call.names[1]})

    # ── the rest ──

    @_rest(
        "GET",
        "/extendedAgentCard",
        "readExtendedCard",
        AnswerDescription("The card.", AgentCard, media_type=A2A_JSON),
        codes=("protocol_version_unsupported",),
    )
    @_rest(
        "GET",
        "/v1/card",
        "readExtendedCardLegacy",
        AnswerDescription("The card.", AgentCard),
        codes=("protocol_version_unsupported",),
    )
    async def card(self, call: HttpCall) -> None:
        """The card of an agent that the caller may use, published or not."""
        await self._serve(call, "card", {})

    @_rest("GET", _PUSH)
    @_rest("POST", _PUSH)
    @_rest("GET", f"{_PUSH}/{{config}}")
    @_rest("DELETE", f"{_PUSH}/{{config}}")
    @_rest("GET", f"/v1{_PUSH}")
    @_rest("POST", f"/v1{_PUSH}")
    @_rest("GET", f"/v1{_PUSH}/{{config}}")
    async def push(self, call: HttpCall) -> None:
        """Push notifications, which there are not."""
        await self._serve(call, "push", {})

    async def _serve(self, call: HttpCall, method: Method, params: object) -> None:
        """Answer a request of REST. The step after the agent tells the version."""
        old = call.exchange.raw_path.strip("/").split("/")[2] == "v1"
        form = VERSION_0_3_REST if old else VERSION_1
        await self._methods.serve(
            TaskCall(
                http=call,
                agent=call.names[0],
                method=method,
                form=form,
                params=params,
                writer=EventWriter(form, rpc=False),
                media_type="application/json" if old else A2A_JSON,
            )
        )
