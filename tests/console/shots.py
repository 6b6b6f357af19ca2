"""Pictures of every view, for the guide: `python -m tests.console.shots FOLDER`.

What is in them was said by scripted models to a real server, and is photographed in a real browser.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import msgspec
from playwright.async_api import Browser, async_playwright, expect

from holdfast.agents.agent import Agent
from holdfast.core.items import Permissions, plain_text
from holdfast.core.turns.deltas import Delta
from holdfast.core.turns.events import Usage
from holdfast.ids import Tenant
from holdfast.models.model import ModelFailed, Prompt
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, says
from holdfast.tools.tool import ToolOutput, ToolRun, ToolSpec
from tests.console.browser import Scheme, Window, launch, window
from tests.server.access.test_authentication import put_key
from tests.server.stubs import Serving, StubTools, serving

PLAN = """Three days fit well. Here is a plan:

| day | where | night | km |
|:-:|---|---|--:|
| 1 | Oslo: the opera, Bygdøy | hotel by the harbour | 12 |
| 2 | the Bergen line, **window on the left** | Finse 1222 | 302 |
| 3 | Flåm, ~~then the bus~~ then the ferry | Bergen | 189 |

The train on day 2 leaves at `08:25`. Tickets: https://example.org/bergen-line

- [x] Look up the train
- [ ] Book it, it fills up

```python
def seats(car: int) -> list[str]:
    return [f"{car}{side}" for side in "AB"]  # on the left
```
"""


class Paced(ScriptedModel):
    """A model that takes its time, as real ones do."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        await asyncio.sleep(0.35)
        async for deltas in super().stream(prompt):
            await asyncio.sleep(0.12)
            yield deltas


class Answering:
    """A tool with one answer."""

    def __init__(self, name: str, said: str, *, read_only: bool = True) -> None:
        self.spec = ToolSpec(
            name=name, description=name, parameters='{"type":"object"}', read_only=read_only
        )
        self._said = said

    async def run(self, run: ToolRun) -> ToolOutput:
        await asyncio.sleep(0.2)
        return ToolOutput(content=plain_text(self._said))


def _used(spoken: int, heard: int, micros: int) -> Usage:
    return Usage(input_tokens=heard, output_tokens=spoken, cost_micros=micros)


def travel(gate: Gate) -> tuple[Agent, ScriptedModel]:
    timetable = '{"from": "Oslo S", "to": "Bergen", "day": "2026-06-12"}'
    model = Paced(
        says("Gladly. How many days do you have, and what do you like?", usage=_used(14, 212, 840)),
        says(
            "Let me look at the trains.",
            thinks=["Three days, trains and water: the Bergen line. I need the timetable."],
            calls=[("timetable", timetable)],
            usage=_used(31, 301, 1450),
        ),
        says(PLAN, usage=_used(143, 492, 3120)),
        says("The night train would be an").failing(
            ModelFailed("the connection to the model was lost"), at=1
        ),
        says(
            "I have two seats on the left, in the quiet car. Shall I book them?",
            calls=[("book", '{"train": "R 61", "seats": ["12A", "12B"], "nok": 1198}')],
            usage=_used(40, 655, 3390),
        ),
        says(
            "While you decide: Finse has the best breakfast of the line, ",
            "and you can walk out onto the snow straight from the platform. ",
            "If the weather holds, take the later train and ",
            "spend the morning",
        ).waiting(gate, at=3),
        name="openai/gpt-6-mini",
    )
    agent = Agent(
        "travel",
        model,
        instruction="Plan trips.",
        toolsets=(
            StubTools(
                Answering(
                    "timetable", '[{"train": "R 61", "leaves": "08:25", "arrives": "15:27"}]'
                ),
                Answering("book", "booked", read_only=False),
            ),
        ),
        permissions=Permissions(allow=("timetable",), ask=("book",)),
    )
    return agent, model


TALKS = (
    ("support", "invoice-4471", "The invoice of May is wrong"),
    ("support", "door-code", "My door code does not work"),
    ("clerk", "weekly-report", "Write the weekly report"),
    ("clerk", "minutes", "Sum up the meeting of Tuesday"),
    ("support", "refund-8812", "I want to return the blue one"),
    ("clerk", "translations", "Translate the menu into Norwegian"),
    ("support", "parcel", "Where is my parcel?"),
    ("clerk", "names", "Ten names for a ferry"),
)


@asynccontextmanager
async def stage() -> AsyncIterator[tuple[Serving, str]]:
    """A server with a day's work in it, and a turn that runs; and the id of its main conversation."""
    gate = Gate()
    hero, _ = travel(gate)
    others = [
        Agent(name, Paced(otherwise=lambda _: "Done."), instruction="Help.")
        for name in ("support", "clerk")
    ]
    async with serving(hero, *others) as server:
        for who, name, text in TALKS:
            await server.chat(text, to=name, model=who)
        for text in (
            "I want to see Norway by train. Can you help?",
            "Three days in June, and I like water.",
            "Is there a night train?",
            "Then the day train. Two of us, please.",
        ):
            await server.chat(text, to="trip-to-norway", model="travel")
        found = (await server.get("/api/sessions/trip-to-norway")).json["id"]
        place = msgspec.json.encode({"version": 2})
        for title in ("by car instead", "with the children"):
            fork = await server.request("POST", f"/api/sessions/{found}/fork", data=place)
            changes = msgspec.json.encode({"title": title})
            await server.request("PATCH", f"/api/sessions/{fork.json['id']}", data=changes)
        yield server, found
        gate.release()


