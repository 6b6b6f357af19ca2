"""The start page: what runs, waits, broke off and failed, in all sessions, and what a person can do about it there."""

from __future__ import annotations

import asyncio

import msgspec
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
        await expect(running.locator("a")).to_have_text("trip")  # it has no title before its commit
        await here.open("/operations")
        await expect(here.find(".panel table").last).to_contain_text("trip")
        await here.open()
        await running.get_by_role("button", name="Stop").click()
        await expect(running.locator(".nothing")).to_have_text("No turn is open.")
        assert (await asking).error["code"] == "turn_cancelled"


async def test_a_call_is_decided_where_it_waits(browser: Browser) -> None:
    async with serving(careful(asks(("pay", "{}")), HeldTool("pay", held=False))) as server:
        await server.chat("pay", to="trip")
        async with window(browser, server.url) as here:
            await here.open("/now")
            inbox = here.find('[data-panel="waiting"]')
            await expect(inbox.locator("pre")).to_contain_text("pay")
            await expect(inbox.locator("a")).to_have_text("pay")  # the conversation, by its title
            await inbox.get_by_role("button", name="Allow").click()
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


async def test_long_words_leave_each_row_its_buttons_in_sight(browser: Browser) -> None:
    """Names, arguments and reasons are as long as models and providers make them."""
    long = msgspec.json.encode({"lines": ["word " * 400, "x" * 3000]}).decode()
    buyer = careful(
        ScriptedModel(says(calls=[("pay", long)]), says(calls=[("pay", long)])), HeldTool("pay")
    )
    buyer.name = "a-" + "long-name-" * 9
    refused = fails("overloaded " * 300, status=400)
    agents = [buyer, agent(ScriptedModel(refused, refused), name="flaky")]
    async with serving(*agents) as server:
        for each in agents:
            for n in range(2):
                await server.chat("word " * 50, to=f"{each.name[:9]}{n}", model=each.name)
        for phone in (False, True):
            async with window(browser, server.url, phone=phone) as here:
                await here.open("/now")
                rows = here.find(".activity-rows li")
                await expect(here.find("[data-panel=failed] li")).to_have_count(2)
                for n in range(await rows.count()):
                    box = await rows.nth(n).bounding_box()
                    assert box is not None and box["height"] < 240, "nothing pushes the rest away"
                wide = here.page.viewport_size
                assert wide is not None
                for button in await here.find("[data-panel=waiting] button").all():
                    at = await button.bounding_box()
                    assert at is not None and at["x"] + at["width"] <= wide["width"]
                await here.audit()
