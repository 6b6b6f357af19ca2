"""Spans: how long a request, a turn, a model's answer or a tool call took, as part of a trace.

    with span(f"chat {model}", "client", {"gen_ai.request.model": model}) as here:
        …
        here.set("gen_ai.usage.output_tokens", 7)

A server installs its tracer once at start (`trace_with`); this module imports no tracing library.

1. Without a tracer a span is nothing: two calls, and no trace begins here.
2. Inside a span, log events carry its trace, and outgoing requests name it as their parent (`traceparent`).
3. No span contains text of users, models or tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias

from holdfast.observe.events import traced, traceparent

Kind: TypeAlias = Literal["server", "client", "internal"]
Exporter: TypeAlias = Literal["otlp", "console"]
"""Where spans are sent."""
Attribute: TypeAlias = str | int | float | bool | tuple[str, ...]
Attributes: TypeAlias = Mapping[str, Attribute]


class Recording(Protocol):
    """A span that is being recorded, or that sampling has dropped."""

    traceparent: str
    """The `traceparent` of outgoing requests inside this span."""

    def rename(self, name: str) -> None: ...

    def set(self, name: str, value: Attribute) -> None: ...

    def end(self, *, error: str | None) -> None:
        """End the span; `error` is the kind of error that ended it, or None."""
        ...


class Tracer(Protocol):
    def start(self, name: str, kind: Kind, *, parent: str, attributes: Attributes) -> Recording:
        """Begin a span below `parent`, a `traceparent`; an empty one begins a trace."""
        ...


class _Installed:
    tracer: Tracer | None = None


_installed = _Installed()


def trace_with(tracer: Tracer | None) -> None:
    """Send spans to this tracer from now on; with None, drop them."""
    _installed.tracer = tracer


def is_tracing() -> bool:
    """Whether a tracer collects spans."""
    return _installed.tracer is not None


class Span:
    """A stretch of work. Inside its `with` block it is the parent of outgoing requests."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._error: str | None = None
        self._scope = traced(recording.traceparent)

    def rename(self, name: str) -> None:
        self._recording.rename(name)

    def set(self, name: str, value: Attribute | None) -> None:
        """Set an attribute; None sets nothing."""
        if value is not None:
            self._recording.set(name, value)

    def fail(self, error: str) -> None:
        """Mark the span as failed without an exception: `error` is the kind of error."""
        self._error = error

    def __enter__(self) -> Self:
        self._scope.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._scope.__exit__(kind, error, tb)
        self._recording.end(error=self._error if error is None else kind_of(error))


class NoSpan(Span):
    """A span without a tracer: it records nothing."""

    def __init__(self) -> None:
        pass

    def rename(self, name: str) -> None:
        pass

    def set(self, name: str, value: Attribute | None) -> None:
        pass

    def fail(self, error: str) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


NO_SPAN = NoSpan()


def span(name: str, kind: Kind, attributes: Attributes | None = None) -> Span:
    """A span below the current one; a NoSpan without a tracer."""
    tracer = _installed.tracer
    if tracer is None:
        return NO_SPAN
    return Span(tracer.start(name, kind, parent=traceparent(), attributes=attributes or {}))


def kind_of(error: BaseException) -> str:
    """The kind of an error: its code if it is one of ours, otherwise the name of its type."""
    code = getattr(error, "reason", "") or getattr(error, "code", "")
    return code if isinstance(code, str) and code else type(error).__name__
