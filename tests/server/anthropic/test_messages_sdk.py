"""The Messages API by Anthropic's own Python SDK: what it sends and what it makes of our answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, MessageParam, TextBlock, ThinkingBlock, ToolUseBlock

from holdfast.core.items import Image
from holdfast.core.turns.events import Usage
from holdfast.models.model import Model
from holdfast.testing import Gate, ScriptedModel, fails, says
from holdfast.tools.tool import Tool
from tests.server.stubs import HeldTool, Serving, agent, serving

WEATHER: Any = {
    "name": "weather",
    "description": "How it is",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}},
}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def user(content: Any) -> MessageParam:
    return {"role": "user", "content": content}


def text(message: Message) -> str:
    return "".join(each.text for each in message.content if isinstance(each, TextBlock))


@asynccontextmanager
async def sdk(
    model: Model, *tools: Tool, retries: int = 0
) -> AsyncIterator[tuple[anthropic.AsyncAnthropic, Serving]]:
    async with serving(agent(model, *tools)) as server:
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key="any", max_retries=retries)
        async with client:
            yield client, server


async def test_a_conversation_takes_what_is_new_and_tells_its_end() -> None:
    usage = Usage(input_tokens=30, cached_tokens=20, cache_write_tokens=4, output_tokens=2)
    model = ScriptedModel(says("Hello.", usage=usage), "Bye.")
    async with sdk(model) as (client, _):
        asks = client.messages.with_raw_response
        first = await asks.create(
            model="root",
            max_tokens=100,
            system="Be brief.",
            messages=[user("Hi")],
            extra_headers={"X-Conversation-Id": "trip"},
        )
        second = await client.messages.create(
            model="root",
            max_tokens=100,
            messages=[user("And?")],
            extra_headers={"X-Conversation-Id": "trip"},
        )
    said = await first.parse()
    assert (text(said), said.stop_reason, said.model) == ("Hello.", "end_turn", "root")
    assert first.headers["request-id"].startswith("req_")
    assert first.headers["x-conversation-version"] == "1"
    counted = said.usage
    assert (counted.input_tokens, counted.cache_read_input_tokens) == (6, 20)
    assert (counted.cache_creation_input_tokens, counted.output_tokens) == (4, 2)
    assert text(second) == "Bye." and second.id != said.id
    assert [each.content for each in model.messages()] == ["Hi", "Hello.", "And?"]
    assert model.prompts[0].system.endswith("Be brief.")
    assert model.prompts[0].parameters.max_output_tokens == 100


async def test_a_resent_history_is_recognised() -> None:
    model = ScriptedModel("Hello.", "Bye.")
    async with sdk(model) as (client, server):
        named = {"X-Conversation-Id": "trip"}
        asked = [user("Hi")]
        first = await client.messages.create(
            model="root", max_tokens=9, messages=asked, extra_headers=named
        )
        asked += [{"role": "assistant", "content": first.content}, user("And?")]
        await client.messages.create(
            model="root", max_tokens=9, messages=asked, extra_headers=named
        )
        items = await server.items("trip")
    assert [each["type"] for each in items] == ["user", "assistant", "user", "assistant"]
    assert [each.content for each in model.messages()] == ["Hi", "Hello.", "And?"]


async def test_the_stream_helper_follows_thoughts_text_and_calls_to_their_end() -> None:
    model = ScriptedModel(
        says("Let ", "me.", thinks=("Hm, ", "so."), calls=[("weather", '{"place":"Oslo"}', "c1")]),
        "Cold.",
    )
    thinking: Any = {"type": "adaptive"}
    asked = [user("Weather?")]
    async with sdk(model) as (client, _):
        named = {"X-Conversation-Id": "trip"}
        async with client.messages.stream(
            model="root",
            max_tokens=99,
            messages=asked,
            tools=[WEATHER],
            thinking=thinking,
            extra_headers=named,
        ) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_message()
        thought, said, called = final.content
        assert isinstance(thought, ThinkingBlock) and thought.thinking == "Hm, so."
        assert isinstance(said, TextBlock) and said.text == "Let me."
        assert isinstance(called, ToolUseBlock) and called.input == {"place": "Oslo"}
        assert final.stop_reason == "tool_use" and kinds[0] == "message_start"
        asked.append({"role": "assistant", "content": final.content})
        asked.append(
            user([{"type": "tool_result", "tool_use_id": called.id, "content": "-3 degrees"}])
        )
        second = await client.messages.create(
            model="root", max_tokens=99, messages=asked, tools=[WEATHER], extra_headers=named
        )
    assert text(second) == "Cold." and second.stop_reason == "end_turn"
    roles = [each.role for each in model.messages()]
    assert roles == ["user", "assistant", "tool"], "the resent call is recognised"


async def test_the_agents_own_calls_never_appear() -> None:
    tool = HeldTool(held=False)
    model = ScriptedModel(says("Let me.", calls=[("act", "{}", "c1")]), "Done.")
    async with sdk(model, tool) as (client, _):
        async with client.messages.stream(
            model="root", max_tokens=9, messages=[user("Go")]
        ) as stream:
            final = await stream.get_final_message()
    assert [each.type for each in final.content] == ["text"]
    assert text(final) == "Let me.\n\nDone." and final.stop_reason == "end_turn"


async def test_a_failed_result_is_told_as_one() -> None:
    model = ScriptedModel(says(calls=[("weather", "{}", "c1")]), "I see.")
    async with sdk(model) as (client, server):
        named = {"X-Conversation-Id": "trip"}
        await client.messages.create(
            model="root", max_tokens=9, messages=[user("Hi")], tools=[WEATHER], extra_headers=named
        )
        result: Any = {
            "type": "tool_result",
            "tool_use_id": "c1",
            "content": "no",
            "is_error": True,
        }
        await client.messages.create(
            model="root", max_tokens=9, messages=[user([result])], extra_headers=named
        )
        items = await server.items("trip")
    (given,) = [each for each in items if each["type"] == "result"]
    assert given["outcome"] == "error"


async def test_images_reach_the_model() -> None:
    model = ScriptedModel("A dot.")
    image: Any = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
        "cache_control": {"type": "ephemeral"},
    }
    async with sdk(model) as (client, server):
        await client.messages.create(
            model="root",
            max_tokens=9,
            messages=[user([image, {"type": "text", "text": "What is it?"}])],
            extra_headers={"X-Conversation-Id": "trip"},
        )
        (asked, _) = await server.items("trip")
    assert [each["type"] for each in asked["content"]] == [Image.__struct_config__.tag, "text"]


async def test_what_is_ignored_is_named() -> None:
    model = ScriptedModel("Yes.")
    search: Any = {"type": "web_search_20250305", "name": "web_search"}
    async with sdk(model) as (client, _):
        answer = await client.beta.messages.with_raw_response.create(
            model="root",
            max_tokens=9,
            messages=[{"role": "user", "content": "Hi"}],
            tools=[search],
            betas=["context-1m-2025-08-07", "structured-outputs-2025-12-15"],
            extra_body={"context_management": {"edits": []}},
            extra_query={"beta": "true"},
        )
    ignored = answer.headers["x-ignored-params"].split(", ")
    assert set(ignored) == {
        "context_management",
        "tools[0]",
        "?beta",
        "anthropic-beta:context-1m-2025-08-07",
    }


async def test_tokens_are_counted() -> None:
    async with sdk(ScriptedModel()) as (client, _):
        counted = await client.messages.count_tokens(
            model="root", messages=[user("x" * 400)], tools=[WEATHER], system="Be brief."
        )
    assert 100 < counted.input_tokens < 300


async def test_the_agents_are_listed_as_models() -> None:
    async with sdk(ScriptedModel()) as (client, _):
        listed = [each async for each in client.models.list()]
        one = await client.models.retrieve("root")
        with pytest.raises(anthropic.NotFoundError, match="does not exist"):
            await client.models.retrieve("nobody")
    assert [each.id for each in listed] == ["root"] and one.type == "model"


# ── errors ───────────────────────────────────────────────────────────────────────────────────


async def refused(client: anthropic.AsyncAnthropic, **asked: Any) -> anthropic.APIStatusError:
    body: dict[str, Any] = {"model": "root", "max_tokens": 9, "messages": [user("Hi")], **asked}
    with pytest.raises(anthropic.APIStatusError) as told:
        await client.messages.create(**body)
    return told.value


async def test_errors_have_anthropics_envelope_and_types() -> None:
    model = ScriptedModel(
        fails(status=429, retry_after_s=7.0),
        fails(status=500),
        fails(status=401),
        fails(status=400),
    )
    async with sdk(model) as (client, _):
        for asked, status, kind, code in (
            ({"messages": []}, 400, "invalid_request_error", "no_new_user_message"),
            ({"model": "nobody"}, 404, "not_found_error", "model_not_found"),
            (
                {"extra_headers": {"If-Match": '"3"'}},
                412,
                "invalid_request_error",
                "version_mismatch",
            ),
            ({}, 429, "rate_limit_error", "rate_limit_exceeded"),
            ({}, 502, "api_error", "upstream_error"),
            ({}, 502, "api_error", "upstream_refused"),
            ({}, 400, "invalid_request_error", "scripted"),
        ):
            told = await refused(
                client, **{"extra_headers": {"X-Conversation-Id": "trip"}, **asked}
            )
            body: Any = told.body
            assert told.status_code == status and body["type"] == "error", body
            assert (body["error"]["type"], body["error"]["code"]) == (kind, code)
            assert told.request_id is not None and told.request_id.startswith("req_")


async def test_a_stream_that_fails_ends_with_an_error() -> None:
    model = ScriptedModel(says("Half").failing(at=1))
    async with sdk(model) as (client, _):
        with pytest.raises(anthropic.APIStatusError, match="scripted to fail"):
            async with client.messages.stream(
                model="root", max_tokens=9, messages=[user("Hi")]
            ) as stream:
                await stream.until_done()


async def test_an_sdks_own_retry_is_answered_by_one_turn() -> None:
    model = ScriptedModel(fails(status=529, transient=True), "Here.")
    async with sdk(model, retries=2) as (client, server):
        answer = await client.messages.create(
            model="root",
            max_tokens=9,
            messages=[user("Hi")],
            extra_headers={"X-Conversation-Id": "trip"},
        )
        items = await server.items("trip")
    assert text(answer) == "Here." and len(items) == 2


async def test_a_quiet_stream_is_kept_alive_by_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.limits.heartbeat_s", 0.01)
    monkeypatch.setattr("holdfast.limits.stream_patience_s", 0.01)
    gate = Gate()
    body = {"model": "root", "max_tokens": 9, "messages": [user("Hi")], "stream": True}
    async with serving(agent(ScriptedModel(says("Late.").waiting(gate, at=0)))) as server:
        async with server.http.post(f"{server.url}/v1/messages", json=body) as answer:
            while await answer.content.readline() != b'data: {"type":"ping"}\n':
                pass
            gate.release()
            rest = await answer.read()
    assert b'"text":"Late."' in rest and rest.endswith(b'data: {"type":"message_stop"}\n\n')
