"""Everybody can use it: by keyboard, with a screen reader, in the dark, on a phone; and nobody more than their key may."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Browser, Route, expect

from holdfast.ids import Tenant
from holdfast.models.model import ModelFailed
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, says
from tests.console.browser import Scheme, window, within
from tests.server.access.test_authentication import bearer, put_key
from tests.server.api.test_approvals import careful
from tests.server.stubs import HeldTool, agent, serving

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

MARKDOWN = """# A plan

Go **north**, *then* east; see https://example.org/map.

1. pack
2. leave

| day | place |
|---|---|
| 1 | Oslo |

```python
print("Oslo")
```

> as they say
"""


@pytest.mark.parametrize(("scheme", "phone"), [("light", False), ("dark", False), ("dark", True)])
async def test_nothing_serious_is_in_anybodys_way(
    browser: Browser, scheme: Scheme, phone: bool
) -> None:
    gate = Gate()
    tool = HeldTool("pay", held=False)
    model = ScriptedModel(
        says(MARKDOWN, thinks=["Where to?"]),
        says("Half ").failing(ModelFailed("out of order"), at=1),
        says("May I?", calls=[("pay", '{"kr": 5}')]),
        says("Slowly ", "now.").waiting(gate, at=1),
    )
    async with (
        serving(careful(model, tool)) as server,
        window(browser, server.url, scheme=scheme, phone=phone) as here,
    ):
        for text in ("A plan?", "And now?", "Pay the bill"):
            await server.chat(text, to="trip")
        await here.open()
        await expect(here.find(".session-row")).to_have_count(1)
        await here.audit()
        await here.open("/s/trip")
        await expect(here.find(".approvals")).to_have_count(1)
        await here.find(".about summary").click()
        await here.find(".turn-discarded summary").click()
        await expect(here.find(".turn-discarded .span")).to_have_count(1)
        await here.audit()
        running = asyncio.create_task(server.chat("Go on", to="other"))
        await within(gate.reached.wait())
        await here.open("/s/other")
        await expect(here.find(".turn-open .draft")).to_have_text("Slowly ")
        await here.audit()
        await here.open("/operations")
        await expect(here.find(".panel tbody tr").last).to_be_visible()
        await here.audit()
        gate.release()
        await running
        await here.open("/new")
        await here.audit()
        await here.page.keyboard.press("?")
        await expect(here.find("dialog")).to_be_visible()
        await here.audit()


async def test_the_keyboard_is_enough(browser: Browser) -> None:
    model = ScriptedModel(otherwise=lambda _: "Yes.")
    async with serving(agent(model)) as server, window(browser, server.url) as here:
        for name in ("one", "two", "three"):
            await server.chat(f"This is {name}", to=name)
        await here.open()
        await expect(here.find(".session-row")).to_have_count(3)
        press = here.page.keyboard.press
        await press("j")
        await expect(here.find("h1")).to_have_text("This is three")
        await press("j")
        await expect(here.find("h1")).to_have_text("This is two")
        await press("k")
        await expect(here.find("h1")).to_have_text("This is three")
        await press("c")
        await here.page.keyboard.type("More")
        await press("Enter")
        await expect(here.find("article")).to_have_count(2)
        await press("Escape")
        await press("/")
        await here.page.keyboard.type("two")
        await expect(here.find(".session-row")).to_have_count(1)
        await expect(here.find(".session-row mark")).to_have_text("two")
        await press("Escape")
        await press("g")
        await press("o")
        await expect(here.find("h1")).to_have_text("Operations")
        await press("t")
        await expect(here.find("html[data-theme=dark]")).to_have_count(1)
        await press("?")
        await expect(here.find("dialog h2")).to_have_text("Keys")
        await press("Escape")
        await expect(here.find("dialog")).to_have_count(0)


async def test_a_page_that_does_not_know_its_user_yet_is_not_open(browser: Browser) -> None:
    """It hears no key before, and a test that presses one then would wait for ever."""
    asked, known = asyncio.Event(), asyncio.Event()

    async def held(route: Route) -> None:
        asked.set()
        await known.wait()
        await route.continue_()

    async with (
        serving(agent(ScriptedModel())) as server,
        window(browser, server.url) as here,
    ):
        await here.page.route("**/api/me", held)
        opening = asyncio.create_task(here.open())
        await within(asked.wait())
        await here.page.wait_for_load_state("load")
        await expect(here.find("main[aria-busy]")).to_have_count(1)
        assert not opening.done()
        known.set()
        await opening
        await here.page.keyboard.press("n")
        await expect(here.find("#begin-name")).to_be_visible()


async def test_a_key_opens_the_door_and_no_further_than_it_may(browser: Browser) -> None:
    store = MemoryStore()
    reader = await put_key(store, Tenant("acme"), "read", nth=1)
    admin = await put_key(store, Tenant("acme"), "admin", nth=2)
    writer = await put_key(store, Tenant("acme"), "chat", nth=3)
    model = ScriptedModel(otherwise=lambda _: "Yes.")
    async with (
        serving(agent(model), store=store, auth="required") as server,
        window(browser, server.url) as here,
    ):
        here.expects_failures = True
        await server.chat("Hello", to="trip", headers=bearer(admin))
        await here.open("/s/trip")
        await expect(here.find("#key")).to_be_visible()
        await here.audit()

        await here.find("#key").fill("hf_wrong")
        await here.find("#key").press("Enter")
        await expect(here.find(".door .banner")).to_contain_text("not known here")
        await here.find("#key").fill(bearer(writer)["Authorization"].removeprefix("Bearer "))
        await here.find("#key").press("Enter")
        await expect(here.find(".door .banner")).to_contain_text("scope “read”")
        await here.find("#key").fill(bearer(reader)["Authorization"].removeprefix("Bearer "))
        await here.find("#key").press("Enter")

        await expect(here.find("article")).to_have_count(1)
        await expect(here.find(".composer")).to_contain_text("lacks the scope “chat”")
        await expect(here.find(".composer-text")).to_have_count(0)
        await here.find(".session-title .menu-button").click()
        actions = here.find(".menu-list:popover-open .menu-item")
        await expect(actions).to_have_text(["Copy its id"])
        await here.page.keyboard.press("Escape")
        await here.open("/operations")
        await expect(here.find(".operations")).to_contain_text("lacks the scope “metrics”")

        kept = "[Object.keys(localStorage).join(), document.cookie]"
        assert not any("hf_" in each for each in await here.page.evaluate(kept))
        other = await here.context.new_page()
        await other.goto(server.url)
        await expect(
            other.locator("#key")
        ).to_be_visible()  # another tab has to show a key of its own
        await here.find("[aria-label^='sign out']").click()
        await expect(here.find("#key")).to_be_visible()
    await store.close()


LINES = """(place) => {
    const range = document.createRange();
    range.selectNodeContents(place);
    return range.getClientRects().length;
}"""
"""How many lines the words of a place take."""


@pytest.mark.parametrize("width", [390, 360, 320])
async def test_a_page_with_a_key_is_no_wider_than_the_phone(browser: Browser, width: int) -> None:
    store = MemoryStore()
    key = await put_key(store, Tenant("acme"), "read", "chat", "metrics", nth=1)
    model = ScriptedModel("word " * 40)
    async with serving(agent(model), store=store, auth="required") as server:
        await server.chat("Hello", to="trip", headers=bearer(key))
        shown = bearer(key)["Authorization"].removeprefix("Bearer ")
        async with window(browser, server.url, phone=True, key=shown) as here:
            await here.page.set_viewport_size({"width": width, "height": 700})
            for place, seen in (
                ("", ".session-row"),
                ("/s/trip", ".turn-committed"),
                ("/now", ".activity-rows"),
                ("/operations", ".bars td"),
            ):
                await here.open(place)
                await expect(here.find(seen).first).to_be_visible()
                out = here.find("[aria-label^='sign out']")
                box = await out.bounding_box()
                assert box is not None and box["x"] + box["width"] <= width, place
                assert await here.page.evaluate("document.documentElement.scrollWidth") <= width
                if place == "/operations":
                    word = here.find(".bars td").first
                    assert await word.evaluate(LINES) == 1, "a word is not broken"
