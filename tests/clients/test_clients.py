"""Every client, in every scenario: `make test-clients`. One scenario of each is part of `make test`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.catalogue import CLIENTS, Client
from tests.clients.judges import SCENARIOS
from tests.clients.programs import drive
from tests.e2e.world import World

pytestmark = pytest.mark.slow


def cases() -> Iterator[Any]:
    """The conversation is what every run proves; the rest is marked."""
    for scenario in SCENARIOS:
        for client in CLIENTS:
            if scenario not in client.cannot:
                marks = () if scenario == "conversation" else (pytest.mark.clients,)
                yield pytest.param(client, scenario, id=f"{client.name}-{scenario}", marks=marks)


@pytest.mark.parametrize(("client", "scenario"), tuple(cases()))
async def test_a_real_client_is_served(world: World, client: Client, scenario: str) -> None:
    about = SCENARIOS[scenario]
    world.upstream.will(*about.script)
    saw = await drive(client, about.driven_as or scenario, world)
    await about.judge(world, saw)
    await world.verify()
