"""The chunks of a streamed chat completion, in both directions.

In: the chunks of upstreams. They differ, so every field is optional, unknown fields are ignored, and
two spellings of one field (`reasoning_content` and `reasoning`) are both read. `openai/chat/stream_parser.py`
interprets them.

Out: the chunks of our streams, byte by byte. Everything but the text is the same on every
chunk, so it is prepared once per stream, and a token costs the escaping of its text and one join.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from holdfast.core.turns.events import Finish, Usage
from holdfast.wire.sse import data_frame, one_line

# ── in: the chunks of upstreams ──────────────────────────────────────────────────────────────


class ChunkFunction(Struct, frozen=True):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    """A string; an object from servers that parse the arguments themselves."""


class ChunkCall(Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: ChunkFunction | None = None


class ChunkPart(Struct, frozen=True):
    """A piece of content from servers that send lists: text, or thinking with text inside."""

    text: str | None = None
    thinking: str | list[ChunkPart] | None = None


class ChunkDelta(Struct, frozen=True):
    """The content that one chunk adds; also the whole message of an answer that is not streamed."""

    content: str | list[ChunkPart] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ChunkCall] | None = None
    function_call: ChunkFunction | None = None


class StreamChoice(Struct, frozen=True):
    index: int | None = None
    delta: ChunkDelta | None = None
    message: ChunkDelta | None = None
    finish_reason: str | None = None


class PromptTokensDetails(Struct, frozen=True):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class CompletionTokensDetails(Struct, frozen=True):
    reasoning_tokens: int | None = None


class ChunkUsage(Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None
    prompt_cache_hit_tokens: int | None = None

    def usage(self) -> Usage:
        prompt = self.prompt_tokens_details or PromptTokensDetails()
        completion = self.completion_tokens_details or CompletionTokensDetails()
        return Usage(
            input_tokens=self.prompt_tokens or 0,
            cached_tokens=prompt.cached_tokens or self.prompt_cache_hit_tokens or 0,
            cache_write_tokens=prompt.cache_write_tokens or 0,
            output_tokens=self.completion_tokens or 0,
            reasoning_tokens=completion.reasoning_tokens or 0,
        )


class ErrorObject(Struct, frozen=True):
    """An error in OpenAI's form, or in a similar one."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    param: Any = None


class UsageField(Struct, frozen=True):
    """A field in which one server puts its usage."""

    usage: ChunkUsage | None = None


class Chunk(Struct, frozen=True):
    """One event of a stream, or a whole answer that was not streamed, or an error in place of either."""

    choices: list[StreamChoice] | None = None
    usage: ChunkUsage | None = None
    error: ErrorObject | str | None = None
    x_groq: UsageField | None = None
    object: str | None = None
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    detail: Any = None

    def failure(self) -> ErrorObject | None:
        """The error in this chunk, in any of the usual places; None if it has none."""
        if isinstance(self.error, ErrorObject):
            return self.error
        if self.error:
            return ErrorObject(message=self.error, type=self.type, code=self.code)
        if self.object == "error":
            return ErrorObject(message=self.message, type=self.type, code=self.code)
        return None


_decode = msgspec.json.Decoder(Chunk).decode


class NotAChunk(Exception):
    """The bytes are no chunk of a chat completion."""


