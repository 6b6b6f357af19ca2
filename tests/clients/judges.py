"""What each scenario is about: what the upstream says, and what must be true afterwards.

A client is judged by what the upstream was sent and by what the store holds, and only then by what it printed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.core.turns.events import Usage
from holdfast.models.model import ModelFailed
from holdfast.testing import Script, says
from holdfast.testing.upstream import UpstreamRequest
from tests.e2e.world import World

Saw: TypeAlias = dict[str, Any]
"""The line that a driver printed."""

Said: TypeAlias = list[tuple[str, str]]
"""Who said what, in order."""

OSLO_CALL = ("get_weather", '{"city": "Oslo"}', "call_oslo")
ROME_CALL = ("get_weather", '{"city": "Rome"}', "call_rome")


@dataclass(frozen=True)
class Scenario:
    """What the upstream answers, in order, and the judgement."""

    script: tuple[Script, ...]
    judge: Callable[[World, Saw], Awaitable[None]]
    driven_as: str | None = None
    """What the driver is asked for, if that is what it does in another scenario."""


async def _conversation(world: World, saw: Saw) -> None:
    """Each request brought one message, and the model was told everything."""
    said = [("user", "My name is Ada."), ("assistant", "Hello, Ada.")]
    asked = ("user", "What is my name?")
    assert saw["answers"] == ["Hello, Ada.", "Ada."]
    assert spoken(world) == [said[:1], [*said, asked]]
    assert await stored(world) == [*said, asked, ("assistant", "Ada.")]


async def _resending(world: World, saw: Saw) -> None:
    """Each request brought the whole history again, in the client's own words for it, and instructions."""
    said = [
        *(("user", "one"), ("assistant", "1")),
        *(("user", "two"), ("assistant", "2")),
        *(("user", "three"), ("assistant", "3")),
    ]
    assert saw["answers"] == ["1", "2", "3"]
    assert spoken(world) == [said[:1], said[:3], said[:5]]
    assert await stored(world) == said
    assert await ends(world) == ["committed"] * 3
    for request in world.upstream.requests:
        assert ["Be kind." in text for text in _instructions(request)].count(True) == 1


async def _stream(world: World, saw: Saw) -> None:
    assert saw["answers"] == ["This is it."]
    assert len([each for each in saw["pieces"] if each]) == 3
    assert saw["finish"] == "stop"
    assert saw["usage"] == [7, 3]
    assert await stored(world) == [("user", "one"), ("assistant", "This is it.")]


async def _tools(world: World, saw: Saw) -> None:
    """The client's tool ran once, and the next turn's model saw the call and its result."""
    await _after_tools(world, saw)
    assert spoken(world) == [TOOL_TALK[:1], TOOL_TALK[:4], TOOL_TALK[:6]]
    assert await ends(world) == ["committed"] * 3


async def _tools_retry(world: World, saw: Saw) -> None:
    """The turn that brought the result failed in the middle, and was sent again: the tool was not."""
    await _after_tools(world, saw)
    assert spoken(world) == [TOOL_TALK[:1], TOOL_TALK[:4], TOOL_TALK[:4], TOOL_TALK[:6]]
    assert await ends(world) == ["committed", "discarded", "committed", "committed"]


TOOL_TALK: Said = [
    ("user", "Weather in Oslo?"),
    ("assistant", "Let me look."),
    ("call", "get_weather"),
    ("result", "rain in Oslo"),
    ("assistant", "It rains."),
    ("user", "And tomorrow?"),
    ("assistant", "It will rain."),
]


async def _after_tools(world: World, saw: Saw) -> None:
    assert saw["ran"] == [{"city": "Oslo"}]
    assert saw["answers"] == ["It rains.", "It will rain."]
    assert await stored(world) == TOOL_TALK
    offered = [each.json["tools"] for each in world.upstream.requests]
    assert all("get_weather" in [tool["function"]["name"] for tool in each] for each in offered)


