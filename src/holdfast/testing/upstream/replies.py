"""The requests to a fake upstream, and its replies: the same bytes that the real API would send.

A `Reply` is a script with faults. Faults are placed by byte: `cut_at=0` loses the connection
after the head of the response and before its body, `cut_at=17` in the middle of a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.core.codec import Value
from holdfast.core.items import Opaque
from holdfast.core.turns.deltas import (
    ExtraDelta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.events import Usage
from holdfast.models.model import ModelFailed
from holdfast.testing.scripted_model import Gate, Script, Step, says
from holdfast.wire.openai.chat.chunks import ChunkWriter, ErrorObject, encode_json, usage_object
from holdfast.wire.sse import DONE, data_frame

CREATED_S = 1_750_000_000

CutBy: TypeAlias = Literal["reset", "close", "end"]
"""`reset`: reset the connection. `close`: close it in the middle of the response.
`end`: end the response as if it were whole."""


class UpstreamRequest:
    """One request, as it came in."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = dict(headers)
        """Names in lower case."""
        self.body = body
        self.left_early = False
        """The client went away before the end of the answer."""

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def route(self) -> str:
        """The path without its query."""
        return self.path.split("?")[0]

    @property
    def wants_stream(self) -> bool:
        return self.route.endswith(":streamGenerateContent") or bool(self.json.get("stream"))

    @property
    def wants_usage(self) -> bool:
        return bool((self.json.get("stream_options") or {}).get("include_usage"))

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path} {len(self.body)} bytes>"


class Reply(Value):
    """A scripted answer, and how it is sent."""

    script: Script = says("Hello.")
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    """Sent as it is, in place of the script's answer."""
    error: ErrorObject | None = None
    """Sent in place of the script's answer, in the envelope of the requested API."""
    content_type: str | None = None
    line_end: bytes = b"\n"
    opening: bool = True
    """Begin with the chunk that has the role."""
    done: bool = True
    """End with `[DONE]`."""
    usage: bool = True
    """Send usage where the client asks for it. Some servers do not."""
    write_bytes: int | None = None
    """Write the body in pieces of this size; one piece per event otherwise."""
    cuts: tuple[int, ...] = ()
    """Write it in pieces that end at these bytes."""
    cut_at: int | None = None
    """Send no more of the body than this many bytes, and then …"""
    cut_by: CutBy = "reset"
    stall_at: int | None = None
    """After this many bytes of the body, wait: for `gate`, or until the client leaves."""
    gate: Gate | None = None
    stall_before_head: bool = False
    """Wait for `gate`, or until the client leaves, before anything is sent."""
    pace_s: float = 0.0
    """The pause between two events."""
    chunked: bool = True
    """With chunks, a client can tell the end of the body from a lost connection."""


