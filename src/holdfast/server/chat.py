"""`POST /v1/chat/completions`: a turn, as any OpenAI client asks for it.

The turn runs in its own task and is only watched from here. Nothing that looks like success is sent before the
commit is durable; whatever else happens is said in words, as a status while that is still possible, and as an
error frame after that. A stream that merely ended would look like success.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from holdfast import limits
from holdfast.core.policy import Policy
from holdfast.errors import ModelNotFound, StoreError
from holdfast.ids import Tenant
from holdfast.server.answers import conversation_headers, end_of
from holdfast.server.attempts import attempt_of
from holdfast.server.directory import AgentManner, Directory
from holdfast.server.exchange import Exchange
from holdfast.server.routing import Call
from holdfast.sessions.ask import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.watch import Watch
from holdfast.wire.chat_answer import AnswerEnd, AnswerHead, ChatStream, completion
from holdfast.wire.chat_request import ChatAsk, ignored, read_chat_request
from holdfast.wire.headers import NAMES, Naming, read_naming
from holdfast.wire.problems import Problem
from holdfast.wire.sse import HEARTBEAT


class Chat:
    """The endpoint. One instance serves every request."""

    def __init__(
        self,
        sessions: Sessions,
        directory: Directory,
        *,
        names: tuple[str, ...] = NAMES,
        policy: Policy = Policy(),  # noqa: B008
        deadline_s: float = limits.turn_deadline_s,
        expire_after_s: float | None = None,
    ) -> None:
        """`names` are the headers that name a conversation, `policy` is the server's own."""
        self._sessions = sessions
        self._directory = directory
        self._names = names
        self._policy = policy
        self._deadline_s = deadline_s
        self._expire_after_s = expire_after_s
        self._stateless: set[Watch] = set()
        """The turns that nobody but their client knows of."""

    async def serve(self, call: Call) -> None:
        """Answer one request. Raises Refused and HoldfastError before anything has been said."""
        exchange, tenant = call.exchange, call.tenant
        naming = read_naming(exchange.headers, names=self._names)
        if naming.name is not None:
            exchange.about["x-conversation-id"] = str(naming.name)
        asked = read_chat_request(call.body)
        ask = self._ask(call, asked, naming)
        watch = await exchange.unless_gone(self._submit(ask))
        exchange.about |= conversation_headers(naming, watch)
        answering = _Answering(self._sessions, exchange, tenant, watch, naming, asked)
        async with watch:
            if asked.stream:
                await answering.stream()
            else:
                await answering.answer()

    def end_stateless(self) -> None:
        """The grace time of a shutdown is over: what is stored ends by itself, this does not."""
        for watch in self._stateless:
            if watch.live is not None:
                watch.live.interrupt("shutdown")

    async def _submit(self, ask: Ask) -> Watch:
        if ask.name is not None or ask.attempt.key is not None:
            return await self._sessions.submit(ask)
        watch = self._sessions.submit_stateless(ask)
        assert watch.live is not None
        self._stateless.add(watch)
        watch.live.done.add_done_callback(lambda _: self._stateless.discard(watch))
        return watch

    def _ask(self, call: Call, asked: ChatAsk, naming: Naming) -> Ask:
        manner = self._manner(asked, naming)
        unheeded = (*ignored(asked.given, manner.knows), *asked.left_alone)
        if unheeded:
            call.exchange.about["x-ignored-params"] = ", ".join(unheeded)
        return Ask(
            tenant=call.tenant,
            name=naming.name,
            messages=asked.messages,
            approvals=naming.approvals,
            agent=asked.model,
            instructions=asked.instructions,
            parameters=asked.parameters,
            client_tools=asked.client_tools,
            limits=manner.limits,
            policies=(self._policy, manner.policy, naming.policy),
            on_busy=naming.on_busy,
            if_match=naming.if_match,
            create=naming.create,
            attempt=attempt_of(call, naming),
            deadline_s=self._deadline_s,
            expire_after_s=self._expire_after_s,
        )

    def _manner(self, asked: ChatAsk, naming: Naming) -> AgentManner:
        try:
            return self._directory.manner(self._directory.named(asked.model))
        except ModelNotFound:
            if naming.name is None:
                raise
            # To its own source a conversation may say a name that nobody else understands.
            return AgentManner(knows=frozenset(each.ours for each in asked.given))


