"""A server that sends its spans to a collector."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.e2e.world import world as new_world

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Collector:
    """What is sent to `/v1/traces` by OTLP over HTTP."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[ExportTraceServiceRequest] = []
        self.authorizations: set[str] = set()

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("content-encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        self.requests.append(ExportTraceServiceRequest.FromString(body))
        self.authorizations.add(request.headers.get("authorization", ""))
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(),
            content_type="application/x-protobuf",
        )

    @property
    def names(self) -> set[str]:
        return {
            span.name
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }

    @property
    def services(self) -> set[str]:
        return {
            attribute.value.string_value
            for request in self.requests
            for resource in request.resource_spans
            for attribute in resource.resource.attributes
            if attribute.key == "service.name"
        }


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
async def test_spans_are_sent_to_a_collector_and_the_last_ones_when_it_stops(
    tmp_path: Path, workers: int
) -> None:
    async with collecting() as collector, new_world(tmp_path, workers=workers) as world:
        await world.start(
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20xyz",
            OTEL_SERVICE_NAME="kitchen",
        )
        answer = await world.chat(
            "hello", to="trip", headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        )
        assert answer.status == 200
        assert await world.stop() == 0
    assert collector.names == {"POST /v1/chat/completions", "invoke_agent root", "chat any"}
    assert collector.services == {"kitchen"}
    assert collector.authorizations == {"Bearer xyz"}
    told = [each.headers["traceparent"] for each in world.upstream.requests]
    assert [each.split("-")[1] for each in told] == [TRACE]


async def test_a_collector_that_is_away_keeps_nobody_from_serving(tmp_path: Path) -> None:
    async with new_world(tmp_path) as world:
        await world.start(
            OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_EXPORTER_OTLP_TIMEOUT="1"
        )
        assert (await world.chat("hello", to="trip")).status == 200
        assert await world.stop() == 0
