"""The methods of both clients: the request of each, and the type of its answer.

Each method is for one route of the server. A test compares them with the server's routes: every route of `/api` has a
method, and no method sends or expects anything that its route does not declare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, Unpack

import msgspec

from holdfast.client.events import PieceReader, RecordReader
from holdfast.client.requests import ClientCall, ClientRequest, ClientStream, request
from holdfast.core.turns.journal import Record
from holdfast.ids import ResponseId, TurnId
from holdfast.wire.api import families, overview, traces
from holdfast.wire.api import objects as api
from holdfast.wire.headers import (
    APPROVALS,
    CONVERSATION_ID,
    IDEMPOTENCY_KEY,
    IF_MATCH,
    ON_BUSY,
    READ_ONLY,
    SHOW_TOOLS,
    TURN_POLICY,
    OnBusy,
)
from holdfast.wire.openai.responses.dialect import InputItem


class ListedModel(api.AnswerBody):
    """An agent, by the name that a request uses as its `model`."""

    id: str
    owned_by: str = ""


class ListedModels(api.AnswerBody):
    data: tuple[ListedModel, ...]


class SessionSelection(TypedDict, total=False):
    """A filter for sessions, and the page's size."""

    q: str | None
    """A search query: only sessions with a message that matches."""
    agent: str | None
    key_prefix: str | None
    active_from: float | None
    active_before: float | None
    busy: bool | None
    anonymous: bool
    """Only sessions without a key; the default is only sessions with one."""
    cursor: str | None
    """The cursor of the page before."""
    limit: int | None


