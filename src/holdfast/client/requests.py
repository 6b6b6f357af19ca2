"""Everything that a server can be asked for, as values. One function for each line of its table of routes.

A test holds this module against that table, so a route without a function here does not pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Literal, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode

import msgspec

from holdfast.core.codec import Decoder
from holdfast.wire import api, overview
from holdfast.wire.headers import OnBusy

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Request(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """One request, ready to be sent, and the type of what is answered."""

    route: str
    """The line of the server's table that it is for: `GET /api/sessions/{name}`."""
    target: str
    """Path and query."""
    answer: type[T_co]
    """What the body of the answer is; `bytes` if it is to be read as it comes."""
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def method(self) -> str:
        return self.route.split(" ", 1)[0]


# ── agents and sessions ──────────────────────────────────────────────────────────────────────


class Model(api.Told):
    """An agent, under the name that it is asked by."""

    id: str
    owned_by: str = ""


class Models(api.Told):
    data: tuple[Model, ...]


def models() -> Request[Models]:
    return _request("GET /v1/models", Models)


def agents() -> Request[api.Agents]:
    return _request("GET /api/agents", api.Agents)


class Which(TypedDict, total=False):
    """Which sessions, and how many of them."""

    q: str | None
    """What was said in them."""
    agent: str | None
    key_prefix: str | None
    active_from: float | None
    active_before: float | None
    busy: bool | None
    anonymous: bool
    """Those that nobody named, in place of the others."""
    cursor: str | None
    """Where a page before this one ended."""
    limit: int | None


def sessions(**which: Unpack[Which]) -> Request[api.SessionPage]:
    query: dict[str, object] = {**which, "busy": None, "anonymous": None}
    if (busy := which.get("busy")) is not None:
        query["busy"] = str(busy).lower()
    if which.get("anonymous"):
        query["anonymous"] = "true"
    return _request("GET /api/sessions", api.SessionPage, query=query)


def session(name: str) -> Request[api.Session]:
    return _request("GET /api/sessions/{name}", api.Session, name)


def change(
    name: str, *, title: str | None = None, attributes: Mapping[str, str | None] | None = None
) -> Request[api.Session]:
    given = None if attributes is None else dict(attributes)
    changes = api.Changes(title=title, attributes=given)
    return _request("PATCH /api/sessions/{name}", api.Session, name, body=changes)


def delete(name: str) -> Request[api.Deleted]:
    return _request("DELETE /api/sessions/{name}", api.Deleted, name)


def items(name: str, *, view: Literal["people", "model"] = "people") -> Request[api.Items]:
    return _request("GET /api/sessions/{name}/items", api.Items, name, query={"view": view})


def turns(name: str) -> Request[api.Turns]:
    return _request("GET /api/sessions/{name}/turns", api.Turns, name)


def export(name: str) -> Request[bytes]:
    return _request("GET /api/sessions/{name}/export", bytes, name)


def take_in(
    exported: bytes, *, on_conflict: Literal["stop", "skip"] = "stop"
) -> Request[api.Imported]:
    query = {"on_conflict": on_conflict}
    return _request("POST /api/sessions/import", api.Imported, query=query, body=exported)


def fork(name: str, *, version: int | None = None) -> Request[api.Session]:
    place = api.Place(version=version)
    return _request("POST /api/sessions/{name}/fork", api.Session, name, body=place)


def reset(key: str) -> Request[api.Session]:
    return _request("POST /api/sessions/{name}/reset", api.Session, key)


def rewind(key: str, *, version: int) -> Request[api.Session]:
    place = api.Place(version=version)
    return _request("POST /api/sessions/{name}/rewind", api.Session, key, body=place)


def compact(name: str) -> Request[api.Compacted]:
    return _request("POST /api/sessions/{name}/compact", api.Compacted, name)


# ── looking closely ──────────────────────────────────────────────────────────────────────────


def me() -> Request[overview.Me]:
    return _request("GET /api/me", overview.Me)


def nodes() -> Request[overview.Nodes]:
    return _request("GET /api/nodes", overview.Nodes)


def history(
    name: str, *, before: str | None = None, limit: int | None = None
) -> Request[overview.History]:
    query = {"before": before, "limit": limit}
    return _request("GET /api/sessions/{name}/history", overview.History, name, query=query)


def lineage(name: str) -> Request[overview.Line]:
    return _request("GET /api/sessions/{name}/lineage", overview.Line, name)


