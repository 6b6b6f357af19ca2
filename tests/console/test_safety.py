"""Nothing that a model, a tool, a user, a client or an agent file says ever runs in the console, or makes it ask others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from playwright.async_api import Browser, expect

from holdfast.agents.agent import PromptCommand
from holdfast.agents.registry import Broken, Listed
from holdfast.core.items import plain_text
from holdfast.ids import Tenant
from holdfast.models.model import ModelFailed, Prompt
from holdfast.printable import printable_lines
from holdfast.testing import Gate, ScriptedModel, says
from holdfast.testing.scripted_model import Script
from holdfast.tools.tool import ToolOutput, ToolRun, ToolSpec
from tests.console.browser import Window, window, within
from tests.console.payloads import NAME, PAYLOADS
from tests.server.stubs import Serving, StubDirectory, agent, serving

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

PART = 30
"""So many turns of a session are in the document at once."""


class Hostile(StubDirectory):
    """Agents whose file was written by somebody who means no good."""

    async def refresh(self) -> None:
        pass

    def entries(self, tenant: Tenant | None = None) -> tuple[Listed, ...]:
        bad = PAYLOADS[0]
        command = PromptCommand(name=NAME, description=bad, instruction=bad)
        return tuple(
            Listed(
                id=each.id,
                agent=each.agent,
                source=NAME,
                description=bad,
                welcome_message=PAYLOADS[40],
                commands=(command,),
            )
            for each in super().entries()
        )

    def broken(self, tenant: Tenant | None = None) -> tuple[Broken, ...]:
        return (Broken(source=NAME, problems=(PAYLOADS[1],), serving=False),)


class Parrot:
    """A tool that says what it was told, under a name that is not its own choice."""

    def __init__(self) -> None:
        self.spec = ToolSpec(
            name="say", description=NAME, parameters='{"type":"object"}', read_only=True
        )

    async def run(self, run: ToolRun) -> ToolOutput:
        return ToolOutput(content=plain_text(str(run.arguments["text"])))


def parrot(prompt: Prompt) -> Script:
    """Whatever the user says, in every form that a model has: a thought, a call with arguments, an answer."""
    last = msgspec.json.decode(b"[" + b",".join(filter(None, prompt.messages)) + b"]")[-1]
    said = last["content"]
    if last["role"] == "tool":
        return says(said, thinks=[said])
    if said.startswith("fail"):
        return says(said).failing(ModelFailed(said.removeprefix("fail ")), at=1)
    arguments = msgspec.json.encode({"text": said}).decode()
    return says(said, thinks=[said], calls=[("say", arguments)])


async def clean(here: Window) -> None:
    """Nothing has run, and every link leads where it says."""
    assert await here.page.evaluate("window.__ran") is None
    links = "[...document.querySelectorAll('a[href]')].map((a) => [a.getAttribute('href'), a.textContent])"
    for href, text in await here.page.evaluate(links):
        assert href.startswith(("#", "http://", "https://")), href
        assert href.startswith("#") or href == text, "a link shows its whole address"
    odd = "document.querySelectorAll('script:not([src]), iframe, object, embed, style, base, form, [style*=url]').length"
    assert await here.page.evaluate(odd) == 0
    await here.check()


async def test_there_are_more_than_a_hundred() -> None:
    assert len(set(PAYLOADS)) > 100


async def test_no_payload_runs_in_any_place_of_a_history(browser: Browser) -> None:
    model = ScriptedModel(otherwise=parrot)
    async with serving(agent(model, Parrot())) as server, window(browser, server.url) as here:
        for n, payload in enumerate(PAYLOADS):
            name = f"part-{n // PART}"
            answer = await server.chat({"role": "user", "content": payload, "name": "Ada"}, to=name)
            assert answer.status == 200, (payload, answer.body)
        for part in range(-(-len(PAYLOADS) // PART)):
            expected = PAYLOADS[part * PART : (part + 1) * PART]
            await here.open(f"/s/part-{part}")
            await expect(here.find(".about summary")).to_contain_text(f"part-{part} ")
            await expect(here.find(".turn-committed")).to_have_count(len(expected))
            for box in ("details.call", "details.thought"):
                await here.page.evaluate(
                    "(box) => document.querySelectorAll(box).forEach((each) => { each.open = true; })",
                    box,
                )
            shown = here.find(".call > pre:last-child")
            await expect(shown).to_have_count(len(expected))
            results = await shown.all_text_contents()
            assert results == list(map(printable_lines, expected)), "each is shown as text"
            await here.page.keyboard.press("m")
            await clean(here)
            await here.page.keyboard.press("m")


async def test_no_payload_runs_as_a_title_a_reason_a_remark_or_an_attribute(
    browser: Browser,
) -> None:
    model = ScriptedModel(otherwise=parrot)
    parts = -(-len(PAYLOADS) // PART)
    async with serving(agent(model, Parrot())) as server, window(browser, server.url) as here:
        for n, payload in enumerate(PAYLOADS):
            if n % 3 == 0:
                await server.chat(f"fail {payload}", to=f"failed-{n // PART}")
        for n, payload in enumerate(PAYLOADS):
            await _remarked(server, f"named-{n}", payload)
        await here.open()
        assert set(map(printable_lines, PAYLOADS)) <= await _titles(here, len(PAYLOADS))
        await clean(here)
        for n in range(0, len(PAYLOADS), 12):
            await here.open(f"/s/named-{n}")
            await expect(here.find(".about summary")).to_contain_text(f"named-{n} ")
            shown = printable_lines(PAYLOADS[n])
            await expect(here.find("h1")).to_have_text(shown)
            await expect(here.find(".note")).to_contain_text(shown)
            await here.find(".about summary").click()
            await expect(here.find(".facts")).to_contain_text(printable_lines(PAYLOADS[n][:500]))
        await clean(here)
        for part in range(parts):
            await here.open(f"/s/failed-{part}")
            await expect(here.find("h1")).to_have_text(f"failed-{part}")
            await here.find(".turn-discarded summary").first.click()
            await expect(here.find(".turn-discarded .item-user")).to_have_count(1)
        await here.find("#search").fill("alert")
        await expect(here.find(".session-row mark").first).to_be_visible()
        await clean(here)


async def _titles(here: Window, sessions: int) -> set[str | None]:
    """What the rows of the list say, from the first to the last: each is in the document when the one above it is in sight."""
    said = set()
    for place in range(1, sessions + 1):
        row = here.find(f".virtual-row[aria-posinset='{place}']")
        await row.scroll_into_view_if_needed()
        said.add(await row.locator(".row-title").text_content())
    return said


async def _remarked(server: Serving, name: str, payload: str) -> None:
    """A session with this in every remark that one can make about it."""
    await server.chat("hello", to=name)
    changes: dict[str, Any] = {"title": payload, "attributes": {"colour": payload[:500]}}
    await server.request("PATCH", f"/api/sessions/{name}", data=msgspec.json.encode(changes))
    item = (await server.items(name))[0]["id"]
    flag = {"item": item, "flag": {"name": "note", "value": payload}}
    await server.request(
        "POST", f"/api/sessions/{name}/annotations", data=msgspec.json.encode(flag)
    )


async def test_no_name_runs_wherever_it_is_shown(browser: Browser) -> None:
    """A key, an agent, a source, a tool of the client, a file: names that others choose."""
    gate = Gate()
    model = ScriptedModel(
        says("", calls=[("tool", f'{{"x": "{NAME}"}}')]),
        says("slow").waiting(gate, at=0),
        name=NAME,
    )
    directory = Hostile(agent(model, name=NAME))
    file = {"filename": NAME, "file_data": "data:text/html;base64,PHNjcmlwdD4="}
    picture = {"url": "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+PC9zdmc+"}
    said = [
        {"type": "text", "text": "Look"},
        {"type": "file", "file": file},
        {"type": "image_url", "image_url": picture},
    ]
    tool = {"type": "function", "function": {"name": "tool", "parameters": {}}}
    async with serving(directory=directory) as server, window(browser, server.url) as here:
        answer = await server.chat(
            {"role": "user", "content": said, "name": "Mallory"}, to=NAME, model=NAME, tools=[tool]
        )
        assert answer.status == 200, answer.body
        await here.open("/new")
        await expect(here.find(".begin")).to_contain_text(NAME)
        await clean(here)
        await here.find(".session-row").click()
        await expect(here.find(".turn-committed")).to_have_count(1)
        await here.find(".about summary").click()
        await clean(here)
        await here.say("go on")
        await within(gate.reached.wait())
        await expect(here.find(".span-label").first).to_have_text(NAME)
        await here.open("/operations")
        await expect(here.find(".panel table").last).to_contain_text(NAME)
        await clean(here)
        gate.release()


async def test_another_site_cannot_use_the_server_through_the_browser(browser: Browser) -> None:
    """No key is sent by itself, and where none is needed the server looks at where a request comes from."""
    async with (
        serving(agent(ScriptedModel("Hi."))) as server,
        serving(agent(ScriptedModel())) as evil,
    ):
        await server.chat("hello", to="trip")
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(f"{evil.url}/healthz")
        attack = """async (url) => {
          const tries = [
            fetch(url + '/api/sessions/trip', { method: 'DELETE', mode: 'no-cors' }),
            fetch(url + '/api/sessions/trip/reset', { method: 'POST', mode: 'no-cors', body: '{}' }),
            fetch(url + '/api/sessions', { credentials: 'include' }).then((answer) => answer.text()),
          ];
          return (await Promise.allSettled(tries)).map((each) => each.status + (each.value?.length ?? ''));
        }"""
        outcome = await page.evaluate(attack, server.url)
        assert outcome[2] == "rejected"
        assert (await server.get("/api/sessions/trip")).json["version"] == 1
        await context.close()


@pytest.mark.parametrize(
    ("attack", "seen"),
    [
        ("setTimeout(() => alert(1))", "dialog"),
        ("setTimeout(() => { throw new Error('x') })", "error"),
        ("document.body.append(Object.assign(new Image(), { src: '//evil.example/x' }))", "policy"),
        ("setTimeout(() => document.body.setAttribute('onclick', 'alert(1)'))", "policy"),
        ("setTimeout(() => { document.body.innerHTML = '<b>x</b>' })", "error"),
    ],
)
async def test_what_must_not_happen_would_be_seen(browser: Browser, attack: str, seen: str) -> None:
    """The watch itself on trial."""

    async def noticed(here: Window) -> None:
        while not here.broken and not await here.page.evaluate("window.__broken.length"):
            await here.page.evaluate("new Promise(requestAnimationFrame)")

    async def look(url: str) -> None:
        async with window(browser, url) as here:
            await here.open()
            await expect(here.find(".session-list")).to_be_attached()
            await here.page.evaluate(attack)
            await here.page.evaluate("document.body.click()")
            await within(noticed(here))

    async with serving(agent(ScriptedModel())) as server:
        with pytest.raises(AssertionError, match=seen):
            await look(server.url)
