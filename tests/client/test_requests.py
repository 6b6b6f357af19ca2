"""The client and the server's table of routes say the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.client import requests
from holdfast.client.address import Address, parse_address
from holdfast.client.aio import AsyncClient
from holdfast.client.reading import headers_of
from holdfast.client.requests import Request
from holdfast.client.sync import Client
from holdfast.errors import InvalidValue
from holdfast.testing import ScriptedModel
from holdfast.wire import api, overview
from tests.server.stubs import agent, serving

SAMPLES: dict[str, tuple[Any, ...]] = {
    "name": ("trip",),
    "key": ("trip",),
    "turn_id": ("turn_x",),
    "exported": (b"{}",),
    "call": ("fc_x",),
    "grant_id": ("grant_x",),
    "decision": (api.Decision(approve=True),),
    "decisions": ({"fc_x": api.Decision(approve=True)},),
    "model": ("demo",),
    "prompt": ("Hello",),
    "version": (3,),
    "remark": (overview.Remark(show_to_model=False),),
}

BUILDERS: dict[str, Callable[..., Request[Any]]] = {
    name: function
    for name, function in vars(requests).items()
    if inspect.isfunction(function)
    and function.__module__ == requests.__name__
    and not name.startswith("_")
    and name != "read"
}


def built(builder: Callable[..., Request[Any]]) -> Request[Any]:
    """A request with everything in it that it needs."""
    needed = [
        each
        for each in inspect.signature(builder).parameters.values()
        if each.default is inspect.Parameter.empty and each.kind != each.VAR_KEYWORD
    ]
    given = [SAMPLES[each.name][0] for each in needed if each.kind != each.KEYWORD_ONLY]
    named = {each.name: SAMPLES[each.name][0] for each in needed if each.kind == each.KEYWORD_ONLY}
    return builder(*given, **named)


async def test_every_route_of_the_api_can_be_asked_for_and_no_other() -> None:
    async with serving(agent(ScriptedModel())) as server:
        routes = {each.label for each in server.app.routes}
    asked = {built(each).route for each in BUILDERS.values()}
    assert {each for each in routes if " /api/" in each} <= asked
    assert asked <= routes


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_both_clients_have_a_method_for_each_with_the_same_arguments(
    client: type, name: str
) -> None:
    ours = inspect.signature(getattr(client, name)).parameters
    assert [str(each) for each in list(ours.values())[1:]] == [
        str(each) for each in inspect.signature(BUILDERS[name]).parameters.values()
    ]


def test_what_is_not_said_is_not_sent() -> None:
    assert requests.sessions().target == "/api/sessions"
    assert requests.sessions(q="north sea", limit=5).target == "/api/sessions?q=north+sea&limit=5"
    sent = dict(requests.ask("demo", "Hello", session="a", if_match=7).headers)
    assert sent["x-conversation-id"] == "a"
    assert sent["if-match"] == '"7"'
    assert "idempotency-key" not in sent


def test_a_name_with_a_slash_stays_one_step_of_the_path() -> None:
    assert requests.session("a/b?c#d e").target == "/api/sessions/a%2Fb%3Fc%23d%20e"
    assert requests.fork("{name}").target == "/api/sessions/%7Bname%7D/fork"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:8484", Address(url="", host="127.0.0.1", port=8484)),
        (
            "https://a.example/hold/",
            Address(url="", host="a.example", port=443, tls=True, base="/hold"),
        ),
        ("http://[::1]:80", Address(url="", host="::1", port=80)),
        ("unix:/run/h.sock", Address(url="", socket="/run/h.sock")),
        ("unix:///run/h.sock", Address(url="", socket="/run/h.sock")),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    found = parse_address(text)
    assert found.url == text
    assert (
        Address(**{each: getattr(found, each) for each in found.__struct_fields__} | {"url": ""})
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
    request = requests.ask("demo", "Hello", session=session)
    with pytest.raises(InvalidValue, match="only visible ASCII"):
        headers_of(request, None)


def test_a_key_that_cannot_be_sent_is_not_shown() -> None:
    with pytest.raises(InvalidValue) as told:
        headers_of(requests.agents(), "hf_sécret")
    assert "cret" not in str(told.value)
