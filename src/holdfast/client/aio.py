"""The client for asyncio, over aiohttp: what `holdfast.client.sync` has, to be awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Literal, Self, TypeVar, Unpack

import aiohttp
import msgspec

from holdfast.client import requests
from holdfast.client.address import parse_address
from holdfast.client.events import (
    EVENT_BYTES_MAX,
    AnswerEvent,
    ChatReader,
    CutOff,
    Retelling,
    began,
    read_record,
)
from holdfast.client.reading import QUIET_S, checked, headers_of, refused, strange
from holdfast.client.requests import Manner, Request, Which
from holdfast.core.journal import Record
from holdfast.wire import api, overview
from holdfast.wire.sse import EventTooLong, SseParser

T = TypeVar("T")


class AsyncClient:
    """A server. Every method raises ServerRefused if it says no, and ServerUnreachable if nobody does.

    Use it as a context, in one event loop, or close it.
    """

    def __init__(self, server: str, *, key: str | None = None, timeout_s: float = QUIET_S) -> None:
        """`key` is an API key, if the server wants one. Raises InvalidValue for what is no address."""
        self._address = parse_address(server)
        self._key = key
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=timeout_s, sock_read=timeout_s
        )
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Give the connections back. A call after this makes new ones."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    # ── agents and sessions ──

    async def models(self) -> requests.Models:
        """The agents, by the names that they are asked by."""
        return await self._call(requests.models())

    async def agents(self) -> api.Agents:
        """The agents, with what they say about themselves, and sources that cannot be loaded."""
        return await self._call(requests.agents())

    async def sessions(self, **which: Unpack[Which]) -> api.SessionPage:
        """A page of sessions, the last active first; with `q` those in which it was said."""
        return await self._call(requests.sessions(**which))

    async def session(self, name: str) -> api.Session:
        """A session, by its key or id."""
        return await self._call(requests.session(name))

    async def change(
        self,
        name: str,
        *,
        title: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
    ) -> api.Session:
        """Say something about a session, beside its history."""
        return await self._call(requests.change(name, title=title, attributes=attributes))

    async def delete(self, name: str) -> api.Deleted:
        """Delete a session for good."""
        return await self._call(requests.delete(name))

    async def items(self, name: str, *, view: Literal["people", "model"] = "people") -> api.Items:
        """What was said in a session: all of it, or what its model sees now."""
        return await self._call(requests.items(name, view=view))

    async def turns(self, name: str) -> api.Turns:
        """The turns of a session, discarded ones too."""
        return await self._call(requests.turns(name))

    async def export(self, name: str) -> AsyncIterator[bytes]:
        """A session and its past as lines of JSON, in pieces as they come."""
        async with self._open(requests.export(name)) as response:
            async for piece in response.content.iter_any():
                yield piece

    async def take_in(
        self, exported: bytes, *, on_conflict: Literal["stop", "skip"] = "stop"
    ) -> api.Imported:
        """Take in sessions that were exported."""
        return await self._call(requests.take_in(exported, on_conflict=on_conflict))

    async def fork(self, name: str, *, version: int | None = None) -> api.Session:
        """A new session that begins as this one stands, or stood at a version."""
        return await self._call(requests.fork(name, version=version))

    async def reset(self, key: str) -> api.Session:
        """Make a key mean a new session. The old one stays, under its id."""
        return await self._call(requests.reset(key))

    async def rewind(self, key: str, *, version: int) -> api.Session:
        """Make a key mean its session as it was. What came after stays, under the old id."""
        return await self._call(requests.rewind(key, version=version))

    async def compact(self, name: str) -> api.Compacted:
        """Let a session's model see a summary in place of its past."""
        return await self._call(requests.compact(name))

    # ── looking closely ──

    async def me(self) -> overview.Me:
        """Who asks, and what they may."""
        return await self._call(requests.me())

    async def nodes(self) -> overview.Nodes:
        """The processes that hold leases on the server's store."""
        return await self._call(requests.nodes())

    async def history(
        self, name: str, *, before: str | None = None, limit: int | None = None
    ) -> overview.History:
        """Some turns of a session in every state, with their items, the newest first."""
        return await self._call(requests.history(name, before=before, limit=limit))

    async def lineage(self, name: str) -> overview.Line:
        """Where a session's line comes from, and where others leave it."""
        return await self._call(requests.lineage(name))

    async def chain(self, name: str) -> overview.Chain:
        """Check a session's chain of hashes, and all that the store can show of it."""
        return await self._call(requests.chain(name))

    async def annotate(self, name: str, remark: overview.Remark) -> overview.Annotations:
        """Say something about an item or a session, beside its history."""
        return await self._call(requests.annotate(name, remark))

    # ── turns ──

    async def turn(self, turn_id: str) -> api.Turn:
        """A turn, and what became of it."""
        return await self._call(requests.turn(turn_id))

    def events(self, turn_id: str, *, after: int = -1) -> AsyncWatched:
        """Watch a turn, whoever began it, from its first event or the one after `after`."""
        return AsyncWatched(self, turn_id, requests.events(turn_id, after=after))

    async def records(self, turn_id: str, *, after: int = -1) -> AsyncIterator[Record]:
        """The same, as the turn's journal has it: every event, numbered, until the turn has ended."""
        sse = SseParser(event_bytes_max=EVENT_BYTES_MAX)
        async with self._open(requests.events(turn_id, after=after)) as response:
            async for piece in response.content.iter_any():
                for event in sse.feed(piece):
                    told = read_record(event.data)
                    if told is None:
                        return
                    yield told
            raise CutOff

    async def cancel(self, turn_id: str) -> api.Turn:
        """Stop a turn, and say what became of it: also if it had ended before."""
        return await self._call(requests.cancel(turn_id))

    async def continue_turn(self, turn_id: str, *, idempotency_key: str | None = None) -> api.Turn:
        """Go on with a turn that broke off. The turn that does so is answered; it plays by itself."""
        return await self._call(requests.continue_turn(turn_id, idempotency_key=idempotency_key))

    async def approvals(self, turn_id: str) -> api.WaitingCalls:
        """The calls of a turn that wait for a person."""
        return await self._call(requests.approvals(turn_id))

    async def decide(
        self,
        turn_id: str,
        decisions: Mapping[str, api.Decision],
        *,
        idempotency_key: str | None = None,
    ) -> api.Turn:
        """Decide on all calls of a turn that wait. The turn that begins with it is answered."""
        return await self._call(
            requests.decide(turn_id, decisions, idempotency_key=idempotency_key)
        )

    async def decide_one(self, turn_id: str, call: str, decision: api.Decision) -> api.Turn:
        """Decide on the only call of a turn that waits."""
        return await self._call(requests.decide_one(turn_id, call, decision))

    async def grants(self, *, agent: str | None = None, after: str | None = None) -> api.Grants:
        """The approvals that are remembered for agents, the oldest first; `after` goes on after one."""
        return await self._call(requests.grants(agent=agent, after=after))

    async def revoke_grant(self, grant_id: str) -> api.Grant:
        """Take a remembered approval back, from now on and for ever."""
        return await self._call(requests.revoke_grant(grant_id))

    def ask(self, model: str, prompt: str, **manner: Unpack[Manner]) -> AsyncAnswer:
        """Run a turn. Nothing is sent before the first event is waited for."""
        return AsyncAnswer(self, requests.ask(model, prompt, **manner))

    # ── pieces ──

    async def _call(self, request: Request[T]) -> T:
        with self._translating():
            async with self._send(request) as response:
                body = await response.read()
        return checked(request, self._address, response.status, _headers(response), body)

    @asynccontextmanager
    async def _open(self, request: Request[bytes]) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that is read as it comes."""
        with self._translating():
            async with self._send(request) as response:
                if response.status >= 400:
                    body = await response.read()
                    raise refused(self._address, response.status, _headers(response), body)
                yield response

    def _send(self, request: Request[object]) -> aiohttp.client._RequestContextManager:
        address = self._address
        if self._http is None:
            connector = aiohttp.UnixConnector(address.socket) if address.socket else None
            self._http = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self._http.request(
            request.method,
            address.origin + address.base + request.target,
            data=request.body or None,
            headers=headers_of(request, self._key),
        )

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Whatever is no answer of ours is one error."""
        try:
            yield
        except (OSError, aiohttp.ClientError, EventTooLong, msgspec.DecodeError) as error:
            raise strange(self._address, error) from error
        except CutOff as error:
            why = "the answer broke off, and what became of the turn is not known here"
            raise strange(self._address, why) from error


