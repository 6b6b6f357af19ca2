"""The start page: what runs, waits, broke off and failed, in all sessions, and what a person can do about it there."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Browser, expect

from holdfast.core.turns.events import Usage
from holdfast.testing import Gate, ScriptedModel, fails, says
from tests.console.browser import window
from tests.server.api.test_approvals import asks, careful
from tests.server.stubs import HeldTool, agent, serving

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def test_a_stuck_first_turn_is_found_and_stopped(browser: Browser) -> None:
    """Its session is in no list yet."""
    gate = Gate()
    model = ScriptedModel(says("One ", "two.").waiting(gate, at=1))
    async with serving(agent(model)) as server, window(browser, server.url) as here:
        asking = asyncio.create_task(server.chat("count", to="trip"))
        await gate.reached.wait()
        await here.open()
        running = here.find('[data-panel="open"]')
        await expect(running.locator("li")).to_have_count(1)
        await running.get_by_role("button", name="Stop").click()
        await expect(running.locator(".nothing")).to_have_text("No turn is open.")
        assert (await asking).error["code"] == "turn_cancelled"


async def test_a_call_is_decided_where_it_waits(browser: Browser) -> None:
    async with serving(careful(asks(("pay", "{}")), HeldTool("pay", held=False))) as server:
        await server.chat("pay", to="trip")
        async with window(browser, server.url) as here:
            await here.open("/now")
            inbox = here.find('[data-panel="waiting"]')
            await expect(inbox.locator("code")).to_contain_text("pay")
            await inbox.get_by_role("button", name="Approve").click()
            await expect(inbox.locator(".nothing")).to_be_visible()
        turns = (await server.get("/api/sessions/trip/turns")).json["turns"]
        assert [each["state"] for each in turns] == ["committed", "committed"]


async def test_failures_and_costs_are_shown(browser: Browser) -> None:
    used = Usage(input_tokens=7, output_tokens=3, cost_micros=1_500_000)
    model = ScriptedModel(says("Yes.", usage=used), fails(status=400))
    async with serving(agent(model)) as server, window(browser, server.url) as here:
        await server.chat("one", to="trip")
        await server.chat("two", to="trip")
        await here.open()
        await expect(here.find('[data-panel="failed"] li')).to_contain_text("model failed")
        await expect(here.find('[data-panel="costs"] li')).to_contain_text("1.50")
