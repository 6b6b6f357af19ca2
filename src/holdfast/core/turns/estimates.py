"""Estimates of usage, where no provider has reported it: four bytes of UTF-8 count as a token.

An answer that ends as it should is estimated if its provider has reported nothing. An answer that breaks off is
counted too, however its turn ends: what was reported counts, and the text that came after the report is estimated.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.core.turns.events import StepEstimate, Usage

BYTES_PER_TOKEN = 4
"""Of text and JSON, where no provider has counted: about right for most languages and models."""

_MILLION = 1_000_000


def tokens_in(size_bytes: int) -> int:
    """About how many tokens this many bytes of text are. Something is at least one token."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def text_bytes(texts: Iterable[str]) -> int:
    """The size of these texts in UTF-8."""
    return sum(
        len(each) if each.isascii() else len(each.encode(errors="surrogatepass")) for each in texts
    )


def counted(
    reported: Usage, estimate: StepEstimate, *, said_bytes: int, thought_bytes: int
) -> Usage:
    """The usage of an answer of which this much has come: as it was `reported` so far, and the rest as an estimate."""
    used = reported if reported.input_tokens else _of_prompt(reported, estimate)
    output = tokens_in(said_bytes + thought_bytes)
    more = max(0, output - used.output_tokens)
    return msgspec.structs.replace(
        used,
        output_tokens=used.output_tokens + more,
        reasoning_tokens=max(used.reasoning_tokens, min(output, tokens_in(thought_bytes))),
        cost_micros=used.cost_micros + _cost(more, estimate.output_price),
        estimated_tokens=used.estimated_tokens + more,
    )


def _of_prompt(reported: Usage, estimate: StepEstimate) -> Usage:
    read = estimate.prompt_tokens
    return msgspec.structs.replace(
        reported,
        input_tokens=read,
        cost_micros=reported.cost_micros + _cost(read, estimate.input_price),
        estimated_tokens=reported.estimated_tokens + read,
    )


def _cost(tokens: int, price: int) -> int:
    return (tokens * price + _MILLION // 2) // _MILLION
