"""LiteLLM's proxy, without the database that it could have.

What it offers for conversations is `previous_response_id`, read from its log of spending; that needs PostgreSQL and
Prisma, whose query engine is a program that Prisma downloads when it is first used. It could not be had where this
was written, so it is not played. What is left is chat completions: the client sends the whole conversation each time,
and the proxy calls the tools of its MCP gateway itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from systems.base import (
    INSTRUCTIONS,
    Answer,
    Asked,
    NotOffered,
    Place,
    Request,
    Running,
    Said,
    chat_answer,
)
from systems.environments import python_of
from systems.notes import Notes
from systems.over_mcp import OverMcp, tools_of

CONFIG = """
model_list:
  - model_name: clerk
    litellm_params: {{model: openai/{model}, api_base: "{upstream}", api_key: bench}}
mcp_servers:
  office: {{url: "{tools}", transport: http, allow_all_keys: true}}
"""
TOOLS = [
    {
        "type": "mcp",
        "server_label": "litellm",
        "server_url": "litellm_proxy",
        "require_approval": "never",
    }
]
STORE = "store of conversations: with every request, the client sends all that was said before"


class LiteLlmRunning(Running):
    """Keeps what was said, as a client of chat completions does: an answered turn is one that there was."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.notes = Notes(self.place.folder)

    async def ask(self, asked: Asked, told: Callable[[str], None]) -> Answer:
        before = self.notes[asked.conversation] or []
        body = {**turn(asked, before), "tools": TOOLS}
        request = Request("/v1/chat/completions", json.dumps(body).encode())
        answer = await self.post(request, partial(chat_answer, asked, told))
        if answer.ok:
            said = {"role": "user", "content": asked.text}
            answer_to_it = {"role": "assistant", "content": answer.text}
            self.notes[asked.conversation] = [*before, said, answer_to_it]
        return answer

    async def history(self, conversation: str) -> tuple[Said, ...]:
        raise NotOffered(STORE)


def turn(asked: Asked, before: Sequence[Mapping[str, str]] = ()) -> dict[str, object]:
    messages = [
        {"role": "system", "content": INSTRUCTIONS},
        *before,
        {"role": "user", "content": asked.text},
    ]
    return {"model": "clerk", "stream": asked.stream, "messages": messages}


class LiteLlm(OverMcp):
    name = "litellm"
    title = "LiteLLM proxy"
    variant = "without a database"
    configured = (
        "`litellm --config config.yaml` with a model and an MCP server; chat completions with "
        "`require_approval: never`. Its sessions (`previous_response_id`) need PostgreSQL through Prisma, whose "
        "query engine could not be downloaded here: they are not played."
    )
    environment = "litellm"
    packages = ("litellm", "mcp")
    tool = "office-charge"
    knows_agents = False
    runner = LiteLlmRunning

    def request(self, asked: Asked) -> Request:
        return Request("/v1/chat/completions", json.dumps(turn(asked)).encode())

    def command(self, place: Place) -> Sequence[str]:
        program = str(python_of(self.environment).with_name("litellm"))
        where = ["--host", "127.0.0.1", "--port", str(place.port), "--num_workers", "1"]
        return [program, "--config", str(place.folder / "litellm.yaml"), *where]

    def env(self, place: Place) -> Mapping[str, str]:
        return {
            "LITELLM_LOG": "ERROR",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            # Nobody is asked for a key here.
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }

    def prepare(self, place: Place) -> None:
        super().prepare(place)
        config = CONFIG.format(model=place.model, upstream=place.upstream, tools=tools_of(place))
        (place.folder / "litellm.yaml").write_text(config)

    async def is_ready(self, running: Running) -> bool:
        async with running.http.get(f"{running.url}/health/liveliness") as response:
            if response.status != 200:
                return False
        return await super().is_ready(running)
