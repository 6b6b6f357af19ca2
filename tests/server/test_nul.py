"""A NUL character in an address is a 400, wherever it stands: stores differ in what they make of one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.server.http.routing import Route
from holdfast.testing import ManualClock, ScriptedModel
from tests.server.stubs import Serving, agent, serving
from tests.store.homes import PostgresHome


def addresses(route: Route) -> Iterator[str]:
    """This route's address with a NUL in each of its places, and in each parameter of its query."""
    plain = re.sub(r"\{\w+(\.\.\.)?\}", "x", route.pattern)
    for place in re.finditer(r"\{\w+(\.\.\.)?\}", route.pattern):
        before, after = route.pattern[: place.start()], route.pattern[place.end() :]
        yield re.sub(r"\{\w+(\.\.\.)?\}", "x", f"{before}a%00b{after}")
    for each in route.parameters:
        if each.where == "query":
            yield f"{plain}?{each.name}=a%00b"
    yield f"{plain}?unknown%00=1"


async def refused(server: Serving, method: str, address: str) -> bool:
    answer = await server.request(method, address)
    return answer.status == 400 and (
        method == "HEAD" or answer.problem[1].endswith("has a NUL character")
    )


async def test_a_nul_in_an_address_is_refused_wherever_it_stands() -> None:
    async with serving(agent(ScriptedModel())) as server:
        asked = [(each.method, at) for each in server.app.routes for at in addresses(each)]
        let_through = [each for each in asked if not await refused(server, *each)]
    assert not let_through
    assert ("GET", "/api/sessions?q=a%00b") in asked and len(asked) > 60


async def test_a_nul_is_no_fault_of_the_store(tmp_path: Path) -> None:
    """PostgreSQL keeps none in a text: it took a search for one as its own failure."""
    store = await PostgresHome().open(tmp_path, ManualClock())
    try:
        async with serving(agent(ScriptedModel()), store=store) as server:
            for each in ("q=a%00b", "agent=%00", "key_prefix=%00", "cursor=%00"):
                assert await refused(server, "GET", f"/api/sessions?{each}"), each
    finally:
        await store.close()


async def test_a_parameter_that_a_route_does_not_have_is_refused_by_every_route_of_ours() -> None:
    """A misspelt filter would otherwise list everything. `/v1` belongs to clients, who send what they like."""
    async with serving(agent(ScriptedModel())) as server:
        for route in server.app.routes:
            plain = re.sub(r"\{\w+(\.\.\.)?\}", "x", route.pattern)
            answer = await server.request(route.method, f"{plain}?misspelt=1")
            is_refused = answer.status == 400 and b"unknown_parameter" in answer.body
            assert is_refused == route.pattern.startswith("/api/"), route.label
