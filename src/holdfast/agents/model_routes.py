"""Which model a request goes to, by examples: the one with the example that is most like the request.

Likeness is that of words: rare ones count more than frequent ones, and words that every sentence has do not count. The
same request finds the same model every time.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from holdfast.core.codec import Value

_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    """
    a an and are as at be but by for from has have how i if in into is it its me my no not of on or our please so such
    that the their then there these they this to was we what when where which who will with you your can could do does
    """.split()
)
_SPREAD, _LENGTH = 1.2, 0.75
"""The usual constants of BM25."""


class ModelRoute(Value):
    """A model, by its name, and requests that are for it."""

    model: str
    examples: tuple[str, ...]


def words_in(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.casefold()) if word not in _COMMON]


def best_route(text: str, routes: Sequence[ModelRoute]) -> str | None:
    """The model whose examples are most like this text; None if none has a word in common with it. Of equals the first
    is taken."""
    examples = [(route.model, words_in(each)) for route in routes for each in route.examples]
    asked = set(words_in(text))
    if not asked or not examples:
        return None
    holders = Counter(word for _, words in examples for word in set(words))
    usual = sum(len(words) for _, words in examples) / len(examples) or 1.0

    def score(words: list[str]) -> float:
        counts = Counter(words)
        total = 0.0
        for word in asked & counts.keys():
            rarity = math.log(1 + (len(examples) - holders[word] + 0.5) / (holders[word] + 0.5))
            weight = counts[word] + _SPREAD * (1 - _LENGTH + _LENGTH * len(words) / usual)
            total += rarity * counts[word] * (_SPREAD + 1) / weight
        return total

    best, model = max(((score(words), -n), model) for n, (model, words) in enumerate(examples))
    return model if best[0] > 0 else None
