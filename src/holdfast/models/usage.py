"""The usage of every answer: as the provider reports it or, if it reports none, as an estimate; with its cost.

Some servers report no tokens at all, others only for answers that are not streamed. Without an estimate their turns
would cost nothing, and no limit on cost would hold. The player records what the estimate of an answer needs
(`estimate_of`) before the model is asked, so that answers that break off are counted as well. A picture counts as the
small prompt that `Prompt.size_bytes` takes it for.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from holdfast.core.turns.deltas import Delta, ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from holdfast.core.turns.estimates import counted, text_bytes, tokens_in
from holdfast.core.turns.events import StepEstimate, Usage
from holdfast.models.model import Model, Prompt, WrappingModel
from holdfast.models.price import Price


class MeteredModel(WrappingModel):
    """A model whose every answer has a usage, with its cost if there is a price."""

    def __init__(self, model: Model, price: Price | None = None) -> None:
        super().__init__(model)
        self._price = price
        known = price or Price()
        self._input_micros, self._output_micros = known.input_micros, known.output_micros

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        """The answer; see `Model.stream`."""
        estimate = UsageEstimate(self.estimate(prompt.size_bytes))
        async with aclosing(self._model.stream(prompt)) as answer:
            async for deltas in answer:
                if estimate.follow(deltas) and self._price is not None:
                    deltas = tuple(map(self._priced, deltas))
                yield deltas
        if missing := estimate.missing():
            yield tuple(map(self._priced, missing))

    def estimate(self, prompt_bytes: int) -> StepEstimate:
        return StepEstimate(
            prompt_tokens=tokens_in(prompt_bytes),
            input_price=self._input_micros,
            output_price=self._output_micros,
        )

    def _priced(self, delta: Delta) -> Delta:
        if isinstance(delta, UsageDelta) and self._price is not None:
            return UsageDelta(usage=self._price.of(delta.usage))
        return delta

    def __repr__(self) -> str:
        return f"<MeteredModel {self._model!r}>"


class UsageEstimate:
    """Follows one answer, and estimates its usage if the provider has reported none by its end."""

    __slots__ = ("_basis", "_reported", "_said_bytes", "_thought_bytes")

    def __init__(self, basis: StepEstimate) -> None:
        self._basis = basis
        self._reported = False
        self._said_bytes = 0
        self._thought_bytes = 0

    def follow(self, deltas: Sequence[Delta]) -> bool:
        """Count these deltas. True if one of them is a report of usage. This runs for every token."""
        reports, said_bytes = False, 0
        for delta in deltas:
            if type(delta) is TextDelta:
                text = delta.text
                said_bytes += len(text) if text.isascii() else text_bytes((text,))
            elif type(delta) is ToolCallDelta:
                said_bytes += text_bytes((delta.name, delta.arguments))
            elif type(delta) is ReasoningDelta:
                self._thought_bytes += text_bytes((delta.text,))
            elif type(delta) is UsageDelta:
                reports = True
                self._reported = delta.usage.input_tokens + delta.usage.output_tokens > 0
        self._said_bytes += said_bytes
        return reports

    def missing(self) -> tuple[UsageDelta, ...]:
        """The estimate; empty if the provider has reported the usage."""
        if self._reported:
            return ()
        said, thought = self._said_bytes, self._thought_bytes
        usage = counted(Usage(), self._basis, said_bytes=said, thought_bytes=thought)
        return (UsageDelta(usage=usage),)
