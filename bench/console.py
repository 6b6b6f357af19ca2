"""The console with much in it, against the console with little: 5,000 sessions against 20, 2,000 turns against 20.

In a real browser, in turns, each time in a new window:

- *there*: from the address to the first row, or to the latest turn;
- *work*: the time of a core that the main thread used until then;
- *scroll*: the same while a list, or a history, is scrolled through, and how many tasks were longer than 50 ms, which
  is what people notice.

The figures are medians; what matters is the ratio, which is near 1 where nothing grows with what is stored. While
scrolling, much has more to fetch than little has: there the long tasks matter.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from playwright.async_api import Browser, CDPSession, async_playwright

from holdfast.testing import ScriptedModel
from tests.console.browser import launch, window
from tests.console.test_scale import filled
from tests.server.stubs import agent, serving
from tests.store.crowd import key_of

ROUNDS = 5
STEPS = 40

WATCH_TASKS = """
window.__long = 0;
new PerformanceObserver((list) => { window.__long += list.getEntries().length; }).observe({ type: 'longtask' });
"""


class View(NamedTuple):
    """Something to look at, with little and with much in it."""

    name: str
    place: str
    ready: str
    scroller: str
    pixels: int
    """How far one step of scrolling goes."""
    few: tuple[int, int]
    many: tuple[int, int]
    """Sessions, and turns in all."""


VIEWS = (
    View("list", "", ".session-row", ".session-list", 900, (20, 20), (5_000, 5_000)),
    View("session", f"/s/{key_of(0)}", "article .said", ".turns", -900, (1, 20), (1, 2_000)),
)


class Figures(NamedTuple):
    there_ms: float
    work_ms: float
    scroll_ms: float
    long_tasks: int


async def look(browser: Browser, url: str, view: View) -> Figures:
    async with window(browser, url) as here:
        await here.context.add_init_script(WATCH_TASKS)
        tools = await here.context.new_cdp_session(here.page)
        await tools.send("Performance.enable", {"timeDomain": "threadTicks"})
        began = time.perf_counter()
        await here.open(view.place)
        await here.find(view.ready).last.wait_for()
        there_ms = (time.perf_counter() - began) * 1000
        work_ms = await busy_ms(tools)
        await here.page.evaluate("window.__long = 0")
        for _ in range(STEPS):
            await here.page.evaluate(
                "([name, by]) => new Promise((done) => { document.querySelector(name).scrollTop += by;"
                " requestAnimationFrame(() => requestAnimationFrame(done)); })",
                [view.scroller, view.pixels],
            )
        scroll_ms = await busy_ms(tools) - work_ms
        return Figures(there_ms, work_ms, scroll_ms, await here.page.evaluate("window.__long"))


async def busy_ms(tools: CDPSession) -> float:
    """How much time of a core the main thread has used, however busy the machine is."""
    told = await tools.send("Performance.getMetrics")
    named = {each["name"]: each["value"] for each in told["metrics"]}
    return float(named["TaskDuration"]) * 1000


async def compare(browser: Browser, view: View, folder: Path) -> None:
    async with AsyncExitStack() as stack:
        urls = []
        for name, (sessions, turns) in (("few", view.few), ("many", view.many)):
            place = folder / f"{view.name}-{name}"
            place.mkdir()
            store = await stack.enter_async_context(filled(place, sessions=sessions, turns=turns))
            server = await stack.enter_async_context(serving(agent(ScriptedModel()), store=store))
            urls.append(server.url)
        found: list[list[Figures]] = [[], []]
        for _ in range(ROUNDS):
            for figures, url in zip(found, urls, strict=True):
                figures.append(await look(browser, url, view))
    few, many = ([median(column) for column in zip(*each, strict=True)] for each in found)
    for name, little, much in zip(Figures._fields, few, many, strict=True):
        ratio = f"{much / little:6.2f}" if little else "     –"
        print(f"{view.name:8} {name:11} {little:9.0f} {much:9.0f} {ratio}")


async def main() -> None:
    print(f"{'':8} {'':11} {'little':>9} {'much':>9}  ratio")
    with tempfile.TemporaryDirectory() as folder:
        async with async_playwright() as playwright:
            browser = await launch(playwright)
            for view in VIEWS:
                await compare(browser, view, Path(folder))
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
