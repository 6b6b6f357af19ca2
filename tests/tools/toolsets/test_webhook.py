"""A message to an address of the author's: in the form that its server takes, once."""

from __future__ import annotations

import pytest
from aiohttp import web

from holdfast.tools.execution import execute
from holdfast.tools.permissions import permission_for
from holdfast.tools.tool import Json, ToolOutput
from holdfast.tools.toolsets.webhook import WebhookTarget, WebhookToolset
from holdfast.tools.web.address_guard import AddressGuard
from tests.agents.web import Web, serving
from tests.tools.tool_calls import Blobs, call_of, said


async def sent(site: Web, kind: str = "slack", **arguments: Json) -> tuple[ToolOutput, list[float]]:
    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)

    target = WebhookTarget(url=site.url("/hook?token=s3cret"), kind=kind, chat_id="7")
    toolset = WebhookToolset(target, guard=AddressGuard(allow_private=True), pause=pause)
    (tool,) = toolset.listed
    return await execute(tool, call_of({"message": "Hi.", **arguments}), Blobs()), waited


def answering(site: Web, *statuses: int, **headers: str) -> list[object]:
    bodies: list[object] = []
    left = list(statuses)

    async def answer(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        return web.Response(status=left.pop(0), headers=headers)

    site.handlers["/hook"] = answer
    return bodies


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("slack", {"text": "Hi."}),
        ("discord", {"content": "Hi."}),
        ("telegram", {"text": "Hi.", "chat_id": "7"}),
        ("ifttt", {"value1": "Hi.", "value2": "b"}),
    ],
)
async def test_each_server_has_its_form(kind: str, body: object) -> None:
    async with serving() as site:
        bodies = answering(site, 204)
        more = {"value2": "b"} if kind == "ifttt" else {}
        output, _ = await sent(site, kind, **more)
        assert (output.outcome, bodies) == ("ok", [body])


async def test_what_was_not_taken_is_tried_again() -> None:
    async with serving() as site:
        bodies = answering(site, 429, 503, 200, **{"Retry-After": "7"})
        output, waited = await sent(site)
        assert (output.outcome, len(bodies), waited) == ("ok", 3, [7.0, 7.0])


@pytest.mark.parametrize("status", [400, 404, 500, 502])
async def test_what_may_have_arrived_is_not_sent_again(status: int) -> None:
    async with serving() as site:
        bodies = answering(site, status)
        output, waited = await sent(site)
        assert (output.outcome, len(bodies), waited) == ("error", 1, [])
        assert f"it answers {status}" in said(output) and "s3cret" not in said(output)


async def test_there_is_an_end_to_it() -> None:
    async with serving() as site:
        bodies = answering(site, *[503] * 9)
        output, waited = await sent(site)
        assert (output.outcome, len(bodies), waited) == ("error", 4, [1.0, 2.0, 4.0])


async def test_sending_needs_a_permission_and_a_public_address() -> None:
    (tool,) = WebhookToolset(WebhookTarget(url="http://127.0.0.1:9/")).listed
    assert permission_for(tool.spec, arguments={}) == "deny"
    output = await execute(tool, call_of({"message": "Hi."}), Blobs())
    assert "private or special" in said(output)
