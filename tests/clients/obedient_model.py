"""A model that does as it is told, so that whatever a prober misses was lost on the way, by us.

It keeps to `max_tokens`, `stop`, `tool_choice`, `parallel_tool_calls` and `response_format`, thinks when it is told
to, repeats what it is asked to repeat, counts what it says, and knows again what it was told before.
"""

from __future__ import annotations

import json
import re
from itertools import takewhile
from typing import Any

import yaml

from holdfast.core.turns.events import Usage
from holdfast.testing import Script, says
from holdfast.testing.upstream import UpstreamRequest
from tests.e2e.world import AGENT

Asked = dict[str, Any]

ESSAY = "The sea is wide and deep and old, and nobody has seen all of it. " * 40
THOUGHT = "Let me think about this for a while, as I was told to. " * 10
EXAMPLES: dict[str, Any] = {
    "string": "Paris",
    "integer": 4,
    "number": 4.5,
    "boolean": True,
    "array": [],
}

AGENTS_OWN = frozenset(
    name
    for toolset in yaml.safe_load(AGENT.format(base_url="", here=""))["agents"]["root"]["toolsets"]
    for name in toolset["shell"]
)
"""The tools of the agent that stands between the client and this model."""


class ObligingModel:
    """Answers requests for chat completions. Words are its tokens."""

    def __init__(self) -> None:
        self._heard: list[list[str]] = []

    def __call__(self, request: UpstreamRequest) -> Script:
        asked: Asked = request.json
        calls = _calls(asked)
        thoughts, words = ([], []) if calls else (_thoughts(asked), _words(_answer(asked)))
        most = asked.get("max_completion_tokens") or asked.get("max_tokens")
        thoughts, said, cut = _capped(thoughts, words, most)
        heard, known = self._listen(asked)
        usage = Usage(
            input_tokens=heard,
            cached_tokens=known,
            output_tokens=len(thoughts) + len(said) + len(calls),
            reasoning_tokens=len(thoughts),
        )
        return says(
            *said, thinks=thoughts, calls=calls, usage=usage, finish="length" if cut else None
        )

    def _listen(self, asked: Asked) -> tuple[int, int]:
        """How much there is in the prompt, and how much of it was the beginning of an earlier one."""
        heard = [word for message in asked["messages"] for word in json.dumps(message).split()]
        known = max((_common(heard, each) for each in self._heard), default=0)
        self._heard.append(heard)
        return len(heard), known


def _common(one: list[str], other: list[str]) -> int:
    """How long the same beginning is."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _capped(
    thoughts: list[str], words: list[str], most: int | None
) -> tuple[list[str], list[str], bool]:
    """What of this fits, thoughts first, and whether anything was cut."""
    most = len(thoughts) + len(words) if most is None else most
    left = max(0, most - len(thoughts))
    return thoughts[:most], words[:left], len(thoughts) + len(words) > most


def _calls(asked: Asked) -> list[tuple[str, str, str]]:
    """Only what it must call; all of the client's tools if it may call several, and none of the agent's."""
    choice = asked.get("tool_choice")
    if choice in (None, "auto", "none"):
        return []
    tools = [each["function"] for each in asked["tools"]]
    tools = [each for each in tools if each["name"] not in AGENTS_OWN]
    if isinstance(choice, dict):
        tools = [each for each in tools if each["name"] == choice["function"]["name"]]
    several = choice == "required" and asked.get("parallel_tool_calls")
    return [
        (tool["name"], json.dumps(_example(tool["parameters"], _dictated(asked))), f"call_{n}")
        for n, tool in enumerate(tools if several else tools[:1])
    ]


def _thoughts(asked: Asked) -> list[str]:
    return _words(THOUGHT) if asked.get("reasoning_effort") not in (None, "none") else []


def _answer(asked: Asked) -> str:
    form = asked.get("response_format") or {}
    if form.get("type") == "json_schema":
        return json.dumps(_example(form["json_schema"]["schema"], None))
    if form.get("type") == "json_object":
        return '{"answer": "yes"}'
    said = _last_said(asked)
    otherwise = ESSAY if "essay" in said or "Count" in said else "Yes, I think so."
    text = _dictated(asked) or _recalled(asked) or otherwise
    stop = asked.get("stop") or []
    for each in [stop] if isinstance(stop, str) else stop:
        text = text.split(each)[0]
    return text


def _dictated(asked: Asked) -> str | None:
    """What it is to say, word for word."""
    found = re.search(r"exactly(?:, nothing else)?:\s(.+)", _last_said(asked), re.DOTALL)
    return found[1] if found else None


def _recalled(asked: Asked) -> str | None:
    """The user's name, if that is asked for and was told in the prompt."""
    told = re.search(r"My name is (\w+)", json.dumps(asked["messages"]))
    return told[1] if told and "What is my name?" in _last_said(asked) else None


def _last_said(asked: Asked) -> str:
    content = asked["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content or [])


def _words(text: str) -> list[str]:
    return re.findall(r"\s*\S+", text)


def _example(schema: dict[str, Any], dictated: str | None) -> Any:
    """A value that the schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {
            name: dictated if dictated and name == "content" else _example(each, dictated)
            for name, each in schema.get("properties", {}).items()
        }
    return EXAMPLES[schema["type"]]
