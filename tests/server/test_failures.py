"""What goes wrong is said once, in OpenAI's words, with a code, and with whether to try again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from io import BytesIO
from typing import Any

import msgspec
import pytest

from holdfast import limits
from holdfast.core.items import EndedBy
from holdfast.errors import InDoubt, StoreClosed, StoreFault, StoreUnavailable
from holdfast.ids import SessionId, Tenant, TurnId, mint
from holdfast.models.model import ModelFailed
from holdfast.server.problems import after_begin, problem_of, problem_of_ending, shutting_down
from holdfast.sessions.session_requests import Ending
from holdfast.store.memory_store import MemoryStore
from holdfast.store.rows import TurnRow
from holdfast.testing import Gate, ScriptedModel, fails, says
from tests.server.stubs import HeldTool, StubDirectory, agent, serving

TURN = mint(TurnId, at_ms=1, entropy=1)
SESSION = mint(SessionId, at_ms=1, entropy=1)

# ── requests that are refused ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"", "invalid_json", None),
        (b"{", "invalid_json", None),
        (b"\xff", "invalid_json", None),
        (b'{"x":' + b"[" * 100_000, "invalid_json", None),
        (b"[]", "invalid_type", None),
        (b'{"messages":[{"role":"user","content":"x"}]}', "missing_required_parameter", "model"),
        (b'{"model":"root"}', "missing_required_parameter", "messages"),
        (b'{"model":"root","messages":"x"}', "invalid_type", "messages"),
        (b'{"model":"root","messages":[{}]}', "missing_required_parameter", "messages"),
        (b'{"model":"root","messages":[]}', "no_new_user_message", "messages"),
        (b'{"model":1,"messages":[]}', "invalid_type", "model"),
    ],
)
async def test_a_body_that_does_not_fit_is_a_400_with_the_place(
    body: bytes, code: str, param: str | None
) -> None:
    async with serving(agent(ScriptedModel())) as server:
        answer = await server.request("POST", "/v1/chat/completions", data=body)
    assert (answer.status, answer.error["code"]) == (400, code)
    assert (answer.error["param"] or "").startswith(param or "")
    assert answer.error["type"] == "invalid_request_error"
    assert answer.headers["x-request-id"].startswith("req_")
    assert answer.headers["x-should-retry"] == "false"


async def test_every_status_has_the_envelope_and_a_request_id() -> None:
    async with serving(agent(ScriptedModel())) as server:
        answers = [
            await server.get("/nowhere"),
            await server.get("/v1/chat/completions"),
            await server.request("POST", "/v1/models"),
            await server.get("/api/nothing"),
            await server.request("PATCH", "/api/sessions"),
            await server.request(
                "POST", "/v1/chat/completions", data=BytesIO(b"x" * (limits.body_bytes_max + 1))
            ),
        ]
    assert [each.status for each in answers] == [404, 405, 405, 404, 405, 413]
    assert all(each.error["code"] for each in answers)
    assert all(each.headers["x-request-id"] for each in answers)
    assert answers[1].headers["allow"] == "POST"


async def test_a_body_without_a_length_is_bounded_too() -> None:
    async def pieces() -> Any:
        for _ in range(limits.body_bytes_max // 65536 + 2):
            yield b" " * 65536

    async with serving(agent(ScriptedModel())) as server:
        async with server.http.post(server.url + "/v1/chat/completions", data=pieces()) as response:
            assert response.status == 413


async def test_what_is_not_http_is_told_so_in_the_same_words() -> None:
    async with serving(agent(ScriptedModel())) as server:
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        said = await reader.read()
        writer.close()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"invalid_http_request"' in said


async def test_http_1_0_is_streamed_without_chunks() -> None:
    """It has none: the end of the connection is the end of the answer. Behind some proxies every request is such a
    one."""
    ask = {"model": "root", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    body = msgspec.json.encode(ask)
    async with serving(agent(ScriptedModel("Hello."))) as server:
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: keep-alive\r\n\r\n".encode() + body)
        said = await reader.read()
        writer.close()
    top, _, stream = said.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in top.lower() and b"connection: close" in top.lower()
    assert stream.startswith(b"data: {") and stream.endswith(b"data: [DONE]\n\n")
    assert all(each.startswith(b"data: ") for each in stream.strip().split(b"\n\n"))


@pytest.mark.parametrize("wish", ["h2c", "H2C, websocket", "TLS/1.3", "websocket"])
@pytest.mark.parametrize("pieces", [1, 7, 10_000])
async def test_a_wish_for_another_protocol_is_passed_over(wish: str, pieces: int) -> None:
    """Java's HTTP client asks for HTTP/2 with its first POST, and expects an answer in HTTP/1.1 where there is none.
    The connection is used on, and requests that were sent without waiting are answered, too."""
    body = msgspec.json.encode({"model": "root", "messages": [{"role": "user", "content": "Hi"}]})
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    )
    wished = f"{head}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {wish}\r\nHTTP2-Settings: AAEA\r\n\r\n"
    last = f"{head}Connection: close\r\n\r\n"
    sent = (wished.encode() + body) * 2 + last.encode() + body
    async with serving(agent(ScriptedModel("One.", "Two.", "Three."))) as server:
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        size = -(-len(sent) // pieces)
        for at in range(0, len(sent), size):
            writer.write(sent[at : at + size])
            await writer.drain()
            await asyncio.sleep(0)
        said = await reader.read()
        writer.close()
    assert said.count(b"HTTP/1.1 200 OK") == 3
    assert [word in said for word in (b"One.", b"Two.", b"Three.")] == [True] * 3


async def test_a_bug_is_one_500_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    directory = StubDirectory(agent(ScriptedModel()))
    async with serving(directory=directory) as server:
        directory.entries = None  # type: ignore[assignment, method-assign]
        answer = await server.get("/v1/models")
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert answer.headers["x-request-id"] in answer.error["message"]
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert record.exc_info and answer.headers["x-request-id"] in record.getMessage()


async def test_a_bug_inside_a_turn_is_one_500_that_tells_nothing_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An unscripted model raises AssertionError, as any bug would."""
    async with serving(agent(ScriptedModel())) as server:
        answer = await server.chat("Hi", to="trip")
        (turn,) = await server.turns(answer.headers["x-session-id"])
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert "script it" not in answer.error["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert (turn["state"], turn["ended_by"]) == ("discarded", "model_error")
    assert any("script it" in str(each.exc_info) for each in caplog.records)


# ── upstreams ────────────────────────────────────────────────────────────────────────────────

UPSTREAM: list[tuple[dict[str, Any], int, str, str]] = [
    ({"status": 429, "reason": "rate_limit_exceeded"}, 429, "rate_limit_exceeded", "true"),
    (
        {"status": 429, "reason": "insufficient_quota", "transient": False},
        429,
        "insufficient_quota",
        "false",
    ),
    (
        {"status": 400, "reason": "context_length_exceeded", "transient": False},
        400,
        "context_length_exceeded",
        "false",
    ),
    (
        {"status": 400, "reason": "content_policy_violation", "transient": False},
        400,
        "content_policy_violation",
        "false",
    ),
    ({"status": 422, "reason": "", "transient": False}, 400, "upstream_bad_request", "false"),
    (
        {"status": 401, "reason": "invalid_api_key", "transient": False},
        502,
        "upstream_refused",
        "false",
    ),
    ({"status": 403, "reason": "", "transient": False}, 502, "upstream_refused", "false"),
    (
        {"status": 404, "reason": "model_not_found", "transient": False},
        502,
        "upstream_refused",
        "false",
    ),
    ({"status": 500, "reason": "server_error"}, 502, "upstream_error", "true"),
    ({"status": 503, "reason": ""}, 502, "upstream_error", "true"),
    ({"status": 501, "reason": "", "transient": False}, 502, "upstream_error", "false"),
    ({"reason": "upstream_timeout"}, 504, "upstream_timeout", "true"),
    ({"reason": "upstream_unreachable"}, 502, "upstream_unreachable", "true"),
    ({"reason": "upstream_broke_off"}, 502, "upstream_broke_off", "true"),
]


@pytest.mark.parametrize(("failure", "status", "code", "retry"), UPSTREAM)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstream_that_fails_at_once_is_a_plain_status(
    failure: dict[str, Any], status: int, code: str, retry: str, stream: bool
) -> None:
    async with serving(agent(ScriptedModel(fails("it said no", **failure)))) as server:
        answer = await server.chat("Hi", to="trip", stream=stream)
        (turn,) = await server.turns(answer.headers["x-session-id"])
    assert (answer.status, answer.error["code"]) == (status, code)
    assert answer.headers["x-should-retry"] == retry
    assert (
        "it said no" in answer.error["message"] and "Nothing was stored" in answer.error["message"]
    )
    assert answer.headers["x-turn-id"] == turn["id"]
    assert turn["detail"].startswith(f"{code}: ")


async def test_an_upstreams_patience_is_passed_on() -> None:
    model = ScriptedModel(fails(status=429, reason="rate_limit_exceeded", retry_after_s=7.2))
    async with serving(agent(model)) as server:
        answer = await server.chat("Hi")
    assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("8", "7200")


async def test_an_upstream_that_wants_to_be_left_alone_for_years_is_not_retried() -> None:
    failure = fails(status=429, reason="rate_limit_exceeded", retry_after_s=344_877_052.0)
    async with serving(agent(ScriptedModel(failure))) as server:
        answer = await server.chat("Hi")
    assert "retry-after" not in answer.headers and "retry-after-ms" not in answer.headers
    assert answer.headers["x-should-retry"] == "false"


async def test_a_stream_that_had_begun_ends_with_one_error_and_without_done() -> None:
    model = ScriptedModel(says("Some ", "words").failing(ModelFailed("no", status=500), at=1))
    async with serving(agent(model)) as server:
        answer = await server.chat("Hi", to="trip", stream=True)
        (turn,) = await server.turns(answer.headers["x-session-id"])
    assert answer.status == 200
    *words, error = answer.events
    assert [each["choices"][0]["delta"].get("content") for each in words] == ["", "Some "]
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert error["error"]["code"] == "upstream_error"
    assert b"[DONE]" not in answer.body
    assert turn["state"] == "discarded"


async def test_a_turn_that_has_acted_is_kept_and_a_retry_goes_on_with_it() -> None:
    model = ScriptedModel(
        says(calls=[("act", "{}")]), fails(status=500, reason="server_error"), "Ok."
    )
    async with serving(agent(model, HeldTool(held=False))) as server:
        answer = await server.chat("Do it", to="trip")
        (turn,) = await server.turns("trip")
        after = await server.chat("Well?", to="trip")
    assert (answer.status, answer.error["code"]) == (502, "upstream_error")
    assert answer.headers["x-should-retry"] == "true"
    assert "is kept" in answer.error["message"]
    assert (turn["state"], turn["ended_by"]) == ("committed", "model_error")
    assert turn["detail"].startswith("upstream_error: ")
    assert after.headers["x-conversation-base"] == "1"


async def test_a_failed_turn_leaves_no_trace_in_what_the_model_sees() -> None:
    model = ScriptedModel("One.", fails(status=500), "Two.")
    async with serving(agent(model)) as server:
        await server.chat("first", to="trip")
        failed = await server.chat("fail", to="trip")
        after = await server.chat("after", to="trip")
    assert failed.status == 502 and after.text == "Two."
    assert [[m.content for m in model.messages(n)] for n in range(3)] == [
        ["first"],
        ["first", "One.", "fail"],
        ["first", "One.", "after"],
    ]


# ── streams that wait ────────────────────────────────────────────────────────────────────────


async def test_a_stream_that_stays_silent_says_200_after_a_while_and_that_it_is_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "stream_patience_s", 0.05)
    monkeypatch.setattr(limits, "heartbeat_s", 0.05)
    gate = Gate()
    async with serving(agent(ScriptedModel(says("At last.").waiting(gate, at=0)))) as server:
        async with server.http.post(
            server.url + "/v1/chat/completions",
            json={"model": "root", "stream": True, "messages": [{"role": "user", "content": "Hi"}]},
        ) as response:
            assert response.status == 200
            said = b""
            while b": keep-alive\n" not in said:
                said += await response.content.readany()
            gate.release()
            said += await response.content.read()
    assert said.count(b"data: [DONE]\n\n") == 1
    assert b": keep-alive\n\n" not in said  # some clients take that for an empty event
    assert b"\nid:" not in said and b"\nretry:" not in said


