"""Exports spans with the OpenTelemetry SDK, which reads its own settings (`OTEL_…`) from the environment.

No other module imports the SDK, and this one is imported only if traces are configured; see `trace_export.py`.
"""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
    SpanExporter,
)
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import Span as SdkSpan

from holdfast.observe.spans import Attribute, Attributes, Exporter, Kind

SCOPE = "holdfast"
SCHEMA = "https://opentelemetry.io/schemas/gen-ai/1.37.0"
"""The version of the semantic conventions for the names of spans and attributes."""

_KINDS = {
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "internal": SpanKind.INTERNAL,
}


class OtelTracer:
    """Passes our spans to the SDK. `close` sends the remaining ones."""

    def __init__(self, exporter: SpanExporter, *, at_once: bool = False, name: str = "") -> None:
        """`name` is the service's name, unless the environment sets one. `at_once` sends each
        span as it ends, in the same task: for tests, and for the console exporter."""
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": name} if name else None)
        )
        processor = SimpleSpanProcessor(exporter) if at_once else BatchSpanProcessor(exporter)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer(SCOPE, schema_url=SCHEMA)

    def start(self, name: str, kind: Kind, *, parent: str, attributes: Attributes) -> OtelRecording:
        return OtelRecording(
            self._tracer.start_span(
                name, context=_below(parent), kind=_KINDS[kind], attributes=dict(attributes)
            )
        )

    def close(self) -> None:
        """Blocks until everything is sent, or sending fails."""
        self._provider.shutdown()


class OtelRecording:
    def __init__(self, span: SdkSpan) -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = (
            f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        )

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def set(self, name: str, value: Attribute) -> None:
        self._span.set_attribute(name, value)

    def end(self, *, error: str | None) -> None:
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


def _below(parent: str) -> Context:
    """An SDK context in which `parent` is the current span."""
    if not parent:
        return Context()
    _, trace_id, span_id, flags = parent.split("-")[:4]
    context = SpanContext(
        trace_id=int(trace_id, 16),
        span_id=int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
    )
    return set_span_in_context(NonRecordingSpan(context), Context())


def make_tracer(exporter: Exporter, *, name: str) -> OtelTracer:
    """A tracer with this exporter."""
    match exporter:
        case "console":
            return OtelTracer(ConsoleSpanExporter(), at_once=True, name=name)
        case "otlp":
            return OtelTracer(OTLPSpanExporter(), name=name)
