"""Counting and summing up what a model would be shown, without asking for an answer."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.events import Usage
from holdfast.testing import ScriptedModel, says
from tests.server.stubs import Answer, Serving, agent, serving


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
        kept, summed = made.json["output"]
        later = await server.respond([*made.json["output"], {"role": "user", "content": "Where?"}])
        missing = await server.request("POST", "/v1/responses/compact", data=b'{"input":"Hi"}')
        nothing = await ask(server, "compact")
        before = await server.get(f"/v1/responses/{made.json['id']}")
    assert made.json["object"] == "response.compaction"
    assert made.json["usage"]["total_tokens"] == 13
    assert (kept["role"], summed["type"]) == ("system", "compaction")
    assert "Hello." in str(model.messages(1)) and "Oslo" in str(model.messages(1))
    assert later.status == 200
    assert [each.role for each in model.messages()] == ["system", "system", "user"]
    assert "They met in Oslo." in str(model.messages())
    assert (missing.status, missing.error["param"]) == (400, "model")
    assert (nothing.status, nothing.error["code"]) == (400, "nothing_to_compact")
    assert before.status == 404