async def test_a_late_failure_is_an_event_even_if_nothing_was_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "stream_patience_s", 0.02)
    gate = Gate()
    script = says("x").failing(ModelFailed("no", status=429), at=0).waiting(gate, at=0)
    async with serving(agent(ScriptedModel(script))) as server:
        async with server.http.post(
            server.url + "/v1/chat/completions",
            json={"model": "root", "stream": True, "messages": [{"role": "user", "content": "Hi"}]},
        ) as response:
            assert response.status == 200
            gate.release()
            said = await response.content.read()
    assert b'"code":"rate_limit_exceeded"' in said and b"[DONE]" not in said


async def test_a_bug_in_the_middle_of_a_stream_is_its_last_event(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("holdfast.server.turns.conversation_turns.end_of", broken)
    async with serving(agent(ScriptedModel("Some words."))) as server:
        answer = await server.chat("Hi", to="trip", stream=True)
    assert answer.status == 200
    assert answer.events[-1]["error"]["code"] == "internal_error"
    assert answer.body.count(b"data: {") == len(answer.events) and b"[DONE]" not in answer.body
    assert any(each.exc_info for each in caplog.records)


# ── what a server says that has troubles of its own ──────────────────────────────────────────


@pytest.mark.parametrize("by", ["crash", "superseded", "shutdown"])
@pytest.mark.parametrize("acted", [True, False, None])
def test_a_turn_that_was_lost_with_its_server_says_when_to_come_back(
    by: EndedBy, acted: bool | None
) -> None:
    ending = Ending(turn_id=TURN, session_id=SESSION, kept=bool(acted), by=by)
    problem = problem_of_ending(ending, acted=acted)
    assert (problem.status, problem.retry_after_s) == (503, 1.0)
    assert problem.should_retry is {True: False, False: True, None: None}[acted]


@pytest.mark.parametrize(
    ("headers", "should_retry"),
    [
        ({"idempotency-key": "k1"}, True),
        ({"x-on-busy": "steer"}, False),
        ({"x-on-busy": "wait"}, None),
        ({}, None),
    ],
)
def test_whoever_waits_for_a_server_that_goes_is_told_what_a_retry_is_worth(
    headers: dict[str, str], should_retry: bool | None
) -> None:
    """A turn may be kept whose client was not told: only a key makes a retry of it safe for everybody."""
    problem = shutting_down(headers)
    assert (problem.status, problem.retry_after_s) == (503, 1.0)
    assert problem.should_retry is should_retry


def test_nobody_is_told_to_repeat_what_may_have_happened() -> None:
    away, in_doubt = problem_of(StoreUnavailable("away")), problem_of(InDoubt("who knows"))
    assert (away.status, away.should_retry) == (in_doubt.status, True) == (503, True)
    assert (in_doubt.code, in_doubt.should_retry) == ("outcome_unknown", False)
    assert in_doubt.retry_after_s is not None


@pytest.mark.parametrize(
    ("headers", "should_retry"), [({"idempotency-key": "k1"}, True), ({}, None)]
)
def test_who_has_a_turn_is_promised_nothing_by_a_store_that_is_away(
    headers: dict[str, str], should_retry: bool | None
) -> None:
    """It may have been kept: a retry without a key would be a second one."""
    away = problem_of(StoreUnavailable("away"))
    assert after_begin(away, headers).should_retry is should_retry
    in_doubt = problem_of(InDoubt("who knows"))
    assert after_begin(in_doubt, headers) == in_doubt


class ForgetfulStore(MemoryStore):
    """Does not answer the first questions about a turn that has ended."""

    away = 3

    async def turn(self, tenant: Tenant, turn_id: TurnId) -> TurnRow | None:
        row = await super().turn(tenant, turn_id)
        if row is not None and row.ended_by is not None and self.away:
            self.away -= 1
            raise StoreUnavailable("away")
        return row


async def test_an_answer_waits_for_a_store_that_is_away_for_a_moment_after_the_commit() -> None:
    store = ForgetfulStore()
    async with serving(agent(ScriptedModel(says("Hello."))), store=store) as server:
        body = msgspec.json.encode({"model": "root", "input": "Hi"})
        answer = await server.request("POST", "/v1/responses", data=body)
    assert (answer.status, store.away) == (200, 0)
    assert answer.json["status"] == "completed"


class ClosingStore(MemoryStore):
    """Is closed while a message waits to be heard by a running turn, as the last thing that a server does."""

    drain: Callable[[], None]

    async def signal(self, *args: Any, **kwargs: Any) -> Any:
        done = await super().signal(*args, **kwargs)
        self.find_signal = self.closed  # type: ignore[method-assign]
        return done

    async def closed(self, *_: Any, **__: Any) -> Any:
        self.drain()
        raise StoreClosed("this store was closed")


async def test_who_is_waiting_when_the_store_is_closed_is_told_that_the_server_goes() -> None:
    """What was said into a turn that another server goes on with would be said twice by a retry."""
    gate = Gate()
    script = says("Hello.").waiting(gate, at=0)
    store = ClosingStore()
    async with serving(agent(ScriptedModel(script)), store=store) as server:
        store.drain = server.app.drain
        running = asyncio.create_task(server.chat("Hi", to="trip"))
        await gate.reached.wait()
        answer = await server.chat("Faster", to="trip", headers={"X-On-Busy": "steer"})
        running.cancel()
    assert (answer.status, answer.error["code"]) == (503, "server_shutting_down")
    assert answer.headers["x-should-retry"] == "false"


class RefusingStore(MemoryStore):
    """Refuses to begin turns, in a way that nobody knows."""

    async def begin(self, *_: Any, **__: Any) -> Any:
        raise StoreFault("permission denied for table turn") from KeyError("42501")


async def test_a_fault_of_the_store_that_we_do_not_know_is_a_503_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(agent(ScriptedModel()), store=RefusingStore()) as server:
        answers = [await server.chat("Hi", to="trip") for _ in range(3)]
    for answer in answers:
        assert (answer.status, answer.error["code"]) == (503, "storage_unavailable")
        assert answer.headers["x-should-retry"] == "true"
    [told] = [each for each in caplog.records if each.exc_info]
    assert told.exc_info is not None and isinstance(told.exc_info[1], StoreFault)
