"""W3C Trace Context: the trace that a request belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.core.codec import Value

TRACEPARENT = "traceparent"
_FORM = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)


class Trace(Value):
    """A trace that a request is part of."""

    trace_id: str
    span_id: str
    """The client's span."""
    flags: str

    def parent(self, span_id: str | None = None) -> str:
        """The `traceparent` of outgoing requests: this trace, with this span as the parent; by default the client's."""
        return f"00-{self.trace_id}-{span_id or self.span_id}-{self.flags}"


def read_trace(headers: Mapping[str, str]) -> Trace | None:
    """The trace that a request names; None if it names none, or an invalid one."""
    text = headers.get(TRACEPARENT)
    found = None if text is None else _FORM.fullmatch(text)
    return None if found is None else Trace(trace_id=found[1], span_id=found[2], flags=found[3])
