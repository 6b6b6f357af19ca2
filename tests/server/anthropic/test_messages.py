"""Anthropic's Messages over HTTP: the form of every refusal, names that a program gives by itself, and its retries."""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import Any

import msgspec
import pytest

from holdfast import limits
from holdfast.config import Quota
from holdfast.server.access.quotas import Quotas
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, says
from holdfast.wire.anthropic.door.problems import ANTHROPIC_PROBLEMS
from holdfast.wire.problems import Problem
from tests.server.access.test_authentication import put_key
from tests.server.stubs import Answer, Serving, agent, serving, until

SESSION = {"X-Claude-Code-Session-Id": "s1"}


def body(*messages: Any, **more: Any) -> bytes:
    said = [
        {"role": "user", "content": each} if isinstance(each, str) else each for each in messages
    ]
    return msgspec.json.encode({"model": "root", "max_tokens": 9, "messages": said, **more})


async def ask(server: Serving, *messages: Any, headers: Any = None, **more: Any) -> Answer:
    return await server.request(
        "POST", "/v1/messages", headers=headers, data=body(*messages, **more)
    )


def said(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    text: str = answer.json["content"][0]["text"]
    return text


# ── refusals ─────────────────────────────────────────────────────────────────────────────────


async def test_every_refusal_has_anthropics_form(monkeypatch: pytest.MonkeyPatch) -> None:
    store, theirs = MemoryStore(), {"anthropic-version": "2023-06-01"}
    key = {"x-api-key": str(await put_key(store))}
    quotas = Quotas(tenant=Quota(requests_per_minute=4), clock=lambda: 0.0)
    asked = body("Hi")
    large = BytesIO(b" " * (limits.body_bytes_max + 1))
    async with serving(
        agent(ScriptedModel()), store=store, auth="required", quotas=quotas
    ) as server:
        for method, path, headers, data, status, kind in (
            ("POST", "/v1/messages", {}, asked, 401, "authentication_error"),
            ("GET", "/v1/messages", key, None, 405, "invalid_request_error"),
            ("POST", "/v1/messages/nothing", key, asked, 404, "not_found_error"),
            ("GET", "/v1/files", theirs, None, 404, "not_found_error"),
            ("POST", "/c/x/v1/messages", {}, asked, 401, "authentication_error"),
            ("POST", "/v1/messages", key, large, 413, "request_too_large"),
            ("POST", "/v1/messages", key, b"{", 400, "invalid_request_error"),
            ("POST", "/v1/messages/count_tokens", key, b"{}", 400, "invalid_request_error"),
            (
                "POST",
                "/v1/messages?beta=true",
                {**key, "If-Match": "x"},
                asked,
                400,
                "invalid_request_error",
            ),
            ("POST", "/v1/messages", key, asked, 429, "rate_limit_error"),
        ):
            answer = await server.request(method, path, headers=headers, data=data)
            told = answer.json
            assert (answer.status, told["type"], told["error"]["type"]) == (status, "error", kind)
            assert answer.headers["request-id"] == answer.headers["x-request-id"]
            assert "openai-version" not in answer.headers
        full = await ask(server, "Hi", headers=key)
        assert full.status == 429 and full.headers["retry-after"]
        other = await server.request("GET", "/v1/files")
        assert other.error["code"] == "unknown_url", "others read OpenAI's"


def test_an_overloaded_server_is_529() -> None:
    problem = Problem(status=503, code="server_overloaded", message="full", kind="server_error")
    told = ANTHROPIC_PROBLEMS.answer(problem)
    assert told.status == 529
    assert msgspec.json.decode(told.body)["error"]["type"] == "overloaded_error"


# ── the names that Claude Code gives ─────────────────────────────────────────────────────────


async def test_sessions_and_sub_agents_of_claude_code_have_conversations_of_their_own() -> None:
    gate = Gate()
    model = ScriptedModel(
        says("Main.").waiting(gate, at=0),
        "Title.",
        "Agent.",
        "Main again.",
        otherwise=lambda _: "?",
    )
    async with serving(agent(model)) as server:
        main = asyncio.create_task(ask(server, "Do it", headers=SESSION))
        await gate.reached.wait()
        title = await ask(server, "Write a title for: Do it", headers=SESSION)
        helper = await ask(server, "Help", headers={**SESSION, "X-Claude-Code-Agent-Id": "a7"})
        gate.release()
        assert [said(await main), said(title), said(helper)] == ["Main.", "Title.", "Agent."]
        history = ["Do it", {"role": "assistant", "content": "Main."}, "And now?"]
        assert said(await ask(server, *history, headers=SESSION)) == "Main again."
        items = await server.items("s1")
        assert [each["type"] for each in items] == ["user", "assistant"] * 2
        assert len(await server.items("s1%2Fa7")) == 2
        named = await server.request("POST", "/c/s1/v1/messages", data=body(*history))
        assert named.headers["x-conversation-id"] == "s1"


# ── its retries ──────────────────────────────────────────────────────────────────────────────


async def test_an_answer_that_got_lost_is_given_again_to_a_client_that_counts_no_retries() -> None:
    """The stream broke off before its end; the same request comes again as a plain one."""
    gate = Gate()
    model = ScriptedModel(says("Here ", "it is.").waiting(gate, at=1), "Anew.")
    headers = {**SESSION, "X-Turn-Policy": "disconnect=finish", "X-Stainless-Retry-Count": "0"}
    async with serving(agent(model)) as server:
        async with server.http.post(
            f"{server.url}/v1/messages", headers=headers, data=body("Go", stream=True)
        ) as broken:
            await broken.content.readany()
            turn = broken.headers["x-turn-id"]
            await gate.reached.wait()
        joined = asyncio.create_task(ask(server, "Go", headers=headers))
        await until(lambda: not joined.done())
        gate.release()
        assert said(await joined) == "Here it is."
        assert (await joined).headers["x-turn-id"] == turn
        assert len(await server.items("s1")) == 2
        again = await ask(server, "Go", headers=headers)
    assert said(again) == "Anew.", "an answer that was received is not given again"


async def test_a_request_of_another_client_that_comes_twice_is_two_requests() -> None:
    model = ScriptedModel("One.", "Two.")
    async with serving(agent(model)) as server:
        answers = [
            said(await ask(server, "Go", headers={"X-Conversation-Id": "trip"})) for _ in range(2)
        ]
    assert answers == ["One.", "Two."]
