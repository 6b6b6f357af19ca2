"""Pictures and files: small ones inside the conversation, large ones beside it; the model sees both."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any

import msgspec
import pytest

from holdfast import limits
from holdfast.store.memory_store import MemoryStore
from holdfast.store.store import Store
from holdfast.testing import ScriptedModel, says
from tests.server.stubs import HeldTool, agent, serving, until

SMALL = b"\x89PNG" + bytes(100)
LARGE = b"\x89PNG" + bytes(3 * limits.inline_bytes_max)


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{b64encode(data).decode()}"


def picture(data: bytes) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": data_url(data)}}],
    }


def seen(model: ScriptedModel, nth: int) -> list[str]:
    """The pictures that the model was shown."""
    pieces = model.prompts[nth].messages
    messages = msgspec.json.decode(b"[" + b",".join(pieces) + b"]")
    parts = [part for each in messages for part in each["content"] or () if isinstance(part, dict)]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def answers() -> ScriptedModel:
    return ScriptedModel(otherwise=lambda prompt: "A fine picture.")


@pytest.mark.parametrize("to", ["trip", None])
@pytest.mark.parametrize("data", [SMALL, LARGE])
async def test_a_picture_reaches_the_model_whatever_its_size(data: bytes, to: str | None) -> None:
    model = answers()
    async with serving(agent(model)) as server:
        answer = await server.chat(picture(data), to=to)
    assert answer.text == "A fine picture."
    assert seen(model, 0) == [picture(data)["content"][0]["image_url"]["url"]]


async def test_a_large_picture_is_still_there_after_a_restart_and_is_known_again() -> None:
    model = answers()
    store: Store = MemoryStore()
    async with serving(agent(model), store=store) as server:
        await server.chat(picture(LARGE), to="trip", headers={"Idempotency-Key": "k"})
        items = await server.items("trip")
    async with serving(agent(model), store=store) as server:
        resent = await server.chat(
            picture(LARGE), {"role": "assistant", "content": "A fine picture."}, "And?", to="trip"
        )
    assert items[0]["content"][0]["source"]["type"] == "blob"
    assert "x-conversation-diverged" not in resent.headers
    assert len(seen(model, 1)) == 1
    assert len(model.messages(1)) == 3


async def test_a_large_picture_may_be_said_to_a_running_turn() -> None:
    tool = HeldTool(read_only=True)
    model = answers()
    model.will(says(calls=[("act", "{}")]))
    async with serving(agent(model, tool)) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await tool.begun.wait()
        second = asyncio.create_task(
            server.chat(picture(LARGE), to="trip", headers={"X-On-Busy": "steer"})
        )
        await until(lambda: bool(server.sessions._owner.playing[0]._steers))
        tool.let_go.set()
        await first
        assert (await second).status == 200
    assert len(seen(model, 1)) == 1


async def test_what_is_no_picture_is_refused() -> None:
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,???"}}
    async with serving(agent(answers())) as server:
        answer = await server.chat({"role": "user", "content": [broken]}, to="trip")
    assert (answer.status, answer.error["code"]) == (400, "invalid_content")


async def test_a_large_picture_is_seen_by_those_who_go_on_from_it_and_store_nothing() -> None:
    model = answers()
    shown = {"role": "user", "content": [{"type": "input_image", "image_url": data_url(LARGE)}]}
    async with serving(agent(model)) as server:
        first = (await server.respond([shown])).json
        after = await server.respond("And?", previous_response_id=first["id"], store=False)
    assert after.status == 200
    assert seen(model, 1) == seen(model, 0)