class AsyncAnswer:
    """A turn that was asked for: events, as they come. To be iterated once; nothing is sent before that.

    Whoever stops early closes the generator (`contextlib.aclosing`), and hangs up with it.
    """

    def __init__(self, client: AsyncClient, request: Request[bytes]) -> None:
        self._client = client
        self._request = request
        self.turn_id: str | None = None
        """Known as soon as the server has begun to answer."""
        self.base: int | None = None
        """The version that the turn stands on; known as soon, if it is in a session."""

    async def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        """Raises ServerRefused if the turn fails, ServerUnreachable if its end is not heard of."""
        async with self._client._open(self._request) as response:
            first = began(_headers(response))
            self.turn_id, self.base = first.turn_id, first.base
            yield first
            reader = ChatReader(first.turn_id)
            async for piece in response.content.iter_any():
                for event in reader.feed(piece):
                    yield event
            reader.end()


class AsyncWatched:
    """A turn that somebody began: its events, and then what it became."""

    def __init__(self, client: AsyncClient, turn_id: str, request: Request[bytes]) -> None:
        self._client = client
        self._request = request
        self._telling = Retelling(turn_id)

    async def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        async with self._client._open(self._request) as response:
            async for piece in response.content.iter_any():
                for event in self._telling.feed(piece):
                    yield event
            self._telling.end()

    @property
    def turn(self) -> api.Turn:
        """What the turn became; only after its events."""
        return self._telling.end()


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}
