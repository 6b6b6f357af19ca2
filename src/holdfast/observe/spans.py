"""Spans: what a request, a turn, a model's answer and a tool's run took, and of which trace they are.

    with span(f"chat {model}", "client", {"gen_ai.request.model": model}) as here:
        …
        here.set("gen_ai.usage.output_tokens", 7)

Whoever collects them is installed once, by whoever starts a server (`trace_with`); this module knows no library for it.

1. Without a tracer a span is nothing: two calls, and no trace begins here.
2. Inside a span, log events carry its trace, and whoever is asked is told that it is the parent (`traceparent`).
3. No span has in it what people, models or tools have said.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias

from holdfast.observe.events import traced, traceparent

Kind: TypeAlias = Literal["server", "client", "internal"]
Exporter: TypeAlias = Literal["otlp", "console"]
"""How spans leave us."""
Attribute: TypeAlias = str | int | float | bool | tuple[str, ...]
Attributes: TypeAlias = Mapping[str, Attribute]


class Recording(Protocol):
    """A span that is being recorded, or was decided not to be."""

    traceparent: str
    """What whoever is asked inside it is told."""

    def rename(self, name: str) -> None: ...

    def set(self, name: str, value: Attribute) -> None: ...

    def end(self, *, error: str | None) -> None:
        """It is over; `error` is the kind of what went wrong with it."""
        ...


class Tracer(Protocol):
    def start(self, name: str, kind: Kind, *, parent: str, attributes: Attributes) -> Recording:
        """Begin a span below `parent`, a `traceparent`; empty if it begins a trace."""
        ...


class _Installed:
    tracer: Tracer | None = None


_installed = _Installed()


def trace_with(tracer: Tracer | None) -> None:
    """From now on spans go to this tracer; with None, nowhere."""
    _installed.tracer = tracer


def is_tracing() -> bool:
    """Whether anybody collects spans."""
    return _installed.tracer is not None


class Span:
    """A stretch of work. Inside its context it is the parent of what is asked of others."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._error: str | None = None
        self._scope = traced(recording.traceparent)

    def rename(self, name: str) -> None:
        self._recording.rename(name)

    def set(self, name: str, value: Attribute | None) -> None:
        """Say something about it; None says nothing."""
        if value is not None:
            self._recording.set(name, value)

    def fail(self, error: str) -> None:
        """Something went wrong that nobody raises: `error` is its kind."""
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
    """What there is without a tracer."""

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        pass


NO_SPAN = NoSpan()


def span(name: str, kind: Kind, attributes: Attributes | None = None) -> Span:
    """A span below the one that we are in, if somebody collects them."""
    tracer = _installed.tracer
    if tracer is None:
        return NO_SPAN
    return Span(tracer.start(name, kind, parent=traceparent(), attributes=attributes or {}))


def kind_of(error: BaseException) -> str:
    """The kind of an error: our code for it, or the name of its type."""
    code = getattr(error, "reason", "") or getattr(error, "code", "")
    return code if isinstance(code, str) and code else type(error).__name__
