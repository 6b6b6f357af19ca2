"""How much well-known models take: their context windows, in tokens, as their providers publish them.

A model that is not here has no known window; it is asked for as much as there is, and what it then refuses is
learnt from. An agent file that says `context_window` is believed over this table.
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
"""By how a name begins; the first that fits. Servers that run models themselves often set less."""


def context_window(model: str) -> int | None:
    """The window of a model by its name, with or without its provider's: `openai/gpt-4o`."""
    name = model.rsplit("/", 1)[-1].lower()
    return next((window for start, window in _WINDOWS if name.startswith(start)), None)
