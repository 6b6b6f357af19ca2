"""The APIs of a fake upstream, by their paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.core.codec import Value
from holdfast.testing.scripted_model import Gate, Script
from holdfast.testing.upstream import gemini, messages, replies, responses
from holdfast.testing.upstream.replies import Reply, UpstreamRequest
from holdfast.wire.openai.chat.chunks import ErrorObject


class FakeWire(Value):
    """How one API writes answers. Each function gets the number of the answer, for its id."""

    streamed: Callable[[Reply, UpstreamRequest, int], Iterator[bytes | Gate]]
    whole: Callable[[Script, UpstreamRequest, int], bytes]
    """Raises ModelFailed if the script fails."""
    error: Callable[[int, ErrorObject], bytes]


CHAT = FakeWire(streamed=replies.streamed, whole=replies.whole, error=replies.error_body)
MESSAGES = FakeWire(streamed=messages.streamed, whole=messages.whole, error=messages.error_body)

GEMINI = FakeWire(streamed=gemini.streamed, whole=gemini.whole, error=gemini.error_body)

RESPONSES = FakeWire(streamed=responses.streamed, whole=responses.whole, error=responses.error_body)


def wire_of(route: str) -> FakeWire | None:
    """The API of this path; None if the path asks for no answer."""
    if route.endswith("/chat/completions"):
        return CHAT
    if route.endswith("/v1/messages"):
        return MESSAGES
    if route.endswith((":streamGenerateContent", ":generateContent")):
        return GEMINI
    if route.endswith("/v1/responses"):
        return RESPONSES
    return None
