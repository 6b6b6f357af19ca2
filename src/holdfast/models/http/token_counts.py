"""How large a prompt is, by the providers that say so without answering it.

Only what fills a window is sent: the instructions, the history and the tools. How an answer is to be made has no part
in it, and some of these servers refuse it there.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from holdfast.models.model import Dialect, Prompt
from holdfast.wire.openai.chat.chunks import ErrorObject
from holdfast.wire.openai.chat.stream_parser import GarbledStream


class _Told(Struct, frozen=True):
    input_tokens: int | None = None
    totalTokens: int | None = None


_told = msgspec.json.Decoder(_Told)


class CountEndpoint:
    """A count, as a `Counting`: asked at `path` with what `body` makes of a prompt in this dialect."""

    def __init__(self, dialect: Dialect, path: str, body: Callable[[Prompt], bytes]) -> None:
        self.dialect = dialect
        self.path = path
        self._body = body

    def body(self, prompt: Prompt) -> bytes:
        return self._body(prompt)

    def read(self, body: bytes) -> int:
        try:
            told = _told.decode(body)
        except msgspec.DecodeError as error:
            raise GarbledStream(ErrorObject(message=str(error))) from error
        found = told.totalTokens if told.input_tokens is None else told.input_tokens
        if found is None or found < 0:
            raise GarbledStream(ErrorObject(message="it tells no number of tokens"))
        return found
