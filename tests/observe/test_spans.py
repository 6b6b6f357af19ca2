"""Spans: of which trace they are, what they say, and that they cost nothing where nobody collects them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast.core.turns.events import Usage
from holdfast.errors import InvalidValue
from holdfast.models.providers.openai_chat import OpenAIModel
from holdfast.observe import trace_export
from holdfast.observe.events import traceparent
from holdfast.observe.otel import OtelTracer
from holdfast.observe.spans import NO_SPAN, is_tracing, span, trace_with
from holdfast.observe.trace_export import INSTALL, exporter_of, tracing
from holdfast.testing import FakeUpstream, ScriptedModel, fails, says
from tests.observe.test_events import Log, log
from tests.server.stubs import HeldTool, agent, serving
from tests.server.test_metrics import TRACE, TRACED

__all__ = ["log"]

SPAN = TRACED["traceparent"].split("-")[2]


class Collected:
    """What was collected, by name."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def __getitem__(self, name: str) -> ReadableSpan:
        (found,) = [each for each in self.spans if each.name == name]
        return found


@pytest.fixture
def collected() -> Iterator[Collected]:
    found = Collected()
    tracer = OtelTracer(found.exporter, at_once=True)
    trace_with(tracer)
    yield found
    trace_with(None)
    tracer.close()


def parent_of(each: ReadableSpan) -> str:
    return f"{each.parent.span_id:016x}" if each.parent else ""


def id_of(each: ReadableSpan) -> str:
    return f"{each.context.span_id:016x}"


def said(each: ReadableSpan) -> dict[str, Any]:
    return dict(each.attributes or {})


async def test_a_turn_is_told_by_its_request_its_agent_its_model_and_its_tools(
    collected: Collected,
) -> None:
    used = Usage(input_tokens=7, output_tokens=3, cached_tokens=2)
    model = ScriptedModel(says(calls=[("look", "{}")]), says("Done.", usage=used))
    async with serving(agent(model, HeldTool("look", held=False))) as server:
        answer = await server.chat("SECRETWORDS", to="trip", headers=TRACED)
        await server.get("/healthz")
    names = [each.name for each in collected.spans]
    assert names == [
        "chat model",
        "execute_tool look",
        "chat model",
        "invoke_agent root",
        "POST /v1/chat/completions",
    ]
    request, turn = collected["POST /v1/chat/completions"], collected["invoke_agent root"]
    assert {f"{each.context.trace_id:032x}" for each in collected.spans} == {TRACE}
    assert (parent_of(request), parent_of(turn)) == (SPAN, id_of(request))
    assert {parent_of(each) for each in collected.spans[:3]} == {id_of(turn)}
    about = {
        "gen_ai.agent.name": "root",
        "gen_ai.conversation.id": answer.headers["x-session-id"],
        "holdfast.turn.id": answer.headers["x-turn-id"],
    }
    usage = {
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 2,
    }
    assert said(turn) == {
        **about,
        **usage,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "scripted",
    }
    assert said(collected.spans[2]) == {
        **about,
        **usage,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "model",
        "gen_ai.request.stream": True,
    }
    tool = said(collected["execute_tool look"])
    assert tool.pop("gen_ai.tool.call.id")
    assert tool == {
        **about,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
    }
    assert said(request)["http.response.status_code"] == 200
    assert said(request)["http.route"] == "/v1/chat/completions"
    assert "SECRETWORDS" not in "".join(each.to_json() for each in collected.spans)


async def test_what_fails_says_of_which_kind_it_was(collected: Collected) -> None:
    model = ScriptedModel(fails(status=503, reason="overloaded"))
    async with serving(agent(model)) as server:
        answer = await server.chat("Hi", to="trip")
    assert answer.status == 502
    kinds = [said(each)["error.type"] for each in collected.spans]
    assert kinds == ["overloaded", "overloaded", "502"]
    assert not any(each.status.is_ok for each in collected.spans)


async def test_the_model_is_told_the_span_that_asks_it(collected: Collected) -> None:
    async with FakeUpstream("Hello.") as upstream:
        model = OpenAIModel("gpt-5", base_url=f"{upstream.url}/v1")
        async with serving(agent(model)) as server:
            await server.chat("Hi", to="a")
        await model.close()
    asked = collected["chat gpt-5"]
    told = upstream.requests[0].headers["traceparent"]
    assert told.startswith(f"00-{asked.context.trace_id:032x}-{id_of(asked)}-")
    assert said(asked)["gen_ai.provider.name"] == "openai"


async def test_a_trace_that_was_decided_not_to_be_recorded_goes_on_unrecorded(
    collected: Collected,
) -> None:
    async with FakeUpstream("Hello.") as upstream:
        model = OpenAIModel("gpt-5", base_url=f"{upstream.url}/v1")
        async with serving(agent(model)) as server:
            await server.chat("Hi", headers={"traceparent": f"00-{TRACE}-{SPAN}-00"})
        await model.close()
    told = upstream.requests[0].headers["traceparent"]
    assert told.startswith(f"00-{TRACE}-") and told.endswith("-00")
    assert collected.spans == []


async def test_log_events_have_the_trace_that_began_here(collected: Collected, log: Log) -> None:
    async with serving(agent(ScriptedModel("Hello."))) as server:
        await server.chat("Hi", to="trip")
    (trace,) = {f"{each.context.trace_id:032x}" for each in collected.spans}
    traces = {each["event"]: each.get("trace") for each in log.lines}
    assert traces["request.answered"] == traces["turn.began"] == traces["turn.ended"] == trace


def test_without_a_tracer_a_span_is_nothing() -> None:
    with span("chat x", "client") as here:
        here.set("a", 1)
        here.rename("b")
        here.fail("c")
        assert traceparent() == ""
    assert here is NO_SPAN and not is_tracing()


# ── what the environment asks for ────────────────────────────────────────────────────────────

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("environ", "exporter"),
    [
        ({}, None),
        (ENDPOINT, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, None),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, None),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "otlp"),
    ],
)
def test_traces_are_sent_if_somebody_says_where_to(
    environ: dict[str, str], exporter: str | None
) -> None:
    assert exporter_of(environ) == exporter


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "otlp, console or none"),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf"),
    ],
)
def test_what_cannot_be_sent_is_said(environ: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        exporter_of(environ)


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "holdfast.observe.otel", raising=False)
    monkeypatch.delattr("holdfast.observe.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.context", None)
    with pytest.raises(InvalidValue, match=r"pip install 'holdfast\[otel\]'"):
        with tracing(ENDPOINT):
            pytest.fail("it cannot be traced")
    assert trace_export.INSTALL == INSTALL
