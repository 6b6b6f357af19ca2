"""Every wire that we speak, for tests that hold for all of them alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.codec import Value
from holdfast.core.items import Opaque
from holdfast.core.turns import events as ev
from holdfast.core.turns.deltas import Delta, ExtraDelta, ReasoningDelta, ToolCallDelta
from holdfast.core.turns.events import Usage
from holdfast.models.model import AnswerParser, Model, ModelFailed
from holdfast.models.providers.anthropic import AnthropicModel
from holdfast.models.providers.google import GoogleModel
from holdfast.models.providers.openai_responses import ResponsesModel
from holdfast.testing import FakeUpstream, Gate, Reply, Script, says
from holdfast.testing.upstream.replies import UpstreamRequest
from holdfast.testing.upstream.wires import wire_of
from holdfast.wire.anthropic.stream_parser import AnthropicStreamParser
from holdfast.wire.anthropic.thoughts import kept_thought
from holdfast.wire.google.dialect import kept_signature
from holdfast.wire.google.stream_parser import GoogleStreamParser
from holdfast.wire.openai.chat.stream_parser import ChatStreamParser
from holdfast.wire.openai.responses.dialect import kept_reasoning
from holdfast.wire.openai.responses.stream_parser import ResponsesStreamParser
from tests.models.conversations import answered, model_at

SIGNATURE = "EqoBCkgIARABGAIiQL8+/Ås=="
CALLS = [("look", '{"wo": "Ås", "n": [1, 2]}', "call_1"), ("fly", '{"to":"Bodø"}', "call_2")]


class Tongue(Value):
    """One wire: who listens to it, who asks over it, and an answer with everything that it can say."""

    name: str
    route: str
    hearing: Callable[[], AnswerParser]
    model: Callable[[FakeUpstream], Model]
    script: Script
    finish: bytes
    """What stands in the stream once the answer is whole."""
    asked: bytes = b'{"model":"fake-model","stream":true}'
    objects_only: bool = True
    """Arguments of calls are JSON objects, and no other text."""
    has_refusals: bool = False
    """There is a place for refusals beside the text."""

    @property
    def expected(self) -> ev.Answered:
        return answered(deltas_of(self.script))

    @property
    def body(self) -> bytes:
        return self.body_of(self.script)

    def body_of(self, script: Script) -> bytes:
        wire = wire_of(self.route)
        assert wire is not None
        request = UpstreamRequest("POST", self.route, {}, self.asked)
        frames = wire.streamed(Reply(script=script), request, 1)
        return b"".join(each for each in frames if isinstance(each, bytes))

    def answer_of(self, *pieces: bytes) -> ev.Answered:
        ear = self.hearing()
        deltas: list[Delta] = [delta for piece in pieces for delta in ear.feed(piece)]
        assert ear.failure is None
        return answered(deltas)


def deltas_of(script: Script) -> list[Delta]:
    return [each for each in script.steps if not isinstance(each, Gate | ModelFailed)]


def thinking(*extras: tuple[int, Opaque], **fields: Any) -> Script:
    """An answer whose thoughts come with these extras, each behind the thought of its index."""
    said = says("Grüße ", "aus 😀\u2028 ", "Oslo.", calls=CALLS, **fields)
    thoughts: list[Delta] = []
    for index, extra in extras:
        thoughts += (
            ReasoningDelta(text="Hm, ", index=index),
            ReasoningDelta(text="so.", index=index),
            ExtraDelta(kind="reasoning", index=index, extra=extra),
        )
    return Script(*thoughts, *said.steps)


USAGE = Usage(
    input_tokens=90, cached_tokens=30, cache_write_tokens=20, output_tokens=40, reasoning_tokens=2
)


def _google_script() -> Script:
    usage = Usage(input_tokens=9, cached_tokens=3, output_tokens=40, reasoning_tokens=2)
    said = thinking((0, kept_signature(SIGNATURE, "fake-model")), usage=usage).steps
    signed = ExtraDelta(kind="call", index=0, extra=kept_signature("c2ln", "fake-model"))
    closing = ExtraDelta(kind="message", index=0, extra=kept_signature("Z2lz", "fake-model"))
    calls_at = next(n for n, step in enumerate(said) if isinstance(step, ToolCallDelta))
    return Script(
        *said[:calls_at], closing, *said[calls_at : calls_at + 3], signed, *said[calls_at + 3 :]
    )


def sealed(name: str, words: str) -> Opaque:
    """Reasoning as a Responses server gives it to be sent back."""
    summary = [{"type": "summary_text", "text": words}] if words else []
    item = {"type": "reasoning", "id": name, "summary": summary, "encrypted_content": SIGNATURE}
    kept = kept_reasoning(msgspec.json.encode(item))
    assert kept is not None
    return kept


TONGUES = {
    "chat": Tongue(
        name="chat",
        route="/v1/chat/completions",
        hearing=lambda: ChatStreamParser(event_bytes_max=1 << 20),
        model=lambda upstream: model_at(upstream.base_url),
        script=says(
            "Grüße ",
            "aus 😀\u2028 ",
            "Oslo.",
            thinks=["Hm, ", "so."],
            refuses=["Nicht ", "alles."],
            calls=CALLS,
            usage=Usage(input_tokens=9, cached_tokens=3, output_tokens=40, reasoning_tokens=2),
        ),
        finish=b'"finish_reason":"tool_calls"',
        asked=b'{"model":"fake-model","stream":true,"stream_options":{"include_usage":true}}',
        objects_only=False,
        has_refusals=True,
    ),
    "anthropic": Tongue(
        name="anthropic",
        route="/v1/messages",
        hearing=lambda: AnthropicStreamParser(event_bytes_max=1 << 20),
        model=lambda upstream: AnthropicModel("fake-model", base_url=upstream.url, proxy=""),
        script=Script(
            ExtraDelta(kind="reasoning", index=7, extra=kept_thought(data="c2VjcmV0")),
            *thinking((0, kept_thought(signature=SIGNATURE)), usage=USAGE).steps,
        ),
        finish=b'"stop_reason":"tool_use"',
    ),
    "google": Tongue(
        name="google",
        route="/v1beta/models/fake-model:streamGenerateContent",
        hearing=lambda: GoogleStreamParser(event_bytes_max=1 << 20, model="fake-model"),
        model=lambda upstream: GoogleModel("fake-model", base_url=upstream.url, proxy=""),
        script=_google_script(),
        finish=b'"finishReason":"STOP"',
    ),
    "responses": Tongue(
        name="responses",
        route="/v1/responses",
        hearing=lambda: ResponsesStreamParser(event_bytes_max=1 << 20),
        model=lambda upstream: ResponsesModel("fake-model", base_url=upstream.base_url, proxy=""),
        script=thinking((0, sealed("rs_1", "Hm, so.")), usage=USAGE),
        finish=b"event: response.completed",
        objects_only=False,
        has_refusals=True,
    ),
}
