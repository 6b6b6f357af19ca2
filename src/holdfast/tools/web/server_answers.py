"""The output of a tool that asks a server, by how the server has answered.

Some failures are about one request: the model reads why, and may ask otherwise. Others are about the server, or about
our credentials there: the operator's log tells of those, too.
"""

from __future__ import annotations

from holdfast.tools.built_in_tools import text_output
from holdfast.tools.execution import failure
from holdfast.tools.tool import ToolBroken, ToolOutput
from holdfast.tools.web.address_guard import FetchFailed

_OPERATORS = frozenset({401, 402, 403, 407, 429})
"""Refusals that the operator can end: credentials, an account, a quota."""


def answered(status: int, words: str) -> ToolOutput:
    """The output for an answer. Raises ToolBroken if it is about the server."""
    if status < 300:
        return text_output(words)
    told = f"It answers {status}: {words}"
    if is_servers(status):
        raise ToolBroken(told, cause=f"it answers {status}")
    return failure(told)


def not_asked(server: str, error: FetchFailed | ValueError) -> ToolOutput:
    """The output for a request that got no answer. Raises ToolBroken if the server did not answer."""
    why = error.why if isinstance(error, FetchFailed) else str(error)
    told = f"{server} could not be asked: {why}."
    if isinstance(error, FetchFailed) and error.transient:
        raise ToolBroken(told, cause=f"{server}: {why}")
    return failure(told)


def is_servers(status: int) -> bool:
    """Whether this status is about the server or our credentials, rather than about the request."""
    return status in _OPERATORS or status >= 500
