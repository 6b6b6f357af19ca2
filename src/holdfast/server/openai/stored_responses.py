"""Stored Responses: a client reads them, watches them again, cancels or deletes them."""

from __future__ import annotations

import re
import time
from contextlib import aclosing

import msgspec

from holdfast import limits
from holdfast.server.access.seals import Seals
from holdfast.server.http.parameters import PAGE, After, Flag, Parameter
from holdfast.server.http.routing import AnswerDescription, HttpCall, Route
from holdfast.server.openai.response_turns import (
    ResponseOutcome,
    ResponseTurns,
    StoredResponse,
    response_end,
)
from holdfast.server.turns.inline_blobs import inlined
from holdfast.sessions.operations import StillRunning
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.turns.watch import Watch
from holdfast.wire.headers import TURN_ID
from holdfast.wire.openai import answer_types as openai
from holdfast.wire.openai.pages import page_object, read_page
from holdfast.wire.openai.responses.answer import response_object, whole_response
from holdfast.wire.openai.responses.items import listed
from holdfast.wire.openai.responses.stream import ResponseStream
from holdfast.wire.problems import bad_request
from holdfast.wire.sse import HEARTBEAT


class StoredResponses:
    """The endpoints under `/v1/responses/{id}`."""

    def __init__(self, sessions: Sessions, seals: Seals) -> None:
        self._sessions = sessions
        self._seals = seals
        self._store = sessions.store
        self._turns = ResponseTurns(sessions)

    @Route(
        "GET /v1/responses/{response}",
        "chat",
        "retrieveResponse",
        AnswerDescription("The response.", openai.ResponseObject),
        AnswerDescription(
            "Its events from the beginning, with `stream=true`, until its end.",
            events=openai.RESPONSE_EVENTS,
            done=True,
            headers=(TURN_ID.name,),
        ),
        parameters=(
            Parameter("stream", "Answer with its events.", Flag),
            Parameter("starting_after", "Leave out the events up to this number.", After),
        ),
    )
    async def retrieve(self, call: HttpCall) -> None:
        """A response, whether it runs, is complete or has failed.

        With `?stream=true` its events.
        """
        kept = await self._find(call)
        query = call.query
        if query.get("stream") == "true":
            await self._replay(call, kept, _starting_after(query.get("starting_after")))
        else:
            await self._say(call, kept)

    @Route(
        "DELETE /v1/responses/{response}",
        "chat",
        "deleteResponse",
        AnswerDescription("The response is deleted.", openai.ResponseDeleted),
        audit="response.delete",
    )
    async def delete(self, call: HttpCall) -> None:
        """Delete a response; the history keeps its items."""
        kept = await self._turns.find(call.tenant, call.names[0])
        await self._turns.delete(call.tenant, kept)
        gone = {"id": str(kept.head.response_id), "object": "response", "deleted": True}
        await call.exchange.answer(200, msgspec.json.encode(gone))

    @Route(
        "POST /v1/responses/{response}/cancel",
        "chat",
        "cancelResponse",
        AnswerDescription("The response as it ended.", openai.ResponseObject),
        AnswerDescription("The response has not stopped yet.", openai.ResponseObject, 202),
        codes=("invalid_request",),
        audit="turn.cancel",
    )
    async def cancel(self, call: HttpCall) -> None:
        """Stop a response that runs in the background.

        Called again, or after the end, it answers with the response as it ended.
        """
        kept = await self._turns.find(call.tenant, call.names[0])
        if not kept.head.echo.background:
            raise bad_request(
                "invalid_request",
                "Cannot cancel a synchronous response. Close its connection, or cancel its turn "
                f"at /api/turns/{kept.row.turn_id}/cancel.",
            )
        by = call.caller.key_id or "a client without a key"
        outcome = await self._sessions.operations.cancel(call.tenant, kept.row.turn_id, by=by)
        kept = await self._find(call)
        await self._say(call, kept, status=202 if isinstance(outcome, StillRunning) else 200)

    @Route(
        "GET /v1/responses/{response}/input_items",
        "chat",
        "listInputItems",
        AnswerDescription("Some items.", openai.ItemList),
        parameters=PAGE,
    )
    async def input_items(self, call: HttpCall) -> None:
        """The items of a response's request."""
        ask = read_page(call.query)
        kept = await self._turns.find(call.tenant, call.names[0])
        page = page_object(listed(kept.input, kept.row.session_id), ask)
        body = msgspec.json.encode(page)
        await call.exchange.answer(
            200, await inlined(self._store, call.tenant, kept.row.session_id, body)
        )

    async def _find(self, call: HttpCall) -> StoredResponse:
        """The Response that a path names, with the seal if showing it needs one."""
        kept = await self._turns.find(call.tenant, call.names[0])
        if not kept.head.echo.seal_reasoning:
            return kept
        head = msgspec.structs.replace(kept.head, seal=await self._seals.of(call.tenant))
        return msgspec.structs.replace(kept, head=head)

    async def _say(self, call: HttpCall, kept: StoredResponse, *, status: int = 200) -> None:
        if kept.row.ended_by is None:
            body = response_object(kept.head, kept.status, None, [])
        else:
            ended = await self._ended(call, kept, await self._turns.watch(call.tenant, kept))
            body = whole_response(kept.head, ended.response)
        await call.exchange.answer(status, msgspec.json.encode(body))

    async def _replay(self, call: HttpCall, kept: StoredResponse, after: int) -> None:
        """Stream a Response from its beginning to its end, without the events up to `after`."""
        call.occupy("watchers")
        exchange = call.exchange
        stream = ResponseStream(kept.head, after=after, before=kept.before)
        exchange.failure_frames = stream.failed
        watch = await self._turns.watch(call.tenant, kept)
        await exchange.start_stream({TURN_ID.name: str(kept.row.turn_id)})
        with exchange.while_present():
            if first := stream.first():
                await exchange.write(first)
            async with aclosing(watch.batches(quiet_s=limits.heartbeat_s)) as batches:
                async for records in batches:
                    frames = b"".join(map(stream.frames, records))
                    if frames or not records:
                        await exchange.write(frames or HEARTBEAT)
            ended = await self._ended(call, kept, watch)
        await exchange.write(stream.end(ended.response))
        await exchange.finish()

    async def _ended(self, call: HttpCall, kept: StoredResponse, watch: Watch) -> ResponseOutcome:
        now_s = int(time.time())
        return await response_end(
            self._store, call.tenant, watch, stored=True, now_s=now_s, before=kept.before
        )


def _starting_after(text: str | None) -> int:
    if text is None:
        return -1
    if not re.fullmatch(r"-1|[0-9]{1,9}", text, re.ASCII):
        raise bad_request("invalid_value", "starting_after is a number", param="starting_after")
    return int(text)
