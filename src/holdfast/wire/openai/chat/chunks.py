"""The chunks of a streamed chat completion, in both directions.

In: the chunks of upstreams. They differ, so every field is optional, unknown fields are ignored, and
two spellings of one field (`reasoning_content` and `reasoning`) are both read. `openai/chat/stream_parser.py`
interprets them.

Out: the chunks of our streams, byte by byte. Everything but the text is the same on every
chunk, so it is prepared once per stream, and a token costs the escaping of its text and one join.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from holdfast.core.codec import DAMAGE
from holdfast.core.turns.events import Usage
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
        error = self.error
        if not error and self.object != "error":
            return None
        if isinstance(error, ErrorObject):
            return error
        return ErrorObject(message=error or self.message, type=self.type, code=self.code)


read_chunk = msgspec.json.Decoder(Chunk).decode


_NoText: TypeAlias = Literal[""] | None


class _TextDelta(Struct, frozen=True):
    content: str
    refusal: _NoText = None
    reasoning_content: _NoText = None
    reasoning: _NoText = None
    tool_calls: tuple[()] | None = None
    function_call: None = None


class _TextChoice(Struct, frozen=True):
    delta: _TextDelta
    index: Literal[0] = 0
    message: None = None
    finish_reason: _NoText = None


class TextChunk(Struct, frozen=True):
    """A chunk that says a piece of text and nothing else; any other `Chunk` is not decoded as one."""

    choices: tuple[_TextChoice]
    usage: None = None
    error: None = None
    x_groq: None = None
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


read_text_chunk = msgspec.json.Decoder(TextChunk).decode

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
        said = read_chunk(body)
    except DAMAGE:
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


def usage_object(usage: Usage) -> dict[str, object]:
    """Usage in OpenAI's form."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


class ChunkWriter:
    """The frames of one stream: same id, time and model on all of them.

    With `include_usage`, `usage` is null on every chunk, and the last one has it and no choices.
    """

    def __init__(
        self, *, completion_id: str, created_s: int, model: str, include_usage: bool = False
    ) -> None:
        self._head = one_line(
            b'{"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"system_fingerprint":null,'
            b'"choices":[' % (encode_json(completion_id), created_s, encode_json(model))
        )
        self._delta = self._head + b'{"index":0,"delta":'
        self._tail = b'}],"usage":null' if include_usage else b"}]"
        # The frame of a token is prepared once, except for its text.
        self._content = b"data: " + self._delta + b'{"content":'
        self._content_end = b'},"logprobs":null,"finish_reason":null' + self._tail + b"}\n\n"

    def opening(self) -> bytes:
        """The first frame."""
        return self.chunk(b'{"role":"assistant","content":""}')

    def content(self, text: str) -> bytes:
        """A frame with a piece of the text. This runs for every token."""
        said = encode_json(text)
        return self._content + (said if text.isascii() else one_line(said)) + self._content_end

    def refusal(self, text: str) -> bytes:
        return self.chunk(b'{"refusal":%b}' % encode_json(text))

    def reasoning(self, text: str) -> bytes:
        """Not part of OpenAI's API; it uses the field of most other servers and their clients."""
        return self.chunk(b'{"reasoning_content":%b}' % encode_json(text))

    def call(self, index: int, *, call_id: str, name: str) -> bytes:
        """A call begins. Id and name are sent once: clients would join repeated ones."""
        return self.chunk(
            b'{"tool_calls":[{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":""}}]}'
            % (index, encode_json(call_id), encode_json(name))
        )

    def arguments(self, index: int, text: str) -> bytes:
        return self.chunk(
            b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}'
            % (index, encode_json(text))
        )

    def chunk(
        self, delta: bytes = b"{}", *, finish: str | None = None, about: object = None
    ) -> bytes:
        """A frame with this delta. `finish` makes it the last one with a choice; `about` goes into the `holdfast` field."""
        reason = b',"logprobs":null,"finish_reason":' + encode_json(finish)
        holdfast = b"" if about is None else b',"holdfast":' + encode_json(about)
        return data_frame(self._delta + delta + reason + self._tail + holdfast + b"}")

    def usage(self, usage: Usage) -> bytes:
        """The frame after the finish, right before `[DONE]`."""
        return data_frame(self._head + b'],"usage":%b}' % encode_json(usage_object(usage)))