def refuses(
    status: int,
    *,
    code: str | int | None = None,
    message: str = "scripted to refuse",
    kind: str = "",
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An HTTP error, in the envelope of the requested API."""
    kind = kind or ("server_error" if status >= 500 else "invalid_request_error")
    return Reply(
        status=status,
        headers=tuple((headers or {}).items()),
        error=ErrorObject(message=message, type=kind, code=code),
    )


def streamed(reply: Reply, request: UpstreamRequest, number: int) -> Iterator[bytes | Gate]:
    """The body of a streamed answer, event by event, with the gates of its script."""
    writer = ChunkWriter(
        completion_id=f"chatcmpl-{number}",
        created_s=CREATED_S,
        model=str(request.json.get("model", "")),
        include_usage=request.wants_usage and reply.usage,
    )
    usage: Usage | None = None
    if reply.opening:
        yield writer.opening()
    for step in reply.script.steps:
        if isinstance(step, Gate):
            yield step
        elif isinstance(step, ModelFailed):
            yield data_frame(error_body(200, error_of(step)))
            return
        elif isinstance(step, UsageDelta):
            usage = step.usage
        else:
            yield _frame(writer, step)
    if usage is not None and reply.usage and request.wants_usage:
        yield writer.usage(usage)
    if reply.done:
        yield DONE


def _frame(writer: ChunkWriter, step: Step) -> bytes:
    match step:
        case TextDelta(text=text, refusal=refusal):
            return writer.refusal(text) if refusal else writer.content(text)
        case ReasoningDelta(text=text):
            return writer.reasoning(text)
        case ToolCallDelta(index=index, call_id=call_id, name=name, arguments=arguments):
            begins = writer.call(index, call_id=call_id, name=name) if name else b""
            return begins + (writer.arguments(index, arguments) if arguments or not name else b"")
        case FinishDelta(finish=finish):
            return writer.chunk(finish=finish)
        case _:
            raise AssertionError(f"{step} has no place on this wire")


def whole(script: Script, request: UpstreamRequest, number: int) -> bytes:
    """The same answer as one object. Raises ModelFailed if the script fails."""
    message: dict[str, object] = {"role": "assistant", "content": None, "refusal": None}
    calls: dict[int, dict[str, Any]] = {}
    finish, usage = "stop", Usage()
    for step in script.steps:
        match step:
            case ModelFailed():
                raise step
            case TextDelta(text=text, refusal=refusal):
                member = "refusal" if refusal else "content"
                message[member] = f"{message[member] or ''}{text}"
            case ReasoningDelta(text=text):
                message["reasoning_content"] = f"{message.get('reasoning_content') or ''}{text}"
            case ToolCallDelta(index=index):
                call = calls.setdefault(index, _new_call())
                call["id"] += step.call_id
                call["function"]["name"] += step.name
                call["function"]["arguments"] += step.arguments
            case UsageDelta():
                usage = step.usage
            case FinishDelta():
                finish = step.finish
    if calls:
        message["tool_calls"] = list(calls.values())
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return encode_json(
        {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": CREATED_S,
            "model": request.json.get("model", ""),
            "choices": [choice],
            "usage": usage_object(usage),
        }
    )


def _new_call() -> dict[str, Any]:
    return {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}


def error_body(status: int, error: ErrorObject) -> bytes:
    """An HTTP error in OpenAI's envelope."""
    return encode_json({"error": error})


def error_of(failure: ModelFailed, *, kind: str = "server_error") -> ErrorObject:
    """A scripted failure as an upstream's error object."""
    return ErrorObject(message=failure.detail, type=kind, code=failure.reason or None)


def usage_in(script: Script) -> Usage | None:
    """The usage in a script, for wires that send it more than once."""
    usages = [each.usage for each in script.steps if isinstance(each, UsageDelta)]
    return usages[-1] if usages else None


class WholeCall(Value):
    """A call in one piece, with its extras, for wires that send no fragments of calls."""

    call: ToolCallDelta
    extras: tuple[Opaque, ...] = ()


def with_whole_calls(script: Script) -> Iterator[Step | WholeCall]:
    """The steps of a script, with the fragments of each call joined. A call that breaks off is left out."""
    open_call: WholeCall | None = None
    for step in script.steps:
        match step:
            case ToolCallDelta(index=index) if open_call is None or open_call.call.index != index:
                if open_call is not None:
                    yield open_call
                open_call = WholeCall(call=step)
            case ToolCallDelta() if open_call is not None:
                call = open_call.call
                joined = msgspec.structs.replace(call, arguments=call.arguments + step.arguments)
                open_call = msgspec.structs.replace(open_call, call=joined)
            case ExtraDelta(kind="call", extra=extra) if open_call is not None:
                extras = (*open_call.extras, extra)
                open_call = msgspec.structs.replace(open_call, extras=extras)
            case Gate() | ModelFailed():
                yield step
            case _:
                if open_call is not None:
                    yield open_call
                open_call = None
                yield step


def model_object(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": CREATED_S, "owned_by": "holdfast"}
