"""The APIs that clients speak, as far as all answers of one are alike: the headers of every answer, the form of errors.

A request's form is chosen once, by its path and its headers, before anything can be refused. So a refusal has the form
that its client reads, wherever in the server it is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.core.codec import Value
from holdfast.wire.anthropic.door.problems import ANTHROPIC_PROBLEMS
from holdfast.wire.headers import (
    ANTHROPIC_REQUEST_ID,
    ANTHROPIC_VERSION,
    OPENAI_PROCESSING_MS,
    OPENAI_VERSION,
)
from holdfast.wire.problems import OPENAI_PROBLEMS, ProblemForm


class ApiForm(Value):
    """What all answers of an API have in common."""

    headers: Callable[[str, int], dict[str, str]]
    """The headers of every answer, from the request's id and the milliseconds that it took to begin."""
    problems: ProblemForm = OPENAI_PROBLEMS


OWN = ApiForm(headers=lambda request_id, processing_ms: {})
"""Everything outside `/v1`."""

OPENAI = ApiForm(
    headers=lambda request_id, processing_ms: {
        OPENAI_VERSION.name: "2020-10-01",
        OPENAI_PROCESSING_MS.name: str(processing_ms),
    }
)
ANTHROPIC = ApiForm(
    headers=lambda request_id, processing_ms: {ANTHROPIC_REQUEST_ID.name: request_id},
    problems=ANTHROPIC_PROBLEMS,
)


def api_form_of(path: str, headers: Mapping[str, str]) -> ApiForm:
    """The form of the answers to a request, by its path and its headers in lower case."""
    if not path.startswith("/v1/"):
        return OWN
    if ANTHROPIC_VERSION.name in headers or path.startswith("/v1/messages"):
        return ANTHROPIC
    return OPENAI
