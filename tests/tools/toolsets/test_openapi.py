"""The operations of an HTTP API as tools: every argument where it belongs, credentials where the operator said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from aiohttp import web

from holdfast.observe.events import traced
from holdfast.tools.execution import execute
from holdfast.tools.permissions import permission_for
from holdfast.tools.schema import InvalidArguments, parse_arguments
from holdfast.tools.tool import Json, Tool, ToolOutput
from holdfast.tools.toolsets.openapi import HttpApi, OpenApiToolset
from holdfast.tools.toolsets.openapi_document import (
    ApiOperation,
    Unusable,
    operations,
    read,
    request_url,
    same_server,
)
from holdfast.tools.web.address_guard import AddressGuard
from holdfast.tools.web.web_client import as_written
from tests.agents.web import Web, serving
from tests.tools.tool_calls import Blobs, call_of, said

PET: Json = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "mother": {"$ref": "#/components/schemas/Pet"}},
}
DOCUMENT: dict[str, Json] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "/{v}", "variables": {"v": {"default": "v1"}}}],
    "paths": {
        "/pets": {
            "get": {
                "operationId": "listPets",
                "summary": "All pets.",
                "parameters": [
                    {"name": "tag", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"$ref": "#/components/parameters/limit"},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                ],
            },
            "post": {
                "operationId": "pets/create",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
                },
            },
        },
        "/pets/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "delete": {"description": "Give a pet away."},
        },
        "/lost/{id}": {"get": {"operationId": "lost"}},
        "/photo": {"post": {"operationId": "photo", "requestBody": {"required": True, "content": {"image/png": {}}}}},
        "/far": {"get": {"operationId": "far", "parameters": [{"$ref": "other.json#/a"}]}},
    },
    "components": {
        "schemas": {"Pet": PET},
        "parameters": {"limit": {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 10}}},
    },
}  # fmt: skip


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    async with serving() as made:
        made.files["/openapi.json"] = json.dumps(DOCUMENT).encode()

        async def answer(request: web.Request) -> web.Response:
            return web.json_response({"path": request.raw_path, "body": await request.text()})

        for path in ("/v1/pets", "/v1/pets/7", "/v1/pets/a b/c"):
            made.handlers[path] = answer
        yield made


def toolset(site: Web, **about: object) -> OpenApiToolset:
    api = HttpApi(
        document=site.url("/openapi.json"),
        headers={"Authorization": "Bearer s3cret"},
        allow_private=True,
    )
    return OpenApiToolset(msgspec.structs.replace(api, **about))


async def tools_of(made: OpenApiToolset) -> dict[str, Tool]:
    return {each.spec.name.partition("_")[0]: each for each in await made.tools()}


async def ran(made: OpenApiToolset, tool_name: str, /, **arguments: Json) -> ToolOutput:
    return await execute((await tools_of(made))[tool_name], call_of(arguments, key="fc_7"), Blobs())


async def test_each_operation_is_a_tool_and_only_reading_is_free(site: Web) -> None:
    made = toolset(site)
    tools = await tools_of(made)
    assert list(tools) == ["listPets", "pets", "delete"]
    assert [permission_for(each.spec, arguments={}) for each in tools.values()] == [
        "allow",
        "deny",
        "deny",
    ]
    assert tools["listPets"].spec.description == "All pets."
    assert sorted(made.left_out) == [
        "GET /far: it refers to another document",
        "GET /lost/{id}: the path's 'id' is not among its parameters",
        "POST /photo: it takes something else than JSON",
    ]
    spec = tools["pets"].spec
    assert parse_arguments(spec, '{"body": {"name": "Rex", "mother": {"name": "Ida"}}}')
    for wrong in ("{}", '{"body": {"mother": {"name": 1}}}', '{"body": {}, "x": 1}'):
        with pytest.raises(InvalidArguments):
            parse_arguments(spec, wrong)


async def test_arguments_go_where_they_belong(site: Web) -> None:
    made = toolset(site)
    arguments: dict[str, Json] = {"tag": ["a", "b c"], "limit": 3, "X-Trace": "t"}
    output = await ran(made, "listPets", **arguments)
    assert '"path": "/v1/pets?tag=a&tag=b+c&limit=3"' in said(output)
    request = site.requests[-1]
    assert (request.headers["X-Trace"], request.headers["Authorization"]) == ("t", "Bearer s3cret")
    assert "Idempotency-Key" not in request.headers
    output = await ran(made, "pets", body={"name": "Rex"})
    assert '{\\"name\\":\\"Rex\\"}' in said(output)
    request = site.requests[-1]
    assert (request.content_type, request.headers["Idempotency-Key"]) == (
        "application/json",
        "fc_7",
    )
    await ran(made, "delete", id="7")
    assert (site.requests[-1].method, site.requests[-1].path) == ("DELETE", "/v1/pets/7")


@pytest.mark.parametrize(
    "value", ["a/b", "a..b", ".hidden", "v1.", "a?x=1", "a#b", "a b/c", "é", "a%2Fb"]
)
async def test_no_value_changes_which_path_is_meant(site: Web, value: str) -> None:
    await ran(toolset(site), "delete", id=value)
    (request,) = [each for each in site.requests if each.method == "DELETE"]
    assert request.raw_path.startswith("/v1/pets/")
    assert request.raw_path.count("/") == 3
    assert "?" not in request.raw_path


@pytest.mark.parametrize("value", ["a;admin=1", "a:b@c", "a+b,c", "a&b=c", "a'b(c)", "%3B", "é ~"])
async def test_a_value_arrives_as_it_was_quoted(site: Web, value: str) -> None:
    await ran(toolset(site), "delete", id=value)
    assert site.requests[-1].raw_path == f"/v1/pets/{quote(value, safe='')}"


def test_what_an_address_leaves_unquoted_is_quoted() -> None:
    sent = as_written("https://u@ü.example:8/vé 1/%3B;x?a=b c&d=%3B")
    assert str(sent) == "https://u@xn--tda.example:8/v%C3%A9%201/%3B;x?a=b%20c&d=%3B"
    assert str(as_written("http://a.example")) == "http://a.example/"


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            ".",
            "..",
            "...",
            "..;",
            "..;x=1",
            ". ",
            "..\0",
            "%2e%2e",
            "%252e%252E",
            "..%3b",
            ".%2e",
        ),
        *("a/../../b", "../admin", "..\\admin", "a/..;/b", "a%2f..%2fb"),
        "%" + "25" * 100_000 + "2e",
    ],
)
async def test_no_value_is_a_step_up(site: Web, value: str) -> None:
    output = await ran(toolset(site), "delete", id=value)
    assert output.outcome == "error"
    assert "'id' cannot be" in said(output)
    assert [each for each in site.requests if each.method == "DELETE"] == []


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://API.example/v1", True),
        ("http://api.example/v1", False),
        ("https://api.example:8443/v1", False),
        ("https://other.example/v1", False),
    ],
)
def test_a_document_over_https_sends_credentials_to_its_own_server_over_https(
    url: str, same: bool
) -> None:
    assert same_server(url, "https://api.example/openapi.json") is same
    assert same_server("https://api.example/v1", "http://api.example/openapi.json")


async def test_a_trace_goes_on_with_a_request(site: Web) -> None:
    made, parent = toolset(site), f"00-{'a' * 32}-{'b' * 16}-01"
    with traced(parent):
        await ran(made, "listPets")
    assert site.requests[-1].headers["traceparent"] == parent
    await ran(made, "listPets")
    assert "traceparent" not in site.requests[-1].headers


async def test_an_error_of_the_api_is_the_tools(site: Web) -> None:
    made = toolset(site)
    output = await ran(made, "delete", id="8")
    assert (output.outcome, said(output).startswith("It answers 404")) == ("error", True)


@pytest.mark.parametrize(
    ("status", "is_told"), [(404, False), (422, False), (401, True), (429, True), (503, True)]
)
async def test_the_operator_is_told_if_the_server_is_at_fault(
    site: Web, status: int, is_told: bool
) -> None:
    (found,) = [each for each in await toolset(site).tools() if each.spec.name == "listPets"]
    site.status = status
    told: list[str] = []
    output = await execute(
        found, call_of(), Blobs(), tell_broken=lambda cause, detail: told.append(cause)
    )
    assert said(output).startswith(f"It answers {status}")
    assert told == ([f"it answers {status}"] if is_told else [])


async def test_the_operator_is_told_if_the_server_is_away(site: Web) -> None:
    made = toolset(site, base_url="http://127.0.0.1:1/v1")
    (found,) = [each for each in await made.tools() if each.spec.name == "listPets"]
    told: list[str] = []
    await execute(found, call_of(), Blobs(), tell_broken=lambda cause, detail: told.append(cause))
    (cause,) = told
    assert cause.startswith("http://127.0.0.1:1/v1: ")


async def test_credentials_do_not_go_where_only_the_document_points(site: Web) -> None:
    document = {**DOCUMENT, "servers": [{"url": site.url("/v1", host="localhost")}]}
    site.files["/openapi.json"] = json.dumps(document).encode()
    await ran(toolset(site), "listPets")
    assert site.requests[-1].headers["Host"].startswith("localhost")
    assert "Authorization" not in site.requests[-1].headers
    await ran(toolset(site, base_url=site.url("/v1", host="localhost")), "listPets")
    assert site.requests[-1].headers["Authorization"] == "Bearer s3cret"


async def test_a_document_that_points_inside_leads_nowhere(tmp_path: Path, site: Web) -> None:
    document = {**DOCUMENT, "servers": [{"url": site.url("/v1")}]}
    (tmp_path / "api.json").write_text(json.dumps(document))
    made = OpenApiToolset(HttpApi(document=str(tmp_path / "api.json")))
    output = await ran(made, "listPets")
    assert "private or special" in said(output)
    assert site.requests == []
    made = OpenApiToolset(
        HttpApi(document=str(tmp_path / "api.json")), guard=AddressGuard(allow_private=True)
    )
    assert (await ran(made, "listPets")).outcome == "ok"


async def test_a_document_that_cannot_be_read_is_told_and_tried_again_later(
    site: Web, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    api = HttpApi(document=site.url("/gone.json?token=s3cret"), allow_private=True)
    made = OpenApiToolset(api, now_s=lambda: now[0])
    for _ in range(3):
        assert await made.tools() == ()
    assert len(site.requests) == 1
    assert "cannot be used now: it answers 404" in made.instruction
    assert "s3cret" not in made.instruction
    site.files["/gone.json"] = json.dumps(DOCUMENT).encode()
    now[0] += 60.0
    assert len(await made.tools()) == 3
    assert made.instruction == ""
    failed, back = [each.getMessage() for each in caplog.records]
    assert failed.endswith("it fails: it answers 404") and "s3cret" not in failed
    assert back.endswith("it works again, after 1 failure")


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"[" * 100_000, b'{"swagger": "2.0"}', b"\xff\xfe\x00"]
)
def test_what_is_not_such_a_document_is_refused(data: bytes) -> None:
    with pytest.raises(Unusable):
        read(data)


def test_references_that_go_in_circles_are_seen() -> None:
    parameters: dict[str, Json] = {"a": {"$ref": "#/components/parameters/a"}}
    document: dict[str, Json] = {
        "openapi": "3.1.0",
        "paths": {
            "/x": {"get": {"parameters": [{"$ref": "#/components/parameters/a"}]}},
            "/y": {"$ref": "#/gone"},
        },
        "components": {"parameters": parameters},
    }
    circle, gone = operations(document)
    assert isinstance(circle, Unusable) and "in circles" in str(circle)
    assert isinstance(gone, Unusable) and "is not there" in str(gone)


def test_a_servers_address_is_text_and_not_a_program() -> None:
    document: dict[str, Json] = {
        "openapi": "3.1.0",
        "servers": [{"url": "https://a.example/{x.__class__}/{0}"}],
        "paths": {"/p": {"get": {}}},
    }
    (found,) = operations(document)
    assert isinstance(found, ApiOperation)
    assert request_url(found, {}) == "https://a.example/p"
