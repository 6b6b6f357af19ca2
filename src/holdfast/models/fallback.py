"""Asking somebody else: models in order of preference.

The next one is asked when one fails before anything was shown, whatever it failed of: another model may have
a longer memory, another provider may be up. All of them get the same prompt, whose history is encoded already;
so they have to speak one dialect.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from holdfast.core.accumulate import Delta
from holdfast.errors import InvalidValue
from holdfast.models.base import Model, ModelFailed, Prompt, beginning


class FallbackModel:
    """The first of these models that can answer. It goes by the name of the first."""

    def __init__(self, *models: Model) -> None:
        """Raises InvalidValue if the models do not speak one dialect."""
        assert models, "somebody has to answer"
        dialects = {model.dialect.name for model in models}
        if len(dialects) > 1:
            each = ", ".join(f"{model.name} ({model.dialect.name})" for model in models)
            raise InvalidValue(
                f"these models cannot stand in for each other, since they speak different dialects: {each}"
            )
        self.name = models[0].name
        self.dialect = models[0].dialect
        self.knows = frozenset.intersection(*(model.knows for model in models))
        self._models = models

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Delta, None]:
        """The answer of the first model that shows something; see `Model.stream`."""
        failed: list[tuple[str, ModelFailed]] = []
        for model in self._models:
            async with aclosing(model.stream(prompt)) as deltas:
                try:
                    begun = await beginning(deltas)
                except ModelFailed as failure:
                    failed.append((model.name, failure))
                else:
                    for delta in begun:
                        yield delta
                    async for delta in deltas:
                        yield delta
                    return
        raise together(failed)

    async def close(self) -> None:
        for model in self._models:
            await model.close()

    def __repr__(self) -> str:
        return f"<FallbackModel {', '.join(repr(each) for each in self._models)}>"


def together(failed: Sequence[tuple[str, ModelFailed]]) -> ModelFailed:
    """All these failures as one: as hopeful as the most hopeful of them."""
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
