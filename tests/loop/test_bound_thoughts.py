"""Thoughts that are bound to the prompt before them: a turn on a long history costs what one on a short one does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.core.history.conversation import Snapshot
from holdfast.core.items import Item, Reasoning
from holdfast.core.turns import events as ev
from holdfast.ids import ReasoningId
from holdfast.loop.context import prompt_for, view_for
from holdfast.loop.encoded_histories import PIECES_MAX, EncodedHistories
from holdfast.models.dialects import SeveralDialects
from holdfast.models.fallback import FallbackModel
from holdfast.models.model import Dialect, Prompt
from holdfast.models.providers.anthropic import AnthropicModel
from holdfast.testing import ScriptedModel
from holdfast.wire.anthropic.dialect import AnthropicDialect
from holdfast.wire.anthropic.thoughts import ThoughtOrigin, kept_thought
from holdfast.wire.prefix_digest import PrefixDigest, Prefixes
from tests.core.builders import mint, said, user
from tests.core.histories import new_session, turn_on, with_turn
from tests.loop.stage import OpenInMemory, agent

PLENTY = 1 << 24
MODEL = "claude-opus-5-5"


class Counting(AnthropicDialect):
    """A binding dialect that counts the bytes it is given."""

    def __init__(self) -> None:
        super().__init__(bound_to=MODEL)
        self.bytes = 0

    def encode(self, items: Sequence[Item]) -> bytes:
        data = super().encode(items)
        self.bytes += len(data)
        return data

    def fit(self, messages: bytes, before: Prefixes) -> bytes:
        self.bytes += len(messages)
        return super().fit(messages, before)

    def take(self) -> int:
        taken, self.bytes = self.bytes, 0
        return taken


class Claude(ScriptedModel):
    """A scripted model whose thoughts are bound to its instructions."""

    def openings(self, prompt: Prompt) -> Prefixes:
        return {self.dialect.name: PrefixDigest(prompt.system.encode())}


async def prompt_on(
    snapshot: Snapshot,
    histories: EncodedHistories,
    dialect: Dialect,
    instruction: str = "Be brief.",
) -> Prompt:
    butler = agent("butler", model=Claude(dialect=dialect), instruction=instruction)
    turn = OpenInMemory(turn_on(snapshot, user("Well?")), snapshot)
    await turn.record(ev.StepStarted())
    return await prompt_for(butler, (), turn, view_for(butler, (), turn, histories))


async def conversed(turns: int, histories: EncodedHistories, dialect: Dialect) -> Snapshot:
    """A session of turns, each with a thought that was made under its prompt."""
    snapshot = new_session()
    for n in range(turns):
        prompt = await prompt_on(snapshot, histories, dialect)
        origin = ThoughtOrigin(model=MODEL, prefix=dict(prompt.prefixes)[dialect.name])
        extra = kept_thought(signature=f"sealed {n}", origin=origin)
        thought = Reasoning(id=mint(ReasoningId), text="Hm.", extras=(extra,))
        snapshot = with_turn(snapshot, user("Well?"), thought, said(f"Answer {n}."))
    return snapshot


def seals(prompt: Prompt) -> int:
    return b"".join(prompt.messages).count(b'"sealed ')


@pytest.mark.parametrize("turns", [10, 3 * PIECES_MAX])
async def test_a_turn_costs_its_own_messages_however_long_the_history(turns: int) -> None:
    dialect, histories = Counting(), EncodedHistories(bytes_max=PLENTY)
    snapshot = await conversed(turns, histories, dialect)
    dialect.take()
    prompt = await prompt_on(snapshot, histories, dialect)
    assert seals(prompt) == turns, "all of them go back"
    assert dialect.take() < 1_000


async def test_agents_that_take_turns_do_not_cost_the_history_each_time() -> None:
    dialect, histories = Counting(), EncodedHistories(bytes_max=PLENTY)
    snapshot = await conversed(10, histories, dialect)
    other = await prompt_on(snapshot, histories, dialect, "Be kind.")
    assert seals(other) == 0
    assert dialect.take() > 1_000, "once, for the instructions that are new"
    for instruction, kept in (("Be brief.", 10), ("Be kind.", 0)):
        prompt = await prompt_on(snapshot, histories, dialect, instruction)
        assert seals(prompt) == kept
        assert dialect.take() < 1_000


async def test_what_fits_is_the_same_whether_it_was_cached_or_not() -> None:
    dialect, histories = Counting(), EncodedHistories(bytes_max=PLENTY)
    snapshot = await conversed(2 * PIECES_MAX, histories, dialect)
    cached = await prompt_on(snapshot, histories, dialect)
    anew = await prompt_on(snapshot, EncodedHistories(bytes_max=PLENTY), dialect)
    assert b",".join(cached.messages) == b",".join(anew.messages)
    assert cached.prefixes == anew.prefixes


async def test_models_that_stand_in_for_each_other_have_their_own_thoughts() -> None:
    access = {"base_url": "http://h", "proxy": ""}
    models = [AnthropicModel(name, **access) for name in (MODEL, "claude-haiku-5-5")]  # type: ignore[arg-type]
    both = FallbackModel(*models)
    assert isinstance(both.dialect, SeveralDialects) and both.dialect.binds
    assert [name for name, _ in both.openings(Prompt(system="S", messages=())).items()] == [
        f"anthropic:{MODEL}",
        "anthropic:claude-haiku-5-5",
    ]
    packed = both.dialect.encode([user("Hi")])
    before = both.openings(Prompt(system="S", messages=()))
    openings = {name: digest.text for name, digest in before.items()}
    assert both.dialect.fit(packed, before) == packed
    assert all(before[name].text != openings[name] for name in openings)
    await both.close()


async def test_a_model_without_bound_thoughts_computes_no_digest() -> None:
    model = ScriptedModel("Hi.", dialect=AnthropicDialect())
    butler = agent("butler", model=model, instruction="Be brief.")
    turn = OpenInMemory(turn_on(new_session(), user("Well?")), new_session())
    await turn.record(ev.StepStarted())
    view = view_for(butler, (), turn, EncodedHistories(bytes_max=PLENTY))
    assert view.prefixes == ()