# ── the views ────────────────────────────────────────────────────────────────────────────────


async def session(here: Window, name: str) -> None:
    await here.open(f"/s/{name}")
    await expect(here.find(".approvals")).to_be_visible()
    await here.page.wait_for_timeout(300)


async def history(here: Window, name: str) -> None:
    await here.open(f"/s/{name}")
    await expect(here.find(".approvals")).to_be_visible()
    await here.find(".turn-discarded summary").first.click()
    await expect(here.find(".turn-discarded .span")).to_have_count(1)
    centre = "(turn) => turn.scrollIntoView({ block: 'center' })"
    await here.find(".turn-discarded").evaluate(centre)
    await here.page.wait_for_timeout(200)
    await here.find(".turn-discarded").evaluate(centre)
    await here.page.wait_for_timeout(400)


async def listed(here: Window, name: str) -> None:
    await here.open()
    await expect(here.find(".session-row").first).to_be_visible()
    await here.page.wait_for_timeout(300)


async def now(here: Window, name: str) -> None:
    await here.open("/now")
    await expect(here.find("[data-panel=waiting] li").first).to_be_visible()
    await here.page.wait_for_timeout(300)


async def trace(here: Window, name: str) -> None:
    await here.open(f"/s/{name}")
    await expect(here.find(".approvals")).to_be_visible()
    turn = here.find(".turn-committed").nth(1)
    await turn.locator("[data-trace]").click()
    await expect(turn.locator(".span")).to_have_count(3)
    for _ in range(2):
        await turn.locator(".trace").evaluate("(place) => place.scrollIntoView({ block: 'end' })")
        await here.page.wait_for_timeout(300)


async def live(here: Window, name: str) -> None:
    await here.open(f"/s/{name}")
    await expect(here.find(".turn-open .draft")).to_contain_text("later train")
    await here.page.wait_for_timeout(1200)


async def operations(here: Window, name: str) -> None:
    await here.open("/operations")
    await expect(here.find(".panel tbody tr").first).to_be_visible()
    await here.page.wait_for_timeout(21_000)  # a few samples, of five seconds each


BEFORE: dict[str, Callable[[Window, str], Awaitable[None]]] = {
    "sessions": listed,
    "session": session,
    "history": history,
    "trace": trace,
    "now": now,
}
DURING: dict[str, Callable[[Window, str], Awaitable[None]]] = {
    "live": live,
    "operations": operations,
}


async def photograph(browser: Browser, folder: Path) -> None:
    async with stage() as (server, name):
        await _each(browser, server, name, folder, BEFORE)
        running = asyncio.create_task(
            server.chat("What should we do in Finse?", to="trip-to-norway", model="travel")
        )
        busy = asyncio.create_task(_work(server))
        await _each(browser, server, name, folder, DURING)
        busy.cancel()
        running.cancel()
    await _door(browser, folder)


async def _work(server: Serving) -> None:
    """Others use the server, too."""
    n = 0
    while True:
        await asyncio.gather(
            *(
                server.chat(f"And {n}?", to=f"work-{k}", model="clerk", stream=True)
                for k in range(3)
            )
        )
        n += 1
        await asyncio.sleep(0.25 + (n % 7) / 10)


async def _each(
    browser: Browser,
    server: Serving,
    name: str,
    folder: Path,
    views: dict[str, Callable[[Window, str], Awaitable[None]]],
) -> None:
    schemes: tuple[Scheme, ...] = ("light", "dark")
    for (view, show), scheme, phone in product(views.items(), schemes, (False, True)):
        if view == "sessions" and not phone:
            continue  # on a desk it is beside every session
        async with window(browser, server.url, scheme=scheme, phone=phone) as here:
            await show(here, name)
            await here.page.screenshot(
                path=folder / f"{view}-{scheme}{'-phone' if phone else ''}.png"
            )


async def _door(browser: Browser, folder: Path) -> None:
    store = MemoryStore()
    await put_key(store, Tenant("acme"), "read", nth=1)
    nobody = Agent("nobody", ScriptedModel(), instruction="")
    async with serving(nobody, store=store, auth="required") as server:
        for scheme in ("light", "dark"):
            async with window(browser, server.url, scheme=scheme) as here:
                here.expects_failures = True
                await here.open()
                await expect(here.find("#key")).to_be_visible()
                await here.page.screenshot(path=folder / f"door-{scheme}.png")


async def main(folder: Path) -> None:
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        await photograph(browser, folder)
        await browser.close()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(place))
    sys.stderr.write(f"{len(list(place.glob('*.png')))} pictures in {place}\n")
