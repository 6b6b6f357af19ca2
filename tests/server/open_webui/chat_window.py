"""A window of Open WebUI in a real browser, and what a person does in it."""

from __future__ import annotations

import json
from typing import Any, Protocol, Self

from playwright.async_api import Browser, BrowserContext, FilePayload, Locator, Page, ViewportSize

from tests.server.open_webui.recording import RecordedMessage

SETTLE_MS = 2500
"""After an answer: titles, tags and follow-up questions are asked for."""

MESSAGES = """() => [...document.querySelectorAll('[id^="message-"]')]
    .map((each) => each.id.slice(8)).filter((each) => each !== 'input-container')"""
FETCH = """async ([method, path, body]) => {
    const headers = {authorization: 'Bearer ' + localStorage.token, 'content-type': 'application/json'};
    const answer = await fetch('/api/v1' + path, {method, headers, body: body ?? undefined});
    return await answer.json();
}"""


class Notebook(Protocol):
    """Where steps are noted."""

    def step(self, name: str, seen: list[RecordedMessage]) -> None: ...


class ChatWindow:
    """One window, on one chat."""

    def __init__(self, browser: Browser, page: Page, url: str, notebook: Notebook) -> None:
        self.browser = browser
        self.page = page
        self.url = url
        self.notebook = notebook

    @classmethod
    async def open(
        cls, browser: Browser, url: str, notebook: Notebook, path: str = "/", **how: Any
    ) -> Self:
        size = ViewportSize(width=1400, height=1000)
        context = await browser.new_context(viewport=size, locale="en-US", **how)
        window = cls(browser, await context.new_page(), url, notebook)
        await window.go_to(path)
        return window

    async def another(self) -> ChatWindow:
        """A second device, on the same chat."""
        state = await self.context.storage_state()
        path = self.page.url.removeprefix(self.url)
        return await type(self).open(
            self.browser, self.url, self.notebook, path, storage_state=state
        )

    @property
    def context(self) -> BrowserContext:
        return self.page.context

    async def close(self) -> None:
        await self.context.close()

    async def go_to(self, path: str) -> None:
        await self.page.goto(self.url + path)
        await self.page.wait_for_selector("#chat-input")
        await self.page.wait_for_timeout(1500)
        greeting = self.page.get_by_role("button", name="Okay, Let's Go!")
        if await greeting.count():
            await greeting.click()

    # ── what a person does ──

    async def say(self, text: str, name: str = "say") -> None:
        await self.begin(text)
        await self.note(name)

    async def begin(self, text: str) -> None:
        """Send a message, and do not wait for the answer."""
        await self.page.click("#chat-input")
        await self.page.keyboard.type(text)
        await self.page.keyboard.press("Enter")

    async def stop(self) -> None:
        await self.page.locator('button[aria-label="Stop"]').last.click()

    async def regenerate(self) -> None:
        await (await self.button(-1, "Regenerate")).click()
        await self.page.get_by_text("Try Again").last.click()
        await self.note("regenerate")

    async def go_on(self) -> None:
        await self.page.click("#continue-response-button")
        await self.note("continue")

    async def edit(self, at: int, text: str, *, send: bool) -> None:
        """Change a message of the user: send it anew, or save it in place."""
        message = (await self.messages())[at]
        await (await self.button(at, "Edit")).click()
        await self.page.locator(f"#message-edit-{message}").fill(text)
        which = "confirm" if send else "save"
        await self.page.click(f"#{which}-edit-message-button")
        await self.note("edit" if send else "save")

    async def edit_answer(self, at: int, text: str) -> None:
        """Change an answer in place."""
        await (await self.button(at, "Edit")).click()
        message = self.page.locator(f"#message-{(await self.messages())[at]}")
        await message.locator("textarea, [contenteditable=true]").first.click()
        await self.page.keyboard.press("Control+A")
        await self.page.keyboard.type(text)
        await message.get_by_role("button", name="Save", exact=True).click()
        await self.note("save")

    async def delete(self, at: int) -> None:
        await (await self.button(at, "Delete")).click()
        await self.page.get_by_role("button", name="Confirm").last.click()
        await self.note("delete")

    async def attach(self, name: str, text: str) -> None:
        field = self.page.locator("input[type=file]:not([webkitdirectory])").first
        file = FilePayload(name=name, mimeType="text/plain", buffer=text.encode())
        await field.set_input_files(files=[file])
        await self.page.wait_for_timeout(4000)

    # ── what is seen ──

    async def note(self, name: str) -> None:
        """Wait until everything has been said, and note the step."""
        await self.page.wait_for_timeout(600)
        await self.page.wait_for_function(
            """() => !document.querySelector('button[aria-label="Stop"]')""", timeout=60_000
        )
        await self.page.wait_for_timeout(SETTLE_MS)
        shown = await self.messages()
        by_id = {each.id: each for each in await self.tree()}
        self.notebook.step(name, [by_id[each] for each in shown if each in by_id])

    async def messages(self) -> list[str]:
        """The ids of the messages in the window, from above."""
        found: list[str] = await self.page.evaluate(MESSAGES)
        return found

    async def tree(self) -> list[RecordedMessage]:
        """All messages of the chat, as the program stores them."""
        chat = self.page.url.rpartition("/")[2]
        if "-" not in chat or "?" in chat:  # a temporary chat
            return []
        stored = await self.fetch("GET", f"/chats/{chat}")
        return [
            RecordedMessage(
                id=each["id"], parent=each["parentId"], role=each["role"], text=each["content"]
            )
            for each in stored["chat"]["history"]["messages"].values()
        ]

    async def fetch(self, method: str, path: str, body: object = None) -> Any:
        """A request to the program's own API, as its page makes it."""
        data = None if body is None else json.dumps(body)
        return await self.page.evaluate(FETCH, [method, path, data])

    async def button(self, at: int, label: str) -> Locator:
        """A button of a message, once it is shown."""
        message = self.page.locator(f"#message-{(await self.messages())[at]}")
        await message.scroll_into_view_if_needed()
        await message.hover()
        found = message.locator(f'button[aria-label="{label}"]')
        return found.last if label == "Regenerate" else found.first
