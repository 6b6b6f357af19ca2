"""OpenAI's families, newest first. Reasoning counts as output in all of them that reason."""

from __future__ import annotations

from holdfast.models.families.family import Family, VendorPage, find_family


class GptFamily(Family, kw_only=True):
    reasons: bool = True
    """It reasons, and takes an effort. Asking others for encrypted reasoning is an error."""
    efforts: tuple[str, ...] = ()
    sampling: bool = False
    """It takes `temperature` and `top_p`."""


def _page(url: str) -> VendorPage:
    return VendorPage(url=url, read="2026-11-18")


SOL = _page("https://dev.to/hassann/how-to-use-gpt-61-sol-apl--45cg")
"""Written after OpenAI's model pages for GPT-6 Sol and GPT-6.1 Sol, which it names."""
GATEWAY = _page("https://vercel.com/ai-gateway/models/gpt-6.1-sol.md")
SIX = _page("https://inference.sh/apps/openai/gpt-6-sol.md")
FIVE_SIX = _page("https://github.com/anomalyco/opencode/issues/36141")
AZURE = _page("https://learn.microsoft.com/en-us/javascript/api/@azure/ai-projects/reasoningeffort")
"""OpenAI's own description of the parameter, as Azure publishes it."""
TOOLS = _page(
    "https://docs.rs/openai-tools/3.0.0/openai_tools/responses/request/enum.ReasoningEffort.html"
)
SDK = _page(
    "https://github.com/openai/openai-python/blob/main/src/openai/types/shared/reasoning.py"
)

LOW_TO_HIGH = ("low", "medium", "high")
_BOUNDS = "window output_max"

