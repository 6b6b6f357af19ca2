"""Pictures that a model makes: clients are shown them, over both APIs, and they are listed with the conversation."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from holdfast import limits
from holdfast.core.items import Image, Inline
from holdfast.core.turns.deltas import FinishDelta, PartDelta, TextDelta
from holdfast.testing import Script, ScriptedModel
from tests.server.stubs import Serving, agent, serving

SMALL, LARGE = b"\x89PNG small", b"\x89PNG" + bytes(limits.inline_bytes_max + 1)


def drawn(*pictures: bytes, words: str = "Here.") -> Script:
    parts = [Image(source=Inline(media_type="image/png", data=each)) for each in pictures]
    said = [TextDelta(text=words)] if words else []
    return Script(*said, *(PartDelta(part=each) for each in parts), FinishDelta(finish="stop"))


def model() -> ScriptedModel:
    return ScriptedModel(drawn(SMALL, LARGE), "Yes.")


PICTURES = [base64.b64encode(each).decode() for each in (SMALL, LARGE)]
URLS = [f"data:image/png;base64,{each}" for each in PICTURES]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("named", ["trip", None])
async def test_a_chat_shows_the_pictures_of_a_model(named: str | None, stream: bool) -> None:
    async with serving(agent(model())) as server:
        answer = await server.chat("Draw", to=named, stream=stream)
    if stream:
        deltas = [
            each["choices"][0]["delta"]
            for each in answer.events
            if each != "[DONE]" and each["choices"]
        ]
        assert answer.streamed == "Here."
        images = [image for each in deltas for image in each.get("images", ())]
    else:
        assert answer.text == "Here."
        images = answer.json["choices"][0]["message"]["images"]
    assert [each["image_url"]["url"] for each in images] == URLS
    assert [each["index"] for each in images] == [0, 1]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("words", ["Here.", ""], ids=["words", "wordless"])
async def test_a_response_shows_them_as_calls_that_made_them(stream: bool, words: str) -> None:
    async with serving(agent(ScriptedModel(drawn(SMALL, LARGE, words=words)))) as server:
        answer = await server.respond("Draw", stream=stream)
        if stream:
            events = answer.named_events
            response = events[-1]["response"]
            done = [each["item"] for each in events if each["type"] == "response.output_item.done"]
            assert done == response["output"]
            assert [each["output_index"] for each in events if "item" in each] == [0, 0, 1, 1, 2, 2]
        else:
            response = answer.json
        again = (await server.get(f"/v1/responses/{response['id']}")).json
    assert again["output"] == response["output"]
    assert [each["type"] for each in response["output"]] == [
        "message",
        *["image_generation_call"] * 2,
    ]
    assert [each["result"] for each in response["output"][1:]] == PICTURES
    assert len({each["id"] for each in response["output"]}) == 3


async def listed(server: Serving, line: str) -> list[dict[str, Any]]:
    page = await server.get(f"/v1/conversations/{line}/items?order=asc")
    found: list[dict[str, Any]] = page.json["data"]
    return found


async def test_they_are_listed_with_the_message_that_they_came_with() -> None:
    async with serving(agent(model())) as server:
        first = await server.chat("Draw", to="trip")
        await server.chat("Nice", to="trip")
        items = await listed(server, first.headers["x-session-id"])
    parts = items[1]["content"]
    assert [each["type"] for each in parts] == ["output_text", "input_image", "input_image"]
    assert [each["image_url"] for each in parts[1:]] == URLS
    assert [each["role"] for each in items] == ["user", "assistant"] * 2
