"""Agno's AgentOS: runs of an agent over its own HTTP API, and the runs of a session as it shows them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlencode

import aiohttp

from systems.base import Answer, Asked, Place, Request, Running, Said, System, data_lines, said_of
from systems.environments import PEERS, python_of

Run = Mapping[str, Any]

BROKEN_OFF = ("CANCELLED", "ERROR")


def agent_of(place: Place) -> str:
    return "clerk-v2" if place.moved else "clerk"


class AgnoRunning(Running):
    background: ClassVar[bool] = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._runs: dict[str, str] = {}

    async def ask(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        request = turn(asked, agent_of(self.place), background=self.background)
        return await self._play(request, asked.conversation, told)

    async def _play(
        self, request: Request, conversation: str, told: Callable[[str], None]
    ) -> Answer:
        async def read(response: aiohttp.ClientResponse) -> Answer:
            if response.content_type == "text/event-stream":
                return await self._streamed(response, conversation, told)
            run = await response.json()
            failure = "" if run["status"] == "COMPLETED" else f"{run['status']}"
            return Answer(200, run.get("content") or "", failure=failure)

        return await self.post(request, read)

    async def _streamed(
        self, response: aiohttp.ClientResponse, conversation: str, told: Callable[[str], None]
    ) -> Answer:
        text = ""
        async for line in data_lines(response):
            event = json.loads(line)
            match event.get("event"):
                case "RunStarted":
                    self._runs[conversation] = event["run_id"]
                case "RunContent":
                    text += event.get("content") or ""
                    told(event.get("content") or "")
                case "RunCompleted":
                    return Answer(200, event.get("content") or text)
                case "RunError" | "RunCancelled" | "error" as how:
                    why = event.get("content") or event.get("reason") or event.get("error")
                    return Answer(200, text, failure=f"{how}: {why}"[:300])
        return Answer(200, text, failure="the stream broke off")

    async def runs(self, conversation: str) -> Sequence[Run]:
        url = f"{self.url}/sessions/{conversation}/runs"
        async with self.http.get(url, params={"type": "agent"}) as response:
            if response.status == 404:
                return ()
            response.raise_for_status()
            runs: Sequence[Run] = await response.json()
            return runs

    async def history(self, conversation: str) -> tuple[Said, ...]:
        return tuple(said for run in await self.runs(conversation) for said in said_in(run))

    async def cancel(self, conversation: str) -> str:
        run = self._runs[conversation]
        url = f"{self.url}/agents/{agent_of(self.place)}/runs/{run}/cancel"
        async with self.http.post(url) as response:
            return f"{response.status} {(await response.text())[:200]}"


class BackgroundRunning(AgnoRunning):
    """Runs do not end with their client. One that has lost its connection does not ask again, but follows the run."""

    background = True

    async def ask(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        run = self._runs.get(asked.conversation) if asked.attempt and not asked.key else None
        if run is None:
            return await super().ask(asked, told)
        path = f"/agents/{agent_of(self.place)}/runs/{run}/resume"
        request = form(path, {"session_id": asked.conversation})
        return await self._play(request, asked.conversation, told)


class ContinuingRunning(BackgroundRunning):
    """The first client after a restart continues what was left running, if there is something to continue from."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._sure: set[str] = set()

    async def ask(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        if asked.conversation not in self._sure:
            self._sure.add(asked.conversation)
            for run in await self.runs(asked.conversation):
                if run["status"] == "RUNNING" and run.get("last_checkpoint_at_message_index"):
                    await self._continue(run["run_id"], asked.conversation)
        return await super().ask(asked, told)

    async def _continue(self, run: str, conversation: str) -> None:
        path = f"/agents/{agent_of(self.place)}/runs/{run}/continue"
        request = form(path, {"session_id": conversation, "stream": "true"})
        await self._play(request, conversation, lambda piece: None)


def turn(asked: Asked, agent: str = "clerk", *, background: bool = False) -> Request:
    """A turn. One that runs in the background is always followed as a stream: otherwise its answer is a receipt."""
    streamed = asked.stream or background
    fields = {"message": asked.text, "session_id": asked.conversation}
    fields["stream"] = "true" if streamed else "false"
    if background:
        fields["background"] = "true"
    headers = (("Idempotency-Key", asked.key),) if asked.key else ()
    return form(f"/agents/{agent}/runs", fields, *headers)


def form(path: str, fields: Mapping[str, str], *headers: tuple[str, str]) -> Request:
    kind = ("Content-Type", "application/x-www-form-urlencoded")
    return Request(path, urlencode(fields).encode(), (kind, *headers))


def said_in(run: Run) -> Iterator[Said]:
    """What a run has added. One that was broken off says so by its status."""
    added = [each for each in run.get("messages") or () if not each.get("from_history")]
    yield from said_of(added) or (Said("user", run.get("run_input") or ""),)
    if run["status"] in BROKEN_OFF:
        yield Said("assistant", f"interrupted: {run['status']}")


class Agno(System):
    name = "agno"
    title = "Agno AgentOS"
    variant = "SQLite"
    configured = (
        "`AgentOS(agents=[Agent(…, db=SqliteDb(…), add_history_to_context=True, num_history_runs=1000)]).get_app()` "
        "under uvicorn, and its own routes for runs, sessions and cancelling. Only its queue knows of a deadline."
    )
    environment = "agno"
    packages: ClassVar[tuple[str, ...]] = ("agno", "openai")
    runner = AgnoRunning
    choice: ClassVar[str] = ""

    def request(self, asked: Asked) -> Request:
        return turn(asked, background=self.runner.background)

    def command(self, place: Place) -> Sequence[str]:
        return [str(python_of(self.environment)), str(PEERS / "serve_agno.py")]

    def env(self, place: Place) -> Mapping[str, str]:
        return {
            "BENCH_PORT": str(place.port),
            "BENCH_AGENT": agent_of(place),
            "BENCH_UPSTREAM": place.upstream,
            "BENCH_EFFECTS": place.effects,
            "BENCH_MODEL": place.model,
            "BENCH_DEADLINE": str(place.deadline_s or ""),
            "BENCH_VARIANT": self.choice,
            "BENCH_POSTGRES": place.postgres or "",
            "AGNO_TELEMETRY": "false",
        }

    async def is_ready(self, running: Running) -> bool:
        async with running.http.get(f"{running.url}/health") as response:
            return response.status == 200


class AgnoCheckpoints(Agno):
    variant = "background, checkpoints"
    configured = (
        'The same with `checkpoint="tool-batch"` and `background=true` for every run, so that it outlives its client, '
        "who comes back to it by `/resume`. The first client after a restart sends a run that has a checkpoint, and is "
        "still marked as running, to `/continue`."
    )
    runner = ContinuingRunning
    choice = "checkpoints"


class AgnoQueue(Agno):
    variant = "PostgreSQL, durable queue"
    configured = (
        "The same with `PostgresDb`, `AgentOS(queue=QueueConfig(durable=True, lock_grace_seconds=5))` and "
        "`background=true` for every run, which its client follows as a stream, and by `/resume` when that is lost. "
        "The queue knows idempotency keys, plays one turn of a session at a time, and needs PostgreSQL or Redis."
    )
    packages = ("agno", "openai", "psycopg")
    runner = BackgroundRunning
    choice = "queue"
    knows_keys = True
    knows_deadline = True
    needs_postgres = True
