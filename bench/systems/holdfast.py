"""Holdfast itself, as `holdfast serve` starts it: an agent file and a SQLite file, or PostgreSQL."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from systems.base import (
    INSTRUCTIONS,
    TOOL,
    TOOL_ABOUT,
    Answer,
    Asked,
    Place,
    Request,
    Running,
    Said,
    System,
    chat_answer,
    text_of,
)

AGENTS = """
models:
  recorder: {{provider: recorder, model: {model}}}
providers:
  recorder: {{base_url: "{upstream}"}}
agents:
  {agent}:
    model: recorder
    instruction: {instructions}
    toolsets:
      - type: script
        shell:
          {tool}:
            cmd: exec {python} {script} {effects}
            network: true
            description: {about}
            args:
              amount: {{type: integer}}
permissions:
  allow: [{tool}]
"""
CHARGE = """import sys, urllib.request
urllib.request.urlopen(urllib.request.Request(sys.argv[1], data=b"{}", method="POST"), timeout=60).read()
print("charged")
"""


class HoldfastRunning(Running):
    async def ask(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        request = chat(asked, agent_of(self.place))
        return await self.post(request, partial(chat_answer, asked, told))

    async def history(self, conversation: str) -> tuple[Said, ...]:
        url = f"{self.url}/api/sessions/{conversation}/items"
        async with self.http.get(url) as response:
            if response.status == 404:
                return ()
            response.raise_for_status()
            return tuple(map(_said, (await response.json())["items"]))

    async def cancel(self, conversation: str) -> str:
        async with self.http.get(f"{self.url}/api/sessions/{conversation}/turns") as response:
            turns = (await response.json())["turns"]
        (turn_id,) = [each["id"] for each in turns if each["state"] == "open"]
        async with self.http.post(f"{self.url}/api/turns/{turn_id}/cancel") as response:
            return f"{response.status} {(await response.text())[:200]}"


def agent_of(place: Place) -> str:
    """What the agent is called, and what clients ask for: its next version has another name."""
    return "clerk-v2" if place.moved else "clerk"


def chat(asked: Asked, agent: str = "clerk") -> Request:
    """A turn as any OpenAI client asks for one."""
    messages = [{"role": "user", "content": each} for each in (*asked.before, asked.text)]
    body = {"model": agent, "stream": asked.stream, "messages": messages}
    headers = [
        ("X-Conversation-Id", asked.conversation),
        ("x-stainless-retry-count", str(asked.attempt)),
    ]
    if asked.key is not None:
        headers.append(("Idempotency-Key", asked.key))
    return Request("/v1/chat/completions", json.dumps(body).encode(), tuple(headers))


def _said(item: Mapping[str, Any]) -> Said:
    text = text_of(item.get("content", ""))
    marked = item.get("state", "complete") != "complete"
    match item["type"]:
        case "call":
            return Said("assistant", calls=(item["id"],), marked=marked)
        case "result":
            return Said("tool", text or item["outcome"], answers=item["call"])
        case "user" | "assistant" as role:
            return Said(role, text, marked=marked)
        case "interruption":
            return Said("assistant", f"interrupted: {item['ended_by']}")
        case other:
            raise ValueError(f"{other} has no place in these conversations")


class Holdfast(System):
    name = "holdfast"
    title = "Holdfast"
    variant = "SQLite"
    configured = (
        "`holdfast serve office=http://…/clerk.yaml?version=1` with `HOLDFAST_REMOTE_SOURCES=trusted`, since the file "
        "comes over plain HTTP from this machine and has a tool that is a command; its next version is another "
        "address, and another agent in it. The rest is as it is by default."
    )
    packages = ("holdfast",)
    knows_resends = True
    knows_keys = True
    knows_deadline = True
    runner = HoldfastRunning

    def request(self, asked: Asked) -> Request:
        return chat(asked)

    def command(self, place: Place) -> Sequence[str]:
        program = str(Path(sys.executable).with_name("holdfast"))
        address = f"{place.files}/clerk.yaml?version={2 if place.moved else 1}"
        command = [program, "serve", f"office={address}", "--listen", f"127.0.0.1:{place.port}"]
        return [*command, "--store", self.store(place)]

    def store(self, place: Place) -> str:
        return f"sqlite:///{place.folder}/holdfast.db"

    def env(self, place: Place) -> Mapping[str, str]:
        trusted = {"HOLDFAST_REMOTE_SOURCES": "trusted"}
        if place.deadline_s is None:
            return trusted
        return {**trusted, "HOLDFAST_TURN_DEADLINE_S": str(place.deadline_s)}

    def prepare(self, place: Place) -> None:
        script = place.folder / "charge.py"
        script.write_text(CHARGE)
        (place.folder / "clerk.yaml").write_text(
            AGENTS.format(
                agent=agent_of(place),
                upstream=place.upstream,
                model=place.model,
                instructions=INSTRUCTIONS,
                tool=TOOL,
                about=TOOL_ABOUT,
                python=sys.executable,
                script=script,
                effects=place.effects,
            )
        )


class HoldfastPostgres(Holdfast):
    variant = "PostgreSQL"
    configured = "The same with `--store postgresql://…`."
    needs_postgres = True

    def store(self, place: Place) -> str:
        assert place.postgres is not None
        return place.postgres
