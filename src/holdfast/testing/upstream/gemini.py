"""Google's Gemini API, as a fake upstream writes it.

After the reference pages "Generating content" (`v1beta`), "Thinking", "Thought signatures" and "Function calling" of
ai.google.dev, and `google.rpc.Status` for errors, as the `google-genai` SDK 3.1 (November 2026) reads them.

A call comes whole, in one part. Signatures are `ExtraDelta`s in a script, made by `wire.google.dialect.kept_signature`;
a call's signature comes on the call's part, any other on a part without text. The API has no place for a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.core.turns.deltas import (
    ExtraDelta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    UsageDelta,
)
from holdfast.core.turns.events import Finish, Usage
from holdfast.models.model import ModelFailed
from holdfast.testing.scripted_model import Gate, Script, Step
from holdfast.testing.upstream.replies import (
    Reply,
    UpstreamRequest,
    WholeCall,
    usage_in,
    with_whole_calls,
)
from holdfast.wire.google.dialect import read_signature
from holdfast.wire.openai.chat.chunks import ErrorObject, encode_json
from holdfast.wire.sse import data_frame

FINISH_REASONS: dict[Finish, str] = {
    "stop": "STOP",
    "length": "MAX_TOKENS",
    "tool_calls": "STOP",
    "content_filter": "SAFETY",
}

STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def streamed(reply: Reply, request: UpstreamRequest, number: int) -> Iterator[bytes | Gate]:
    """The body of a streamed answer, event by event, with the gates of its script."""
    used = usage_in(reply.script) if reply.usage else None
    about = _about(request, number, used)
    for step in with_whole_calls(reply.script):
        if isinstance(step, Gate):
            yield step
        elif isinstance(step, ModelFailed):
            failed = ErrorObject(message=step.detail, type=step.reason or None)
            yield data_frame(error_body(step.status or 503, failed))
            return
        elif isinstance(step, FinishDelta):
            finish = {"finishReason": FINISH_REASONS[step.finish]}
            empty = {"content": {"role": "model", "parts": [{"text": ""}]}, **finish, "index": 0}
            yield data_frame(encode_json({"candidates": [empty], **about}))
        elif not isinstance(step, UsageDelta):
            content = {"role": "model", "parts": [_part(step)]}
            candidate = {"content": content, "index": 0}
            yield data_frame(encode_json({"candidates": [candidate], **about}))


def whole(script: Script, request: UpstreamRequest, number: int) -> bytes:
    """The same answer as one object. Raises ModelFailed if the script fails."""
    parts: list[dict[str, object]] = []
    reason = "STOP"
    for step in with_whole_calls(script):
        if isinstance(step, ModelFailed):
            raise step
        if isinstance(step, FinishDelta):
            reason = FINISH_REASONS[step.finish]
        elif not isinstance(step, UsageDelta | Gate):
            parts.append(_part(step))
    candidate = {
        "content": {"role": "model", "parts": parts},
        "finishReason": reason,
        "index": 0,
    }
    return encode_json({"candidates": [candidate], **_about(request, number, usage_in(script))})


def error_body(status: int, error: ErrorObject) -> bytes:
    """An HTTP error in Google's envelope; a `retry_after` in place of a code becomes Google's hint, in seconds."""
    kind = STATUSES.get(status, "UNKNOWN")
    said: dict[str, object] = {"code": status, "message": error.message, "status": kind}
    if isinstance(error.code, int):
        delay = {
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": f"{error.code}s",
        }
        said["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo"}, delay]
    return encode_json({"error": said})


def _part(step: Step | WholeCall) -> dict[str, object]:
    match step:
        case TextDelta(text=text, refusal=False):
            return {"text": text}
        case ReasoningDelta(text=text):
            return {"text": text, "thought": True}
        case ExtraDelta(kind=kind, extra=extra):
            thought = {"thought": True} if kind == "reasoning" else {}
            return {"text": "", **thought, "thoughtSignature": read_signature(extra)}
        case WholeCall(call=call, extras=extras):
            args = msgspec.Raw((call.arguments or "{}").encode())
            called = {"id": call.call_id, "name": call.name, "args": args}
            signed = {"thoughtSignature": read_signature(extras[-1])} if extras else {}
            return {"functionCall": called, **signed}
        case _:
            raise AssertionError(f"{step} has no place on this wire")


def _about(request: UpstreamRequest, number: int, used: Usage | None) -> dict[str, object]:
    model = request.route.rpartition("/models/")[2].partition(":")[0]
    about: dict[str, object] = {"modelVersion": model, "responseId": f"resp-{number}"}
    if used is not None:
        about["usageMetadata"] = {
            "promptTokenCount": used.input_tokens,
            "cachedContentTokenCount": used.cached_tokens,
            "candidatesTokenCount": used.output_tokens - used.reasoning_tokens,
            "thoughtsTokenCount": used.reasoning_tokens,
            "totalTokenCount": used.input_tokens + used.output_tokens,
        }
    return about
