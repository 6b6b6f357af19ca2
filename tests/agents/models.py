"""Models that say nothing: for tests of who they belong to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from holdfast.agents.agent import ModelConfig
from holdfast.core.turns.deltas import Delta
from holdfast.errors import InvalidValue
from holdfast.models.model import Dialect, Prompt
from holdfast.wire.openai.chat.messages import ChatDialect


class Mute:
    """A model that is never asked."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.name = config.name
        self.dialect: Dialect = ChatDialect()
        self.knows: frozenset[str] = frozenset()
        self.closed = 0

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        yield self._nothing()

    def _nothing(self) -> tuple[Delta, ...]:
        raise AssertionError("nobody asks it")

    async def close(self) -> None:
        self.closed += 1


class Factory:
    """Makes mute models, and remembers them. A provider called `bad` is one that it cannot make."""

    def __init__(self) -> None:
        self.made: list[Mute] = []

    def __call__(self, config: ModelConfig) -> Mute:
        if config.provider == "bad":
            raise InvalidValue("no such provider; use openai")
        self.made.append(Mute(config))
        return self.made[-1]
