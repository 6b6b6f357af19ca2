"""Conversations that change under a vendor that refuses what it documents as refused: none of them gets stuck.

A run takes a few seeds; `make torture-claims` takes more.
"""

from __future__ import annotations

import pytest

from holdfast.models.http.connections import Connections
from holdfast.models.providers.anthropic import AnthropicModel
from holdfast.testing import FakeUpstream
from tests.vendors.claude import TYPES, Claude
from tests.vendors.drive import Drive

SEEDS = [
    *range(2),
    *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 30)),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(TYPES))
async def test_no_conversation_with_claude_gets_stuck(name: str, seed: int) -> None:
    vendor, connections = Claude(seed=seed), Connections()
    other = sorted(TYPES)[seed % len(TYPES)]
    async with FakeUpstream(otherwise=vendor) as upstream:
        models = {
            agent: AnthropicModel(model, base_url=upstream.url, connections=connections, proxy="")
            for agent, model in (("ada", name), ("bob", other))
        }
        drive = Drive(seed, models)
        await drive.run()
        await connections.close()
    assert vendor.refused == []
    assert drive.stuck == []


async def test_thoughts_go_back_while_a_conversation_only_grows() -> None:
    """Whoever leaves all thoughts out is never refused, and answers worse."""
    vendor, connections = Claude(seed=3), Connections()
    async with FakeUpstream(otherwise=vendor) as upstream:
        opus = AnthropicModel(
            "claude-opus-5-5", base_url=upstream.url, connections=connections, proxy=""
        )
        drive = Drive(3, {"ada": opus}, quiet=True)
        await drive.run()
        await connections.close()
    assert (vendor.refused, drive.stuck) == ([], [])
    assert vendor.thoughts_back == vendor.thoughts_expected > 100
