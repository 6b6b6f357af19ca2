"""Google's Agent Development Kit behind its own server: `/run`, `/run_sse`, and the session as it stores it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import aiohttp

from systems.base import Answer, Asked, Place, Request, Running, Said, System, data_lines
from systems.environments import PEERS, python_of

Event = Mapping[str, Any]

USER = "ada"
NOTHING = "it ended without an answer"


def app_of(place: Place) -> str:
    """What the agent is called on the wire: the name of its folder."""
    return "clerk_v2" if place.moved else "clerk"


class AdkRunning(Running):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: dict[str, aiohttp.ClientResponse] = {}

    async def ask(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        return await self._play(turn(asked, app_of(self.place)), asked, told)

    async def _play(self, request: Request, asked: Asked, told: Callable[[str], None]) -> Answer:
        async def read(response: aiohttp.ClientResponse) -> Answer:
            if not asked.stream:
                return answer_of(await response.json())
            self._open[asked.conversation] = response
            return await self._streamed(response, told)

        return await self.post(request, read)

    async def _streamed(
        self, response: aiohttp.ClientResponse, told: Callable[[str], None]
    ) -> Answer:
        events: list[Event] = []
        async for line in data_lines(response):
            event = json.loads(line)
            if "error" in event:
                return Answer(200, "", failure=str(event["error"])[:300])
            if event.get("partial"):
                told(text_in(event))
            else:
                events.append(event)
        return answer_of(events)

    async def history(self, conversation: str) -> tuple[Said, ...]:
        return tuple(said for event in await self.events(conversation) for said in said_in(event))

    async def events(self, conversation: str) -> Sequence[Event]:
        url = f"{self.url}/apps/{app_of(self.place)}/users/{USER}/sessions/{conversation}"
        async with self.http.get(url) as response:
            if response.status == 404:
                return ()
            response.raise_for_status()
            events: Sequence[Event] = (await response.json())["events"]
            return events

    async def cancel(self, conversation: str) -> str:
        self._open[conversation].close()
        return "nothing: it has no route for that, and ends a run whose client goes away"


class ResumingRunning(AdkRunning):
    """A client that knows of `invocation_id`: whatever may have been broken off is resumed before it goes on, and
    asking the same again is to resume it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._sure: set[str] = set()

    async def ask(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        events = [] if asked.conversation in self._sure else await self.events(asked.conversation)
        self._sure.add(asked.conversation)
        try:
            if events and not events[-1].get("actions", {}).get("endOfAgent"):
                answer = await self._resume(events, asked, told)
                if answer is not None:
                    return answer
            answer = await super().ask(asked, told)
        except asyncio.CancelledError:
            self._sure.discard(asked.conversation)
            raise
        if not answer.ok:
            self._sure.discard(asked.conversation)
        return answer

    async def _resume(
        self, events: Sequence[Event], asked: Asked, told: Callable[[str], None]
    ) -> Answer | None:
        """Play the last run to its end, if there is more of it; that is the answer, if it was asked for the same."""
        run = events[-1]["invocationId"]
        said = next(text_in(each) for each in events if each["invocationId"] == run)
        request = turn(asked, app_of(self.place), resumed=run)
        answer = await self._play(request, asked, told)
        return None if said != asked.text or answer.failure == NOTHING else answer


def turn(asked: Asked, app: str = "clerk", *, resumed: str = "") -> Request:
    """A turn; or, with the id of a run and no message, the rest of it."""
    body: dict[str, Any] = {"appName": app, "userId": USER, "sessionId": asked.conversation}
    if resumed:
        body["invocationId"] = resumed
    else:
        body["newMessage"] = {"role": "user", "parts": [{"text": asked.text}]}
    if asked.stream:
        return Request("/run_sse", json.dumps({**body, "streaming": True}).encode())
    return Request("/run", json.dumps(body).encode())


def answer_of(events: Sequence[Event]) -> Answer:
    """The last words of a run, and the error it ended with, if it did."""
    failure = next((each["errorCode"] for each in events if each.get("errorCode")), "")
    text = next((text for each in reversed(events) if (text := text_in(each))), "")
    return Answer(200, text, failure=failure or ("" if text else NOTHING))


def text_in(event: Event) -> str:
    return "".join(part.get("text") or "" for part in event.get("content", {}).get("parts", ()))


def said_in(event: Event) -> Iterator[Said]:
    """What an event says. One that only tells of an error becomes a note of it."""
    parts = event.get("content", {}).get("parts", ())
    calls = tuple(part["functionCall"]["id"] for part in parts if "functionCall" in part)
    text, marked = text_in(event), bool(event.get("interrupted"))
    if event["author"] == "user":
        if text:
            yield Said("user", text)
    elif text or calls:
        yield Said("assistant", text, calls=calls, marked=marked)
    for part in parts:
        if result := part.get("functionResponse"):
            yield Said("tool", json.dumps(result["response"]), answers=result["id"])
    if event.get("errorCode"):
        yield Said("assistant", f"interrupted: {event['errorCode']}")


class Adk(System):
    name = "google-adk"
    title = "Google ADK"
    variant = "SQLite"
    configured = (
        '`get_fast_api_app(agents_dir=…, session_service_uri="sqlite+aiosqlite:///…", auto_create_session=True)` '
        "under uvicorn, as its guide for Cloud Run does, with `LiteLlm`. A turn is stopped by hanging up, "
        "and a deadline is the agent's `timeout`. A session belongs to the name of its app: the agent's address."
    )
    environment = "google-adk"
    packages = ("google-adk", "litellm")
    runner = AdkRunning
    knows_deadline = True
    choice: ClassVar[str] = ""

    def request(self, asked: Asked) -> Request:
        return turn(asked)

    def command(self, place: Place) -> Sequence[str]:
        sessions = f"sqlite+aiosqlite:///{place.folder}/sessions.db"
        program = [str(python_of(self.environment)), str(PEERS / "serve_google_adk.py")]
        return [*program, str(place.port), str(place.folder / "agents"), sessions]

    def env(self, place: Place) -> Mapping[str, str]:
        return {
            "BENCH_UPSTREAM": place.upstream,
            "BENCH_EFFECTS": place.effects,
            "BENCH_MODEL": place.model,
            "BENCH_DEADLINE": str(place.deadline_s or ""),
            "BENCH_VARIANT": self.choice,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "ADK_SUPPRESS_EXPERIMENTAL_FEATURE_WARNINGS": "1",
        }

    def prepare(self, place: Place) -> None:
        shutil.rmtree(place.folder / "agents", ignore_errors=True)
        home = place.folder / "agents" / app_of(place)
        home.mkdir(parents=True)
        (home / "__init__.py").write_text("from . import agent\n")
        shutil.copy(PEERS / "google_adk_agent.py", home / "agent.py")

    async def is_ready(self, running: Running) -> bool:
        async with running.http.get(f"{running.url}/health") as response:
            if response.status != 200 or running.place.deadline_s is None:
                return response.status == 200
        # LiteLLM loads much of itself with its first call, which alone can take longer than a short deadline.
        return (await running.ask(Asked("warm-up", "hello"), lambda piece: None)).ok


class AdkResumable(Adk):
    variant = "resumable"
    configured = (
        "The same with `App(resumability_config=ResumabilityConfig(is_resumable=True))`. A client that was not "
        "answered, and the first one after a restart, resumes the last run by its `invocation_id` before it goes on, "
        "and to ask the same again is to resume it."
    )
    runner = ResumingRunning
    choice = "resumable"
