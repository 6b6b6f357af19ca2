"""Our client against a server that behaves, and against one that does not."""

from __future__ import annotations

import asyncio
import socket
import traceback
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest

from holdfast.core.turns.deltas import FinishDelta, TextDelta, UsageDelta
from holdfast.core.turns.events import Usage
from holdfast.errors import InvalidValue
from holdfast.models.http.connections import Connections, proxy_from_environment
from holdfast.models.http.http_model import Timeouts
from holdfast.models.model import ModelFailed, Prompt
from holdfast.models.providers.openai_chat import OpenAIModel
from holdfast.testing import FakeUpstream, Gate, Reply, Script, fails, refuses, says
from tests.models.conversations import answered, heard, model_at, prompt

USAGE = Usage(input_tokens=9, cached_tokens=3, output_tokens=4, reasoning_tokens=1)


async def failure_of(model: OpenAIModel, asked: Prompt | None = None) -> ModelFailed:
    with pytest.raises(ModelFailed) as raised:
        await heard(model, asked)
    return raised.value


async def after_failing(*answers: Reply | Script, **fields: Any) -> ModelFailed:
    """How one request fails against this server."""
    async with FakeUpstream(*answers) as upstream:
        model = model_at(upstream.base_url, **fields)
        failure = await failure_of(model)
        await model.close()
        return failure


# ── answers ──────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_arrives_as_it_was_given() -> None:
    script = says(
        "Hel", "lo", thinks=["Hm"], calls=[("look", '{"a":1}', "call_1"), ("fly", "{}", "call_2")]
    )
    async with FakeUpstream(says("Hi", usage=USAGE), script) as upstream:
        model = model_at(upstream.base_url)
        assert await heard(model) == [
            TextDelta(text="Hi"),
            FinishDelta(finish="stop"),
            UsageDelta(usage=USAGE),
        ]
        answer = answered(await heard(model))
        assert answer == answered(
            [step for step in script.steps if not isinstance(step, Gate | ModelFailed)]
        )
        await model.close()


async def test_what_is_asked_arrives_as_it_was_put() -> None:
    async with FakeUpstream("Hi") as upstream:
        model = model_at(
            upstream.base_url,
            token_key="SOME_KEY",
            environ={"SOME_KEY": " sk-secret\n"},
            headers={"X-Extra": "1", "user-agent": "me"},
        )
        await heard(
            model,
            Prompt(system="", messages=(b'{"role":"user","content":"Hi"}',), call_key="turn_1/2"),
        )
        (request,) = upstream.requests
        assert request.path == "/v1/chat/completions"
        assert request.headers["authorization"] == "Bearer sk-secret"
        assert request.headers["x-client-request-id"] == "turn_1/2"
        assert (request.headers["x-extra"], request.headers["user-agent"]) == ("1", "me")
        assert request.headers["accept-encoding"] == "identity"
        assert request.json["messages"] == [{"role": "user", "content": "Hi"}]
        await model.close()


@pytest.mark.parametrize(
    "reply",
    [
        Reply(script=says("Hello."), line_end=b"\r\n"),
        Reply(script=says("Hello."), write_bytes=1),
        Reply(script=says("Hello."), done=False),
        Reply(script=says("Hello."), done=False, chunked=False),
        Reply(script=says("Hello."), opening=False, usage=False),
        Reply(script=says("Hello."), content_type="text/plain"),
        Reply(
            content_type="application/json",
            body=b'{"choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}]}',
        ),
    ],
    ids=[
        "CRLF",
        "byte by byte",
        "no DONE",
        "no DONE, no length",
        "bare",
        "mislabelled",
        "not streamed",
    ],
)
async def test_servers_with_habits_are_understood(reply: Reply) -> None:
    async with FakeUpstream(reply) as upstream:
        model = model_at(upstream.base_url)
        assert await heard(model) == [TextDelta(text="Hello."), FinishDelta(finish="stop")]
        await model.close()


async def test_a_whole_answer_survives_whatever_comes_after_its_finish() -> None:
    """Only usage is lost; a person who has read the whole answer is not told that it failed."""
    script = says("Hello.")
    async with FakeUpstream(script) as upstream:
        model = model_at(upstream.base_url, timeouts=Timeouts(after_finish_s=0.02))
        expected = await heard(model)
        length = len(b"".join(_frames(script)))
        whole = length - len(b"data: [DONE]\n\n")
        for fault in (
            Reply(script=script, cut_at=whole, cut_by="close"),
            Reply(script=script, stall_at=whole),
            Reply(script=Script(*script.steps, ModelFailed("late"))),
        ):
            upstream.will(fault)
            assert await heard(model) == expected
        await model.close()


