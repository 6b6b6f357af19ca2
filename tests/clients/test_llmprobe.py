"""A conformance prober from npm, against a server whose model does as it is told.

It judges models and chat as they are on the wire. What it finds missing is listed here by name, and the list is
compared as a whole: whoever builds one of these takes it off.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.catalogue import PROBE
from tests.clients.obedient_model import ObligingModel
from tests.clients.programs import installed, run
from tests.e2e.world import world as new_world

pytestmark = [pytest.mark.slow, pytest.mark.clients]

SURFACES_LEFT_OUT = frozenset(
    {
        "embeddings",
        "completions",
        "images",
        "images-edit",
        "audio-speech",
    }
)
"""Endpoints that we do not have: they are for other servers."""

RESPONSES = {
    "responses-finish-length": "it asks for one token; fewer than 16 are refused, as the hosted API refuses them",
}
"""What of Responses fails, and why. This list only gets shorter."""

_ALL_CACHED = (
    "the model has the whole prompt in its cache; `input_tokens` of this API leave that out"
)

MESSAGES = {
    "messages-usage": _ALL_CACHED,
    "messages-prompt-caching": _ALL_CACHED,
    "messages-prompt-cache-prefix": _ALL_CACHED,
    "messages-stop-sequence-echo": "a provider of chat completions does not say which sequence stopped it",
}
"""What of Messages fails, and why."""

LEFT_OUT = {
    "chat-logprobs": "refused by name: an answer may be several steps of a model, or of several",
    "chat-n-choices": "refused by name: a conversation goes on with one answer",
    "chat-rate-limit-headers": "there are no limits that could be told",
    "chat-assistant-prefill": "about models that go on with a sentence; ours does not",
}
"""What of chat and models does not pass, and why."""


def command(url: str) -> list[str]:
    program = PROBE.folder / "node_modules/llmprobe/bin/dist/llmprobe.mjs"
    options = ("--model", "root", "--full", "--no-bench", "--no-save", "--json")
    return [*PROBE.runner(), str(program), url, *options]


async def test_a_prober_finds_nothing_wrong_with_chat_and_models(tmp_path: Path) -> None:
    async with new_world(tmp_path, respond=ObligingModel()) as world:
        await world.start()
        asked = await installed(lambda: command(world.url))
        said = await run(
            asked, home=tmp_path, may_end_with=(0, 1)
        )  # 1: something failed, see below
        found = json.loads(said)["conformance"]
    ours = [each for each in found["results"] if each["surface"] in ("chat", "models")]
    assert {each["id"]: _why(each) for each in ours if each["outcome"] == "fail"} == {}
    assert {each["id"] for each in ours if each["outcome"] != "pass"} == LEFT_OUT.keys()
    warned = [each["id"] for each in found["warnings"]]
    assert [each for each in warned if not each.startswith(("responses", "messages"))] == []
    assert len(ours) > 40, "it looked at all there is"

    responses = [each for each in found["results"] if each["surface"] == "responses"]
    assert {each["id"] for each in responses if each["outcome"] == "fail"} == RESPONSES.keys()
    assert sum(each["outcome"] == "pass" for each in responses) >= 32

    messages = [
        each for each in found["results"] if each["surface"] in ("messages", "count-tokens")
    ]
    assert {each["id"] for each in messages if each["outcome"] == "fail"} == MESSAGES.keys()
    assert sum(each["outcome"] == "pass" for each in messages) >= 32

    others = [each for each in found["results"] if each["surface"] in SURFACES_LEFT_OUT]
    assert {each["surface"] for each in others if each["outcome"] != "pass"} == SURFACES_LEFT_OUT


def _why(result: dict[str, Any]) -> list[str]:
    return [f"{each['severity']} {each['label']}: {each['message']}" for each in result["failures"]]
