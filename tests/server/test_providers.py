"""A turn with thoughts and calls, on every wire, through the whole server: what has to go back does."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.testing import FakeUpstream
from tests.models.wires import CALLS, SIGNATURE, TONGUES, Tongue
from tests.server.stubs import HeldTool, agent, serving

HISTORY = {
    "chat": "messages",
    "anthropic": "messages",
    "google": "contents",
    "responses": "input",
}


def without_marks(value: Any) -> Any:
    """The same without marks for the cache, which move to the end with every request."""
    if isinstance(value, dict):
        return {
            name: without_marks(each) for name, each in value.items() if name != "cache_control"
        }
    return [without_marks(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("tongue", TONGUES.values(), ids=TONGUES.keys())
async def test_what_a_provider_signed_goes_back_to_it(tongue: Tongue) -> None:
    """In the same turn, between its calls, where it is checked; and in the next turn, where it was."""
    async with FakeUpstream(tongue.script, "Done.", "Again.") as upstream:
        model = tongue.model(upstream)
        tools = [HeldTool(name, held=False) for name, _, _ in CALLS]
        async with serving(agent(model, *tools)) as server:
            first = await server.chat("Go", to="trip")
            second = await server.chat("Once more", to="trip")
        await model.close()
    assert (first.status, second.status) == (200, 200)
    asked, answered, later = (
        without_marks(each.json)[HISTORY[tongue.name]] for each in upstream.requests
    )
    assert answered[: len(asked)] == asked
    assert later[: len(answered)] == answered, "a provider's cache knows a history by its beginning"
    raw = [each.body.decode() for each in upstream.requests]
    if tongue.name != "chat":  # nobody takes another's reasoning back over that API
        assert SIGNATURE in raw[1] and SIGNATURE in raw[2]
    for name, _, call_id in CALLS:
        assert name in raw[1] and raw[1].count(call_id) == 2, "the call, and its result"


@pytest.mark.parametrize("name", ["responses", "anthropic"])
async def test_what_a_provider_sealed_goes_back_by_way_of_a_client_that_stores_nothing_here(
    name: str,
) -> None:
    """Codex tells everything again with each request, and what was thought is among it."""
    tongue = TONGUES[name]
    functions = [{"type": "function", "name": name} for name, _, _ in CALLS]
    async with FakeUpstream(tongue.script, "Done.") as upstream:
        model = tongue.model(upstream)
        async with serving(agent(model)) as server:
            asked = {"role": "user", "content": "Go"}
            wants: dict[str, Any] = {
                "tools": functions,
                "store": False,
                "include": ["reasoning.encrypted_content"],
                "reasoning": {"summary": "auto"},
            }
            first = (await server.respond([asked], **wants)).json
            results = [
                {"type": "function_call_output", "call_id": each["call_id"], "output": "done"}
                for each in first["output"]
                if each["type"] == "function_call"
            ]
            second = await server.respond([asked, *first["output"], *results], **wants)
        await model.close()
    thought = next(each for each in first["output"] if each["type"] == "reasoning")
    assert thought["encrypted_content"] and thought["id"].startswith("rs_")
    assert len(results) == len(CALLS) and second.status == 200
    assert SIGNATURE in upstream.requests[1].body.decode()
