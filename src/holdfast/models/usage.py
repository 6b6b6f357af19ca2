"""The usage of every answer: as the provider reports it or, if it reports none, as an estimate; with its cost.

Some servers report no tokens at all, others only for answers that are not streamed. Without an estimate their turns
would cost nothing, and no limit on cost would hold. An answer that breaks off is not estimated. Four bytes of UTF-8 count as a token, of the prompt and of the
answer; a picture counts as the small prompt that `Prompt.size_bytes` takes it for.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from holdfast.core.turns.deltas import Delta, ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from holdfast.core.turns.events import Usage
from holdfast.models.model import Model, Prompt, WrappingModel
from holdfast.models.price import Price
from holdfast.models.windows import BYTES_PER_TOKEN


class MeteredModel(WrappingModel):
    """A model whose every answer has a usage, with its cost if there is a price."""

    def __init__(self, model: Model, price: Price | None = None) -> None:
        super().__init__(model)
        self.name = model.name
        self.dialect = model.dialect
        self.knows = model.knows
        self._model = model
        self._price = price

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        """The answer; see `Model.stream`."""
        estimate = UsageEstimate(prompt)
        async with aclosing(self._model.stream(prompt)) as answer:
            async for deltas in answer:
                if estimate.follow(deltas):
                    deltas = tuple(map(self._priced, deltas))
                yield deltas
        if missing := estimate.missing():
            yield tuple(map(self._priced, missing))

    def _priced(self, delta: Delta) -> Delta:
        if isinstance(delta, UsageDelta) and self._price is not None:
            return UsageDelta(usage=self._price.of(delta.usage))
        return delta

    async def close(self) -> None:
        await self._model.close()

    def __repr__(self) -> str:
        return f"<MeteredModel {self._model!r}>"


class UsageEstimate:
    """Follows one answer, and estimates its usage if the provider has reported none by its end."""

    __slots__ = ("_prompt", "_reported", "_thought_bytes", "_written_bytes")

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._reported = False
        self._written_bytes = 0
        self._thought_bytes = 0

    def follow(self, deltas: Sequence[Delta]) -> bool:
        """Count these deltas. True if one of them is a report of usage. This runs for every token."""
        reports = False
        for delta in deltas:
            if type(delta) is TextDelta:
                self._written_bytes += _size(delta.text)
            elif type(delta) is ToolCallDelta:
                self._written_bytes += _size(delta.name) + _size(delta.arguments)
            elif type(delta) is ReasoningDelta:
                self._thought_bytes += _size(delta.text)
            elif type(delta) is UsageDelta:
                reports = True
                self._reported = delta.usage.input_tokens + delta.usage.output_tokens > 0
        return reports

    def missing(self) -> tuple[UsageDelta, ...]:
        """The estimate; empty if the provider has reported the usage."""
        if self._reported:
            return ()
        read = tokens_in(self._prompt.size_bytes)
        written = tokens_in(self._written_bytes + self._thought_bytes)
        usage = Usage(
            input_tokens=read,
            output_tokens=written,
            reasoning_tokens=min(written, tokens_in(self._thought_bytes)),
            estimated_tokens=read + written,
        )
        return (UsageDelta(usage=usage),)


def tokens_in(size_bytes: int) -> int:
    """About how many tokens this many bytes of text are. Something is at least one token."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