async def _tools_streamed(world: World, saw: Saw) -> None:
    """Two calls came in one stream; later the whole exchange was told again, and known again."""
    assert saw["ran"] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert saw["answers"] == ["It rains.", "Still rains."]
    said: Said = [
        ("user", "Weather in Oslo and Rome?"),
        ("assistant", "Let me look."),
        ("call", "get_weather"),
        ("call", "get_weather"),
        ("result", "rain in Oslo"),
        ("result", "rain in Rome"),
        ("assistant", "It rains."),
        ("user", "And tomorrow?"),
        ("assistant", "Still rains."),
    ]
    assert spoken(world) == [said[:1], said[:6], said[:8]]
    assert await stored(world) == said
    assert await ends(world) == ["committed"] * 3


async def _responses(world: World, saw: Saw) -> None:
    """The same talk over Responses, kept together in the client's own way: the model was told the same."""
    assert saw["ran"] == [{"city": "Oslo"}]
    assert saw["answers"] == ["It rains.", "It will rain."]
    assert spoken(world) == [TOOL_TALK[:1], TOOL_TALK[:4], TOOL_TALK[:6]]


ANSWER = "This is the whole answer to {} "

METHODS: Saw = {
    "made": ["conversation", {"topic": "a"}, {"topic": "b"}],
    "added": ["three"],
    "listed": ["one", "two", "three"],
    "item": "one",
    "left": ["three", "one"],
    "first": ["completed", ANSWER.format("four"), True],
    "stream": ["response.created", "response.completed", ANSWER.format("five")],
    "helper": ANSWER.format("six"),
    "found": True,
    "again": [True, 2],
    "brought": ["four"],
    "later": ["completed", ANSWER.format("seven"), "completed"],
    "deleted": [404, "response_not_found"],
    "sync_cancel": [400, "invalid_request"],
    "lost": [400, "previous_response_not_found"],
    "count": ["response.input_tokens", True],
    "compact": ["response.compaction", ["message", "message", "message", "compaction"]],
    "gone": [404, "conversation_not_found"],
}
"""What every method of the SDKs' `responses` and `conversations` gives; the oldest one lacks two of them."""


async def _methods(world: World, saw: Saw) -> None:
    for facts in saw.values():
        assert facts == {name: each for name, each in METHODS.items() if name in facts}
        assert METHODS.keys() - facts.keys() <= {"count", "compact"}


async def _parsed(world: World, saw: Saw) -> None:
    assert saw["typed"] == {"city": "Oslo", "degrees": 4}
    (request,) = world.upstream.requests
    assert request.json["response_format"]["type"] == "json_schema"


async def _typed(world: World, saw: Saw) -> None:
    """The schema reached the model, and the answer came back as a value."""
    assert saw["typed"] == {"city": "Oslo", "degrees": 4}
    (request,) = world.upstream.requests
    asked = request.json["response_format"]
    assert asked["type"] == "json_schema"
    assert set(asked["json_schema"]["schema"]["properties"]) == {"city", "degrees"}
    answer = '{"city": "Oslo", "degrees": 4}'
    assert await stored(world) == [("user", "Weather in Oslo?"), ("assistant", answer)]


async def _retry(world: World, saw: Saw) -> None:
    """By the client's own retry: nobody there notices that something failed."""
    await _failed_once(world, saw, "My name is Ada.", "What is my name?")


async def _failed_once(world: World, saw: Saw, first: str, second: str) -> None:
    """The second request failed in the middle and was sent again; nothing is there twice, nothing half."""
    said = [("user", first), ("assistant", "Fine."), ("user", second), ("assistant", "Whole.")]
    assert saw["answers"] == ["Fine.", "Whole."]
    assert spoken(world) == [said[:1], said[:3], said[:3]]
    assert await stored(world) == said
    assert await ends(world) == ["committed", "discarded", "committed"]


async def _broken_stream(world: World, saw: Saw) -> None:
    """A client that was shown half an answer was told that it is none."""
    await _failed_once(world, saw, "one", "two")
    assert [each["before"] for each in saw["failures"]] == ["Half an "]


