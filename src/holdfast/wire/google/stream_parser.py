"""Parses Gemini's stream: responses in, deltas out.

There is no last event: a stream ends with the connection, and the finish reason makes the answer
whole.

Parts are not numbered. Consecutive text parts belong together, and so do thoughts; any other part between
them separates them, so that everything goes back in the order in which it came.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from holdfast.core.codec import DAMAGE
from holdfast.core.items import Image, Inline
from holdfast.core.turns.deltas import (
    Delta,
    ExtraDelta,
    FinishDelta,
    PartDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from holdfast.core.turns.events import DraftKind, Finish, Usage
from holdfast.wire.body_parser import BodyDecoder
from holdfast.wire.google.dialect import kept_signature
from holdfast.wire.openai.chat.chunks import ErrorObject
from holdfast.wire.stream_parser import GarbledStream, StreamFailure, StreamParser

FINISHES: dict[str, Finish] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    **dict.fromkeys(
        """
        SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT
        IMAGE_RECITATION
        """.split(),
        "content_filter",
    ),
}
"""Any other reason is a failure: a broken call (`MALFORMED_FUNCTION_CALL`), or an unknown one."""

# ── the stream's events ──────────────────────────────────────────────────────────────────────


class GoogleCall(Struct, frozen=True):
    id: str | None = None
    name: str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")


class GoogleAnswerData(Struct, frozen=True, rename="camel"):
    mime_type: str = ""
    data: str = ""


class GoogleAnswerPart(Struct, frozen=True, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: GoogleCall | None = None
    thought_signature: str | None = None
    inline_data: GoogleAnswerData | None = None


class GoogleAnswerContent(Struct, frozen=True):
    parts: list[GoogleAnswerPart] | None = None


class GoogleCandidate(Struct, frozen=True, rename="camel"):
    index: int | None = None
    content: GoogleAnswerContent | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class GoogleUsage(Struct, frozen=True, rename="camel"):
    """Cumulative. The candidates' tokens exclude thoughts."""

    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None

    def usage(self) -> Usage:
        thoughts = self.thoughts_token_count or 0
        return Usage(
            input_tokens=(self.prompt_token_count or 0) + (self.tool_use_prompt_token_count or 0),
            cached_tokens=self.cached_content_token_count or 0,
            output_tokens=(self.candidates_token_count or 0) + thoughts,
            reasoning_tokens=thoughts,
        )


