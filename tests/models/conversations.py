"""Short words for tests that ask models something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.turns import events as ev
from holdfast.core.turns.deltas import Accumulator, Delta
from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.core.turns.turn import Turn, advance
from holdfast.models.model import Model, Prompt
from holdfast.models.providers.openai_chat import OpenAIModel
from tests.core.builders import asking, new_minter


def prompt(*said: str, tools: Sequence[ToolDefinition] = (), **parameters: Any) -> Prompt:
    """User and assistant in turns, the user first."""
    roles = ("user", "assistant")
    pieces = tuple(
        msgspec.json.encode({"role": roles[n % 2], "content": text})
        for n, text in enumerate(said or ("Hi",))
    )
    return Prompt(
        system="Be brief.",
        messages=pieces,
        tools=tuple(tools),
        parameters=Parameters(**parameters),
    )


async def heard(model: Model, asked: Prompt | None = None) -> list[Delta]:
    return [delta async for deltas in model.stream(asked or prompt()) for delta in deltas]


def model_at(base_url: str, **fields: Any) -> OpenAIModel:
    return OpenAIModel("fake-model", base_url=base_url, **{"proxy": "", **fields})


def answered(deltas: Sequence[Delta]) -> ev.Answered:
    """What a turn makes of these deltas: the same ids in every call, so that answers can be compared."""
    turn: Turn = asking()
    answer = Accumulator(new_minter(), agent="butler")
    for delta in deltas:
        for event in answer.events(delta):
            turn = advance(turn, event)
    assert answer.finished
    assert turn.root.draft is not None
    return answer.answered(turn.root.draft)