def chain(name: str) -> Request[overview.Chain]:
    return _request("GET /api/sessions/{name}/chain", overview.Chain, name)


def annotate(name: str, remark: overview.Remark) -> Request[overview.Annotations]:
    route = "POST /api/sessions/{name}/annotations"
    return _request(route, overview.Annotations, name, body=remark)


# ── turns ────────────────────────────────────────────────────────────────────────────────────


def turn(turn_id: str) -> Request[api.Turn]:
    return _request("GET /api/turns/{id}", api.Turn, turn_id)


def events(turn_id: str, *, after: int = -1) -> Request[bytes]:
    query = {"starting_after": after}
    return _request("GET /api/turns/{id}/events", bytes, turn_id, query=query)


def cancel(turn_id: str) -> Request[api.Turn]:
    return _request("POST /api/turns/{id}/cancel", api.Turn, turn_id)


def continue_turn(turn_id: str, *, idempotency_key: str | None = None) -> Request[api.Turn]:
    route, headers = "POST /api/turns/{id}/continue", {"idempotency-key": idempotency_key}
    return _request(route, api.Turn, turn_id, headers=headers)


def approvals(turn_id: str) -> Request[api.WaitingCalls]:
    return _request("GET /api/turns/{id}/approvals", api.WaitingCalls, turn_id)


def decide(
    turn_id: str, decisions: Mapping[str, api.Decision], *, idempotency_key: str | None = None
) -> Request[api.Turn]:
    return _request(
        "POST /api/turns/{id}/approvals",
        api.Turn,
        turn_id,
        body=api.Decisions(decisions=dict(decisions)),
        headers={"idempotency-key": idempotency_key},
    )


def decide_one(turn_id: str, call: str, decision: api.Decision) -> Request[api.Turn]:
    route = "POST /api/turns/{id}/approvals/{call}"
    return _request(route, api.Turn, turn_id, call, body=decision)


def grants(*, agent: str | None = None, after: str | None = None) -> Request[api.Grants]:
    return _request("GET /api/grants", api.Grants, query={"agent": agent, "after": after})


def revoke_grant(grant_id: str) -> Request[api.Grant]:
    return _request("DELETE /api/grants/{grant}", api.Grant, grant_id)


# ── a turn of its own ────────────────────────────────────────────────────────────────────────


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


class Manner(TypedDict, total=False):
    """How a turn is to be treated; each is a header of the request."""

    session: str | None
    """The conversation that it belongs to; without one nothing is stored."""
    idempotency_key: str | None
    if_match: int | None
    """The version that the conversation has to be at."""
    on_busy: OnBusy | None
    policy: str | None
    """How it ends, as `X-Turn-Policy` says it."""


def ask(model: str, prompt: str, **manner: Unpack[Manner]) -> Request[bytes]:
    """A turn, answered as a stream."""
    if_match = manner.get("if_match")
    return _request(
        "POST /v1/chat/completions",
        bytes,
        body=_Chat(model=model, messages=(_Message("user", prompt),)),
        headers={
            "x-conversation-id": manner.get("session"),
            "idempotency-key": manner.get("idempotency_key"),
            "if-match": None if if_match is None else f'"{if_match}"',
            "x-on-busy": manner.get("on_busy"),
            "x-turn-policy": manner.get("policy"),
            "x-show-tools": "true",
        },
    )


# ── pieces ───────────────────────────────────────────────────────────────────────────────────


def _request(
    route: str,
    answer: type[T],
    *names: str,
    query: Mapping[str, object] | None = None,
    body: msgspec.Struct | bytes = b"",
    headers: Mapping[str, str | None] | None = None,
) -> Request[T]:
    path = route.split(" ", 1)[1]
    for name in names:
        before, _, rest = path.partition("{")
        path = before + quote(name, safe="") + rest.partition("}")[2]
    said = {name: value for name, value in (query or {}).items() if value is not None}
    sent = {name: value for name, value in (headers or {}).items() if value is not None}
    if isinstance(body, msgspec.Struct):
        sent["content-type"] = "application/json"
        body = msgspec.json.encode(body)
    return Request(
        route=route,
        target=f"{path}?{urlencode(said)}" if said else path,
        answer=answer,
        body=body,
        headers=tuple(sent.items()),
    )


def read(request: Request[T], body: bytes) -> T:
    """The answer, from its bytes. Raises msgspec.DecodeError if they are not what was asked for."""
    decoder: Decoder[T] = Decoder(request.answer)
    return decoder.strict(body)
