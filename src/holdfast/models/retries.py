"""Retries: a model that is asked again after a transient failure.

Only transient failures are retried, and only until the client has seen something: text that a person has seen
is not taken back. Deltas of a failed attempt that do not show (usage) are dropped with it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

from holdfast import limits
from holdfast.core.turns.deltas import Delta
from holdfast.models.model import Model, ModelFailed, Prompt, WrappingModel, beginning
from holdfast.observe.trouble import Trouble

log = logging.getLogger("holdfast.models")

_OPERATORS = frozenset({401, 402, 403, 404})
"""Refusals that the operator can end: a key, an account, the name of a model."""

FIRST_S = 0.5
LONGEST_S = 8.0
JITTER = 0.25
"""As in the OpenAI SDKs: 0.5 s doubling up to 8 s, minus up to a quarter."""


def pause_s(failure: ModelFailed, attempt: int, *, chance: float) -> float | None:
    """How long to wait after the `attempt`-th failure (from 1), or None if a retry is useless.

    `chance` is a number from 0 to 1. An upstream's hint is obeyed; a hint that is too long is not shortened,
    since an early retry would be refused again.
    """
    if not failure.transient:
        return None
    hint = failure.retry_after_s
    if hint is not None and hint > limits.retry_hint_s_max:
        return None
    backoff_s = min(LONGEST_S, FIRST_S * 2 ** (attempt - 1)) * (1 - JITTER * chance)
    return backoff_s if hint is None else max(hint, JITTER * chance)


class RetryingModel(WrappingModel):
    """A model that is asked up to `attempts_max` times."""

    def __init__(
        self,
        model: Model,
        *,
        attempts_max: int = limits.retry_attempts_max,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        assert attempts_max >= 1
        super().__init__(model)
        self._attempts_max = attempts_max
        self._sleep = sleep
        self._chance = chance
        self._trouble = Trouble(f"model {model.name}", log)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        """The answer of the first attempt that shows something; see `Model.stream`."""
        for attempt in range(1, self._attempts_max + 1):
            async with aclosing(self._model.stream(prompt)) as answer:
                try:
                    begun = await beginning(answer)
                except ModelFailed as failure:
                    wait_s = pause_s(failure, attempt, chance=self._chance())
                    if attempt == self._attempts_max or wait_s is None:
                        self._tell(failure)
                        raise
                else:
                    yield begun
                    try:
                        async for deltas in answer:
                            yield deltas
                    except ModelFailed as failure:
                        self._tell(failure)
                        raise
                    self._trouble.worked()
                    return
            await self._sleep(wait_s)

    def _tell(self, failure: ModelFailed) -> None:
        """Log a failure of the model or its server; requests that a server refuses are their client's matter."""
        if failure.transient or failure.status in _OPERATORS:
            status = f"{failure.status} " if failure.status else ""
            # Without a status, the code alone does not say which address was not reached, or why.
            detail = "" if failure.status else failure.detail
            self._trouble.failed(f"{status}{failure.reason or 'no reason given'}", detail)

    def __repr__(self) -> str:
        return f"<RetryingModel {self._model!r} up to {self._attempts_max} times>"
