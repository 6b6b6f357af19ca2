"""The context windows of well-known models, in tokens.

A model that is not listed has no known window; it gets the whole history, and its refusal tells the
limit. `context_window` in an agent file overrides this table.
"""

from __future__ import annotations

from functools import lru_cache

from holdfast.models.families import claude, gemini, gpt
from holdfast.models.families.family import find_family

_FAMILIES = (*claude.FAMILIES, *gpt.FAMILIES, *gemini.FAMILIES)

_OTHERS: tuple[tuple[str, int], ...] = (
    ("claude-", 200_000),
    ("gemini-", 1_048_576),
    ("mistral-large", 128_000),
    ("mistral-small", 128_000),
    ("codestral", 256_000),
    ("deepseek-", 128_000),
    ("grok-4", 256_000),
    ("grok-3", 131_072),
    ("llama-3", 128_000),
    ("llama3", 128_000),
    ("qwen3", 131_072),
)
"""By the beginning of a name; the first match counts. Self-hosted servers often set less."""


@lru_cache  # every step of every turn asks
def context_window(model: str) -> int | None:
    """The window of a model by its name, with or without its provider: `openai/gpt-4o`."""
    name = model.rsplit("/", 1)[-1].lower()
    family = find_family(_FAMILIES, name)
    if family is not None:
        return family.window
    return next((window for start, window in _OTHERS if name.startswith(start)), None)
