"""The client for ordinary code: every call waits. Nothing but the standard library moves its bytes.

Each call has a connection of its own, so a client may be used from several threads, and nothing has to be closed.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Literal, Self, TypeVar, Unpack

import msgspec

from holdfast.client import requests
from holdfast.client.address import Address, parse_address
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

PIECE_BYTES = 64 * 1024

T = TypeVar("T")


class Client:
    """A server. Every method raises ServerRefused if it says no, and ServerUnreachable if nobody does."""

    def __init__(self, server: str, *, key: str | None = None, timeout_s: float = QUIET_S) -> None:
        """`key` is an API key, if the server wants one. Raises InvalidValue for what is no address."""
        self._address = parse_address(server)
        self._key = key
        self._timeout_s = timeout_s

    # ── agents and sessions ──

    def models(self) -> requests.Models:
        """The agents, by the names that they are asked by."""
        return self._call(requests.models())

    def agents(self) -> api.Agents:
        """The agents, with what they say about themselves, and sources that cannot be loaded."""
        return self._call(requests.agents())

    def sessions(self, **which: Unpack[Which]) -> api.SessionPage:
        """A page of sessions, the last active first; with `q` those in which it was said."""
        return self._call(requests.sessions(**which))

    def session(self, name: str) -> api.Session:
        """A session, by its key or id."""
        return self._call(requests.session(name))

    def change(
        self,
        name: str,
        *,
        title: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
    ) -> api.Session:
        """Say something about a session, beside its history."""
        return self._call(requests.change(name, title=title, attributes=attributes))

    def delete(self, name: str) -> api.Deleted:
        """Delete a session for good."""
        return self._call(requests.delete(name))

    def items(self, name: str, *, view: Literal["people", "model"] = "people") -> api.Items:
        """What was said in a session: all of it, or what its model sees now."""
        return self._call(requests.items(name, view=view))

    def turns(self, name: str) -> api.Turns:
        """The turns of a session, discarded ones too."""
        return self._call(requests.turns(name))

    def export(self, name: str) -> Iterator[bytes]:
        """A session and its past as lines of JSON, in pieces as they come."""
        with self._open(requests.export(name)) as response:
            yield from _pieces(response)

    def take_in(
        self, exported: bytes, *, on_conflict: Literal["stop", "skip"] = "stop"
    ) -> api.Imported:
        """Take in sessions that were exported."""
        return self._call(requests.take_in(exported, on_conflict=on_conflict))

    def fork(self, name: str, *, version: int | None = None) -> api.Session:
        """A new session that begins as this one stands, or stood at a version."""
        return self._call(requests.fork(name, version=version))

    def reset(self, key: str) -> api.Session:
        """Make a key mean a new session. The old one stays, under its id."""
        return self._call(requests.reset(key))

    def rewind(self, key: str, *, version: int) -> api.Session:
        """Make a key mean its session as it was. What came after stays, under the old id."""
        return self._call(requests.rewind(key, version=version))

    def compact(self, name: str) -> api.Compacted:
        """Let a session's model see a summary in place of its past."""
        return self._call(requests.compact(name))

    # ── looking closely ──

    def me(self) -> overview.Me:
        """Who asks, and what they may."""
        return self._call(requests.me())

    def nodes(self) -> overview.Nodes:
        """The processes that hold leases on the server's store."""
        return self._call(requests.nodes())

    def history(
        self, name: str, *, before: str | None = None, limit: int | None = None
    ) -> overview.History:
        """Some turns of a session in every state, with their items, the newest first."""
        return self._call(requests.history(name, before=before, limit=limit))

    def lineage(self, name: str) -> overview.Line:
        """Where a session's line comes from, and where others leave it."""
        return self._call(requests.lineage(name))

    def chain(self, name: str) -> overview.Chain:
        """Check a session's chain of hashes, and all that the store can show of it."""
        return self._call(requests.chain(name))

    def annotate(self, name: str, remark: overview.Remark) -> overview.Annotations:
        """Say something about an item or a session, beside its history."""
        return self._call(requests.annotate(name, remark))

    # ── turns ──

    def turn(self, turn_id: str) -> api.Turn:
        """A turn, and what became of it."""
        return self._call(requests.turn(turn_id))

    def events(self, turn_id: str, *, after: int = -1) -> Watched:
        """Watch a turn, whoever began it, from its first event or the one after `after`."""
        return Watched(self, turn_id, requests.events(turn_id, after=after))

    def records(self, turn_id: str, *, after: int = -1) -> Iterator[Record]:
        """The same, as the turn's journal has it: every event, numbered, until the turn has ended."""
        sse = SseParser(event_bytes_max=EVENT_BYTES_MAX)
        with self._open(requests.events(turn_id, after=after)) as response:
            for piece in _pieces(response):
                for event in sse.feed(piece):
                    told = read_record(event.data)
                    if told is None:
                        return
                    yield told
            raise CutOff

    def cancel(self, turn_id: str) -> api.Turn:
        """Stop a turn, and say what became of it: also if it had ended before."""
        return self._call(requests.cancel(turn_id))

    def continue_turn(self, turn_id: str, *, idempotency_key: str | None = None) -> api.Turn:
        """Go on with a turn that broke off. The turn that does so is answered; it plays by itself."""
        return self._call(requests.continue_turn(turn_id, idempotency_key=idempotency_key))

    def approvals(self, turn_id: str) -> api.WaitingCalls:
        """The calls of a turn that wait for a person."""
        return self._call(requests.approvals(turn_id))

    def decide(
        self,
        turn_id: str,
        decisions: Mapping[str, api.Decision],
        *,
        idempotency_key: str | None = None,
    ) -> api.Turn:
        """Decide on all calls of a turn that wait. The turn that begins with it is answered."""
        return self._call(requests.decide(turn_id, decisions, idempotency_key=idempotency_key))

    def decide_one(self, turn_id: str, call: str, decision: api.Decision) -> api.Turn:
        """Decide on the only call of a turn that waits."""
        return self._call(requests.decide_one(turn_id, call, decision))

    def grants(self, *, agent: str | None = None, after: str | None = None) -> api.Grants:
        """The approvals that are remembered for agents, the oldest first; `after` goes on after one."""
        return self._call(requests.grants(agent=agent, after=after))

    def revoke_grant(self, grant_id: str) -> api.Grant:
        """Take a remembered approval back, from now on and for ever."""
        return self._call(requests.revoke_grant(grant_id))

    def ask(self, model: str, prompt: str, **manner: Unpack[Manner]) -> Answer:
        """Run a turn. Nothing is sent before the answer is entered as a context."""
        return Answer(self, requests.ask(model, prompt, **manner))

    # ── pieces ──

    def _call(self, request: Request[T]) -> T:
        with self._translating():
            connection = self._connect()
            try:
                self._send(connection, request)
                response = connection.getresponse()
                body = response.read()
            finally:
                connection.close()
        return checked(request, self._address, response.status, _headers(response), body)

    @contextmanager
    def _open(self, request: Request[bytes]) -> Iterator[http.client.HTTPResponse]:
        """An answer that is read as it comes."""
        with self._translating():
            connection = self._connect()
            try:
                self._send(connection, request)
                yield self._begin(connection)
            finally:
                connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        address = self._address
        if address.socket:
            return _UnixConnection(address, timeout=self._timeout_s)
        if address.tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                address.host, address.port, timeout=self._timeout_s, context=context
            )
        return http.client.HTTPConnection(address.host, address.port, timeout=self._timeout_s)

    def _send(self, connection: http.client.HTTPConnection, request: Request[object]) -> None:
        target = self._address.base + request.target
        headers = headers_of(request, self._key)
        connection.request(request.method, target, body=request.body, headers=headers)

    def _begin(self, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        response = connection.getresponse()
        if response.status >= 400:
            raise refused(self._address, response.status, _headers(response), response.read())
        return response

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Whatever is no answer of ours is one error."""
        try:
            yield
        except (OSError, http.client.HTTPException, EventTooLong, msgspec.DecodeError) as error:
            raise strange(self._address, error) from error
        except CutOff as error:
            why = "the answer broke off, and what became of the turn is not known here"
            raise strange(self._address, why) from error


class Answer:
    """A turn that was asked for: events, as they come. A context, and in it an iterator, once."""

    def __init__(self, client: Client, request: Request[bytes]) -> None:
        self._client = client
        self._request = request
        self._connection: http.client.HTTPConnection | None = None
        self.turn_id: str | None = None
        """Known as soon as the server has begun to answer."""
        self.base: int | None = None
        """The version that the turn stands on; known as soon, if it is in a session."""

    def __enter__(self) -> Self:
        with self._client._translating():
            self._connection = self._client._connect()
            self._client._send(self._connection, self._request)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._connection is not None, "entered before it is left"
        self._connection.close()

    def __iter__(self) -> Iterator[AnswerEvent]:
        """Raises ServerRefused if the turn fails, ServerUnreachable if its end is not heard of."""
        assert self._connection is not None, "an answer is read in its context"
        with self._client._translating():
            response = self._client._begin(self._connection)
            first = began(_headers(response))
            self.turn_id, self.base = first.turn_id, first.base
            yield first
            reader = ChatReader(first.turn_id)
            for piece in _pieces(response):
                yield from reader.feed(piece)
            reader.end()

    def hang_up(self) -> None:
        """Stop listening, from a signal handler or another thread: whoever iterates gets ServerUnreachable."""
        if self._connection is not None and self._connection.sock is not None:
            try:
                self._connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other side was quicker


class Watched:
    """A turn that somebody began: its events, and then what it became."""

    def __init__(self, client: Client, turn_id: str, request: Request[bytes]) -> None:
        self._client = client
        self._request = request
        self._telling = Retelling(turn_id)

    def __iter__(self) -> Iterator[AnswerEvent]:
        with self._client._open(self._request) as response:
            for piece in _pieces(response):
                yield from self._telling.feed(piece)
            self._telling.end()

    @property
    def turn(self) -> api.Turn:
        """What the turn became; only after its events."""
        return self._telling.end()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, address: Address, *, timeout: float) -> None:
        super().__init__(address.host, timeout=timeout)
        self._path = address.socket

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while piece := response.read1(PIECE_BYTES):
        yield piece