class ClientMethods:
    """Every method raises ServerRefused for an error answer, and ServerUnreachable if the server does not answer."""

    # ── agents and sessions ──

    @ClientCall
    def models(self) -> ClientRequest[ListedModels]:
        """The agents, by the names that requests use."""
        return request("GET /v1/models", ListedModels)

    @ClientCall
    def agents(self) -> ClientRequest[api.Agents]:
        """The agents with their descriptions, and the sources that cannot be loaded."""
        return request("GET /api/agents", api.Agents)

    @ClientCall
    def sessions(self, **which: Unpack[SessionSelection]) -> ClientRequest[api.SessionPage]:
        """A page of sessions, the last active first; with `q` only sessions that match."""
        query: dict[str, object] = {**which, "busy": None, "anonymous": None}
        if (busy := which.get("busy")) is not None:
            query["busy"] = str(busy).lower()
        if which.get("anonymous"):
            query["anonymous"] = "true"
        return request("GET /api/sessions", api.SessionPage, query=query)

    @ClientCall
    def session(self, name: str) -> ClientRequest[api.Session]:
        """A session, by its key or id."""
        return request("GET /api/sessions/{name}", api.Session, name)

    @ClientCall
    def change(
        self,
        name: str,
        *,
        title: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
    ) -> ClientRequest[api.Session]:
        """Set a session's title and attributes. Its history does not change."""
        given = None if attributes is None else dict(attributes)
        changes = api.Changes(title=title, attributes=given)
        return request("PATCH /api/sessions/{name}", api.Session, name, body=changes)

    @ClientCall
    def delete(self, name: str) -> ClientRequest[api.Deleted]:
        """Delete a session for good."""
        return request("DELETE /api/sessions/{name}", api.Deleted, name)

    @ClientCall
    def items(
        self, name: str, *, view: Literal["people", "model"] = "people"
    ) -> ClientRequest[api.Items]:
        """The items of a session: all of them, or only the part that its model sees now."""
        return request("GET /api/sessions/{name}/items", api.Items, name, query={"view": view})

    @ClientCall
    def turns(self, name: str) -> ClientRequest[api.Turns]:
        """The turns of a session, discarded ones too."""
        return request("GET /api/sessions/{name}/turns", api.Turns, name)

    @ClientCall
    def export(self, name: str) -> ClientStream[bytes]:
        """A session and its past as lines of JSON, in pieces as they come."""
        return ClientStream(request("GET /api/sessions/{name}/export", bytes, name), PieceReader())

    @ClientCall
    def blob(self, name: str, digest: str) -> ClientStream[bytes]:
        """The bytes of a picture or a file that an item names, in pieces as they come."""
        wanted = request("GET /api/sessions/{name}/blobs/{digest}", bytes, name, digest)
        return ClientStream(wanted, PieceReader())

    @ClientCall
    def take_in(
        self, exported: bytes, *, on_conflict: Literal["stop", "skip"] = "stop"
    ) -> ClientRequest[api.Imported]:
        """Import sessions from an export."""
        query = {"on_conflict": on_conflict}
        return request("POST /api/sessions/import", api.Imported, query=query, body=exported)

    @ClientCall
    def name(self, name: str, key: str) -> ClientRequest[api.Session]:
        """Give a session one more name."""
        return request(
            "POST /api/sessions/{name}/name", api.Session, name, body=api.NewName(key=key)
        )

    @ClientCall
    def family(self, name: str) -> ClientRequest[families.LineFamily]:
        """The lines of a chat whose client owns its history."""
        return request("GET /api/sessions/{name}/family", families.LineFamily, name)

    @ClientCall
    def fork(self, name: str, *, version: int | None = None) -> ClientRequest[api.Session]:
        """A new session with the history of this one, whole or up to a version."""
        place = api.Place(version=version)
        return request("POST /api/sessions/{name}/fork", api.Session, name, body=place)

    @ClientCall
    def reset(self, key: str) -> ClientRequest[api.Session]:
        """Bind a key to a new, empty session. The old session stays, under its id."""
        return request("POST /api/sessions/{name}/reset", api.Session, key)

    @ClientCall
    def rewind(self, key: str, *, version: int) -> ClientRequest[api.Session]:
        """Bind a key to its session as it was at a version. The later turns stay, under the old id."""
        place = api.Place(version=version)
        return request("POST /api/sessions/{name}/rewind", api.Session, key, body=place)

    @ClientCall
    def rebind(self, name: str, *, model: str) -> ClientRequest[api.Session]:
        """Move a session to the source of another agent. Its history stays as it is."""
        to = api.NewSource(model=model)
        return request("POST /api/sessions/{name}/rebind", api.Session, name, body=to)

    @ClientCall
    def rebind_source(
        self, source: str, *, model: str, anonymous: bool = False, cursor: str | None = None
    ) -> ClientRequest[api.Rebound]:
        """Move the sessions of a source to the source of another agent, a page at a time."""
        move = api.SourceMove(source=source, model=model, anonymous=anonymous, cursor=cursor)
        return request("POST /api/sessions/rebind", api.Rebound, body=move)

    @ClientCall
    def compact(self, name: str) -> ClientRequest[api.SessionSummary]:
        """Put a summary in place of older turns in the model's view of a session."""
        return request("POST /api/sessions/{name}/compact", api.SessionSummary, name)

    # ── looking closely ──

    @ClientCall
    def me(self) -> ClientRequest[overview.Me]:
        """The tenant of this client's key, and its permissions."""
        return request("GET /api/me", overview.Me)

    @ClientCall
    def nodes(self) -> ClientRequest[overview.Nodes]:
        """The processes that hold leases on the server's store."""
        return request("GET /api/nodes", overview.Nodes)

    @ClientCall
    def numbers(self) -> ClientRequest[overview.NumbersOverTime]:
        """How the numbers of the server have changed in the last hour."""
        return request("GET /api/numbers", overview.NumbersOverTime)

    @ClientCall
    def costs(self) -> ClientRequest[overview.Costs]:
        """What the turns of today have used, by agent."""
        return request("GET /api/costs", overview.Costs)

    @ClientCall
    def log(self) -> ClientRequest[overview.RecentRecords]:
        """The last warnings and errors of the process that answers, the newest first."""
        return request("GET /api/log", overview.RecentRecords)

    @ClientCall
    def history(
        self, name: str, *, before: str | None = None, limit: int | None = None
    ) -> ClientRequest[overview.History]:
        """A page of a session's turns in every state, with their items, the newest first."""
        query = {"before": before, "limit": limit}
        return request("GET /api/sessions/{name}/history", overview.History, name, query=query)

    @ClientCall
    def lineage(self, name: str) -> ClientRequest[overview.Lineage]:
        """The sessions that a session was forked from, and its own forks."""
        return request("GET /api/sessions/{name}/lineage", overview.Lineage, name)

    @ClientCall
    def chain(self, name: str) -> ClientRequest[overview.Chain]:
        """Check a session's chain of hashes, and everything else that the store can check about it."""
        return request("GET /api/sessions/{name}/chain", overview.Chain, name)

    @ClientCall
    def annotate(self, name: str, remark: overview.Remark) -> ClientRequest[overview.Annotations]:
        """Add a remark to an item or a session. Its history does not change."""
        route = "POST /api/sessions/{name}/annotations"
        return request(route, overview.Annotations, name, body=remark)

    # ── turns ──

    @ClientCall
    def turn(self, turn_id: str) -> ClientRequest[api.TurnObject]:
        """A turn, and its outcome."""
        return request("GET /api/turns/{id}", api.TurnObject, turn_id)

    @ClientCall
    def trace(self, turn_id: str) -> ClientRequest[traces.TurnTrace]:
        """A turn's steps and calls, with their times, tokens and costs."""
        return request("GET /api/turns/{id}/trace", traces.TurnTrace, turn_id)

    @ClientCall
    def prompt(self, turn_id: str, *, step: int = 1) -> ClientRequest[traces.StepPrompt]:
        """What the model was told in a step of a turn."""
        query = {"step": step}
        return request("GET /api/turns/{id}/prompt", traces.StepPrompt, turn_id, query=query)

    @ClientCall
    def begin(
        self,
        model: str,
        items: Sequence[InputItem],
        *,
        tools: Sequence[api.ClientFunction] = (),
        instructions: str = "",
        **manner: Unpack[TurnOptions],
    ) -> ClientRequest[BegunResponse]:
        """Begin a turn in the background: it goes on without a client, and is resumed after a crash."""
        body = _Background(
            model=model,
            input=tuple(items),
            tools=tuple(
                _Function(name=each.name, description=each.description, parameters=each.parameters)
                for each in tools
            ),
            instructions=instructions,
        )
        headers = _manner(**manner)
        return request("POST /v1/responses", BegunResponse, body=body, headers=headers)

    @ClientCall
    def records(self, turn_id: str, *, after: int = -1) -> ClientStream[Record]:
        """A turn's events as its journal has them: all of them, numbered, until the turn has ended."""
        return ClientStream(watching(turn_id, after=after), RecordReader())

    @ClientCall
    def cancel(self, turn_id: str) -> ClientRequest[api.TurnObject]:
        """Stop a turn, and return its outcome. A turn that has ended before stays as it is."""
        return request("POST /api/turns/{id}/cancel", api.TurnObject, turn_id)

    @ClientCall
    def continue_turn(
        self, turn_id: str, *, idempotency_key: str | None = None
    ) -> ClientRequest[api.TurnObject]:
        """Continue a turn that broke off. Returns the new turn, which runs in the background."""
        headers = {IDEMPOTENCY_KEY.name: idempotency_key}
        return request("POST /api/turns/{id}/continue", api.TurnObject, turn_id, headers=headers)

    @ClientCall
    def approvals(self, turn_id: str) -> ClientRequest[api.WaitingCalls]:
        """The tool calls of a turn that wait for a person's approval."""
        return request("GET /api/turns/{id}/approvals", api.WaitingCalls, turn_id)

    @ClientCall
    def open_approvals(self, *, limit: int | None = None) -> ClientRequest[api.ApprovalInbox]:
        """The tool calls of all sessions that wait for a person's approval, those of the newest turn first."""
        return request("GET /api/approvals", api.ApprovalInbox, query={"limit": limit})

    @ClientCall
    def listed_turns(
        self, *, state: str = "open", since: float | None = None, limit: int | None = None
    ) -> ClientRequest[api.ListedTurns]:
        """The turns of all sessions that are in a state: open, waiting, unfinished or failed."""
        query = {"state": state, "since": since, "limit": limit}
        return request("GET /api/turns", api.ListedTurns, query=query)

    @ClientCall
    def decide(
        self,
        turn_id: str,
        decisions: Mapping[str, api.Decision],
        *,
        results: Mapping[str, str] | None = None,
        tools: Sequence[api.ClientFunction] = (),
        instructions: str = "",
        reads_only: bool = False,
        idempotency_key: str | None = None,
    ) -> ClientRequest[api.TurnObject]:
        """Decide on all waiting calls of a turn. Returns the new turn that begins with the decisions.

        A client with tools of its own also sends the results of calls that wait for it, and its tools once more.
        """
        body = api.Decisions(
            decisions=dict(decisions),
            results=dict(results or {}),
            tools=tuple(tools),
            instructions=instructions,
        )
        headers = {
            IDEMPOTENCY_KEY.name: idempotency_key,
            READ_ONLY.name: "true" if reads_only else None,
        }
        route = "POST /api/turns/{id}/approvals"
        return request(route, api.TurnObject, turn_id, body=body, headers=headers)

    @ClientCall
    def decide_one(
        self, turn_id: str, call: str, decision: api.Decision
    ) -> ClientRequest[api.TurnObject]:
        """Decide on a turn's call, if it is the only waiting one."""
        route = "POST /api/turns/{id}/approvals/{call}"
        return request(route, api.TurnObject, turn_id, call, body=decision)

    @ClientCall
    def grants(
        self, *, agent: str | None = None, after: str | None = None
    ) -> ClientRequest[api.Grants]:
        """The remembered approvals of agents, the oldest first; `after` is the last id of the page before."""
        return request("GET /api/grants", api.Grants, query={"agent": agent, "after": after})

    @ClientCall
    def revoke_grant(self, grant_id: str) -> ClientRequest[api.GrantObject]:
        """Revoke a remembered approval for good."""
        return request("DELETE /api/grants/{grant}", api.GrantObject, grant_id)


