"""Token counts from the providers that offer them without answering the prompt.

Only the parts that fill a context window are sent: the instructions, the history and the tools. Parameters of the
answer do not count, and some of these servers refuse them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from holdfast.models.model import Dialect, Prompt
from holdfast.wire.body_parser import BodyDecoder
from holdfast.wire.stream_parser import GarbledStream


class _CountAnswer(Struct, frozen=True):
    input_tokens: int | None = None
    totalTokens: int | None = None


_decoder: BodyDecoder[_CountAnswer] = BodyDecoder(_CountAnswer)


class CountEndpoint:
    """A `CountRequest`: sent to `path` with the body that `body` makes of a prompt in this dialect."""

    def __init__(self, dialect: Dialect, path: str, body: Callable[[Prompt], bytes]) -> None:
        self.dialect = dialect
        self.path = path
        self._body = body

    def body(self, prompt: Prompt) -> bytes:
        return self._body(prompt)

    def read(self, body: bytes) -> int:
        try:
            answer = _decoder.decode(body)
        except msgspec.DecodeError as error:
            raise GarbledStream(str(error)) from error
        found = answer.totalTokens if answer.input_tokens is None else answer.input_tokens
        if found is None or found < 0:
            raise GarbledStream("it tells no number of tokens")
        return found