class GoogleFeedback(Struct, frozen=True, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class GoogleErrorDetail(Struct, frozen=True, rename="camel"):
    retry_delay: str | None = None
    reason: str | None = None


class GoogleError(Struct, frozen=True):
    code: int | None = None
    message: str | None = None
    status: str | None = None
    details: list[GoogleErrorDetail] | None = None


class GoogleAnswer(Struct, frozen=True, rename="camel"):
    candidates: list[GoogleCandidate] | None = None
    usage_metadata: GoogleUsage | None = None
    prompt_feedback: GoogleFeedback | None = None
    error: GoogleError | None = None


_answer_decoder: BodyDecoder[GoogleAnswer] = BodyDecoder(GoogleAnswer)
_answers_decoder: BodyDecoder[list[GoogleAnswer]] = BodyDecoder(list[GoogleAnswer])

# ── the parser ───────────────────────────────────────────────────────────────────────────────


class GoogleStreamParser(StreamParser):
    """Parses one stream. See `models.model.AnswerParser`."""

    def __init__(self, *, event_bytes_max: int, model: str = "") -> None:
        """`model`: the one that answers; its signatures are its own."""
        super().__init__(event_bytes_max=event_bytes_max)
        self._model = model
        self._run: tuple[DraftKind, int] | None = None
        """The kind of the last part, and the index of its deltas while parts of this kind continue."""
        self._runs = 0
        self._calls = 0
        self._usage: Usage | None = None

    def parse(self, data: bytes, deltas: list[Delta]) -> None:
        self.respond(_answer_decoder.decode(data), deltas)

    def respond(self, response: GoogleAnswer, deltas: list[Delta]) -> None:
        """Add the deltas of one response. Raises StreamFailure."""
        if response.error is not None:
            raise StreamFailure(error_of(response.error))
        feedback = response.prompt_feedback
        if feedback is not None and feedback.block_reason:
            why = feedback.block_reason_message or feedback.block_reason
            raise StreamFailure(
                ErrorObject(message=f"the prompt was blocked: {why}", code="content_filter")
            )
        for candidate in response.candidates or ():
            if candidate.index:  # we ask for one candidate, and ignore others
                continue
            for part in (candidate.content and candidate.content.parts) or ():
                self._say(part, deltas)
            if candidate.finish_reason:
                self._finish(candidate, deltas)
        if response.usage_metadata is not None:
            self._use(response.usage_metadata.usage(), deltas)

    def _say(self, part: GoogleAnswerPart, deltas: list[Delta]) -> None:
        if part.function_call is not None:
            index = self._calls
            self._calls += 1
            self._run = None
            call = part.function_call
            deltas.append(
                ToolCallDelta(
                    index=index,
                    call_id=call.id or "",
                    name=call.name,
                    arguments=bytes(call.args).decode(),
                )
            )
            self._sign("call", index, part, deltas)
        elif part.inline_data is not None and not part.thought:
            index = self._index_of("message")
            picture = _picture(part.inline_data)
            deltas += () if picture is None else (PartDelta(part=picture, index=index),)
            self._sign("message", index, part, deltas)
        elif part.text is not None or part.thought_signature:
            kind: DraftKind = "reasoning" if part.thought else "message"
            index = self._index_of(kind)
            if part.text:
                deltas.append(
                    ReasoningDelta(text=part.text, index=index)
                    if part.thought
                    else TextDelta(text=part.text, index=index)
                )
            self._sign(kind, index, part, deltas)

    def _index_of(self, kind: DraftKind) -> int:
        if self._run is None or self._run[0] != kind:
            self._run = (kind, self._runs)
            self._runs += 1
        return self._run[1]

    def _sign(
        self, kind: DraftKind, index: int, part: GoogleAnswerPart, deltas: list[Delta]
    ) -> None:
        if part.thought_signature:
            extra = kept_signature(part.thought_signature, self._model)
            deltas.append(ExtraDelta(kind=kind, index=index, extra=extra))
            if kind != "call":
                self._run = None  # the next part has another signature, or none

    def _finish(self, candidate: GoogleCandidate, deltas: list[Delta]) -> None:
        reason = candidate.finish_reason or ""
        finish = FINISHES.get(reason)
        if finish is None:
            why = f": {candidate.finish_message}" if candidate.finish_message else ""
            raise StreamFailure(
                ErrorObject(message=f"the model stopped: {reason}{why}", code=reason.lower())
            )
        if finish == "stop" and self._calls:
            finish = "tool_calls"
        self._finished = True
        deltas.append(FinishDelta(finish=finish))

    def _use(self, usage: Usage, deltas: list[Delta]) -> None:
        """Every response repeats the usage; we need the first, for answers that break off, and the last."""
        if self._usage is None or (self._finished and usage != self._usage):
            self._usage = usage
            deltas.append(UsageDelta(usage=usage))


def _picture(data: GoogleAnswerData) -> Image | None:
    """A picture that an image model has made; None for other kinds of data."""
    if not data.mime_type.startswith("image/"):
        return None
    try:
        made = b64decode(data.data, validate=True)
    except ValueError as error:
        raise GarbledStream("a picture is not base64") from error
    return Image(source=Inline(media_type=data.mime_type, data=made))


def parse_whole(body: bytes, model: str = "") -> Sequence[Delta]:
    """An answer that was not streamed, as the deltas it could have been. Raises StreamFailure."""
    parser = GoogleStreamParser(event_bytes_max=0, model=model)
    deltas: list[Delta] = []
    try:
        responses = (
            _answers_decoder.decode(body)
            if body.lstrip()[:1] == b"["
            else [_answer_decoder.decode(body)]
        )
    except DAMAGE as error:
        raise GarbledStream(f"the answer cannot be read: {error}") from error
    for response in responses:
        parser.respond(response, deltas)
    if not parser.finished:
        raise GarbledStream("the answer has no finishReason")
    return deltas


# ── errors ───────────────────────────────────────────────────────────────────────────────────

_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


def read_error(body: bytes) -> tuple[ErrorObject, float | None] | None:
    """The error in the body of an HTTP error, and how many seconds to wait; None if it is not Google's format."""
    try:
        said = (
            _answers_decoder.decode(body)[0]
            if body.lstrip()[:1] == b"["
            else _answer_decoder.decode(body)
        )
    except (*DAMAGE, IndexError):
        return None
    if said.error is None:
        return None
    delays = (_DELAY.fullmatch(each.retry_delay or "") for each in said.error.details or ())
    hint_s = next((float(found[1]) for found in delays if found), None)
    return error_of(said.error), hint_s


def error_of(error: GoogleError) -> ErrorObject:
    """Google's error as OpenAI's: `status` becomes the type, `code` the HTTP status.

    A key that is not valid has the status of a wrong request; only a detail tells it apart.
    """
    kind: str | None = (error.status or "").lower() or None
    if any((each.reason or "").startswith("API_KEY_") for each in error.details or ()):
        kind = "invalid_api_key"
    return ErrorObject(message=error.message, type=kind, code=error.code)
