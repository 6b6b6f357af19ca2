"""Google's families, newest first.

1. Up to 2.5 thinking has a number of tokens, from 3 on a level. What a model thinks counts as output.
2. A `signed` family refuses a call of the current turn without the signature that came with it. A signature belongs
   to the model that made it; for a call of another model Google defines a placeholder.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias

from holdfast.models.families.family import Family, find_family, read_page

ThinkingMeans: TypeAlias = Literal["none", "budget", "level"]


class GeminiFamily(Family, kw_only=True):
    """A row. The defaults are what most of the families take."""

    window: int = 1_048_576
    output_max: int = 65_536
    thinking: ThinkingMeans = "level"
    levels: tuple[str, ...] = ()
    budget_min: int = 0
    """The smallest budget besides 0, which switches thinking off."""
    budget_max: int = 0
    off: bool = False
    """Thinking can be switched off."""
    signed: bool = False
    length_counts_thoughts: bool = True


FOUR = read_page("https://ai.google.dev/gemini-api/docs/generate-content/latest-model")
ARGON = read_page(
    "https://dev.to/aihubmix/gemini-4-argon-thinkinglevel-and-long-decode-a-developers-guide-35ll"
)
SIGNATURES = read_page("https://ai.google.dev/gemini-api/docs/thought-signatures")
VERTEX = read_page("https://docs.cloud.google.com/vertex-ai/generative-ai/docs/thought-signatures")
LEVELS = read_page("https://hexdocs.pm/gemini_ex/0.11.0/Gemini.Validation.ThinkingConfig.md")
"""Another client's rules, which name the vendor's page as their source."""

_BOUNDS = "window output_max"
_BUDGETS = "budget_min budget_max"

FAMILIES: tuple[GeminiFamily, ...] = (
    GeminiFamily(
        names=("gemini-4",),
        levels=("low", "medium", "high"),
        signed=True,
        sources=(
            (FOUR, f"{_BOUNDS} thinking levels"),
            (ARGON, "off length_counts_thoughts"),
            (SIGNATURES, "signed"),
        ),
    ),
    GeminiFamily(
        names=(
            *("gemini-3.8-flash", "gemini-3.7-flash", "gemini-3.6-flash", "gemini-3.5-flash"),
            *("gemini-flash-latest", "gemini-flash-lite-latest"),
        ),
        levels=("low", "medium", "high"),
        signed=True,
        sources=((LEVELS, "thinking off"), (SIGNATURES, "signed")),
    ),
    GeminiFamily(
        names=("gemini-3.1-flash-lite", "gemini-3-flash"),
        levels=("minimal", "low", "medium", "high"),
        signed=True,
        sources=((LEVELS, "thinking levels off"), (SIGNATURES, "signed")),
    ),
    GeminiFamily(
        names=("gemini-3.1-pro", "gemini-3-pro", "gemini-pro-latest"),
        levels=("low", "high"),
        signed=True,
        sources=((LEVELS, "thinking levels off"), (SIGNATURES, "signed")),
    ),
    GeminiFamily(
        names=(
            *("gemini-3-pro-image", "gemini-3.1-flash-image", "gemini-3.1-flash-lite-image"),
            *("nano-banana", "gemini-nano-banana-2.1", "gemini-2.5-flash-image"),
        ),
        window=32_768,
        output_max=32_768,
        thinking="none",
        off=True,
        sources=((VERTEX, "signed"),),
    ),
    GeminiFamily(
        names=(
            *("gemini-3.8-flash-tts", "gemini-3.8-flash-lite-tts", "gemini-3.1-flash-tts"),
            *("gemini-3.5-transcribe", "gemini-omni", "gemini-omni-1.2-flash"),
            *("gemini-omni-1.1-flash", "gemini-robotics-er-1.6", "gemini-robotics-er-2"),
            *("lyria-3-clip", "lyria-3-pro", "lyria-3.5"),
        ),
        window=32_768,
        output_max=8_192,
        thinking="none",
        off=True,
    ),
    *(
        GeminiFamily(
            names=(name,),
            thinking="budget",
            budget_min=least,
            budget_max=most,
            off=off,
            sources=((LEVELS, f"thinking {_BUDGETS} off"), (SIGNATURES, "signed")),
        )
        for name, least, most, off in (
            ("gemini-2.5-pro", 128, 32_768, False),
            ("gemini-2.5-flash", 1, 24_576, True),
            ("gemini-2.5-flash-lite", 512, 24_576, True),
        )
    ),
    GeminiFamily(
        names=(
            *("gemini-2.0", "gemini-1.5", "gemini-2.5-computer-use"),
            *("gemma-2", "gemma-3", "gemma-4", "gemma-3n"),
        ),
        window=128_000,
        output_max=8_192,
        thinking="none",
        off=True,
    ),
)

NEWEST = FAMILIES[0]


@lru_cache  # every request of a turn asks
def gemini_family(model: str) -> GeminiFamily | None:
    """The row of a model; None for one that is newer than the table: it takes what `NEWEST` takes."""
    return find_family(FAMILIES, model.lower())