FAMILIES: tuple[GptFamily, ...] = (
    GptFamily(
        names=("gpt-6.1",),
        window=1_050_000,
        output_max=128_000,
        efforts=(*LOW_TO_HIGH, "xhigh", "max"),
        sources=((GATEWAY, f"{_BOUNDS} reasons"), (SOL, "efforts")),
        unverified="sampling",
    ),
    GptFamily(
        names=("gpt-6",),
        window=1_000_000,
        output_max=128_000,
        efforts=("none", *LOW_TO_HIGH, "xhigh", "max"),
        sources=((SIX, f"{_BOUNDS} reasons efforts"),),
        unverified="sampling",
    ),
    GptFamily(
        names=("gpt-daybreak", "gpt-rosalind"),
        window=400_000,
        output_max=128_000,
        efforts=LOW_TO_HIGH,
        sources=(),
        unverified=f"{_BOUNDS} reasons efforts sampling",
    ),
    GptFamily(
        names=("gpt-5.6",),
        window=400_000,
        output_max=128_000,
        efforts=("none", *LOW_TO_HIGH, "xhigh", "max"),
        sources=((SDK, "reasons"), (FIVE_SIX, "efforts")),
        unverified=f"{_BOUNDS} sampling",
    ),
    GptFamily(
        names=("gpt-5.5", "gpt-5.4", "gpt-5.3", "gpt-5.2"),
        window=400_000,
        output_max=128_000,
        efforts=("none", *LOW_TO_HIGH, "xhigh"),
        sources=((TOOLS, "reasons efforts"),),
        unverified=f"{_BOUNDS} sampling",
    ),
    GptFamily(
        names=("gpt-5.5-pro", "gpt-5.2-pro"),
        window=400_000,
        output_max=128_000,
        efforts=("medium", "high", "xhigh"),
        sources=((AZURE, "reasons"),),
        unverified=f"{_BOUNDS} efforts sampling",
    ),
    GptFamily(
        names=("gpt-5.1",),
        window=400_000,
        output_max=128_000,
        efforts=("none", *LOW_TO_HIGH),
        sources=((AZURE, "reasons efforts"),),
        unverified=f"{_BOUNDS} sampling",
    ),
    GptFamily(
        names=("gpt-5.1-codex-max",),
        window=400_000,
        output_max=128_000,
        efforts=(*LOW_TO_HIGH, "xhigh"),
        sources=((AZURE, "reasons efforts"),),
        unverified=f"{_BOUNDS} sampling",
    ),
    GptFamily(
        names=("gpt-5-pro",),
        window=400_000,
        output_max=128_000,
        efforts=("high",),
        sources=((AZURE, "reasons efforts"),),
        unverified=f"{_BOUNDS} sampling",
    ),
    GptFamily(
        names=("gpt-5",),
        window=400_000,
        output_max=128_000,
        efforts=("minimal", *LOW_TO_HIGH),
        sources=((AZURE, "reasons efforts"),),
        unverified=f"{_BOUNDS} sampling",
    ),
    GptFamily(
        names=("gpt-5.3-chat", "gpt-5.2-chat", "gpt-5.1-chat", "gpt-5-chat"),
        window=128_000,
        output_max=16_384,
        reasons=False,
        sampling=True,
        sources=(),
        unverified=f"{_BOUNDS} reasons efforts sampling",
    ),
    GptFamily(
        names=("o1", "o3", "o4-mini", "codex-mini", "computer-use-preview"),
        window=200_000,
        output_max=100_000,
        efforts=LOW_TO_HIGH,
        sources=((TOOLS, "reasons efforts"),),
        unverified=f"{_BOUNDS} sampling",
    ),
    GptFamily(
        names=("gpt-4.1",),
        window=1_047_576,
        output_max=32_768,
        reasons=False,
        sampling=True,
        sources=(),
        unverified=f"{_BOUNDS} reasons efforts sampling",
    ),
    GptFamily(
        names=("gpt-4o", "chatgpt-4o", "gpt-audio"),
        window=128_000,
        output_max=16_384,
        reasons=False,
        sampling=True,
        sources=(),
        unverified=f"{_BOUNDS} reasons efforts sampling",
    ),
    GptFamily(
        names=("gpt-4-turbo", "gpt-4-0125", "gpt-4-1106", "gpt-4-vision"),
        window=128_000,
        output_max=4_096,
        reasons=False,
        sampling=True,
        sources=(),
        unverified=f"{_BOUNDS} reasons efforts sampling",
    ),
    GptFamily(
        names=("gpt-4-32k",),
        window=32_768,
        output_max=32_768,
        reasons=False,
        sampling=True,
        sources=(),
        unverified=f"{_BOUNDS} reasons efforts sampling",
    ),
    GptFamily(
        names=("gpt-4",),
        window=8_192,
        output_max=8_192,
        reasons=False,
        sampling=True,
        sources=(),
        unverified=f"{_BOUNDS} reasons efforts sampling",
    ),
    GptFamily(
        names=("gpt-3.5-turbo",),
        window=16_385,
        output_max=4_096,
        reasons=False,
        sampling=True,
        sources=(),
        unverified=f"{_BOUNDS} reasons efforts sampling",
    ),
)

NEWEST = FAMILIES[0]


_ORDER = ("none", "minimal", *LOW_TO_HIGH, "xhigh", "max")


def effort_for(effort: str | None, family: GptFamily | None) -> str | None:
    """The effort in the family's words: the nearest below, else its lowest. None if the family has none."""
    if effort is None or family is None:
        return effort
    at = _ORDER.index(effort) if effort in _ORDER else len(_ORDER) - 1
    below = [name for name in _ORDER[: at + 1] if name in family.efforts]
    return below[-1] if below else next(iter(family.efforts), None)


def takes_sampling(family: GptFamily | None, effort: str | None) -> bool:
    """Whether `temperature` and `top_p` may be sent. A model that is told not to reason takes them."""
    return family is None or family.sampling or effort == "none"


def length_max(tokens: int | None, family: GptFamily | None) -> int | None:
    """The length that a client asks for, within the family's bound."""
    return tokens if tokens is None or family is None else min(tokens, family.output_max)


def ignored_by(family: GptFamily | None) -> frozenset[str]:
    """The parameters that a family never takes."""
    if family is None or family.reasons:
        return frozenset()
    return frozenset({"reasoning_effort"})


def gpt_family(model: str) -> GptFamily | None:
    """The row of a model; None for one that is not in the table: at OpenAI it takes what `NEWEST` takes."""
    return find_family(FAMILIES, model.lower())
