"""The cost of an answer: tokens times a price list, in whole millionths of its currency.

Prices are decimals and the sum is exact; it is rounded once per call to the model, half to even, and never again:
turns, their sub-agents and sessions add up whole numbers. The price of a million tokens in some currency is the
same number as the price of one token in millionths of it, so nothing has to be scaled.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import msgspec

from holdfast.core.codec import Value
from holdfast.core.turns.events import Usage


class Price(Value):
    """Prices per million tokens, in one currency."""

    input: Decimal = Decimal(0)
    output: Decimal = Decimal(0)
    cache_read: Decimal | None = None
    """None: the price of other input."""
    cache_write: Decimal | None = None
    """None: the price of other input."""

    @property
    def input_micros(self) -> int:
        """The price of a million tokens of input in millionths of its currency."""
        return round(1_000_000 * self.input)

    @property
    def output_micros(self) -> int:
        """The price of a million tokens of output in millionths of its currency."""
        return round(1_000_000 * self.output)

    def cost_micros(self, usage: Usage) -> int:
        """The cost of this usage. Tokens read from or written to a cache are part of the input, at their own prices."""
        cached, written = usage.cached_tokens, usage.cache_write_tokens
        fresh = max(0, usage.input_tokens - cached - written)
        cost = (
            fresh * self.input
            + cached * (self.input if self.cache_read is None else self.cache_read)
            + written * (self.input if self.cache_write is None else self.cache_write)
            + usage.output_tokens * self.output
        )
        return int(cost.quantize(Decimal(1), rounding=ROUND_HALF_EVEN))

    def of(self, usage: Usage) -> Usage:
        """The same usage with its cost, unless the provider has sent a cost already."""
        if usage.cost_micros:
            return usage
        return msgspec.structs.replace(usage, cost_micros=self.cost_micros(usage))
