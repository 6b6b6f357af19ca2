"""Fallback models, in order of preference.

When a model fails before the client has seen anything, the next one is asked, after any failure: another model may
have a larger context, another provider may be up. All of them get the same prompt, each in its own dialect.

Models that take turns are asked in another order for every step: the step's own name decides which is first, so that a
step that is tried again asks the same model.

After a transient failure a model rests for a while, so that not every turn has to wait for it to fail again. A resting
model is asked last, not never: if no other model can answer, it may.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from zlib import crc32

import msgspec

from holdfast.core.turns.deltas import Delta
from holdfast.errors import without_frames
from holdfast.models.dialects import SeveralDialects
from holdfast.models.model import Dialect, Model, ModelFailed, Prompt, WrappingModel, beginning


class FallbackModel(WrappingModel):
    """The first of these models that can answer. It has the name of the first."""

    def __init__(
        self,
        *models: Model,
        cooldown_s: float = 0.0,
        takes_turns: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert models, "a fallback needs at least one model"
        super().__init__(*models)
        dialects = {model.dialect.name: model.dialect for model in models}
        self._several = SeveralDialects(dialects.values()) if len(dialects) > 1 else None
        self.name = models[0].name
        self.dialect: Dialect = self._several or models[0].dialect
        self.knows = frozenset.intersection(*(model.knows for model in models))
        self._models = models
        self._cooldown_s = cooldown_s
        self._takes_turns = takes_turns
        self._clock = clock
        self._resting_until: dict[int, float] = {}

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        """The answer of the first model that shows something; see `Model.stream`."""
        failed: list[tuple[str, ModelFailed]] = []
        for place in self._order(prompt):
            model = self._models[place]
            async with aclosing(model.stream(self._in_dialect_of(prompt, model))) as answer:
                try:
                    begun = await beginning(answer)
                except ModelFailed as failure:
                    failed.append((model.name, without_frames(failure)))
                    if failure.transient:
                        self._resting_until[place] = self._clock() + self._cooldown_s
                else:
                    self._resting_until.pop(place, None)
                    yield begun
                    async for deltas in answer:
                        yield deltas
                    return
        raise together(failed)

    def _in_dialect_of(self, prompt: Prompt, model: Model) -> Prompt:
        """The prompt in this model's dialect."""
        if self._several is None:
            return prompt
        pieces = (self._several.only(model.dialect.name, piece) for piece in prompt.messages)
        return msgspec.structs.replace(prompt, messages=tuple(filter(None, pieces)))

    def _order(self, prompt: Prompt) -> list[int]:
        """The indexes of the models, in the order to ask them now: resting models come last."""
        now, count = self._clock(), len(self._models)
        first = crc32(prompt.call_key.encode()) % count if self._takes_turns else 0
        return sorted(
            ((first + n) % count for n in range(count)),
            key=lambda place: self._resting_until.get(place, now) > now,
        )

    def __repr__(self) -> str:
        return f"<FallbackModel {', '.join(repr(each) for each in self._models)}>"


def together(failed: Sequence[tuple[str, ModelFailed]]) -> ModelFailed:
    """All these failures as one: transient if any of them is."""
    assert failed
    if len(failed) == 1:
        return failed[0][1]
    hopeful = [failure for _, failure in failed if failure.transient]
    chosen = hopeful[0] if hopeful else failed[-1][1]
    hints = [each.retry_after_s for each in hopeful if each.retry_after_s is not None]
    words = "; ".join(f"{name}: {failure.detail}" for name, failure in failed)
    return ModelFailed(
        f"none of {len(failed)} models could answer: {words}",
        status=chosen.status,
        reason=chosen.reason,
        retry_after_s=min(hints, default=None) if len(hints) == len(hopeful) else None,
        transient=bool(hopeful),
        ended_by=chosen.ended_by,
    )
