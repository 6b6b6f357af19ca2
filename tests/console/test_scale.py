"""Five thousand sessions, and a session of two thousand turns: what is in the document stays bounded.

How long it takes is measured by `bench/console.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from holdfast.store.store import Store
from holdfast.store.store_url import open_store
from holdfast.testing import ScriptedModel
from tests.console.browser import Window, window
from tests.server.stubs import agent, serving
from tests.store.crowd import crowd, fill_sqlite, key_of, own_word

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

NODES_MAX = 12_000


@asynccontextmanager
async def filled(here: Path, *, sessions: int, turns: int) -> AsyncIterator[Store]:
    """A store with so many sessions and turns in it."""
    path = here / "crowd.db"
    fill_sqlite(path, crowd(sessions=sessions, turns=turns))
    store = await open_store(f"sqlite:///{path}")
    try:
        yield store
    finally:
        await store.close()


async def nodes(here: Window) -> int:
    found: int = await here.page.evaluate("document.getElementsByTagName('*').length")
    return found


async def test_of_five_thousand_sessions_only_some_are_in_the_document(
    browser: Browser, tmp_path: Path
) -> None:
    async with (
        filled(tmp_path, sessions=5_000, turns=5_000) as store,
        serving(agent(ScriptedModel()), store=store) as server,
        window(browser, server.url) as here,
    ):
        await here.open()
        row = here.find(".session-row")
        await expect(row.first).to_be_visible()
        assert await row.count() < 50
        first = await row.first.get_attribute("data-session")
        for known in (200, 300, 400):  # each time that the end comes near, there is more
            await here.page.evaluate(
                "() => { const list = document.querySelector('.session-list'); list.scrollTop = list.scrollHeight; }"
            )
            await here.page.wait_for_function(
                "(known) => Number(document.querySelector('.virtual-row').ariaSetSize) >= known",
                arg=known,
            )
        assert await row.count() < 50
        assert await row.first.get_attribute("data-session") != first
        assert await nodes(here) < NODES_MAX
        await here.find("#search").fill(own_word(4_321))
        await expect(row).to_have_count(1)


async def test_of_two_thousand_turns_only_some_are_in_the_document(
    browser: Browser, tmp_path: Path
) -> None:
    async with (
        filled(tmp_path, sessions=1, turns=2_000) as store,
        serving(agent(ScriptedModel()), store=store) as server,
        window(browser, server.url) as here,
    ):
        await here.open(f"/s/{key_of(0)}")
        turns = here.find("article")
        await expect(here.find(".version").last).to_have_text("2000")
        assert await turns.count() <= 90
        scroll = "(top) => { const turns = document.querySelector('.turns'); turns.scrollTop = top ?? turns.scrollHeight; }"
        oldest = 2_000
        while oldest > 1_700:
            await here.page.evaluate(scroll, 0)
            await here.page.wait_for_function(
                "(oldest) => Number(document.querySelector('.version').textContent) < oldest",
                arg=oldest,
            )
            oldest = int(await here.find(".version").first.text_content() or "0")
            assert await turns.count() <= 90
        assert await nodes(here) < NODES_MAX
        seen = await here.page.evaluate(
            "[...document.querySelectorAll('.version')].map((each) => Number(each.textContent))"
        )
        assert seen == list(range(seen[0], seen[0] + len(seen))), (
            "none is left out, none comes twice"
        )
        await here.find(".to-end").click()
        await expect(here.find(".version").last).to_have_text("2000")
        assert await turns.count() <= 90
