"""The context windows of well-known models, in tokens, as their providers publish them.

A model that is not listed has no known window; it gets the whole history, and its refusal tells the
limit. `context_window` in an agent file overrides this table.
"""

from __future__ import annotations

_WINDOWS: tuple[tuple[str, int], ...] = (
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-4-32k", 32_768),
    ("gpt-4", 8_192),
    ("gpt-3.5-turbo", 16_385),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("claude-", 200_000),
    ("gemini-1.5-pro", 2_097_152),
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


def context_window(model: str) -> int | None:
    """The window of a model by its name, with or without its provider: `openai/gpt-4o`."""
    name = model.rsplit("/", 1)[-1].lower()
    return next((window for start, window in _WINDOWS if name.startswith(start)), None)
