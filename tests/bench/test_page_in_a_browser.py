"""The page in a real browser: it fits, everybody can read it, and what others have said does nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from _figures import BARE, Line
from page.document import document
from playwright.async_api import Browser, async_playwright

from tests.bench.test_page import HOSTILE, group, semantics
from tests.console.browser import Scheme, launch, window

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        started = await launch(playwright)
        yield started
        await started.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    lines = [
        Line(HOSTILE, "ms", "lower", {BARE: [1.0, 1.2], "Holdfast": [2.0], HOSTILE: [9.0]}),
        *(
            Line(f"at {at}", "ms", "lower", {"Holdfast": [1.0]}, curve="CPU", at=at)
            for at in (10, 1000)
        ),
    ]
    page = document([group(*lines, axis="messages")], semantics("broken", HOSTILE, "x" * 500))
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("phone", [False, True], ids=["wide", "phone"])
async def test_it_fits_and_can_be_read_by_everybody(
    browser: Browser, url: str, scheme: Scheme, phone: bool
) -> None:
    async with window(browser, url, phone=phone, scheme=scheme) as opened:
        await opened.page.goto(url)
        await opened.page.evaluate(
            "document.querySelectorAll('details').forEach(e => e.open = true)"
        )
        wide = "document.documentElement.scrollWidth > innerWidth"
        assert not await opened.page.evaluate(wide)
        await opened.audit()


async def test_evidence_opens_without_a_script(browser: Browser, url: str) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(url)
    evidence = page.locator(".verdicts .evidence").first
    assert not await evidence.is_visible()
    await page.locator(".verdicts summary").first.click()
    assert await evidence.is_visible()
    assert "<script>alert(1)</script>" in await evidence.inner_text()
    await context.close()