async def _keyed(world: World, saw: Saw) -> None:
    assert saw["answers"] == ["Once.", "Once."]
    assert len(world.upstream.requests) == 1
    assert await stored(world) == [("user", "one"), ("assistant", "Once.")]


async def _models(world: World, saw: Saw) -> None:
    assert saw == {"listed": ["root"], "found": "root", "missing": "model_not_found"}


BROKEN = says("Half an ", "answer.").failing(ModelFailed("out of order"), at=1)
ON_IT = says("Let me look.", calls=[OSLO_CALL])

SCENARIOS: dict[str, Scenario] = {
    "conversation": Scenario((says("Hello, ", "Ada."), says("Ada.")), _conversation),
    "resending": Scenario((says("1"), says("2"), says("3")), _resending),
    "stream": Scenario(
        (says("This ", "is ", "it.", usage=Usage(input_tokens=7, output_tokens=3)),), _stream
    ),
    "tools": Scenario((ON_IT, says("It rains."), says("It will rain.")), _tools),
    "tools_retry": Scenario(
        (ON_IT, BROKEN, says("It rains."), says("It will rain.")), _tools_retry, driven_as="tools"
    ),
    "tools_streamed": Scenario(
        (
            says("Let me ", "look.", calls=[OSLO_CALL, ROME_CALL]),
            says("It ", "rains."),
            says("Still ", "rains."),
        ),
        _tools_streamed,
    ),
    "responses": Scenario((ON_IT, says("It ", "rains."), says("It will ", "rain.")), _responses),
    "chained": Scenario((ON_IT, says("It ", "rains."), says("It will ", "rain.")), _responses),
    "socket": Scenario((ON_IT, says("It ", "rains."), says("It will ", "rain.")), _responses),
    "methods": Scenario((), _methods),
    "parsed": Scenario((says('{"city": "Oslo", ', '"degrees": 4}'),), _parsed),
    "typed": Scenario((says('{"city": "Oslo", ', '"degrees": 4}'),), _typed),
    "retry": Scenario((says("Fine."), BROKEN, says("Whole.")), _retry, driven_as="conversation"),
    "broken_stream": Scenario((says("Fine."), BROKEN, says("Whole.")), _broken_stream),
    "keyed": Scenario((says("Once."), says("Twice.")), _keyed),
    "models": Scenario((), _models),
}


# ── what there is to see ─────────────────────────────────────────────────────────────────────


def spoken(world: World) -> list[Said]:
    """What the model was told, request by request, without instructions."""
    return [_said(each) for each in world.upstream.requests]


def _said(request: UpstreamRequest) -> Said:
    said: Said = []
    for message in request.json["messages"]:
        if message["role"] == "system":
            continue
        if message["content"]:
            role = "result" if message["role"] == "tool" else message["role"]
            said.append((role, _text(message["content"])))
        for call in message.get("tool_calls") or []:
            said.append(("call", call["function"]["name"]))
    return said


def _instructions(request: UpstreamRequest) -> list[str]:
    return [_text(each["content"]) for each in request.json["messages"] if each["role"] == "system"]


async def stored(world: World) -> Said:
    """What the conversation holds."""
    said: Said = []
    for item in await world.items("trip"):
        if item["type"] == "call":
            said.append(("call", item["name"]))
        else:
            said.append((item["type"], _text(item["content"])))
    return said


async def has_streamed(world: World) -> bool:
    """Whether the client has been sent streams since the server was started."""
    page = (await world.request("GET", "/metrics")).body.decode()
    found = re.findall(r"^holdfast_first_words_seconds_count(?:{.*})? (\d+)", page, re.MULTILINE)
    assert found, "the number is there"
    return any(map(int, found))


async def ends(world: World) -> list[str]:
    """How its turns ended, the first one first."""
    return [str(turn["state"]) for turn in reversed(await world.turns("trip"))]


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
