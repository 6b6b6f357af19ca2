"""OpenAI's families, newest first. Reasoning counts as output in all of them that reason."""

from __future__ import annotations

import re
from functools import lru_cache

from holdfast.models.families.family import Family, find_family, nearest, read_page

LOW_TO_HIGH = ("low", "medium", "high")
_ORDER = ("none", "minimal", *LOW_TO_HIGH, "xhigh", "max")


class GptFamily(Family, kw_only=True):
    """A row. The defaults are those of the families that most rows are about: models that reason."""

    window: int = 400_000
    output_max: int = 128_000
    efforts: tuple[str, ...] = LOW_TO_HIGH
    """Empty for a family that does not reason. Asking such a family for encrypted reasoning is an error."""
    sampling: bool = False
    """It takes `temperature`, `top_p`, penalties, `logit_bias` and `stop`; a family that takes the effort `none` takes
    the first two with it."""
    chat_tools: bool = True
    """Over Chat Completions it takes tools while it reasons; others refuse that, whether an effort is asked for or not."""

    @property
    def reasons(self) -> bool:
        return bool(self.efforts)


SOL = read_page("https://dev.to/hassann/how-to-use-gpt-61-sol-apl--45cg")
"""Written after OpenAI's model pages for GPT-6 Sol and GPT-6.1 Sol, which it names."""
GATEWAY = read_page("https://vercel.com/ai-gateway/models/gpt-6.1-sol.md")
SIX = read_page("https://inference.sh/apps/openai/gpt-6-sol.md")
FIVE_SIX = read_page("https://github.com/anomalyco/opencode/issues/36141")
CHAT_FIVE_SIX = read_page("https://github.com/BerriAI/litellm/pull/34569")
"""OpenAI's refusals as they came, for requests with tools: without an effort, with one, and with `none`."""
CHAT_FIVE_FOUR = read_page("https://github.com/openai/openai-openapi/issues/541")
AZURE = read_page(
    "https://learn.microsoft.com/en-us/javascript/api/@azure/ai-projects/reasoningeffort"
)
"""OpenAI's own description of the parameter, as Azure publishes it."""
TOOLS = read_page(
    "https://docs.rs/openai-tools/3.0.0/openai_tools/responses/request/enum.ReasoningEffort.html"
)
SDK_CHAT = read_page(
    "https://github.com/openai/openai-python/blob/main/src/openai/types/chat/completion_create_params.py"
)

FAMILIES: tuple[GptFamily, ...] = (
    GptFamily(
        names=("gpt-6.1",),
        window=1_050_000,
        efforts=(*LOW_TO_HIGH, "xhigh", "max"),
        chat_tools=False,
        sources=((GATEWAY, "window output_max"), (SOL, "efforts")),
    ),
    GptFamily(
        names=("gpt-6",),
        window=1_000_000,
        efforts=("none", *LOW_TO_HIGH, "xhigh", "max"),
        chat_tools=False,
        sources=((SIX, "window output_max efforts"),),
    ),
    GptFamily(names=("gpt-daybreak", "gpt-rosalind"), chat_tools=False),
    GptFamily(
        names=("gpt-5.6",),
        efforts=("none", *LOW_TO_HIGH, "xhigh", "max"),
        chat_tools=False,
        sources=((FIVE_SIX, "efforts"), (CHAT_FIVE_SIX, "chat_tools")),
    ),
    GptFamily(
        names=("gpt-5.5", "gpt-5.4"),
        efforts=("none", *LOW_TO_HIGH, "xhigh"),
        chat_tools=False,
        sources=((TOOLS, "efforts"), (CHAT_FIVE_FOUR, "chat_tools")),
    ),
    GptFamily(
        names=("gpt-5.3", "gpt-5.2"),
        efforts=("none", *LOW_TO_HIGH, "xhigh"),
        chat_tools=False,
        sources=((TOOLS, "efforts"),),
    ),
    GptFamily(
        names=("gpt-5.5-pro", "gpt-5.2-pro"),
        efforts=("medium", "high", "xhigh"),
        chat_tools=False,
    ),
    GptFamily(names=("gpt-5.1",), efforts=("none", *LOW_TO_HIGH), sources=((AZURE, "efforts"),)),
    GptFamily(
        names=("gpt-5.1-codex-max",),
        efforts=(*LOW_TO_HIGH, "xhigh"),
        chat_tools=False,
        sources=((AZURE, "efforts"),),
    ),
    GptFamily(
        names=("gpt-5-pro",), efforts=("high",), chat_tools=False, sources=((AZURE, "efforts"),)
    ),
    GptFamily(names=("gpt-5",), efforts=("minimal", *LOW_TO_HIGH), sources=((AZURE, "efforts"),)),
    GptFamily(
        names=("o1", "o3", "o4-mini", "codex-mini", "computer-use-preview"),
        window=200_000,
        output_max=100_000,
        sources=((TOOLS, "efforts"), (SDK_CHAT, "sampling")),
    ),
    *(
        GptFamily(names=names, window=window, output_max=output_max, efforts=(), sampling=True)
        for names, window, output_max in (
            (("gpt-5.3-chat", "gpt-5.2-chat", "gpt-5.1-chat", "gpt-5-chat"), 128_000, 16_384),
            (("gpt-4.1",), 1_047_576, 32_768),
            (("gpt-4o", "chatgpt-4o", "gpt-audio"), 128_000, 16_384),
            (("gpt-4-turbo", "gpt-4-0125", "gpt-4-1106", "gpt-4-vision"), 128_000, 4_096),
            (("gpt-4-32k",), 32_768, 32_768),
            (("gpt-4",), 8_192, 8_192),
            (("gpt-3.5-turbo",), 16_385, 4_096),
        )
    ),
)

