"""A declared request: the address is its author's, arguments only fill it in."""

from __future__ import annotations

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.execution import execute
from holdfast.tools.permissions import permission_for
from holdfast.tools.schema import InvalidTool
from holdfast.tools.tool import Json
from holdfast.tools.toolsets.api import ApiRequest, ApiToolset
from holdfast.tools.toolsets.person import OpenUrlToolset, UserPromptToolset
from tests.agents.web import serving
from tests.tools.tool_calls import Blobs, call_of, said

ARGS: dict[str, Json] = {"place": {"type": "string"}, "days": {"type": "integer"}}


def request(endpoint: str, **more: object) -> ApiRequest:
    return ApiRequest(name="weather", endpoint=endpoint, args=ARGS, **more)  # type: ignore[arg-type]


@given(place=st.text(min_size=1), days=st.integers())
def test_no_argument_leads_elsewhere(place: str, days: int) -> None:
    asked = request("https://a.example/v1/${place}/now?days=${days}")
    try:
        url = asked.url({"place": place, "days": days})
    except (ValueError, UnicodeEncodeError):
        return  # a dot segment, or no text at all
    assert url.startswith("https://a.example/v1/")
    assert url.endswith(f"/now?days={days}")
    assert url.count("/") == 5 and url.count("?") == 1 and "#" not in url


def test_an_argument_that_is_not_given_leaves_its_place_empty() -> None:
    asked = request("https://a.example/?q=${encodeURIComponent(place)}&n=${days}")
    assert asked.url({"place": "a&b"}) == "https://a.example/?q=a%26b&n="


@pytest.mark.parametrize("place", [".", ".."])
async def test_an_argument_cannot_climb(place: str) -> None:
    (tool,) = await ApiToolset(request("https://a.example/${place}/x")).tools()
    output = await execute(tool, call_of({"place": place}), Blobs())
    assert "cannot climb" in said(output)


@pytest.mark.parametrize(
    "endpoint", ["https://${place}.example/", "https://a.example/${nope}", "https://a/${place + 1}"]
)
def test_a_request_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidTool):
        ApiToolset(request(endpoint))


async def test_only_get_needs_no_permission() -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        (tool,) = await ApiToolset(request("https://a.example/", method=method)).tools()
        allowed = permission_for(tool.spec, arguments={}) == "allow"
        assert allowed == tool.spec.idempotent == (method == "GET")


async def test_a_private_address_is_refused() -> None:
    (tool,) = await ApiToolset(request("http://127.0.0.1:9/")).tools()
    output = await execute(tool, call_of(), Blobs())
    assert output.outcome == "error" and "private or special" in said(output)


async def test_what_is_sent() -> None:
    async with serving() as site:
        seen: list[tuple[str, str, object]] = []

        async def answer(asked: web.Request) -> web.StreamResponse:
            seen.append((asked.method, asked.headers["X-Key"], await asked.json()))
            return web.json_response({"ok": True}, headers={"X": asked.headers["Idempotency-Key"]})

        site.handlers["/do"] = answer
        asked = request(site.url("/do"), method="POST", headers={"X-Key": "k"}, allow_private=True)
        (tool,) = await ApiToolset(asked).tools()
        assert '"ok": true' in said(await execute(tool, call_of({"place": "x"}), Blobs()))
        assert seen == [("POST", "k", {"place": "x"})]
        site.status = 500
        output = await execute(tool, call_of(), Blobs())
        assert output.outcome == "error" and "It answers 500" in said(output)


async def test_a_question_and_a_link_are_handed_to_the_user() -> None:
    for toolset, arguments, words in (
        (UserPromptToolset(), {"message": "Which size?", "title": "Shoes"}, "Shoes: Which size?"),
        (OpenUrlToolset("https://a.example", name="shop"), {}, "https://a.example"),
    ):
        (tool,) = await toolset.tools()
        assert permission_for(tool.spec, arguments={}) == "allow"
        assert words in said(await execute(tool, call_of(arguments), Blobs()))


def test_an_argument_may_have_the_name_of_a_word_of_the_schema() -> None:
    asked = ApiRequest(
        name="form",
        endpoint="https://forms.example/?r=${required}",
        args={"required": {"type": "string"}},
        required=("required",),
    )
    (tool,) = ApiToolset(asked).listed
    schema = msgspec.json.decode(tool.spec.parameters)
    assert schema["required"] == ["required"] and [*schema["properties"]] == ["required"]