def _frames(script: Script) -> list[bytes]:
    from holdfast.testing.upstream.replies import UpstreamRequest, streamed

    request = UpstreamRequest(
        "POST",
        "/",
        {},
        b'{"model":"fake-model","stream":true,"stream_options":{"include_usage":true}}',
    )
    return [each for each in streamed(Reply(script=script), request, 1) if isinstance(each, bytes)]


# ── connections ──────────────────────────────────────────────────────────────────────────────


async def test_a_connection_is_used_again_after_a_whole_answer() -> None:
    async with FakeUpstream(otherwise=lambda _: "Hi") as upstream:
        model = model_at(upstream.base_url)
        for _ in range(3):
            await heard(model)
        assert upstream.connections == 1
        await model.close()


async def test_what_came_together_is_handed_on_together() -> None:
    body = b"".join(_frames(says("a", "b", "c")))
    async with FakeUpstream(Reply(body=body), Reply(body=body, write_bytes=40)) as upstream:
        model = model_at(upstream.base_url)
        together = [deltas async for deltas in model.stream(prompt())]
        apart = [deltas async for deltas in model.stream(prompt())]
        await model.close()
    expected = [TextDelta(text=each) for each in "abc"] + [FinishDelta(finish="stop")]
    assert together == [expected]
    assert len(apart) > 1 and [delta for deltas in apart for delta in deltas] == expected


async def test_leaving_early_breaks_the_request_off_at_once() -> None:
    gate = Gate()
    async with FakeUpstream(says("a", "b").waiting(gate, at=1), "again") as upstream:
        model = model_at(upstream.base_url)
        async with aclosing(model.stream(prompt())) as answer:
            assert await anext(answer) == [TextDelta(text="a")]
        await _until(lambda: upstream.requests[0].left_early)
        assert upstream.connections_open == 0
        await heard(model)
        assert upstream.connections == 2, "a half-read connection is never used again"
        await model.close()


async def test_cancelling_breaks_the_request_off_at_once() -> None:
    gate = Gate()
    async with FakeUpstream(says("a", "b").waiting(gate, at=1)) as upstream:
        model = model_at(upstream.base_url)
        asking = asyncio.create_task(heard(model))
        await gate.reached.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await _until(lambda: upstream.requests[0].left_early)
        await model.close()


async def _until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_connection_that_stays_open_after_the_end_is_not_waited_for() -> None:
    script = says("Hello.")
    end = len(b"".join(_frames(script)))
    async with FakeUpstream(Reply(script=script, stall_at=end)) as upstream:
        model = model_at(upstream.base_url, timeouts=Timeouts(after_finish_s=3600))
        async with asyncio.timeout(60):
            assert len(await heard(model)) == 2
        await model.close()


async def test_shared_connections_outlive_a_model() -> None:
    async with FakeUpstream(otherwise=lambda _: "Hi") as upstream:
        shared = Connections()
        first, second = (model_at(upstream.base_url, connections=shared) for _ in range(2))
        await heard(first)
        await first.close()
        await heard(second)
        assert upstream.connections == 1
        await shared.close()
        await shared.close()
        with pytest.raises(RuntimeError, match="closed"):
            await heard(second)


async def test_many_answers_at_a_time() -> None:
    """aiohttp's own bound of 100 connections would make the others wait without a word."""
    gate = Gate()
    async with FakeUpstream(otherwise=lambda _: says("a", "b").waiting(gate, at=1)) as upstream:
        model = model_at(upstream.base_url)
        asking = [asyncio.create_task(heard(model)) for _ in range(120)]
        await _until(lambda: len(upstream.requests) == 120)
        gate.release()
        assert len(await asyncio.gather(*asking)) == 120
        await model.close()


# ── failures ─────────────────────────────────────────────────────────────────────────────────


