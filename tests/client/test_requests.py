"""The clients ask for what the server's routes say, and for nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from holdfast.client.address import ServerAddress, parse_address
from holdfast.client.aio import AsyncClient
from holdfast.client.answers import headers_of
from holdfast.client.methods import ClientMethods, SessionSelection, asking, watching
from holdfast.client.requests import ClientCall, ClientRequest, ClientStream
from holdfast.client.sync import Client
from holdfast.core.items import plain_text
from holdfast.errors import InvalidValue
from holdfast.server.http.routing import Route
from holdfast.testing import ScriptedModel
from holdfast.wire.api import objects as api
from holdfast.wire.api import overview
from holdfast.wire.openai.responses.dialect import user_input
from tests.server.stubs import agent, serving

SAMPLES: dict[str, Any] = {
    "name": "trip",
    "key": "trip",
    "turn_id": "turn_x",
    "exported": b"{}",
    "call": "fc_x",
    "grant_id": "grant_x",
    "decision": api.Decision(approve=True),
    "decisions": {"fc_x": api.Decision(approve=True)},
    "results": {"call_x": "seen"},
    "tools": [api.ClientFunction(name="look")],
    "instructions": "Be brief.",
    "items": [user_input(plain_text("Hello"))],
    "model": "demo",
    "prompt": "Hello",
    "version": 3,
    "remark": overview.Remark(show_to_model=False),
    "title": "Oslo",
    "source": "agents.yaml",
    "anonymous": True,
    "cursor": "x",
    "attributes": {"for": "me"},
    "agent": "root",
    "after": "1",
    "before": "turn_x",
    "limit": 5,
    "state": "failed",
    "since": 1.0,
    "step": 2,
    "digest": "sha256:0",
    "view": "model",
    "on_conflict": "skip",
    "idempotency_key": "k",
    "reads_only": True,
    "which": dict.fromkeys(get_type_hints(SessionSelection), True),
    "manner": {
        "session": "a",
        "idempotency_key": "k",
        "if_match": 7,
        "policy": "cancel=keep",
        "reads_only": True,
    },
}

CALLS: list[Callable[..., Any]] = [
    *(each for each in vars(ClientMethods).values() if isinstance(each, ClientCall)),
    asking,
    watching,
]


def sent(call: Callable[..., Any]) -> ClientRequest[Any]:
    """A request with everything in it that can be said."""
    named: dict[str, Any] = {}
    for each in inspect.signature(call).parameters.values():
        if each.name != "self":
            value = SAMPLES[each.name]
            named |= value if each.kind == each.VAR_KEYWORD else {each.name: value}
    made = call(**named)
    request: ClientRequest[Any] = made.request if isinstance(made, ClientStream) else made
    return request


async def test_every_route_of_the_api_can_be_asked_for_and_says_what_is_sent_and_answered() -> None:
    async with serving(agent(ScriptedModel())) as server:
        routes = {each.label: each for each in server.app.routes}
    requests = {each.route: each for each in map(sent, CALLS)}
    assert {each for each in routes if " /api/" in each} <= requests.keys()
    for label, request in requests.items():
        demand_agreement(request, routes[label])


def demand_agreement(request: ClientRequest[Any], route: Route) -> None:
    known = {each.name.lower() for each in route.parameters} | {"content-type"}
    assert {*parse_qs(urlsplit(request.target).query), *dict(request.headers)} <= known
    if request.body:
        assert route.body is not None
        if route.body.kind is not bytes:
            msgspec.json.decode(request.body, type=route.body.kind)
    answered = [bytes if each.events else each.kind for each in route.answers]
    if request.route not in ("GET /v1/models", "POST /v1/responses"):  # the clients read less of it
        assert request.answer in answered


@pytest.mark.parametrize("name", ["ask", "events"])
def test_both_clients_are_asked_for_a_turn_in_the_same_words(name: str) -> None:
    ours, theirs = (inspect.signature(getattr(each, name)) for each in (Client, AsyncClient))
    assert ours.parameters == theirs.parameters


def test_what_is_not_said_is_not_sent() -> None:
    assert Client.sessions().target == "/api/sessions"
    assert Client.sessions(q="north sea", limit=5).target == "/api/sessions?q=north+sea&limit=5"
    assert Client.sessions(busy=False).target == "/api/sessions?busy=false"
    headers = dict(asking("demo", "Hello", session="a", if_match=7).headers)
    assert headers["x-conversation-id"] == "a"
    assert headers["if-match"] == '"7"'
    assert "idempotency-key" not in headers


def test_a_name_with_a_slash_stays_one_step_of_the_path() -> None:
    assert Client.session("a/b?c#d e").target == "/api/sessions/a%2Fb%3Fc%23d%20e"
    assert Client.fork("{name}").target == "/api/sessions/%7Bname%7D/fork"


def test_a_method_shows_its_arguments_and_its_words() -> None:
    client = Client("http://127.0.0.1:1")
    assert list(inspect.signature(client.rewind).parameters) == ["key", "version"]
    assert (client.rewind.__doc__ or "").startswith("Bind a key to its session as it was")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:8484", ServerAddress(url="", host="127.0.0.1", port=8484)),
        (
            "https://a.example/hold/",
            ServerAddress(url="", host="a.example", port=443, tls=True, base="/hold"),
        ),
        ("http://[::1]:80", ServerAddress(url="", host="::1", port=80)),
        ("unix:/run/h.sock", ServerAddress(url="", socket="/run/h.sock")),
        ("unix:///run/h.sock", ServerAddress(url="", socket="/run/h.sock")),
    ],
)
def test_an_address_is_read(text: str, address: ServerAddress) -> None:
    found = parse_address(text)
    assert found.url == text
    assert (
        ServerAddress(
            **{each: getattr(found, each) for each in found.__struct_fields__} | {"url": ""}
        )
        == address
    )


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1:8484", "ftp://a", "http://", "unix:", "http://a:b"]
)
def test_what_is_no_address_is_said_so(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not the address of a server"):
        parse_address(text)


@pytest.mark.parametrize("session", ["日本", "a\nb", "é"])
def test_what_cannot_be_sent_in_a_header_is_refused_before_anything_is(session: str) -> None:
    request = asking("demo", "Hello", session=session)
    with pytest.raises(InvalidValue, match="only visible ASCII"):
        headers_of(request, None)


def test_a_key_that_cannot_be_sent_is_not_shown() -> None:
    with pytest.raises(InvalidValue) as told:
        headers_of(Client.agents(), "hf_sécret")
    assert "cret" not in str(told.value)
