"""One table says what there is; nothing else does."""

from __future__ import annotations

import pytest

from holdfast.server.http.routing import Route, RouteMatch, Routes
from holdfast.testing import ScriptedModel
from holdfast.wire.problems import Refused
from tests.server.stubs import agent, serving


def routes(*labels: str) -> Routes:
    return Routes(Route(label, "read") for label in labels)


TABLE = routes(
    "GET /",
    "GET /things",
    "POST /things/import",
    "GET /things/{name}",
    "DELETE /things/{name}",
    "GET /things/{name}/parts/{part}",
    "GET /models/{id...}",
)


def found(method: str, path: str) -> tuple[str, tuple[str, ...]]:
    match TABLE.find(method, path):
        case RouteMatch(route=route, names=names):
            return route.label, names


@pytest.mark.parametrize(
    ("method", "path", "label", "names"),
    [
        ("GET", "/", "GET /", ()),
        ("GET", "/things", "GET /things", ()),
        ("GET", "/things/", "GET /things", ()),
        ("GET", "/things//", "GET /things", ()),
        ("GET", "/things/a", "GET /things/{name}", ("a",)),
        ("GET", "/things/a%2Fb%20c", "GET /things/{name}", ("a/b c",)),
        ("GET", "/things/%2525", "GET /things/{name}", ("%25",)),
        ("POST", "/things/import", "POST /things/import", ()),
        ("GET", "/things/import", "GET /things/{name}", ("import",)),
        ("GET", "/things/a/parts/b", "GET /things/{name}/parts/{part}", ("a", "b")),
        ("GET", "/models/a", "GET /models/{id...}", ("a",)),
        ("GET", "/models/work/butler", "GET /models/{id...}", ("work/butler",)),
        ("GET", "/models/work%2Fbutler", "GET /models/{id...}", ("work/butler",)),
    ],
)
def test_a_path_leads_to_one_route(
    method: str, path: str, label: str, names: tuple[str, ...]
) -> None:
    assert found(method, path) == (label, names)


def test_a_base_url_may_end_with_a_slash() -> None:
    table = routes("GET /v1/things", "GET /v1/things/{name}")
    for path in ("/v1//things", "/v1///things/"):
        assert table.find("GET", path).route.label == "GET /v1/things"
        assert table.methods(path) == ("GET",)
    with pytest.raises(Refused):
        table.find("GET", "/v1/things//a")


@pytest.mark.parametrize(
    "path", ["/thing", "/things//parts/b", "/things/a/parts", "/models", "/models//a"]
)
def test_a_path_that_leads_nowhere_is_told_so(path: str) -> None:
    with pytest.raises(Refused) as refused:
        TABLE.find("GET", path)
    assert (refused.value.problem.status, refused.value.problem.code) == (404, "unknown_url")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/things/a", "GET, DELETE"),
        ("PUT", "/things/import", "POST, GET, DELETE"),
        ("POST", "/things", "GET"),
    ],
)
def test_a_method_that_a_path_does_not_take_is_told_which_it_does(
    method: str, path: str, allowed: str
) -> None:
    with pytest.raises(Refused) as refused:
        TABLE.find(method, path)
    problem = refused.value.problem
    assert (problem.status, problem.code) == (405, "method_not_allowed")
    assert dict(problem.more_headers)["allow"] == allowed


def test_two_routes_for_the_same_requests_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="twice"):
        routes("GET /things/{name}", "GET /things/{id}")


async def test_everything_needs_a_key_but_what_balancers_ask_the_description_and_the_console() -> (
    None
):
    async with serving(agent(ScriptedModel())) as server:
        table = list(server.app.routes)
    open_to_all = {each.pattern for each in table if each.scope is None}
    files = {"/", "/console/{build}/{file...}"}  # the same for everybody, with nothing of anybody's
    assert open_to_all == {
        "/healthz",
        "/.well-known/agent-card.json",
        "/a2a/{agent}/.well-known/agent-card.json",
        "/readyz",
        "/openapi.json",
        *files,
    }


async def test_a_session_whose_key_has_a_slash_in_it_can_be_named_in_a_path() -> None:
    async with serving(agent(ScriptedModel("Yes."))) as server:
        await server.chat("Hi", to="a/b%c")
        answer = await server.get("/api/sessions/a%2Fb%25c")
    assert answer.json["keys"] == ["a/b%c"]