async def test_a_hint_is_kept() -> None:
    failure = await after_failing(refuses(429, headers={"Retry-After-Ms": "1500"}))
    assert failure.retry_after_s == 1.5


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(status=502, body=b"<html>Bad Gateway</html>", content_type="text/html"), "502"),
        (Reply(status=500, body=b"", content_type="text/plain"), "500: it gave no reason"),
        (Reply(status=500, body=b"{}", cut_at=0, content_type="application/json"), "500"),
        (Reply(status=500, body=b"x" * 200_000, content_type="text/plain"), "500"),
        (
            Reply(status=307, body=b"", headers=(("Location", "https://x/v1"),)),
            "redirects to https://x/v1",
        ),
    ],
)
async def test_a_refusal_without_an_envelope_is_one(reply: Reply, words: str) -> None:
    failure = await after_failing(reply)
    assert words in failure.detail
    assert len(failure.detail) < 2000
    assert failure.status == reply.status


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(script=says("a", "b").ending(at=1)), "upstream_broke_off"),
        (Reply(script=says("a", "b").ending(at=1), done=False), "upstream_broke_off"),
        (Reply(script=says("a", "b"), cut_at=300), "upstream_broke_off"),
        (Reply(script=says("a", "b"), cut_at=300, cut_by="close"), "upstream_broke_off"),
        (Reply(script=says("a", "b"), cut_at=300, cut_by="end"), "upstream_broke_off"),
        (
            Reply(script=says("a", "b"), cut_at=300, cut_by="close", chunked=False),
            "upstream_broke_off",
        ),
        (Reply(script=says("a", "b"), cut_at=0, cut_by="end"), "upstream_broke_off"),
        (Reply(body=b"data: nonsense\n\n"), "upstream_garbled"),
        (Reply(body=b"hello?"), "upstream_broke_off"),
        (Reply(body=b"data: " + b"x" * 5_000_000), "upstream_garbled"),
        (Reply(body=b"<html>", content_type="text/html"), "upstream_garbled"),
        (Reply(body=b"{}", content_type="application/json"), "upstream_garbled"),
    ],
)
async def test_a_stream_that_merely_ends_is_a_failure(reply: Reply, reason: str) -> None:
    failure = await after_failing(reply)
    assert (failure.reason, failure.transient, failure.status) == (reason, True, 0)
    assert failure.ended_by == "model_error"


async def test_an_error_in_place_of_an_answer_is_a_failure() -> None:
    body = b'{"error":{"message":"Upstream is down","code":502}}'
    failure = await after_failing(Reply(body=body, content_type="application/json"))
    assert (failure.status, failure.transient) == (502, True)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(stall_before_head=True), "gave no answer in 0.03 s"),
        (Reply(stall_at=0), "0.03 s"),
    ],
)
async def test_silence_at_the_start_is_bounded(reply: Reply, words: str) -> None:
    times = Timeouts(first_byte_s=0.03, between_bytes_s=0.03)
    failure = await after_failing(reply, timeouts=times)
    assert words in failure.detail
    assert (failure.reason, failure.transient) == ("upstream_timeout", True)


@pytest.mark.parametrize(
    ("reply", "words", "reason"),
    [
        (Reply(script=says("a", "b"), stall_at=300), "fell silent for 0.02 s", "upstream_timeout"),
        (Reply(status=500, body=b"abc", stall_at=1), "answered 500", ""),
    ],
)
async def test_silence_in_the_middle_is_bounded(reply: Reply, words: str, reason: str) -> None:
    failure = await after_failing(reply, timeouts=Timeouts(between_bytes_s=0.02))
    assert words in failure.detail
    assert (failure.reason, failure.transient) == (reason, True)


async def test_a_connection_that_is_used_again_is_as_impatient_as_a_new_one() -> None:
    async with FakeUpstream("Hi", Reply(stall_before_head=True)) as upstream:
        shared = Connections()
        await heard(model_at(upstream.base_url, connections=shared))
        times = Timeouts(first_byte_s=0.05, between_bytes_s=0.05)
        failure = await failure_of(model_at(upstream.base_url, connections=shared, timeouts=times))
        await shared.close()
    assert upstream.connections == 1 and failure.reason == "upstream_timeout"