# ── turns as their events come ───────────────────────────────────────────────────────────────


def watching(turn_id: str, *, after: int = -1) -> ClientRequest[bytes]:
    """The request for the events of a turn."""
    query = {"starting_after": after}
    return request("GET /api/turns/{id}/events", bytes, turn_id, query=query)


class BegunResponse(api.AnswerBody):
    """A turn in the background, as the Responses API shows it."""

    id: ResponseId
    status: str

    @property
    def turn_id(self) -> TurnId:
        return self.id.turn_id


class _Function(msgspec.Struct, frozen=True, tag="function"):
    name: str
    description: str
    parameters: dict[str, msgspec.Raw]


class _Background(msgspec.Struct, frozen=True):
    model: str
    input: tuple[InputItem, ...]
    tools: tuple[_Function, ...]
    instructions: str
    background: bool = True


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str


class _Options(msgspec.Struct, frozen=True):
    include_usage: bool = True


class _Chat(msgspec.Struct, frozen=True):
    model: str
    messages: tuple[_Message, ...]
    stream: bool = True
    stream_options: _Options = _Options()


class TurnOptions(TypedDict, total=False):
    """The options of a turn; each is a header of the request."""

    session: str | None
    """The key or id of its conversation; without one nothing is stored."""
    idempotency_key: str | None
    if_match: int | None
    """The version that the conversation must be at."""
    on_busy: OnBusy | None
    policy: str | None
    """The turn policy, in the form of `X-Turn-Policy`."""
    reads_only: bool
    """Offer and run only those of the agents' own tools that change nothing."""


def asking(model: str, prompt: str, **manner: Unpack[TurnOptions]) -> ClientRequest[bytes]:
    """The request for a turn with a streamed answer."""
    body = _Chat(model=model, messages=(_Message("user", prompt),))
    return request("POST /v1/chat/completions", bytes, body=body, headers=_manner(**manner))


def _manner(**manner: Unpack[TurnOptions]) -> dict[str, str | None]:
    """The headers of a request for a turn."""
    if_match = manner.get("if_match")
    return {
        CONVERSATION_ID.name: manner.get("session"),
        IDEMPOTENCY_KEY.name: manner.get("idempotency_key"),
        IF_MATCH.name: None if if_match is None else f'"{if_match}"',
        ON_BUSY.name: manner.get("on_busy"),
        TURN_POLICY.name: manner.get("policy"),
        READ_ONLY.name: "true" if manner.get("reads_only") else None,
        SHOW_TOOLS.name: "true",
        APPROVALS.name: "fields",
    }
