"""Which methods a path takes."""

from __future__ import annotations

from holdfast.server.exchange import Exchange
from holdfast.wire.problems import Problem, Refused


def only(exchange: Exchange, *allowed: str) -> None:
    """Raise Refused (405) unless the method is one of these."""
    if exchange.method not in allowed:
        raise Refused(
            Problem(
                status=405,
                code="method_not_allowed",
                message=f"{exchange.method} is not possible here; use {' or '.join(allowed)}",
                should_retry=False,
                more_headers=(("allow", ", ".join(allowed)),),
            )
        )