@pytest.mark.parametrize("after", ["a", "b"])
async def test_a_slow_reader_is_not_silence(monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    """Neither after the first words, which came with the head, nor later."""
    first, second = Gate(), Gate()
    loop = asyncio.get_running_loop()
    script = says("a", "b", "c").waiting(second, at=2).waiting(first, at=1)
    async with FakeUpstream(script) as upstream:
        model = model_at(upstream.base_url)
        async with aclosing(model.stream(prompt())) as answer:
            assert await anext(answer) == [TextDelta(text="a")]
            if after == "b":
                first.release()
                assert await anext(answer) == [TextDelta(text="b")]
            now_s = loop.time
            monkeypatch.setattr(loop, "time", lambda: now_s() + 3600)  # nobody reads for an hour
            for _ in range(3):  # so that everything that is due by then happens
                await asyncio.sleep(0)
            first.release()
            second.release()
            assert [deltas async for deltas in answer][-1][-1] == FinishDelta(finish="stop")
        await model.close()


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        model = model_at(f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        failure = await failure_of(model)
    assert (failure.reason, failure.status, failure.transient) == ("upstream_unreachable", 0, True)
    await model.close()


async def test_a_server_that_does_not_let_one_in_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", never)
    times = Timeouts(connect_s=0.02)
    model = model_at("http://127.0.0.1:9/v1", timeouts=times)
    failure = await failure_of(model)
    assert failure.reason == "upstream_timeout"
    assert "no connection to 127.0.0.1:9 within 0.02 s" in failure.detail
    await model.close()


async def test_a_server_that_speaks_something_else_is_unreachable() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        model = model_at(f"http://127.0.0.1:{port}/v1", token_key="K", environ={"K": "sk-secret"})
        failure = await failure_of(model)
        assert failure.reason == "upstream_unreachable"
        assert "sk-secret" not in _everything(failure)
        await model.close()


async def test_a_request_that_cannot_be_put_together_is_refused_here() -> None:
    failure = await failure_of(model_at("http://127.0.0.1:9/v1"), prompt("Hi", output_schema="{"))
    assert (failure.reason, failure.transient) == ("invalid_request_error", False)


# ── secrets ──────────────────────────────────────────────────────────────────────────────────


def _everything(failure: BaseException) -> str:
    """All that a log could show of a failure, causes and their attributes included."""
    shown = ["".join(traceback.format_exception(failure))]
    error: BaseException | None = failure
    while error is not None:
        shown += (repr(error), repr(vars(error)))
        error = error.__cause__ or error.__context__
    return "".join(shown)


@pytest.mark.parametrize(
    "answer",
    [
        refuses(401, message="Incorrect API key provided: sk-secret."),
        Reply(script=Script(ModelFailed("the key sk-secret is wrong"))),
        Reply(body=b"data: sk-secret\n\n"),
        Reply(body=b'{"error":"sk-secret"}', content_type="application/json"),
        Reply(status=500, body=b"Authorization: Bearer sk-secret", content_type="text/plain"),
        Reply(cut_at=0),
    ],
)
async def test_the_key_shows_up_nowhere(answer: Reply) -> None:
    async with FakeUpstream(answer) as upstream:
        model = model_at(upstream.base_url, token_key="K", environ={"K": "sk-secret"})
        failure = await failure_of(model)
        assert upstream.requests[0].headers["authorization"] == "Bearer sk-secret"
        assert "sk-secret" not in _everything(failure)
        assert "sk-secret" not in repr(model) + str(model)
        await model.close()


async def test_secrets_in_extra_headers_are_secrets_too() -> None:
    async with FakeUpstream(refuses(401, message="api-key abcdef123 is wrong")) as upstream:
        model = model_at(upstream.base_url, headers={"api-key": "abcdef123"})
        assert "abcdef123" not in _everything(await failure_of(model))
        await model.close()


# ── what cannot work ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"token_key": "NO_SUCH_KEY", "environ": {}}, "set the environment variable NO_SUCH_KEY"),
        ({"token_key": "K", "environ": {"K": "two words"}}, "K holds is no API key"),
        ({"base_url": "ftp://example.org"}, "http or https"),
        ({"base_url": "nonsense"}, "http or https"),
        ({"base_url": "https://me:pw@example.org"}, "must not hold credentials"),
        ({"headers": {"Content-Type": "x"}}, "extra header"),
        ({"headers": {"a b": "x"}}, "extra header"),
        ({"headers": {"a": "x\r\nb: y"}}, "cannot be sent"),
        ({"options": {"model": '"x"'}}, "Holdfast decides"),
        ({"options": {"top_k": "nonsense"}}, "not valid JSON"),
        ({"timeouts": Timeouts(first_byte_s=1, between_bytes_s=2)}, "at most first_byte_s"),
    ],
)
def test_what_cannot_work_is_said_at_once(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValue, match=words) as raised:
        OpenAIModel("m", **{"base_url": "http://localhost:1/v1", **fields})
    assert "pw" not in str(raised.value) and "two words" not in str(raised.value)


def test_openai_itself_needs_no_address() -> None:
    with pytest.raises(InvalidValue, match="OPENAI_API_KEY"):
        OpenAIModel("gpt-5", environ={})
    model = OpenAIModel("gpt-5", environ={"OPENAI_API_KEY": "sk-1234567"})
    assert repr(model) == "<OpenAIModel openai/gpt-5 at api.openai.com>"
    assert {"reasoning_effort", "output_schema", "verbosity"} <= model.knows
    assert not {"temperature", "top_p", "stop", "logit_bias"} & model.knows, "it reasons"


def test_proxies_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert proxy_from_environment("https://api.openai.com/v1") is None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "localhost")
    assert proxy_from_environment("https://api.openai.com/v1") == "http://proxy:3128"
    assert proxy_from_environment("https://localhost/v1") is None


async def test_failing_scripts_reach_clients_that_do_not_stream() -> None:
    async with FakeUpstream(fails("down", status=503, reason="overloaded")) as upstream:
        model = model_at(upstream.base_url)
        failure = await failure_of(model)
        assert failure.reason == "overloaded"
        await model.close()
