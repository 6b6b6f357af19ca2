"""What answers cost: exact, in whole millionths, and summed over whatever a turn did."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.agent import ModelConfig
from holdfast.core.turns.deltas import UsageDelta
from holdfast.core.turns.events import Usage
from holdfast.models.model import ModelFailed
from holdfast.models.price import Price
from holdfast.models.usage import MeteredModel
from holdfast.server.agents.model_factory import ServerModels
from holdfast.testing import FakeUpstream, Gate, ScriptedModel, says
from tests.models.conversations import heard, prompt

SONNET = Price(
    input=Decimal(3), output=Decimal(15), cache_read=Decimal("0.3"), cache_write=Decimal("3.75")
)


@pytest.mark.parametrize(
    ("price", "usage", "micros"),
    [
        (SONNET, Usage(), 0),
        (SONNET, Usage(input_tokens=1_000_000), 3_000_000),
        (SONNET, Usage(input_tokens=100, output_tokens=10), 450),
        (SONNET, Usage(input_tokens=100, cached_tokens=80, cache_write_tokens=20), 99),
        (Price(input=Decimal(2)), Usage(input_tokens=10, cached_tokens=4), 20),
        (Price(input=Decimal("0.1")), Usage(input_tokens=5), 0),  # a half goes to the even side
        (Price(input=Decimal("0.1")), Usage(input_tokens=15), 2),
        (Price(output=Decimal("0.1")), Usage(output_tokens=3), 0),
        # A server that counts its cache beside the input, and not within it, gets nothing back.
        (SONNET, Usage(input_tokens=10, cached_tokens=100), 30),
    ],
)
def test_a_price_times_the_tokens(price: Price, usage: Usage, micros: int) -> None:
    assert price.cost_micros(usage) == micros


@given(
    tokens=st.integers(0, 10**12),
    price=st.decimals(0, 10**6, places=6, allow_nan=False, allow_infinity=False),
)
def test_no_number_of_tokens_is_off_by_more_than_half_a_millionth(
    tokens: int, price: Decimal
) -> None:
    exact = Fraction(price) * tokens
    cost = Price(output=price).cost_micros(Usage(output_tokens=tokens))
    assert abs(Fraction(cost) - exact) <= Fraction(1, 2)


async def test_every_word_on_usage_is_priced_and_nothing_else_is_touched() -> None:
    script = says("Hi", usage=Usage(input_tokens=100, output_tokens=10))
    model = MeteredModel(ScriptedModel(script), SONNET)
    deltas = await heard(model)
    assert [each for each in deltas if not isinstance(each, UsageDelta)] == [
        each for each in script.steps if not isinstance(each, UsageDelta | Gate | ModelFailed)
    ]
    [used] = [each.usage for each in deltas if isinstance(each, UsageDelta)]
    assert used == Usage(input_tokens=100, output_tokens=10, cost_micros=450)


async def test_what_a_provider_says_it_costs_stands() -> None:
    told = Usage(input_tokens=100, cost_micros=7)
    deltas = await heard(MeteredModel(ScriptedModel(says("Hi", usage=told)), SONNET))
    assert UsageDelta(usage=told) in deltas


async def test_leaving_early_leaves_the_model_too() -> None:
    inner = ScriptedModel(says("a", "b"))
    model = MeteredModel(inner, SONNET)
    stream = model.stream(prompt())
    await anext(stream)
    await stream.aclose()
    assert (inner.left_early, inner.speaking) == (1, 0)
    await model.close()
    assert inner.closed


async def test_a_model_from_a_file_with_a_cost_is_priced() -> None:
    usage = Usage(input_tokens=100, output_tokens=10)
    async with FakeUpstream(says("Hi", usage=usage)) as upstream:
        models = ServerModels({})
        config = ModelConfig(provider="p", model="m", base_url=upstream.base_url, price=SONNET)
        deltas = await heard(models(config))
        await models.close()
    assert [each.usage.cost_micros for each in deltas if isinstance(each, UsageDelta)] == [450]