NEWEST = FAMILIES[0]


def effort_for(effort: str | None, family: GptFamily | None) -> str | None:
    """The effort in the family's words: the nearest below, else its lowest. None if the family has none."""
    if effort is None or family is None:
        return effort
    return nearest(effort, _ORDER, family.efforts) if family.efforts else None


def chat_effort(effort: str | None, family: GptFamily | None, *, has_tools: bool) -> str | None:
    """The effort over Chat Completions: `none` with tools, for a family that refuses to reason then."""
    if has_tools and family is not None and not family.chat_tools and "none" in family.efforts:
        return "none"
    return effort_for(effort, family)


def takes_sampling(family: GptFamily | None, effort: str | None) -> bool:
    """Whether `temperature` and `top_p` may be sent. A model that is told not to reason takes them."""
    return family is None or family.sampling or effort == "none"


def length_max(tokens: int | None, family: GptFamily | None) -> int | None:
    """The length that a client asks for, within the family's bound."""
    return tokens if tokens is None or family is None else min(tokens, family.output_max)


_SAMPLING = frozenset({"temperature", "top_p"})
_FREE = frozenset({"frequency_penalty", "presence_penalty", "logit_bias", "stop"})
"""What a family that reasons never takes."""


def ignored_by(family: GptFamily | None) -> frozenset[str]:
    """The parameters that a family never takes, by our names."""
    if family is None:
        return frozenset()
    refused = frozenset() if family.sampling else _FREE
    if not family.sampling and "none" not in family.efforts:
        refused |= _SAMPLING
    return refused if family.reasons else refused | {"reasoning_effort"}


def gpt_family(model: str) -> GptFamily | None:
    """The row of a model; None for one that is not in the table."""
    return find_family(FAMILIES, model.lower())


_OPENAI = re.compile(r"gpt-(?!oss)|o\d|codex-|chatgpt-|computer-use-")
"""The beginnings of the names of models that OpenAI alone makes."""


@lru_cache  # every request of a turn asks
def rules_for(model: str) -> GptFamily | None:
    """The row that holds for a model: its own, or `NEWEST` for one of OpenAI's that is not in the table. None for the
    models of others, of which nothing is known."""
    return gpt_family(model) or (NEWEST if _OPENAI.match(model.lower()) else None)


def taken_for(model: str) -> str:
    """The family whose rules hold for a model of OpenAI's that is not in the table; empty for other models."""
    return NEWEST.names[0] if gpt_family(model) is None and rules_for(model) else ""
