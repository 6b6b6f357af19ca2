"""A real browser on the console, and a watch over everything that must not happen in it.

The browser is the Chromium on the PATH, or the one that npm has; playwright drives it, and brings none of its own.
A page that is looked at here fails its test if anything in it breaks a rule: an error of a script, a dialog, something
that its policy had to stop, a request to another host.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from playwright.async_api import Browser, BrowserContext, Locator, Page, Playwright, expect

from tests.clients.environments import CannotInstall, Environment
from tests.means import skip_without

HERE = Path(__file__).parent
CHROMIUM = Environment("chromium", HERE / "chromium" / "package-lock.json")
AXE = Environment("axe", HERE / "axe" / "package-lock.json")
TYPESCRIPT = Environment("typescript", HERE / "typescript" / "package-lock.json")
ENABLE = "python -m tests.clients.environments, with a registry in reach"

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--no-sandbox",  # it looks at nothing but our own page, and containers have no other way
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

PATIENCE_MS = 30_000
"""For what should happen at once: a busy machine takes longer, and only a mistake takes for ever."""

expect.set_options(timeout=PATIENCE_MS)

KNOWN = ".app, main.door:not([aria-busy])"
"""The page of a user, or the form that asks for a key."""

Scheme = Literal["light", "dark"]

WATCH = """
window.__broken = [];
addEventListener('securitypolicyviolation', (event) =>
  window.__broken.push(`policy: ${event.violatedDirective} ${event.blockedURI}`));
"""


T = TypeVar("T")


async def within(work: Awaitable[T], *, seconds: float = 60.0) -> T:
    """What should happen soon, or else fail: whoever waits for ever says nothing."""
    async with asyncio.timeout(seconds):
        return await work


class Program(msgspec.Struct, frozen=True):
    """A browser, and the libraries that it needs besides the machine's own."""

    path: str
    libraries: str = ""

    @property
    def environ(self) -> dict[str, str | float | bool]:
        found = {"LD_LIBRARY_PATH": self.libraries} if self.libraries else {}
        return {**os.environ, **found}


@cache
def chromium() -> Program:
    """The browser of this machine, or npm's. Skips the test if there is neither."""
    for name in NAMES:
        if path := shutil.which(name):
            return Program(path)
    try:
        folder = CHROMIUM.ready()
        unpacked = folder / "unpacked"
        unpacked.mkdir(exist_ok=True)
        said = subprocess.run(
            [*CHROMIUM.runner(), str(folder / "unpack.mjs")],
            env={**os.environ, "TMPDIR": str(unpacked)},
            capture_output=True,
            text=True,
            check=True,
        )
    except (CannotInstall, subprocess.CalledProcessError) as error:
        skip_without(f"a Chromium ({error})", enable=ENABLE)
    found = json.loads(said.stdout)
    return Program(found["program"], found["libraries"])


def environments() -> tuple[Environment, ...]:
    """What tests of the console need besides our own: npm's browser only where there is none."""
    needed = (AXE, TYPESCRIPT)
    return needed if any(map(shutil.which, NAMES)) else (*needed, CHROMIUM)


@cache
def axe_source() -> str:
    """The accessibility checker. Skips the test if it cannot be had."""
    try:
        folder = AXE.ready()
    except CannotInstall as error:
        skip_without(f"axe-core ({error})", enable=ENABLE)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


async def launch(playwright: Playwright) -> Browser:
    program = chromium()
    return await playwright.chromium.launch(
        executable_path=program.path, args=list(ARGUMENTS), env=program.environ
    )


class Window:
    """A window of the console, on one server."""

    def __init__(self, page: Page, context: BrowserContext, url: str) -> None:
        self.page = page
        self.context = context
        self.url = url
        self.broken: list[str] = []
        """What must not have happened."""
        self.expects_failures = False
        """Requests of this test fail on purpose: a browser says so in its console."""
        page.on("pageerror", lambda error: self.broken.append(f"error: {error}"))
        page.on("dialog", self._dialog)
        page.on("console", lambda message: self._said(message.type, message.text))
        context.on("request", lambda request: self._asked(request.url))

    async def _dialog(self, dialog: Any) -> None:
        self.broken.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    def _said(self, kind: str, text: str) -> None:
        if kind == "error" and not (self.expects_failures and "Failed to load resource" in text):
            self.broken.append(f"console: {text}")

    def _asked(self, url: str) -> None:
        if (
            not url.startswith(("blob:", "data:"))
            and urlsplit(url).netloc != urlsplit(self.url).netloc
        ):
            self.broken.append(f"foreign request: {url}")

    async def open(self, place: str = "") -> None:
        """Go to a place in the page, given by what follows `#`, and wait until the page knows its user: before that,
        it shows nothing and hears no key."""
        await self.page.goto(f"{self.url}/#{place}")
        await self.find(KNOWN).wait_for()

    def find(self, selector: str) -> Locator:
        return self.page.locator(selector)

    async def say(self, text: str) -> None:
        """Write a message and send it."""
        await self.find(".composer-text").fill(text)
        await self.find(".composer-text").press("Enter")

    async def choose(self, opener: Locator, action: str) -> None:
        """Open a menu, and take something from it."""
        await opener.hover()
        await opener.click()
        await self.find(".menu-list:popover-open .menu-item").filter(has_text=action).click()

    async def confirm(self) -> None:
        await self.find("dialog [data-action=confirm]").click()

    async def check(self) -> None:
        """Nothing happened that must not."""
        self.broken += await self.page.evaluate("window.__broken ?? []")
        assert self.broken == [], self.broken

    async def audit(self) -> None:
        """Nothing serious is wrong for people who cannot see, or not well."""
        if not await self.page.evaluate("'axe' in window"):
            await within(self.page.evaluate(axe_source()))
        options = {
            "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
            "resultTypes": ["violations"],
        }
        found = await within(self.page.evaluate("(options) => axe.run(document, options)", options))
        wrong = [
            (each["impact"], each["id"], [node["html"][:200] for node in each["nodes"]][:3])
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert wrong == [], wrong


@asynccontextmanager
async def window(
    browser: Browser, url: str, *, phone: bool = False, scheme: Scheme = "light", key: str = ""
) -> AsyncIterator[Window]:
    """A window of its own, with nothing remembered but a key if one is given. Fails if a rule was broken."""
    context = await browser.new_context(
        viewport={"width": 390, "height": 844} if phone else {"width": 1280, "height": 800},
        device_scale_factor=1,
        color_scheme=scheme,
        reduced_motion="reduce",
        permissions=["clipboard-write"],
    )
    await context.add_init_script(WATCH)
    if key:
        kept = json.dumps(key)
        await context.add_init_script(f"sessionStorage.setItem('holdfast.key', {kept})")
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    opened = Window(page, context, url)
    try:
        yield opened
        await opened.check()
    finally:
        await context.close()
