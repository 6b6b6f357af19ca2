"""Log events: one for each decision, where it is made, with a name and fields.

    event("turn.ended", turn=turn_id, by="completed", kept=True)

The request's id and trace are bound once (`bind`) and are part of every later event: the request starts the turn's
task, which inherits them.

1. No event is made unless a log handler wants it.
2. No event contains a secret. Text that looks like one is removed on its way to the log, wherever it comes from.
3. A record is one line, and a field is one field: no text can look like another record (`printable.py`).
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from textwrap import indent
from types import MappingProxyType
from typing import Literal, TextIO, TypeAlias

import msgspec

from holdfast.observe.log_streams import UnreadLog, without_waiting
from holdfast.printable import printable, printable_lines

LogFormat: TypeAlias = Literal["text", "json"]
Field: TypeAlias = str | int | float | bool | None

_events = logging.getLogger("holdfast.events")
_audit = logging.getLogger("holdfast.audit")
_events.addHandler(logging.NullHandler())
"""A program without a log prints none: the name of an event says nothing without its fields."""
_NOTHING: Mapping[str, Field] = MappingProxyType({})
_bound: ContextVar[Mapping[str, Field]] = ContextVar("holdfast_bound", default=_NOTHING)
_trace: ContextVar[str] = ContextVar("holdfast_trace", default="")


def bind(*, request: str, trace: str = "", traceparent: str = "") -> None:
    """Mark this task, and every task that it starts from now on, as work for this request."""
    _bound.set({"request": request, "trace": trace} if trace else {"request": request})
    _trace.set(traceparent)


@contextmanager
def traced(parent: str) -> Iterator[None]:
    """Inside, `parent` is the current span: outgoing requests send it as their `traceparent`."""
    bound = _bound.get()
    before = _trace.set(parent), _bound.set({**bound, "trace": parent.split("-")[1]})
    try:
        yield
    finally:
        _trace.reset(before[0])
        _bound.reset(before[1])


def traceparent() -> str:
    """The `traceparent` for outgoing requests on behalf of this request; empty without a trace."""
    return _trace.get()


def trace_headers() -> dict[str, str]:
    """The `traceparent` as headers."""
    parent = _trace.get()
    return {"traceparent": parent} if parent else {}


def is_listening() -> bool:
    """Whether events are logged at all: check it before computing expensive fields."""
    return _events.isEnabledFor(logging.INFO)


def event(name: str, /, **fields: Field) -> None:
    """Log a decision."""
    _say(_events, logging.INFO, name, fields)


def warn(name: str, /, **fields: Field) -> None:
    """Log something that needs an operator's attention, in either format."""
    _say(_events, logging.WARNING, name, fields)


def audit(action: str, /, **fields: Field) -> None:
    """Log an action that an operator may want to trace later: who did what, to what."""
    _say(_audit, logging.INFO, action, fields)


def _say(log: logging.Logger, level: int, name: str, fields: Mapping[str, Field]) -> None:
    if log.isEnabledFor(level):
        log.log(level, name, extra={"fields": {**_bound.get(), **fields}})


# ── the log ──────────────────────────────────────────────────────────────────────────────────

SECRETS = re.compile(
    r"\bhf_[0-9a-z]{26}_[\w-]+|\b(?:sk|gsk|xai|AIza)[-_]?[\w-]{16,}|(?<=\bBearer )\S+",
    re.IGNORECASE,
)
"""What a secret looks like: our API keys, those of well-known providers, and any bearer token."""


def without_secrets(text: str) -> str:
    return SECRETS.sub("…", text)


def configure(
    log_format: LogFormat, *, stream: TextIO | UnreadLog | None = None
) -> logging.Handler:
    """Send the log to a stream: as JSON, every event to stdout; as text, only warnings and errors to stderr. Returns
    the handler, so that a caller can remove it."""
    is_json = log_format == "json"
    if stream is None:
        standard = sys.stdout if is_json else sys.stderr
        stream = without_waiting(standard, lost=lambda lines: warn("log.lost", lines=lines))
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if is_json else TextLines())
    root = logging.getLogger()
    root.addHandler(handler)
    _events.setLevel(logging.INFO if is_json else logging.WARNING)
    _audit.setLevel(logging.INFO)
    return handler


def flush_log() -> None:
    """Write what has waited for a reader of the log, if there is room by now."""
    for handler in logging.getLogger().handlers:
        with suppress(OSError):  # the next record tells the same error
            handler.flush()


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, Field] = getattr(record, "fields", {})
        said: dict[str, Field] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "log": record.name,
            "event": record.getMessage(),
            **(fields or _bound.get()),
        }
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return _encode({name: _plain(each) for name, each in said.items()}).decode()


def _plain(value: Field) -> Field:
    """A field as JSON. Ids are subclasses of str, and versions of int."""
    if isinstance(value, str):
        return without_secrets(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


_encode = msgspec.json.Encoder().encode


class TextLines(logging.Formatter):
    """A record for people: always one line, and below it a stack trace that cannot look like a log line."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record)} {record.levelname:<7} {record.name}: {log_words(record)}"
        if not record.exc_info:
            return line
        trace = printable_lines(without_secrets(self.formatException(record.exc_info)))
        return f"{line}\n{indent(trace, _INSET, lambda _: True)}"


def log_words(record: logging.LogRecord) -> str:
    """What a record says, with its fields, in one line and without secrets."""
    fields: Mapping[str, Field] = getattr(record, "fields", {})
    told = "".join(f" {name}={_shown(value)}" for name, value in fields.items())
    return printable(without_secrets(record.getMessage() + told))


_INSET = "  | "


def _shown(value: Field) -> str:
    """A field's value; in quotes if it could be taken for several fields."""
    text = str(value)
    if isinstance(value, str) and (not text or _APART.search(text)):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


_APART = re.compile(r'[\s"=]')
