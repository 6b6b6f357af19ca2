"""Counting and summing up what a model would be shown, without asking for an answer."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from holdfast.core.turns.events import Usage
from holdfast.models.providers.openai_responses import ResponsesModel
from holdfast.testing import FakeUpstream, ScriptedModel, says
from tests.server.stubs import Answer, HeldTool, Serving, agent, serving


async def ask(server: Serving, what: str, **body: Any) -> Answer:
    return await server.request(
        "POST", f"/v1/responses/{what}", data=msgspec.json.encode({"model": "root", **body})
    )


async def test_a_count_is_an_estimate_of_everything_that_would_be_shown() -> None:
    async with serving(agent(ScriptedModel("Yes. " * 100))) as server:
        nothing = await ask(server, "input_tokens")
        little = await ask(server, "input_tokens", input="Hi")
        first = await server.respond("Hi")
        more = await ask(server, "input_tokens", input="Hi", previous_response_id=first.json["id"])
        named = await ask(server, "input_tokens", conversation=first.headers["x-session-id"])
        tools = await ask(server, "input_tokens", input="Hi", tools=[{"type": "x" * 400}])
        unknown = await ask(server, "input_tokens", previous_response_id="resp_1")
    assert nothing.json == {"object": "response.input_tokens", "input_tokens": 0}
    assert little.headers["x-token-count"] == "estimate"
    counts = [each.json["input_tokens"] for each in (little, more, named, tools)]
    assert 0 < counts[0] < 20 and counts[1] > 120 and 120 < counts[2] < counts[1]
    assert counts[3] > counts[0] + 100
    assert unknown.error["code"] == "previous_response_not_found"


@asynccontextmanager
async def counting(answer: str, *, counts: int) -> AsyncIterator[tuple[FakeUpstream, Serving]]:
    """A server whose agent's model is at a provider that counts."""
    async with FakeUpstream(answer, counts=counts) as upstream:
        model = ResponsesModel("gpt-5", base_url=upstream.base_url, counts=True)
        async with serving(agent(model)) as server:
            yield upstream, server
        await model.close()


async def test_a_provider_that_counts_is_asked_for_what_would_be_shown() -> None:
    look = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    async with counting("Yes.", counts=42) as (upstream, server):
        first = await server.respond("Hi")
        told = await ask(
            server,
            "input_tokens",
            input="And you?",
            previous_response_id=first.json["id"],
            instructions="Rhyme.",
            tools=[look],
        )
        others = await ask(server, "input_tokens", input="Hi", tools=[{"type": "web_search"}])
        unknown = await ask(server, "input_tokens", input="Hi", model="nobody")
        upstream.counts = None
        failed = await ask(server, "input_tokens", input="Hi")
    assert told.json == {"object": "response.input_tokens", "input_tokens": 42}
    assert told.headers["x-token-count"] == "provider"
    asked, _ = upstream.others
    assert [asked.json[name] for name in ("model", "instructions")] == [
        "gpt-5",
        "be nice\n\nRhyme.",
    ]
    for words in ("Hi", "Yes.", "And you?", "look"):
        assert words in str(asked.json)
    for estimated in (others, unknown, failed):
        assert estimated.headers["x-token-count"] == "estimate"
        assert 0 < estimated.json["input_tokens"] < 40


async def test_tools_that_nobody_has_listed_leave_it_to_an_estimate() -> None:
    async with FakeUpstream(counts=42) as upstream:
        model = ResponsesModel("gpt-5", base_url=upstream.base_url, counts=True)
        async with serving(agent(model, HeldTool("look"))) as server:
            told = await ask(server, "input_tokens", input="Hi")
        await model.close()
    assert told.headers["x-token-count"] == "estimate" and not upstream.others


async def test_bytes_are_counted_as_they_would_be_shown() -> None:
    """A large picture lies beside its item; the provider is sent what it is made of."""
    picture = b64encode(bytes(range(256)) * 1200).decode()
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{picture}"}
    said = [{"role": "user", "content": [image]}]
    async with counting("Nice.", counts=9) as (upstream, server):
        first = await server.respond(said)
        told = await ask(server, "input_tokens", previous_response_id=first.json["id"])
    assert told.headers["x-token-count"] == "provider"
    assert picture in str(upstream.others[0].json)


async def test_a_history_is_summed_up_and_goes_on_from_there() -> None:
    summary = says("They met in Oslo.", usage=Usage(input_tokens=9, output_tokens=4))
    model = ScriptedModel("Hello.", summary, "Yes.")
    async with serving(agent(model)) as server:
        first = await server.respond("Hi")
        made = await ask(
            server,
            "compact",
            input=[{"role": "developer", "content": "Rhyme."}, {"role": "user", "content": "Oslo"}],
            previous_response_id=first.json["id"],
        )
        *kept, summed = made.json["output"]
        later = await server.respond([*made.json["output"], {"role": "user", "content": "Where?"}])
        missing = await server.request("POST", "/v1/responses/compact", data=b'{"input":"Hi"}')
        nothing = await ask(server, "compact")
        before = await server.get(f"/v1/responses/{made.json['id']}")
    assert made.json["object"] == "response.compaction"
    assert made.json["usage"]["total_tokens"] == 13
    assert [(each["role"], each["content"][0]["text"]) for each in kept] == [
        ("user", "Hi"),
        ("developer", "Rhyme."),
        ("user", "Oslo"),
    ]
    assert summed["type"] == "compaction"
    assert "Hello." in str(model.messages(1)) and "Oslo" in str(model.messages(1))
    assert later.status == 200
    roles = [each.role for each in model.messages()]
    assert roles == ["user", "system", "user", "system", "user"]
    assert "They met in Oslo." in str(model.messages())
    assert (missing.status, missing.error["param"]) == (400, "model")
    assert (nothing.status, nothing.error["code"]) == (400, "nothing_to_compact")
    assert before.status == 404