def read_chunk(data: bytes) -> Chunk:
    """One chunk. Raises NotAChunk."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = mended(data)
        if text == data:
            raise NotAChunk(str(error)) from error
        try:
            return _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise NotAChunk(str(error)) from error


_HALF_OF_A_PAIR = re.compile(
    rb"(?<!\\)((?:\\\\)*)"
    rb"(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)


def mended(data: bytes) -> bytes:
    """The bytes with U+FFFD for anything that is not valid text.

    Servers that cut text by UTF-16 units send half a character in one chunk and half in the next, and servers
    that cut it by bytes send broken UTF-8. A lost emoji is better than a lost answer.
    """
    data = data.decode(errors="replace").encode()
    return _HALF_OF_A_PAIR.sub(rb"\1\\ufffd", data)


def read_error(body: bytes) -> ErrorObject:
    """The error in the body of an HTTP error, as far as it can be read."""
    try:
        said = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ErrorObject(message=_plain(body))
    found = said.failure()
    if found is not None:
        return found
    message = said.message or (said.detail if isinstance(said.detail, str) else None)
    return ErrorObject(message=message or _plain(body), type=said.type, code=said.code)


def _plain(body: bytes) -> str:
    """A body that is not an error object, as one line of text; empty for a web page."""
    text = " ".join(body.decode(errors="replace").split())
    return "" if text.startswith("<") else text


# ── out: our chunks ──────────────────────────────────────────────────────────────────────────

encode_json = msgspec.json.Encoder().encode

ChunkUsageOut: TypeAlias = dict[str, Any]


def usage_object(usage: Usage) -> ChunkUsageOut:
    """Usage in OpenAI's form."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


class ChunkWriter:
    """The frames of one stream: same id, time and model on all of them.

    With `include_usage`, `usage` is null on every chunk, and the last one has it and no choices.
    """

    def __init__(
        self, *, completion_id: str, created_s: int, model: str, include_usage: bool = False
    ) -> None:
        self._head = (
            b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":['
            % (_escaped(completion_id), created_s, _escaped(model))
        )
        self._tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._delta = self._head + b'{"index":0,"delta":'
        self._goes_on = b',"logprobs":null,"finish_reason":null}' + self._tail
        # The frame of a token is prepared once, except for its text.
        self._content = self._delta + b'{"content":'
        self._content_end = b"}" + self._goes_on
        self._arguments_end = b"}}]}" + self._goes_on

    def opening(self) -> bytes:
        """The first frame."""
        return self._delta + b'{"role":"assistant","content":"","refusal":null}' + self._goes_on

    def content(self, text: str) -> bytes:
        return self._content + _escaped(text) + self._content_end

    def refusal(self, text: str) -> bytes:
        return self._delta + b'{"refusal":' + _escaped(text) + self._content_end

    def reasoning(self, text: str) -> bytes:
        """Not part of OpenAI's API; it uses the field of most other servers and their clients."""
        return self._delta + b'{"reasoning_content":' + _escaped(text) + self._content_end

    def call(self, index: int, *, call_id: str, name: str) -> bytes:
        """A call begins. Id and name are sent once: clients would join repeated ones."""
        return (
            self._delta
            + b'{"tool_calls":[{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":""}}]}'
            % (index, _escaped(call_id), _escaped(name))
            + self._goes_on
        )

    def arguments(self, index: int, text: str) -> bytes:
        call = b'{"tool_calls":[{"index":%d,"function":{"arguments":' % index
        return self._delta + call + _escaped(text) + self._arguments_end

    def finish(self, reason: Finish, *, extra: bytes = b"") -> bytes:
        """The last frame with a choice. `extra` is JSON members for the chunk: `,"holdfast":{…}`."""
        tail = self._tail.removesuffix(b"}\n\n") + extra + b"}\n\n" if extra else self._tail
        return self._delta + b'{},"logprobs":null,"finish_reason":%b}' % _escaped(reason) + tail

    def usage(self, usage: Usage) -> bytes:
        """The frame after the finish, right before `[DONE]`."""
        return self._head + b'],"usage":%b}\n\n' % encode_json(usage_object(usage))


def error_frame(error: ErrorObject) -> bytes:
    """The frame by which a stream that has begun reports its failure: with all four members, and nothing follows."""
    return data_frame(encode_json({"error": error}))


def _escaped(text: str) -> bytes:
    body = encode_json(text)
    return body if text.isascii() or not _OTHER_BREAK.search(text) else one_line(body)


_OTHER_BREAK = re.compile("[\x85\u2028\u2029]")
