"""A turn with thoughts and calls, on every wire, through the whole server: what has to go back does."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.testing import FakeUpstream
from tests.models.tongues import CALLS, SIGNATURE, TONGUES, Tongue
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
