"""`langgraph dev`: LangGraph's own server, with threads and runs, as it comes on a developer's machine.

It keeps its threads in memory and writes them to `.langgraph_api` every ten seconds and when it is stopped. The
server that stores in PostgreSQL is an image that asks for a licence, and does not take part.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import aiohttp

from systems.base import (
    INSTRUCTIONS,
    Answer,
    Asked,
    Place,
    Request,
    Running,
    Said,
    System,
    text_of,
)
from systems.environments import python_of

CLERK = Path(__file__).parents[1] / "peers" / "langgraph_clerk.py"
SPACE = uuid.UUID("5f1d2a52-6d1f-4a0e-9d6b-2c6f0d1c9b11")


class DevRunning(Running):
    """Who has lost patience knows where its run is by then, so it joins that before it asks again."""

    system: LangGraphDev

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._runs: dict[str, str] = {}

    async def ask(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        run = self._runs.get(asked.conversation) if asked.attempt else None
        if run is not None:
            answer = await self.in_time(self._joined(run, asked))
            if answer.ok:
                return answer
        return await self._play(asked, told)

    async def _joined(self, run: str, asked: Asked) -> Answer:
        async with self.http.get(f"{self.url}{run}/join") as response:
            if response.status != 200:
                return Answer(response.status, "", failure=(await response.text())[:300])
            return answer_in(await response.json(), asked)

    async def _play(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        async def read(response: aiohttp.ClientResponse) -> Answer:
            self._runs[asked.conversation] = response.headers["Content-Location"]
            if not asked.stream:
                return answer_in(await response.json(), asked)
            return await self._streamed(response, asked, told)

        return await self.post(run_of(asked, graph(self.place), self.system.options), read)

    async def _streamed(
        self, response: aiohttp.ClientResponse, asked: Asked, told: Callable[[str], None]
    ) -> Answer:
        event, values = "", {}
        async for line in response.content:
            name, _, rest = line.decode().strip().partition(":")
            if name == "event":
                event = rest.strip()
            elif name == "data" and event == "error":
                return Answer(200, "", failure=rest[:300])
            elif name == "data" and event == "values":
                values = json.loads(rest)
            elif name == "data" and event == "messages":
                message, _ = json.loads(rest)
                if message["type"] == "AIMessageChunk" and (piece := text_of(message["content"])):
                    told(piece)
        return answer_in(values, asked)

    async def history(self, conversation: str) -> tuple[Said, ...]:
        async with self.http.get(f"{self.url}/threads/{thread(conversation)}/state") as response:
            if response.status == 404:
                return ()
            response.raise_for_status()
            values = (await response.json())["values"] or {}
            return tuple(map(_said, values.get("messages", ())))

    async def cancel(self, conversation: str) -> str:
        runs = f"{self.url}/threads/{thread(conversation)}/runs"
        async with self.http.get(runs, params={"status": "running"}) as response:
            (run,) = await response.json()
        how = {"action": self.system.cancels_by}
        async with self.http.post(f"{runs}/{run['run_id']}/cancel", params=how) as response:
            return f"{response.status} {(await response.text())[:200]}"


def thread(conversation: str) -> uuid.UUID:
    """Threads are named by UUIDs; the client may choose them."""
    return uuid.uuid5(SPACE, conversation)


def graph(place: Place) -> str:
    """What the agent is called: its next version has a graph of its own."""
    return "clerk-v2" if place.moved else "clerk"


def run_of(asked: Asked, graph_id: str, options: Mapping[str, str]) -> Request:
    """A turn: a run on a thread, which is made if it is not there."""
    body = {
        "assistant_id": graph_id,
        "input": {"messages": [{"role": "user", "content": asked.text}]},
        "if_not_exists": "create",
        **options,
    }
    if asked.stream:
        body["stream_mode"] = ["values", "messages-tuple"]
    how = "stream" if asked.stream else "wait"
    path = f"/threads/{thread(asked.conversation)}/runs/{how}"
    return Request(path, json.dumps(body).encode())


def answer_in(values: Mapping[str, Any], asked: Asked) -> Answer:
    """The answer, if the state in which a run has ended has one to what was asked."""
    if error := values.get("__error__"):
        return Answer(200, "", failure=json.dumps(error)[:300])
    messages: Sequence[Mapping[str, Any]] = values.get("messages") or ()
    asked_last = next((each for each in reversed(messages) if each["type"] == "human"), None)
    if asked_last is None or text_of(asked_last["content"]) != asked.text:
        return Answer(200, "", failure="the run has ended without an answer")
    last = messages[-1]
    if last["type"] != "ai" or last.get("tool_calls"):
        return Answer(200, "", failure=f"the run has ended with a message of type {last['type']}")
    return Answer(200, text_of(last["content"]))


def _said(message: Mapping[str, Any]) -> Said:
    text = text_of(message["content"])
    match message["type"]:
        case "human":
            return Said("user", text)
        case "ai":
            calls = message.get("tool_calls") or ()
            return Said("assistant", text, calls=tuple(call["id"] for call in calls))
        case "tool":
            return Said("tool", text, answers=message["tool_call_id"])
        case other:
            raise ValueError(f"{other} has no place in these conversations")


class LangGraphDev(System):
    name = "langgraph-dev"
    title = "langgraph dev"
    configured = (
        "`langgraph dev --no-browser --no-reload --n-jobs-per-worker 10`, which writes its state to a file every ten "
        'seconds; a turn is a run on a thread that the client names (`if_not_exists: "create"`). By default runs on one '
        "thread are enqueued, and go on without their client, who comes back to one that it gave up by `/join`. The server that stores in PostgreSQL needs a licence, and was not run."
    )
    environment = "langgraph-dev"
    packages = (
        "langgraph-cli",
        "langgraph-api",
        "langgraph-runtime-inmem",
        "langgraph",
        "langchain",
        "langchain-openai",
    )
    runner = DevRunning
    knows_deadline = True
    options: ClassVar[Mapping[str, str]] = {}
    """What is asked of each run beside its input."""
    cancels_by: ClassVar[str] = "interrupt"
    """The action of a cancel; this is the one by default."""
    own_checkpointer: ClassVar[bool] = False
    patched: ClassVar[bool] = False

    def request(self, asked: Asked) -> Request:
        return run_of(asked, "clerk", self.options)

    def command(self, place: Place) -> Sequence[str]:
        program = str(python_of(self.environment).with_name("langgraph"))
        flags = ["--no-browser", "--no-reload", "--n-jobs-per-worker", "10"]
        return [program, "dev", *flags, "--host", "127.0.0.1", "--port", str(place.port)]

    def env(self, place: Place) -> Mapping[str, str]:
        told = {
            "LANGSMITH_TRACING": "false",
            "LANGGRAPH_CLI_NO_ANALYTICS": "1",
            "CLERK_MODEL": place.model,
            "CLERK_UPSTREAM": place.upstream,
            "CLERK_EFFECTS": place.effects,
            "CLERK_INSTRUCTIONS": INSTRUCTIONS,
            "CLERK_PATCHED": "yes" if self.patched else "",
        }
        if place.deadline_s is not None:
            told["BG_JOB_TIMEOUT_SECS"] = str(place.deadline_s)
        return told

    def prepare(self, place: Place) -> None:
        shutil.copy(CLERK, place.folder / "clerk.py")
        settings: dict[str, Any] = {
            "dependencies": ["."],
            "graphs": {graph(place): "./clerk.py:agent"},
        }
        if self.own_checkpointer:
            settings["checkpointer"] = {"path": "./clerk.py:checkpointer"}
        (place.folder / "langgraph.json").write_text(json.dumps(settings))

    async def is_ready(self, running: Running) -> bool:
        async with running.http.get(f"{running.url}/ok") as response:
            return response.status == 200

    async def start(self, place: Place) -> Running:
        running = await super().start(place)
        assert isinstance(running, DevRunning)
        running.system = self
        return running


class LangGraphDevReject(LangGraphDev):
    variant = "reject"
    configured = 'The same with `multitask_strategy: "reject"`: a run is refused while another one runs on its thread.'
    options: ClassVar[Mapping[str, str]] = {"multitask_strategy": "reject"}


class LangGraphDevInterrupt(LangGraphDev):
    variant = "interrupt"
    configured = (
        'The same with `multitask_strategy: "interrupt"` and `on_disconnect: "cancel"`: '
        "a new run, or a client that leaves, stops the run and keeps its steps."
    )
    options: ClassVar[Mapping[str, str]] = {
        "multitask_strategy": "interrupt",
        "on_disconnect": "cancel",
    }


class LangGraphDevRollback(LangGraphDev):
    variant = "rollback"
    configured = (
        'The same with `multitask_strategy: "rollback"`, and cancelled with `action=rollback`: '
        "a new run, or a stop, takes the run away with its steps."
    )
    options: ClassVar[Mapping[str, str]] = {"multitask_strategy": "rollback"}
    cancels_by = "rollback"


class LangGraphDevSqlite(LangGraphDev):
    variant = "SQLite, sync, patched"
    configured = (
        "The same with a checkpointer of one's own in `langgraph.json` (AsyncSqliteSaver; in alpha, it is said), "
        '`durability: "sync"`, and `PatchToolCallsMiddleware` of deepagents.'
    )
    options: ClassVar[Mapping[str, str]] = {"durability": "sync"}
    own_checkpointer = True
    patched = True
