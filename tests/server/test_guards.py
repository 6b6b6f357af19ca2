"""Only requests that are meant for us, and only pages of ours."""

from __future__ import annotations

import pytest

from holdfast.server.guards import Guard
from holdfast.testing import ScriptedModel
from tests.server.stubs import agent, serving

OURS = Guard(frozenset({"localhost", "127.0.0.1", "::1", "agents.example"}))


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8484", "Agents.Example:443"])
async def test_a_request_to_one_of_our_names_is_answered(host: str) -> None:
    async with serving(agent(ScriptedModel()), guard=OURS) as server:
        answer = await server.request("GET", "/v1/models", headers={"Host": host})
    assert answer.status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8484", "localhost.evil.example", "["]
)
async def test_a_name_that_somebody_points_at_us_is_refused(host: str) -> None:
    async with serving(agent(ScriptedModel()), guard=OURS) as server:
        answer = await server.request("GET", "/v1/models", headers={"Host": host})
        alive = await server.request("GET", "/healthz", headers={"Host": host})
    assert (answer.status, answer.error["code"]) == (403, "host_not_allowed")
    assert alive.status == 200


async def test_a_page_of_another_origin_is_refused_before_anything_happens() -> None:
    async with serving(agent(ScriptedModel()), guard=OURS) as server:
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
            answer = await server.chat("Hi", headers={"Origin": origin})
            assert (answer.status, answer.error["code"]) == (403, "origin_not_allowed")


async def test_a_page_of_ours_may() -> None:
    async with serving(agent(ScriptedModel("Hello.")), guard=OURS) as server:
        answer = await server.chat("Hi", headers={"Origin": server.url})
    assert answer.status == 200
