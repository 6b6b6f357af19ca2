"""Decides whether and where traces are sent: by OpenTelemetry's own variables, and only with its extra installed.

This is one of the few places with a late import; the architecture test names them. Without traces nothing of
OpenTelemetry is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.errors import InvalidValue
from holdfast.observe.spans import Exporter, trace_with

if TYPE_CHECKING:
    from holdfast.observe.otel import OtelTracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
SPOKEN = "http/protobuf"

INSTALL = "traces need an extra that is not installed: pip install 'holdfast[otel]'"


def exporter_of(environ: Mapping[str, str]) -> Exporter | None:
    """The exporter of spans; None if spans are not sent. Raises InvalidValue for settings that cannot work.

    Spans are sent only if the environment names an address or an exporter.
    """
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    said = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    match said:
        case "none":
            return None
        case "console":
            return "console"
        case "" | "otlp":
            pass
        case _:
            raise InvalidValue(f"OTEL_TRACES_EXPORTER is otlp, console or none, not {said!r}")
    if not said and not any(environ.get(each) for each in ENDPOINTS):
        return None
    protocol = next(filter(None, (environ.get(each) for each in PROTOCOLS)), SPOKEN)
    if protocol != SPOKEN:
        raise InvalidValue(
            f"traces are sent by {SPOKEN}, not {protocol!r}; collectors take it on port 4318: set "
            f"OTEL_EXPORTER_OTLP_PROTOCOL={SPOKEN}"
        )
    return "otlp"


@contextmanager
def tracing(environ: Mapping[str, str]) -> Iterator[None]:
    """Inside, send spans if the environment asks for it; on exit, send the remaining ones."""
    exporter = exporter_of(environ)
    if exporter is None:
        yield
        return
    tracer = _load(exporter, environ)
    trace_with(tracer)
    try:
        yield
    finally:
        trace_with(None)
        tracer.close()


def _load(exporter: Exporter, environ: Mapping[str, str]) -> OtelTracer:
    try:
        from holdfast.observe import otel  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise InvalidValue(INSTALL) from error
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return otel.make_tracer(exporter, name="" if named else "holdfast")
