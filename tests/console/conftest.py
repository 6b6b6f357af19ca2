"""One browser for all tests of a process; a window is cheap, a browser is not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.console.browser import launch


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        started = await launch(playwright)
        yield started
        await started.close()