class _Answering:
    """One request whose turn has begun, or was found."""

    def __init__(
        self,
        sessions: Sessions,
        exchange: Exchange,
        tenant: Tenant,
        watch: Watch,
        naming: Naming,
        asked: ChatAsk,
    ) -> None:
        self._store = sessions.store
        self._exchange = exchange
        self._tenant = tenant
        self._watch = watch
        self._stored = naming.name is not None or naming.idempotency_key is not None
        self._head = _head(asked, naming, watch)

    async def answer(self) -> None:
        """The answer as one object."""
        end = await self._end()
        if isinstance(end, Problem):
            await self._exchange.refuse(end)
            return
        if end.version is not None:
            self._exchange.about["x-conversation-version"] = str(int(end.version))
        body = completion(self._head, end)
        await self._exchange.start_answer(200, len(body))
        await self._hand_over(body)

    async def stream(self) -> None:
        """The answer as it comes. How it ends is a status, if nothing has been said by then."""
        exchange, stream = self._exchange, ChatStream(self._head)
        with exchange.while_present():
            await self._show(stream)
        end = await self._end()
        if isinstance(end, AnswerEnd) and stream.took_back:
            end = _RESTARTED
        if isinstance(end, Problem):
            await (exchange.refuse if exchange.state == "reading" else exchange.fail)(end)
            return
        if exchange.state == "reading":
            await self._begin(stream)
        await self._hand_over(stream.end(end))

    async def _show(self, stream: ChatStream) -> None:
        """Write what happens, as it does; and something after a while in which nothing did."""
        exchange, loop = self._exchange, asyncio.get_running_loop()
        quiet_s = min(limits.stream_patience_s, limits.heartbeat_s)
        batches = self._watch.batches(quiet_s=quiet_s)
        said_at = loop.time()
        async with aclosing(batches):
            async for records in batches:
                frames = b"".join(map(stream.frames, records))
                silence_s = loop.time() - said_at
                if exchange.state == "reading":
                    if not frames and silence_s < limits.stream_patience_s:
                        continue
                    await self._begin(stream, frames)
                elif frames or silence_s >= limits.heartbeat_s:
                    await exchange.write(frames or HEARTBEAT)
                else:
                    continue
                said_at = loop.time()

    async def _begin(self, stream: ChatStream, frames: bytes = b"") -> None:
        await self._exchange.start_stream()
        await self._exchange.write(stream.first() + frames)

    async def _end(self) -> AnswerEnd | Problem:
        with self._exchange.while_present():
            return await end_of(self._store, self._tenant, self._watch, stored=self._stored)

    async def _hand_over(self, last: bytes) -> None:
        """Write the last bytes, and note that the client has them before it can say anything else.

        An SDK whose answer got lost on the way repeats its request; only this note tells that from a
        request that was merely made twice. It is on its way to the store when the connection is free
        again, and so ahead of whatever comes next; the client need not wait until it is durable.
        """
        if await self._exchange.hand_over(last) and self._stored:
            noting = asyncio.create_task(self._acknowledge())
            await self._exchange.finish()
            await noting
        else:
            await self._exchange.finish()

    async def _acknowledge(self) -> None:
        try:
            await self._store.acknowledge(self._tenant, self._watch.admission.turn_id)
        except StoreError:
            pass  # the answer stands; a retry of it would get the same one again


_RESTARTED = Problem(
    status=503,
    code="answer_restarted",
    message="the server was restarted while it answered; the turn is complete, and what was shown of it "
    "before is not: repeat the request under its idempotency key, or read the conversation",
    kind="server_error",
)


def _head(asked: ChatAsk, naming: Naming, watch: Watch) -> AnswerHead:
    turn_id = watch.admission.turn_id
    return AnswerHead(
        turn_id=turn_id,
        created_s=turn_id.minted_at_ms // 1000,
        model=asked.model,
        client_tools=frozenset(each.name for each in asked.client_tools),
        include_usage=asked.include_usage,
        show_tools=naming.show_tools,
    )
